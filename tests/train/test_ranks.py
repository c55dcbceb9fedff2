"""Several processes do what one does: the same steps, batches and checkpoints."""

import gc
import os
import shutil
import signal
import time
import warnings
from functools import partial

import pytest
import torch
import torch.distributed.fsdp  # here, so that it is not imported in every process anew
import torch.distributed.tensor
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.train.forks import ONLY_FRESH, alone, ends, fork, together
from tests.train.objectives import (
    Game,
    Ragged,
    Regression,
    data,
    joined,
    tell,
    texts,
    told,
    train,
    weights,
)
from vademecum.train._ranks import Ranks, restarted
from vademecum.train._sharing import SHARDINGS
from vademecum.train.checkpoints import newest_checkpoint
from vademecum.train.recipes._optimizers import make_optimizer
from vademecum.train.recipes._transfer import paces

pytestmark = ONLY_FRESH
ADAM = partial(torch.optim.AdamW, lr=0.05)


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def scored(objective: nn.Module) -> dict[str, float]:
    x = torch.linspace(-1, 1, 12).reshape(4, 3)
    return {"error": float(objective(x).square().mean())}


def test_two_processes_do_what_one_does(tmp_path):
    def work() -> None:
        run = train(Regression())
        told(tmp_path / f"plain-{rank()}", weights(run.objective))
        few = train(Regression(), batch_size=1, steps=3)  # fewer examples than processes
        told(tmp_path / f"few-{rank()}", weights(few.objective))
        run = train(Regression(noisy=True), steps=3)
        told(tmp_path / f"noisy-{rank()}", weights(run.objective))

    assert together(2, joined(work)) == [0, 0]
    found = tell(tmp_path / "plain-0")
    torch.testing.assert_close(found, weights(train(Regression()).objective), rtol=0, atol=1e-6)
    one = weights(train(Regression(), batch_size=1, steps=3).objective)
    torch.testing.assert_close(tell(tmp_path / "few-0"), one, rtol=0, atol=1e-6)
    for name in ("plain", "few", "noisy"):  # also statistics of batches, at the end of a step
        assert torch.equal(tell(tmp_path / f"{name}-0"), tell(tmp_path / f"{name}-1"))


def test_split_weights_do_what_whole_ones_do(tmp_path):
    options = {
        "optimizer": ADAM, "clip": 0.5, "average": 0.9, "evaluate": scored, "score": "error",
        "evaluate_every": 3, "accumulate": 2, "schedule": "cosine",
    }  # fmt: skip

    def work() -> None:
        for sharding in ("ddp", "fsdp"):
            folder = tmp_path / sharding
            run = train(Regression(), sharding=sharding, folder=folder, **options)
            told(tmp_path / f"{sharding}-{rank()}", (weights(run.objective), run.scores["error"]))
        # A checkpoint of one goes on as the other, and its moments and averages with it.
        run = train(
            Regression(seed=1), sharding="fsdp", folder=tmp_path / "ddp", resume=True,
            change=["steps"], **{**options, "steps": 12},
        )  # fmt: skip
        told(tmp_path / f"on-{rank()}", weights(run.objective))

    assert together(2, joined(work)) == [0, 0]
    (one, score), (other, other_score) = (tell(tmp_path / f"{name}-0") for name in ("ddp", "fsdp"))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
    assert score == pytest.approx(other_score, abs=1e-5)
    checkpoints = [newest_checkpoint(tmp_path / n / "checkpoints")[0] for n in ("ddp", "fsdp")]
    for file, tensors in checkpoints[0].tensors.items():
        its = checkpoints[1].tensors[file]
        assert {n: x.shape for n, x in tensors.items()} == {n: x.shape for n, x in its.items()}
    with pytest.warns(UserWarning, match="processes were 2 and are 1 now"):
        run = train(
            Regression(seed=2), folder=tmp_path / "fsdp", resume=True,
            change=["steps"], **{**options, "steps": 12},
        )  # fmt: skip
    torch.testing.assert_close(tell(tmp_path / "on-0"), weights(run.objective), rtol=0, atol=1e-5)


