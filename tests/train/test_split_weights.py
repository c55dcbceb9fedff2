"""Weights that are split among processes go where whole ones go, whatever trains them."""

import os

import torch
import torch.distributed.fsdp  # here, so that it is not imported in every process anew
import torch.distributed.tensor
from torch import Tensor, nn

from tests.train.forks import ONLY_FRESH, together
from tests.train.objectives import Regression, joined, tell, told, train, weights
from vademecum.train._sharing import SHARDINGS
from vademecum.train.recipes._optimizers import make_optimizer

pytestmark = ONLY_FRESH


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def both(path, work) -> tuple[Tensor, Tensor]:
    """What some work comes to in two processes, with whole and with split weights."""

    def all_work() -> None:
        for sharding in SHARDINGS:
            found = weights(work(sharding=sharding).objective)
            told(path / f"{sharding}-{rank()}", found)

    assert together(2, joined(all_work)) == [0, 0]
    ddp, fsdp = (tell(path / f"{sharding}-0") for sharding in SHARDINGS)
    return ddp, fsdp


def test_steps_in_which_processes_have_unequally_many_micro_batches(tmp_path):
    def work(**options):
        return train(Regression(), batch_size=3, accumulate=2, steps=4, **options)

    ddp, fsdp = both(tmp_path, work)
    torch.testing.assert_close(ddp, fsdp, rtol=0, atol=1e-5)
    whole = weights(train(Regression(), batch_size=3, steps=4).objective)
    torch.testing.assert_close(fsdp, whole, rtol=0, atol=1e-5)


def test_an_optimiser_by_name_finds_the_matrices_of_split_weights(tmp_path):
    def work(**options):
        objective = Regression()
        maker = make_optimizer("muon", objective, lr=0.05)
        return train(objective, optimizer=maker, **options)

    ddp, fsdp = both(tmp_path, work)
    torch.testing.assert_close(ddp, fsdp, rtol=0, atol=1e-5)


def transposed(seed: int = 0) -> Regression:
    """Weights that lie in memory by columns."""
    objective = Regression(seed=seed)
    for block in objective.blocks:
        assert isinstance(block, nn.Linear)
        block.weight = nn.Parameter(block.weight.detach().T.contiguous().T)
    return objective


def test_weights_that_lie_in_memory_by_columns(tmp_path):
    ddp, fsdp = both(tmp_path, lambda **options: train(transposed(), **options))
    torch.testing.assert_close(ddp, fsdp, rtol=0, atol=1e-5)
    whole = weights(train(Regression()).objective)
    torch.testing.assert_close(ddp, whole, rtol=0, atol=1e-5)


class Steep(nn.Module):
    """A map whose last output alone has a gradient that overflows in float16 for a while."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.map = nn.Linear(3, 4)

    def losses(self, batch):
        out = self.map(batch[0])
        return {"model": (out * torch.tensor([0.1, 0.1, 0.1, 100.0])).mean()}


def test_a_step_that_overflows_in_one_process_is_left_out_by_all(tmp_path):
    def work(**options):
        return train(Steep(), precision="float16", **options)

    ddp, fsdp = both(tmp_path, work)
    torch.testing.assert_close(ddp, fsdp, rtol=0, atol=1e-5)
    norms = work().history["norm"]
    assert norms.isinf().any()  # some steps were left out
    assert norms.isfinite().any()
