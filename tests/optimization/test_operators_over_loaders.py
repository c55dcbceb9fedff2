"""Curvature over loaders, within memory limits and by several processes: the same numbers."""

import os
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed as dist
from torch import multiprocessing, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from tests.gradients.test_per_example import AcrossExamples
from vademecum.gradients import functional, gradient, hessian, hvp
from vademecum.models import mlp
from vademecum.optimization import fisher, gauss_newton, gradient_covariance

OPERATORS: dict[str, Any] = {
    "hessian": hessian,
    "gauss_newton": gauss_newton,
    "fisher": fisher,
    "empirical": partial(fisher, kind="empirical"),
    "gradient_covariance": gradient_covariance,
}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


X = torch.randn(17, 3, generator=seeded(0)).double()
Y = torch.randint(4, (17,), generator=seeded(1))
PADDED = Y.where(torch.arange(17) % 3 > 0, -100)
REAL = torch.randn(17, 4, generator=seeded(2)).double()


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return mlp([3, 5, 4], nn.Tanh).double()


V = torch.randn(functional(net()).size, 2, generator=seeded(3)).double()


def loader(y=Y, size=5, **knobs) -> DataLoader:
    return DataLoader(TensorDataset(X, y), batch_size=size, **knobs)


@pytest.mark.parametrize("name", OPERATORS)
def test_batches_and_portions_are_all_data_at_once(name):
    make = OPERATORS[name]
    y = Y if name == "gradient_covariance" else PADDED
    wanted, small = make(net(), X, y) @ V, 16 * 1024
    for found in (
        make(net(), loader(y)),
        make(net(), loader(y, shuffle=True)),
        make(net(), X, y, memory=small),
        make(net(), X, y, memory=2**24),
        make(net(), loader(y, shuffle=True, size=11), memory=small),
    ):
        torch.testing.assert_close(found @ V, wanted)
        torch.testing.assert_close(found @ V, wanted)


def test_tokens_that_are_padded_count_for_nothing():
    words = nn.Sequential(nn.Embedding(6, 3), nn.Linear(3, 6)).double()
    x = torch.randint(6, (7, 4), generator=seeded(0))
    y = torch.where(torch.rand(7, 4, generator=seeded(1)) < 0.5, -100, x)
    y[-1] = -100  # a batch without any

    def loss(z, y):
        return F.cross_entropy(z.flatten(0, 1), y.flatten())

    batches = DataLoader(TensorDataset(x, y), batch_size=3)
    for make in (hessian, gauss_newton, fisher):
        wanted = make(words, x, y, loss=loss).dense()
        torch.testing.assert_close(make(words, batches, loss=loss).dense(), wanted)
    torch.testing.assert_close(
        gradient(words, batches, loss=loss), gradient(words, x, y, loss=loss)
    )


@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "gradient_covariance"])
def test_classes_may_be_bytes(name):
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0]).double() if name == "hessian" else None
    make = partial(OPERATORS[name], loss=nn.CrossEntropyLoss(weights))
    for n in (17, 4):  # as many examples as classes, too
        wanted = make(net(), X[:n], Y[:n]) @ V
        torch.testing.assert_close(make(net(), X[:n], Y[:n].byte()) @ V, wanted)
    wanted = make(net(), X, Y) @ V
    torch.testing.assert_close(make(net(), loader(Y.byte())) @ V, wanted)


def test_examples_whose_targets_are_all_ignored_may_go_in_portions():
    y = Y.where((torch.arange(17) % 8 > 0), -100)  # the first, the middle one and the last
    for make in (hessian, gauss_newton, fisher):
        torch.testing.assert_close(make(net(), X, y, memory=2**13) @ V, make(net(), X, y) @ V)


def test_sums_are_added():
    def loss(z, y):
        return F.mse_loss(z, y, reduction="sum")

    for make in (hessian, gauss_newton, fisher):
        wanted = make(net(), X, REAL, loss=loss) @ V
        torch.testing.assert_close(make(net(), loader(REAL), loss=loss) @ V, wanted)
        torch.testing.assert_close(make(net(), X, REAL, loss=loss, memory=16 * 1024) @ V, wanted)


class Changing(TensorDataset):
    """Examples with noise that is not torch's."""

    random = np.random.default_rng(0)

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + self.random.normal(), y


class Dropping:
    """A sampler that leaves out another example each time."""

    def __init__(self):
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        return (i for i in range(17) if i != self.passes)

    def __len__(self) -> int:
        return 16