def test_micro_batches_of_ragged_texts_add_up_to_one_batch(tmp_path):
    def work() -> None:
        run = train(Ragged(), texts(), batch_size=20, accumulate=4)
        told(tmp_path / "found", weights(run.objective)) if rank() == 0 else None

    assert together(2, joined(work)) == [0, 0]
    whole = weights(train(Ragged(), texts(), batch_size=20).objective)
    torch.testing.assert_close(tell(tmp_path / "found"), whole, rtol=0, atol=1e-12)


def test_players_take_their_turns_in_two_processes(tmp_path):
    def work() -> None:
        told(tmp_path / f"game-{rank()}", weights(train(Game(), **options).objective))
        with pytest.raises(ValueError, match="sharding must be 'ddp' for an objective with sever"):
            train(Game(), sharding="fsdp", **options)

    options = {"optimizer": {"first": ADAM, "second": ADAM}, "accumulate": 2}
    assert together(2, joined(work)) == [0, 0]
    one = weights(train(Game(), **options).objective)
    torch.testing.assert_close(tell(tmp_path / "game-1"), one, rtol=0, atol=1e-12)


def test_what_rests_in_two_processes_rests_as_in_one(tmp_path):
    def frozen() -> torch.Tensor:
        game = Game()
        game.second.requires_grad_(False)
        return weights(train(game, optimizer={"first": ADAM, "second": ADAM}).objective)

    def probed() -> torch.Tensor:
        objective = Regression().double()
        found = paces(objective, probe_steps=4)
        maker = make_optimizer("adam", objective, lr=0.05, paces=found)
        given = tuple(part.double() for part in data())
        return weights(train(objective, given, optimizer=maker, clip=0.1).objective)

    def work() -> None:
        told(tmp_path / f"frozen-{rank()}", frozen())
        told(tmp_path / f"probed-{rank()}", probed())

    assert together(2, joined(work)) == [0, 0]
    for name, one in (("frozen", frozen()), ("probed", probed())):
        torch.testing.assert_close(tell(tmp_path / f"{name}-1"), one, rtol=0, atol=1e-10)


class Fickle(Regression):
    """Uses its second block in the first micro-batch of a step alone, and frees its head late."""

    def __init__(self):
        super().__init__()
        self.double()
        self.head.requires_grad_(False)

    def before_step(self, step: int) -> None:
        self.head.requires_grad_(step >= 3)

    def losses(self, batch):
        x, y = (part.double() for part in batch)
        first = bool(x[0, 0] > 0)
        hidden = self.blocks[0](x).tanh()
        hidden = self.blocks[1](hidden) if first else hidden
        return {"model": (self.head(hidden) - y).square().mean()}


def test_parameters_that_are_unused_or_freed_now_and_then(tmp_path):
    def work() -> None:
        told(tmp_path / f"fickle-{rank()}", weights(train(Fickle(), accumulate=3).objective))

    assert together(2, joined(work)) == [0, 0]
    found = [tell(tmp_path / f"fickle-{r}") for r in range(2)]
    assert torch.equal(*found)


# Going on


def test_saved_by_two_goes_on_with_one_or_four_on_the_same_batches(tmp_path):
    def begin() -> None:
        train(Regression(), folder=tmp_path / "run", steps=4)

    def go_on() -> None:
        size = int(os.environ.get("WORLD_SIZE", "1"))
        objective = Regression(seed=3)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run = train(objective, folder=tmp_path / str(size), resume=True, change=["steps"])
        lines = [str(warning.message) for warning in caught]
        assert [f"processes were 2 and are {size} now" in x for x in lines] == [True] * (rank() < 1)
        told(tmp_path / f"{size}-{rank()}", (objective.seen, weights(run.objective)))

    assert together(2, begin) == [0, 0]
    for size in (1, 4):
        shutil.copytree(tmp_path / "run", tmp_path / str(size))
    assert alone(go_on) == 0
    assert together(4, go_on) == [0, 0, 0, 0]
    whole = Regression()
    end = weights(train(whole).objective)
    for size in (1, 4):
        found = [tell(tmp_path / f"{size}-{r}") for r in range(size)]
        assert {x for seen, _ in found for x in seen} == set(whole.seen[4 * 7 :])
        torch.testing.assert_close(found[0][1], end, rtol=0, atol=1e-6)


