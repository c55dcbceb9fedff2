"""Newton's method and its line search against SciPy, closed forms and exact values."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, rosen, rosen_der, rosen_hess_prod
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from vademecum.optimization import NewtonCG, line_search


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def start(d):
    x = torch.ones(d, dtype=torch.float64)
    x[::2] = -1.2
    return x


def descend(x, f, most, **knobs):
    """Values before each step, until the gradient is zero up to rounding."""
    optimizer, values = NewtonCG([x], **knobs), []
    for _ in range(most):
        values.append(optimizer.step(lambda: f(x)))
        if torch.autograd.grad(f(x), x)[0].norm() < 1e-12:
            break
    return values


def test_newton_cg_ends_where_scipy_does_on_rosenbrock():
    x = nn.Parameter(start(40))
    values = descend(x, rosenbrock, 250)
    options = {"gtol": 1e-8, "maxiter": 1000}
    peer = minimize(rosen, start(40).numpy(), method="trust-ncg", jac=rosen_der,
                    hessp=rosen_hess_prod, options=options)  # fmt: skip
    assert peer.success
    np.testing.assert_allclose(x.detach().numpy(), peer.x, atol=1e-7)
    assert all(b <= a for a, b in itertools.pairwise(values))
    assert len(values) <= peer.nit


@pytest.mark.parametrize(("forcing", "rate"), [(None, 2.0), (1.0, 2.0), (0.5, 1.5)])
def test_the_rate_at_the_end(forcing, rate):
    A = torch.randn(6, 6, dtype=torch.float64)
    b = torch.randn(6, dtype=torch.float64)

    def f(x):
        return torch.logsumexp(A @ x + b, 0) + 0.05 * x @ x

    x = nn.Parameter(torch.zeros(6, dtype=torch.float64))
    optimizer, norms = NewtonCG([x], forcing=forcing), []
    for _ in range(60):
        norms.append(float(torch.autograd.grad(f(x), x)[0].norm()))
        if norms[-1] < 1e-13:
            break
        optimizer.step(lambda: f(x))
    assert norms[-1] < 1e-12
    tail = [(a, b) for a, b in itertools.pairwise(norms) if b > 1e-13 and a < 1e-2]
    assert all(b <= 100 * a**rate for a, b in tail)


def test_a_saddle_is_left_and_a_quadratic_solved_at_once():
    y = nn.Parameter(torch.tensor([1.0, 1e-6], dtype=torch.float64))
    descend(y, lambda y: y[0] ** 2 / 2 - y[1] ** 2 / 2 + y[1] ** 4 / 4, 20)
    torch.testing.assert_close(y.detach(), torch.tensor([0.0, 1.0], dtype=torch.float64))
    A = torch.randn(5, 5, dtype=torch.float64)
    A = A @ A.T + torch.eye(5)
    b = torch.randn(5, dtype=torch.float64)
    z = [nn.Parameter(torch.randn(s, dtype=torch.float64)) for s in ((2,), (1, 3))]

    def loss():
        flat = torch.cat([piece.reshape(-1) for piece in z])
        return flat @ A @ flat / 2 + b @ flat

    NewtonCG(z, forcing=None).step(loss)
    flat = torch.cat([piece.detach().reshape(-1) for piece in z])
    torch.testing.assert_close(flat, -torch.linalg.solve(A, b), rtol=0, atol=1e-10)


def test_other_parameters_and_gradients_are_left_alone():
    x, idle, frozen = (nn.Parameter(torch.ones(2)) for _ in range(3))
    frozen.requires_grad_(False)
    x.grad = torch.full((2,), 7.0)
    optimizer = NewtonCG([x, idle, frozen])
    assert optimizer.step(lambda: x @ x + x.sum() * frozen.sum()) == 6.0
    assert x.grad.equal(torch.full((2,), 7.0))
    assert idle.equal(torch.ones(2))
    torch.testing.assert_close(x.detach(), torch.full((2,), -1.0))
    assert optimizer.step(lambda: (x * 0).sum() + 3.0) == 3.0  # no slope, no step
    assert optimizer.step(lambda: x.sum()) == -2.0  # no curvature: as far as doubling pays
    assert x.sum() < -1e6


def test_float32_goes_to_its_rounding():
    x = nn.Parameter(start(3).float())
    optimizer = NewtonCG([x])
    values = [optimizer.step(lambda: rosenbrock(x) + 1) for _ in range(60)]
    assert values[-1] == 1.0
    torch.testing.assert_close(x.detach(), torch.ones(3), rtol=0, atol=1e-3)


def test_products_are_counted_out():
    x = nn.Parameter(torch.randn(30, dtype=torch.float64))
    spectrum = torch.logspace(0, 3, 30, dtype=torch.float64)
    few = NewtonCG([x], max_products=1, forcing=None)
    g = spectrum * x.detach()
    wanted = x.detach() - (g @ g) / (g @ (spectrum * g)) * g  # one step of conjugate gradients
    few.step(lambda: (spectrum * x * x).sum() / 2)
    torch.testing.assert_close(x.detach(), wanted)


def nan_gradient(x):
    return (x - 1).sqrt().sum() + (x * 0).sum()


BAD: list[Any] = [
    (lambda x: x, r"closure must return one number as a tensor, got shape \(2,\)"),
    (lambda x: 3.0, "closure must return one number as a tensor, got float"),
    (lambda x: torch.tensor(1.0), "closure must return a loss that depends on the parameters"),
    (lambda x: x.log().sum() * torch.nan, "the loss must be"),
    (nan_gradient, "the gradient must be finite, got one that is not"),
]


@pytest.mark.parametrize(("f", "message"), BAD)
def test_bad_closures(f, message):
    x = nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match=message):
        NewtonCG([x]).step(lambda: f(x))
    assert x.equal(torch.ones(2))


def test_closures_that_call_backward_or_are_missing():
    x = nn.Parameter(torch.ones(2))

    def closure():
        loss = x @ x
        loss.backward()
        return loss

    with pytest.raises(ValueError, match="closure must return the loss and not call backward"):
        NewtonCG([x]).step(closure)
    with pytest.raises(ValueError, match="closure must be a function that returns the loss"):
        NewtonCG([x]).step()
    assert x.grad is None


@pytest.mark.parametrize(
    ("params", "knobs", "message"),
    [
        ([torch.ones(2)], {"max_products": 0}, "max_products must be >= 1, got 0"),
        ([torch.ones(2)], {"forcing": 0.0}, "forcing must be > 0, got 0.0"),
        ([torch.ones(2)], {"forcing": 1.5}, "forcing must be <= 1, got 1.5"),
        ([{"params": torch.ones(2)}, {"params": torch.ones(3)}], {}, "params must be one group"),
        ([torch.ones(2), torch.ones(2).double()], {}, "params must be real, of one dtype and dev"),
        ([torch.ones(2, dtype=torch.complex64)], {}, "params must be real, of one dtype"),
    ],
)
def test_bad_parameters(params, knobs, message):
    with pytest.raises(ValueError, match=message):
        NewtonCG(params, **knobs)


# The line search


def test_line_search_takes_the_first_step_that_pays():
    for _ in range(20):
        curvature = math.exp(3 * torch.randn(()).item())
        x, c = torch.randn(3, dtype=torch.float64), 0.1 + 0.6 * torch.rand(()).item()
        d = -curvature * x
        # f(x + s d) = f(x) (1 - s curvature)^2, so s pays if s curvature <= 2 (1 - c)
        wanted = 8.0
        count = 1
        while wanted * curvature > 2 * (1 - c):
            wanted, count = wanted * 0.3, count + 1
        found = line_search(lambda x, k=curvature: k * x @ x / 2, x, d, step=8.0, shrink=0.3, c=c)
        assert (found.step, found.evaluations, found.converged) == (wanted, count, True)
        assert found.value == pytest.approx(
            float(curvature * (x @ x) / 2 * (1 - wanted * curvature) ** 2)
        )


def test_line_search_with_a_slope_needs_no_gradient():
    x, d = torch.tensor([1.0]), torch.tensor([-1.0])
    found = line_search(lambda x: float(x @ x), x, d, slope=-2.0, step=4.0)
    assert (found.step, found.value, found.evaluations) == (1.0, 0.0, 3)


def test_line_search_steps_back_from_what_is_not_finite():
    x, d = torch.tensor([1.0]), torch.tensor([-1.0])
    found = line_search(lambda x: x.log().sum() ** 2 + x.sum(), x, d, step=4.0)
    assert found.step == 0.5
    with pytest.warns(ConvergenceWarning, match="3 step sizes were tried, down to 0.25, and none"):
        stuck = line_search(lambda x: (x**2).sum(), x, d, slope=-1000.0, c=0.9, max_iter=3)
    assert (stuck.step, stuck.value, stuck.converged) == (0.0, 1.0, False)


BAD_SEARCHES: list[Any] = [
    ({"direction": torch.ones(1)}, "direction must lead downhill, got a slope of 2"),
    ({"direction": torch.ones(2)}, "direction must be like x"),
    ({"x": torch.ones(1).long()}, "x must be floating point"),
    ({"x": torch.tensor([torch.nan])}, "x must be finite"),
    ({"step": 0.0}, "step must be > 0, got 0.0"),
    ({"shrink": 1.0}, "shrink must be < 1, got 1.0"),
    ({"c": 0.0}, "c must be > 0, got 0.0"),
    ({"slope": 0.0}, "direction must lead downhill, got a slope of 0"),
    ({"max_iter": 0}, "max_iter must be >= 1, got 0"),
    ({"f": lambda x: x.repeat(2)}, r"f must return one number, got a tensor of shape \(2,\)"),
    ({"f": lambda x: float(x @ x)}, "f must be differentiable where no slope is given"),
    ({"f": lambda x: (x @ x) * torch.inf}, r"f\(x\) must be"),
]


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize(("knobs", "message"), BAD_SEARCHES)
def test_bad_searches(knobs, message, unchecked):
    given = {"f": lambda x: x @ x, "x": torch.ones(1), "direction": -torch.ones(1)} | knobs
    f, x, direction = (given.pop(name) for name in ("f", "x", "direction"))
    with pytest.raises(ValueError, match=message):
        line_search(f, x, direction, **given)


def test_attention_and_convolutions_have_second_derivatives():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv1d(4, 8, 1), nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True)
    )
    x, flags = torch.randn(2, 4, 6), torch.backends.cuda.flash_sdp_enabled()
    optimizer = NewtonCG(net.parameters(), max_products=5)
    losses = [optimizer.step(lambda: (net(x) - 1).square().mean()) for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]
    assert torch.backends.cuda.flash_sdp_enabled() == flags
