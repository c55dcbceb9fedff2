"""Steps that win nothing: quadratics in closed form, and losses of networks looked at on a grid."""

import math

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from vademecum.gradients import functional, gradient
from vademecum.models import mlp
from vademecum.optimization import critical_step, sharpness
from vademecum.testing import check_instrument

X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)).double()
Y = torch.arange(12) % 3
Z = torch.randn(12, 1, generator=torch.Generator().manual_seed(1)).double()


@pytest.mark.parametrize("start", [None, 1e-7, 1e4])
@pytest.mark.parametrize("given", [False, True])
def test_critical_step_of_a_quadratic(given, start):
    net = nn.Linear(3, 1, bias=False).double()
    g, H = gradient(net, X, Z), 2 * X.T @ X / 12
    d = -g + 0.3 * torch.randn(3).double() * g.norm() / 3 if given else -g
    found = critical_step(net, X, Z, direction=d if given else None, start=start, tol=1e-6)
    wanted = float(-2 * (g @ d) / (d @ H @ d))
    assert found.value == pytest.approx(wanted, rel=1e-6)
    assert found.curvature == pytest.approx(2 / wanted, rel=1e-6)
    assert found.loss == pytest.approx(F.mse_loss(net(X), Z).item())
    assert found.converged
    assert found.passes <= (9 if start is None else 25)


@pytest.mark.parametrize("unit", [nn.Tanh, nn.ReLU])
def test_critical_step_of_a_network(unit):
    torch.manual_seed(0)
    net = mlp([3, 16, 3], unit).double()
    found = critical_step(net, X, Y, tol=1e-5)
    f, d = functional(net), -gradient(net, X, Y)

    def gain(eta):
        return float(F.cross_entropy(f(f.theta + eta * d, X), Y)) - found.loss

    assert gain(found.value * (1 - 2e-5)) < 0 <= gain(found.value * (1 + 2e-5))
    assert all(gain(found.value * share) < 0 for share in torch.linspace(0.01, 0.99, 50).tolist())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("chance", range(5))