def test_two_processes_go_on_with_the_same_bits(tmp_path):
    def work(sharding: str) -> None:
        given = {"optimizer": ADAM, "average": 0.9, "sharding": sharding, "batch_size": 10}
        run = train(Regression(noisy=True), **given)
        told(tmp_path / f"whole-{sharding}-{rank()}", weights(run.objective))
        folder = tmp_path / sharding
        train(Regression(noisy=True), folder=folder, **given, steps=4)
        other = Regression(noisy=True, seed=5)
        run = train(other, folder=folder, resume=True, change=["steps"], **given)
        told(tmp_path / f"resumed-{sharding}-{rank()}", weights(run.objective))

    assert together(2, joined(lambda: [work(sharding) for sharding in SHARDINGS])) == [0, 0]
    for sharding in SHARDINGS:
        names = [f"{name}-{sharding}-{r}" for name in ("whole", "resumed") for r in range(2)]
        first, *others = [tell(tmp_path / name) for name in names]
        assert all(torch.equal(first, other) for other in others)


def test_a_signal_to_one_ends_all_at_the_same_step(tmp_path):
    def work() -> None:
        class Asked(Regression):
            def losses(self, batch):
                if rank() == 1 and len(self.seen) > 9:
                    os.kill(os.getpid(), signal.SIGTERM)
                return super().losses(batch)

        run = train(Asked(), folder=tmp_path / "run")
        told(tmp_path / f"end-{rank()}", (run.stopped, run.steps))

    assert together(2, work) == [0, 0]
    assert tell(tmp_path / "end-0") == tell(tmp_path / "end-1") == ("signal", 4)
    assert newest_checkpoint(tmp_path / "run" / "checkpoints")[0].step == 4


def test_processes_hand_numbers_to_each_other(tmp_path):
    def work() -> None:
        here = Ranks(rank(), 3)
        assert [int(x) for x in here.total(rank(), torch.tensor(1.0))] == [3, 3]
        assert here.any(rank() == 2, False) == [True, False]
        assert here.first([rank() + 0.1, 7]) == [0.1, 7]
        assert here.first_text("ä" * (rank() + 1) if rank() else "naïve") == "naïve"
        found = here.gathered({"x": torch.tensor([rank()])})
        assert {name: int(x["x"]) for name, x in found.items()} == {"0": 0, "1": 1, "2": 2}

    assert together(3, joined(work)) == [0, 0, 0]


def test_processes_meet_again_where_they_have_met(tmp_path):
    """As when a recipe trains a teacher first, under torchrun, whose store outlives a group."""
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    place = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port, "WORLD_SIZE": 2,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }  # fmt: skip

    def work() -> None:
        for i in range(2):
            told(tmp_path / f"{i}-{rank()}", weights(train(Regression()).objective))
            time.sleep(1 - rank())  # so that one finds what the other has left

    assert ends([fork(work, RANK=r, LOCAL_RANK=r, **place) for r in range(2)]) == [0, 0]
    one = weights(train(Regression()).objective)
    for name in ("0-0", "0-1", "1-0", "1-1"):
        torch.testing.assert_close(tell(tmp_path / name), one, rtol=0, atol=1e-6)


def test_watchers_are_gone_before_processes_part(tmp_path, monkeypatch):
    """The last one would end the threads of their group while it holds what they wait for."""

    def work() -> None:
        part = torch.distributed.destroy_process_group

        def look_and_part() -> None:
            kept = sum(type(x) is DistributedDataParallel for x in gc.get_objects())
            told(tmp_path / f"kept-{rank()}", kept)
            part()

        monkeypatch.setattr(torch.distributed, "destroy_process_group", look_and_part)
        train(Regression())

    assert together(2, work) == [0, 0]
    assert [tell(tmp_path / f"kept-{r}") for r in range(2)] == [0, 0]


def test_one_alone_is_the_ordinary_case(monkeypatch):
    one = Ranks()
    assert (one.main, one.total(2, 3), one.any(True), one.first([1.5])) == (
        True, [2, 3], [True], [1.5]
    )  # fmt: skip
    assert one.first_text("text") == "text"
    assert not restarted()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert restarted()
