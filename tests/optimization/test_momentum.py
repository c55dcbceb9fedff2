"""Heavy ball and Nesterov against their recursions in NumPy, and against torch's momentum."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vademecum.optimization import HeavyBall, Nesterov

START = np.array([-1.2, 1.0])
RATES = [1e-3, 1e-3, 5e-4, 0.0, 2e-3, 2e-3, 0.0, 1e-3] * 4


def rosenbrock(x: Tensor) -> Tensor:
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


def slope(x: np.ndarray) -> np.ndarray:
    inner = x[1] - x[0] ** 2
    return np.array([-2 * (1 - x[0]) - 400 * x[0] * inner, 200 * inner])


def heavy_ball(rates: list[float], beta: list[float]) -> np.ndarray:
    before = x = START
    for eta, b in zip(rates, beta, strict=True):
        x, before = x - eta * slope(x) + b * (x - before), x
    return x


def nesterov(rates: list[float], beta: list[float]) -> tuple[np.ndarray, np.ndarray]:
    before = x = y = START
    for eta, b in zip(rates, beta, strict=True):
        x, before = y - eta * slope(y), x
        y = x + b * (x - before)
    return x, y


def walk(optimizer: torch.optim.Optimizer, x: Tensor, rates: list[float], beta=None) -> np.ndarray:
    for t, eta in enumerate(rates):
        optimizer.param_groups[0]["lr"] = eta
        if beta is not None:
            optimizer.param_groups[0]["momentum"] = beta[t]
        optimizer.zero_grad()
        rosenbrock(x).backward()
        optimizer.step()
    return x.detach().numpy()


def start() -> nn.Parameter:
    return nn.Parameter(torch.tensor(START))


MOMENTA = [0.9, 0.5, 0.0, 0.0, 0.9, 0.3, 0.9, 0.9] * 4


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("rates", [[1e-3] * 30, RATES], ids=["constant", "changing"])
def test_heavy_ball_is_its_recursion(foreach, rates):
    x = start()
    found = walk(HeavyBall([x], lr=1e-3, momentum=0.9, foreach=foreach), x, rates)
    assert found == pytest.approx(heavy_ball(rates, [0.9] * len(rates)), rel=1e-11)


def test_heavy_ball_with_a_changing_momentum():
    x = start()
    found = walk(HeavyBall([x], lr=1e-3), x, RATES, MOMENTA)
    assert found == pytest.approx(heavy_ball(RATES, MOMENTA), rel=1e-11)


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("rates", [[1e-3] * 30, RATES], ids=["constant", "changing"])
@pytest.mark.parametrize("momentum", [0.9, 0.0, None])
def test_nesterov_is_its_recursion(foreach, rates, momentum):
    x = start()
    optimizer = Nesterov([x], lr=1e-3, momentum=momentum, foreach=foreach)
    ahead = walk(optimizer, x, rates)
    steps = range(1, len(rates) + 1)
    beta = [(t - 1) / (t + 2) if momentum is None else momentum for t in steps]
    iterate, wanted = nesterov(rates, beta)
    assert ahead == pytest.approx(wanted, rel=1e-10)
    with optimizer.iterates():
        assert x.detach().numpy() == pytest.approx(iterate, rel=1e-10)
    assert (x.detach().numpy() == ahead).all()


def test_nesterov_with_a_changing_momentum():
    x = start()
    found = walk(Nesterov([x], lr=1e-3, momentum=0.5), x, RATES, MOMENTA)
    assert found == pytest.approx(nesterov(RATES, MOMENTA)[1], rel=1e-11)


def test_the_iterates_give_way_also_to_errors():
    x = start()
    optimizer = Nesterov([x], lr=1e-3, momentum=0.9)
    ahead = walk(optimizer, x, [1e-3] * 5).copy()
    with pytest.raises(KeyError), optimizer.iterates():
        raise KeyError
    assert (x.detach().numpy() == ahead).all()


@pytest.mark.parametrize("ours", [HeavyBall, Nesterov])
def test_a_constant_rate_is_torchs_momentum(ours):
    x, y = start(), start()
    peer = torch.optim.SGD([y], lr=1e-3, momentum=0.9, nesterov=ours is Nesterov)
    found = walk(ours([x], lr=1e-3, momentum=0.9), x, [1e-3] * 50)
    assert found == pytest.approx(walk(peer, y, [1e-3] * 50), rel=1e-11)


def test_torchs_momentum_rescales_the_way_so_far():
    """On a plane of slope 1 torch's second displacement is eta_2 (1 + beta), ours eta_2 + beta."""
    found = []
    for kind in (HeavyBall, torch.optim.SGD):
        x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        optimizer = kind([x], lr=1.0, momentum=0.5)
        for eta in (1.0, 0.25):
            optimizer.param_groups[0]["lr"] = eta
            x.grad = torch.ones_like(x)
            optimizer.step()
        found.append(-x.item())
    assert found == [1 + 0.25 + 0.5, 1 + 0.25 * 1.5]