@pytest.mark.parametrize("name", OPERATORS)
def test_other_examples_at_the_next_pass_are_refused(name):
    message = "x must bring the same examples at each pass"
    changing = OPERATORS[name](net(), DataLoader(Changing(X, Y), batch_size=6))
    dropping = OPERATORS[name](net(), loader(sampler=Dropping()))
    for found in (changing, dropping):
        with pytest.raises(ValueError, match=message):
            _ = torch.stack([found @ V for _ in range(2)])


class Shuffling(Dropping):
    """A sampler with an order of its own each time, and all examples."""

    random = np.random.default_rng(0)

    def __iter__(self):
        return iter(self.random.permutation(17).tolist())

    def __len__(self) -> int:
        return 17


def test_another_order_does_no_harm():
    G = gauss_newton(net(), loader(sampler=Shuffling()))
    torch.testing.assert_close(G @ V, G @ V)


def share(rank: int, file: str, kind: str, found: Any) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    try:
        if kind == "sampler":
            few = TensorDataset(X[:16], Y[:16])
            sampler = DistributedSampler(few, 2, rank, shuffle=False)
            made = [gauss_newton(net(), DataLoader(few, batch_size=3, sampler=sampler)) @ V]
        elif kind == "equal":
            torch.manual_seed(4)
            made = [make(net(), loader(shuffle=True)) @ V for make in OPERATORS.values()]
            made.append(gauss_newton(net(), loader(size=17)) @ V)  # one batch for two processes
        else:
            torch.manual_seed(rank)
            other = kind == "another block"
            block, shuffle = (V + rank, False) if other else (V, True)
            try:
                made = [gauss_newton(net(), loader(shuffle=shuffle)) @ block]
            except ValueError as error:
                made = [str(error)]
        found.put((rank, [a.numpy() if isinstance(a, torch.Tensor) else a for a in made]))
    finally:
        dist.destroy_process_group()


def in_two_processes(kind: str, tmp_path) -> list[Any]:
    context = multiprocessing.get_context("spawn")
    found = context.SimpleQueue()
    run = [
        context.Process(target=share, args=(r, f"{tmp_path}/{kind}", kind, found)) for r in (0, 1)
    ]
    for process in run:
        process.start()
    answers = dict(found.get() for _ in run)
    for process in run:
        process.join()
    return [[torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in answers[r]]
            for r in (0, 1)]  # fmt: skip


@pytest.mark.slow
def test_two_processes_share_the_batches(tmp_path):
    one, other = in_two_processes("equal", tmp_path)
    wanted = [make(net(), X, Y) @ V for make in OPERATORS.values()]
    for mine, yours, alone in zip(one, other, [*wanted, wanted[1]], strict=True):
        assert torch.equal(mine, yours)
        torch.testing.assert_close(mine, alone, rtol=1e-6, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "message"),
    [("another order", "x must bring the same batches"), ("another block", "the same block")],
)
def test_processes_that_disagree_are_told(kind, message, tmp_path):
    for answer in in_two_processes(kind, tmp_path):
        assert message in answer[0]


@pytest.mark.slow
def test_a_sampler_has_shared_the_examples_already(tmp_path):
    one, other = in_two_processes("sampler", tmp_path)
    assert torch.equal(one[0], other[0])
    torch.testing.assert_close(one[0], gauss_newton(net(), X[:16], Y[:16]) @ V)


def absolute(z, y):
    return (z - y).abs().pow(1.5).sum()


ERRORS = [
    (lambda: hessian(net(), X, Y, memory=0), "memory must be >= 1, got 0"),
    (lambda: hessian(net(), X, Y, memory=99), "memory must be >= .* bytes for one example, got 99"),
    (lambda: hvp(net(), X, Y, V, memory=100), "memory must be >= .* bytes for one example"),
    (
        lambda: gauss_newton(AcrossExamples(3, 2).double(), X, Y % 2, memory=2**13),
        "memory can be kept to only where examples do not influence each other",
    ),
    (
        lambda: gauss_newton(net(), X, REAL, loss=absolute, memory=2**14),
        "the loss is a mean over them, but for a few it is .* at once and .* one by one",
    ),
    (lambda: fisher(net(), DataLoader(TensorDataset(X[:0], Y[:0]))) @ V, "an empty DataLoader"),
    (lambda: fisher(net(), loader(), Y) @ V, "y must be None where x is a DataLoader"),
    (lambda: gauss_newton(net(), loader(0 * Y - 100)) @ V, "with terms in their loss, got none"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("act", "message"), ERRORS)
def test_errors(act, message):
    with pytest.raises(ValueError, match=message):
        act()