def test_critical_step_in_half_precision(chance, dtype):
    """The loss, and so its zero, is known up to the rounding of a few sums on the way."""
    torch.manual_seed(chance)
    net = mlp([3, 8, 3], nn.Tanh).to(dtype)
    found = critical_step(net, X.to(dtype), Y)
    net.double()
    wanted, f, d = critical_step(net, X, Y, tol=1e-6), functional(net), -gradient(net, X, Y)
    eta = torch.tensor(wanted.value, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(F.cross_entropy(f(f.theta + eta * d, X), Y), eta)
    rounding = 8 * torch.finfo(dtype).eps * (1 + wanted.loss)
    assert abs(found.value - wanted.value) < 1e-3 * wanted.value + rounding / float(slope)


def test_a_loader_and_forward_passes_alone():
    net, calls = mlp([3, 5, 3], nn.Tanh).double(), []
    d = -gradient(net, X, Y)
    net.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    found = critical_step(net, X, Y, direction=d)
    assert calls == [False] * found.passes
    loader = DataLoader(TensorDataset(X, Y), batch_size=5)
    assert critical_step(net, loader, direction=d).value == pytest.approx(found.value, rel=1e-3)


def test_at_the_top_eigenvector_it_is_that_of_the_sharpness():
    net = nn.Linear(3, 1, bias=False).double()
    found = sharpness(net, X, Z, tol=1e-8)
    d = found.vector * -torch.sign(found.vector @ gradient(net, X, Z))
    b = -float(gradient(net, X, Z) @ d)
    step = critical_step(net, X, Z, direction=d, tol=1e-6).value
    assert step == pytest.approx(found.critical_step * b, rel=1e-6)


class Cliff(nn.Module):
    """A loss that falls, rises, and has no value from some place on."""

    def __init__(self):
        super().__init__()
        self.theta = nn.Parameter(torch.ones(1).double())

    def forward(self, x):
        return torch.where(self.theta < -1.5, math.nan, self.theta**2)


def test_beyond_a_cliff_the_search_turns_back():
    step = critical_step(Cliff(), X, loss=lambda z, _: z, start=3.0, tol=1e-6)
    assert step.value == pytest.approx(1, rel=1e-6)


def test_a_loss_that_does_not_come_back():
    net = nn.Linear(1, 1, bias=False).double()
    x = torch.ones(1, 1).double()
    with pytest.warns(ConvergenceWarning, match="max_iter=5 reached: the loss is still below"):
        found = critical_step(net, x, loss=lambda z, _: z.sum(), max_iter=5)
    assert (found.value, found.curvature, found.converged) == (math.inf, 0.0, False)


def test_a_loss_that_falls_until_it_is_no_number():
    """Halving the way to there comes to an end, however many iterations are allowed."""
    net, x = nn.Linear(1, 1, bias=False).double(), torch.ones(1, 1).double()
    nn.init.ones_(net.weight)
    with pytest.warns(ConvergenceWarning, match="no finite loss beyond: .* at eta = 1"):
        found = critical_step(net, x, direction=-torch.ones(1).double(), max_iter=500,
                              loss=lambda z, _: z.sqrt().sum())  # fmt: skip
    assert (found.value, found.converged) == (math.inf, False)


def test_a_loss_that_is_no_number_on_the_way_is_told():
    """Of (z - 1)^2 the zero is 2, where the line through the ends leads at once."""
    hole = lambda z, _: torch.where((z - 2).abs() < 0.1, math.nan, (z - 1) ** 2).sum()  # noqa: E731
    with pytest.raises(ValueError, match=r"a number within 0\.5 and 4, got nan at eta = 2"):
        critical_step(Places([0.0]), X, direction=torch.ones(1).double(), start=0.5, loss=hole)


def test_a_loss_that_is_infinite_on_the_way_comes_back_there():
    """Of (z - 1)^2 the zero would be 2, but from 1.9 on no step wins."""
    hole = lambda z, _: torch.where((z - 2.1).abs() < 0.2, math.inf, (z - 1) ** 2).sum()  # noqa: E731
    found = critical_step(Places([0.0]), X, direction=torch.ones(1).double(), start=0.5, loss=hole)
    assert found.value == pytest.approx(1.9, rel=1e-3)
    assert found.converged


class Places(nn.Module):
    """Parameters that are the outputs, so that a loss sees where each step leads."""

    def __init__(self, theta):
        super().__init__()
        self.theta = nn.Parameter(torch.as_tensor(theta, dtype=torch.float64))

    def forward(self, x):
        return self.theta + 0 * x.sum()


@pytest.mark.parametrize(("theta", "length"), [([30.0, 40.0], 0.05), ([0.0, 0.0], 1e-3)])
def test_the_first_steps(theta, length):
    """A thousandth of the length of theta, or of one; then at most eight times as far as before."""
    seen, d = [], torch.tensor([2.0, -1.0]).double()

    def loss(z, _):
        seen.append(float((z.detach() - torch.tensor(theta)).norm()))
        return (z * torch.tensor([-1.0, 2.0])).sum()  # which falls for ever

    with pytest.warns(ConvergenceWarning):
        critical_step(Places(theta), X, direction=d, loss=loss, max_iter=8)
    steps = torch.tensor(seen)[1:]
    assert float(steps[0]) == pytest.approx(length)
    torch.testing.assert_close(steps[1:] / steps[:-1], torch.full((6,), 8.0))


@pytest.mark.parametrize("start", [0.1, 0.3, 1.0, 1.9, 2.0, 5.0])
def test_the_first_of_many_steps_that_win_nothing(start):
    """The loss falls until 1, is back at 2, and stays as it is."""
    step = critical_step(
        Places([0.0]), X, direction=torch.ones(1).double(), start=start,
        loss=lambda z, _: ((z - 1).abs() - 1).clamp(max=0).sum(),
    )  # fmt: skip
    assert step.value == pytest.approx(2, rel=1e-3)
    assert step.converged


@pytest.mark.parametrize("tol", [0.2, 0.03, 1e-3])
def test_the_tolerance_is_kept(tol):
    """On losses that are far from quadratic, where a power of z / c meets the line, at c."""
    for p in (2, 3, 8, 20):
        for c in (0.5, 0.9, 1.3):
            step = critical_step(
                Places([0.0]), X, direction=torch.ones(1).double(), tol=tol, start=0.1,
                loss=lambda z, _, p=p, c=c: ((z.abs() / c) ** p - z.abs() / c).sum(),
            )  # fmt: skip
            assert step.value == pytest.approx(c, rel=tol)


def test_max_iter_warns_within_a_bracket():
    net = mlp([3, 16, 3], nn.Tanh).double()
    least = critical_step(net, X, Y, tol=1e-12).passes
    with pytest.warns(ConvergenceWarning, match=f"max_iter={least - 2} reached: the step is known"):
        found = critical_step(net, X, Y, tol=1e-12, max_iter=least - 2)
    assert not found.converged
    assert found.value < math.inf


def test_laws():
    data = torch.randn(6, 5), torch.randn(6, 3)
    without = {"no_parameters": "there is nothing to move"}
    check_instrument(lambda m, d: critical_step(m, *d), nn.Linear(5, 3), data, skip=without)


NET = mlp([3, 4, 3], nn.Tanh).double()
G = gradient(NET, X, Y)
ERRORS = [
    ({"direction": G}, "direction must lead downhill"),
    ({"direction": 0 * G}, "direction must not be zero, got 31 zeros"),
    ({"direction": G[:3]}, "direction must be 31 wide"),
    ({"direction": G * math.nan}, "direction must be finite"),
    ({"start": 0.0}, "start must be > 0, got 0"),
    ({"tol": 1.0}, "tol must be < 1, got 1"),
    ({"max_iter": 0}, "max_iter must be >= 1, got 0"),
    ({"direction": -G, "loss": lambda z, y: z}, "loss must give one number"),
    ({"direction": -G, "loss": lambda z, y: z.sum() / 0}, "loss must be finite at the start"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("options", "message"), ERRORS)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        critical_step(NET, X, Y, **options)


@pytest.mark.parametrize("tol", [0.1, 0.03, 1e-3])
@pytest.mark.parametrize("start", [0.3, 1.9])
@pytest.mark.parametrize("power", [8, 16, 40])
def test_the_error_allowed_where_the_loss_is_flat_and_then_steep(power, start, tol):
    """From 1 down by four, to -3: the secant between two steps says little of it."""
    net = nn.Linear(1, 1, bias=False).double()
    nn.init.ones_(net.weight)

    def loss(z, y):
        return torch.where(z > 0, z**2, (z / 3).abs() ** power).sum()

    down, one = -torch.ones(1).double(), torch.ones(1, 1).double()
    found = critical_step(net, one, 0 * one, direction=down, loss=loss, start=start, tol=tol)
    assert found.converged
    assert abs(found.value - 4) <= tol * 4