def test_parameters_that_lack_gradients_keep_their_way():
    """The second one rests while the rate changes: its displacement remains what it was."""
    x, y = (torch.zeros(1, dtype=torch.float64, requires_grad=True) for _ in range(2))
    optimizer = HeavyBall([x, y], lr=1.0, momentum=0.5)
    for eta, both in ((1.0, True), (0.25, False), (0.25, True)):
        optimizer.param_groups[0]["lr"] = eta
        x.grad = torch.ones_like(x)
        y.grad = torch.ones_like(y) if both else None
        optimizer.step()
    assert y.item() == -(1 + 0.25 + 0.5)
    assert x.item() == -(1 + 0.75 + 0.25 + 0.375)


def test_without_momentum_it_is_gradient_descent_bit_by_bit():
    x, y = start(), start()
    found = walk(HeavyBall([x], lr=1e-3, momentum=0.0), x, [1e-3] * 20)
    assert (found == walk(torch.optim.SGD([y], lr=1e-3), y, [1e-3] * 20)).all()


@pytest.mark.parametrize("kind", [HeavyBall, Nesterov])
@pytest.mark.parametrize("foreach", [None, True, False])
def test_complex_parameters_are_pairs_of_real_ones(kind, foreach):
    z = nn.Parameter(torch.tensor([1 + 2j, -0.5j], dtype=torch.complex128))
    x = nn.Parameter(torch.view_as_real(z.detach()).clone())
    scale = torch.tensor([1.0, 3.0], dtype=torch.float64)
    a, b = (kind([p], lr=0.1, momentum=0.8, foreach=foreach) for p in (z, x))
    for _ in range(6):
        for p, optimizer in ((z, a), (torch.view_as_complex(x), b)):
            optimizer.zero_grad()
            (scale * p.abs().square()).sum().backward()
            optimizer.step()
    torch.testing.assert_close(torch.view_as_real(z.detach()), x.detach(), rtol=1e-12, atol=1e-12)


NONE: Any = None
ERRORS = [
    (lambda p: HeavyBall(p, lr=0.1, momentum=1.0), "momentum must be < 1, got 1.0"),
    (lambda p: HeavyBall(p, lr=0.1, momentum=-0.1), "momentum must be >= 0, got -0.1"),
    (lambda p: HeavyBall(p, lr=0.1, momentum=NONE), "momentum must be a number, got None"),
    (lambda p: Nesterov(p, lr=0.1, momentum=float("nan")), "momentum must be >= 0, got nan"),
    (lambda p: Nesterov(p, lr=0.1, momentum=1.5), "momentum must be < 1, got 1.5"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("act", "message"), ERRORS)
def test_errors(act, message):
    with pytest.raises(ValueError, match=message):
        act([start()])
