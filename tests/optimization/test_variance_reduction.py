"""SVRG against its recursion written in NumPy, and the closures that it refuses."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from vademecum.optimization import SVRG

N, D = 12, 3
A = torch.randn(N, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
B = torch.randn(N, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
DRAWN = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


def recursion(eta: float, period: int, average: bool) -> np.ndarray:
    a, b = A.numpy(), B.numpy()

    def slope(x: np.ndarray, i: int) -> np.ndarray:
        return a[i] * (a[i] @ x - b[i])

    x = w = full = np.zeros(D)
    seen: list[np.ndarray] = []
    for t, i in enumerate(DRAWN):
        if t % period == 0:
            w, full, seen = x, a.T @ (a @ x - b) / N, []
        seen.append(x)
        x = x - eta * (slope(x, i) - slope(w, i) + full)
        if average and t % period == period - 1:
            x = np.mean(seen, 0)
    return x


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("period", [1, 4, 5])
@pytest.mark.parametrize("snapshot", ["last", "average"])
def test_svrg_is_its_recursion(snapshot, period, foreach):
    x = nn.Parameter(torch.zeros(D, dtype=torch.float64))

    def closure(rows):
        x.grad = None
        loss = (A[rows] @ x - B[rows]).square().mean() / 2
        loss.backward()
        return loss

    full = slice(None)
    optimizer = SVRG([x], 0.05, period, lambda: closure(full), snapshot=snapshot, foreach=foreach)
    for i in DRAWN:
        optimizer.step(lambda i=i: closure([i]))
    wanted = recursion(0.05, period, snapshot == "average")
    assert x.detach().numpy() == pytest.approx(wanted, rel=1e-12)


def steps(net: nn.Module, count: int = 1, **options):
    """Some steps on a batch; the closure leaves clearing the gradients to the optimiser."""
    x, y = A.float(), B.float()[:, None]

    def closure():
        loss = mse_loss(net(x[:4]), y[:4])
        loss.backward()
        return loss

    def full():
        loss = mse_loss(net(x), y)
        loss.backward()
        return loss

    chosen = {"lr": 0.1, "period": 3, "full_closure": full, **options}
    optimizer = SVRG(net.parameters(), **chosen)
    for _ in range(count):
        optimizer.step(closure)
    return optimizer


def test_a_closure_that_repeats_is_fine():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(D, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 1))
    net.eval()
    steps(net, 4)
    net = nn.Sequential(nn.Linear(D, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    net.eval()
    steps(net, 4)


def augmented() -> nn.Module:
    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.randn_like(x)

    return nn.Sequential(Noisy(), nn.Linear(D, 1))


REFUSED = [
    (
        lambda: nn.Sequential(nn.Linear(D, 8), nn.Dropout(0.5), nn.Linear(8, 1)),
        r"must repeat its gradient at one point, got two that differ by .* Dropout is in training",
    ),
    (augmented, r"must repeat its gradient .* as of augmented examples"),
    (
        lambda: nn.Sequential(nn.Linear(D, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)),
        "BatchNorm1d in training mode",
    ),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_closures_without_a_gradient_of_their_own_are_refused(make, message):
    torch.manual_seed(0)
    net = make()
    before = [p.detach().clone() for p in net.parameters()]
    with pytest.raises(ValueError, match=message):
        steps(net)
    assert all(map(torch.equal, net.parameters(), before))


def test_parameters_come_back_from_the_snapshot_also_after_errors():
    x = nn.Parameter(torch.zeros(1))

    def full():
        x.grad = None
        (x - 1).square().sum().backward()

    optimizer = SVRG([x], 0.25, 5, full)
    optimizer.step(full)
    with pytest.raises(KeyError):
        optimizer.step(lambda: {}["nothing"])
    assert x.item() == 0.5


LINEAR = nn.Linear(D, 1)
NONE: Any = None
ERRORS = [
    (lambda: SVRG(LINEAR.parameters(), 0.1, 3, NONE), "full_closure must be a function.*NoneType"),
    (
        lambda: steps(LINEAR, 0).step(),
        "closure must be a function that evaluates a batch, got None",
    ),
    (lambda: steps(LINEAR, period=0), "period must be >= 1, got 0"),
    (lambda: steps(LINEAR, period=2.5), "period must be an integer, got 2.5"),
    (lambda: steps(LINEAR, snapshot="random"), "snapshot must be one of 'last', 'average'"),
    (lambda: steps(LINEAR, full_closure=lambda: 0.0), "full_closure must call backward"),
    (lambda: steps(LINEAR, full_closure=lambda: A), r"full_closure must return one number.*12, 3"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("act", "message"), ERRORS)
def test_errors(act, message):
    with pytest.raises(ValueError, match=message):
        act()


def test_a_group_added_within_a_period_begins_another():
    x, y = (nn.Parameter(torch.zeros(1, dtype=torch.float64)) for _ in range(2))

    def closure():
        x.grad = y.grad = None
        loss = ((x - 1).square() + (y - 2).square()).sum() / 2
        loss.backward()
        return loss

    optimizer = SVRG([x], 0.5, 4, closure)
    optimizer.step(closure)
    optimizer.add_param_group({"params": [y]})
    optimizer.step(closure)
    assert (x.item(), y.item()) == (0.75, 1.0)


def test_a_gradient_that_is_zero_at_first_does_not_repeat_either():
    x = nn.Parameter(torch.ones(2))
    factors = iter([1.0, 0.0, 1.0])

    def closure():
        x.grad = None
        loss = next(factors) * x.sum()
        loss.backward()
        return loss

    with pytest.raises(ValueError, match=r"two that differ by 1e\+02 %"):
        SVRG([x], 0.5, 4, closure).step(closure)
