"""The solver on functions whose minimum is known, against the dense update."""

import math

import pytest
import torch

from vademecum.linear._lbfgs import _direction, minimise
from vademecum.linear._penalised_likelihood import PenalisedLikelihood


class Quadratic:
    def __init__(self, a, b, inverse=None):
        self.a, self.b, self.calls = a, b, 0
        self.inverse = torch.eye(len(b), dtype=torch.float64) if inverse is None else inverse

    def __call__(self, theta):
        self.calls += 1
        return float(theta @ self.a @ theta / 2 - self.b @ theta), self.a @ theta - self.b

    def preconditioner(self, theta):
        return lambda v: self.inverse @ v

    def refine(self):
        return False


def positive(n, condition):
    q = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64)).Q
    return q @ torch.diag(torch.logspace(0, math.log10(condition), n).double()) @ q.T


@pytest.mark.parametrize(("n", "condition"), [(1, 1.0), (5, 10.0), (40, 1e4)])
def test_quadratic(n, condition):
    a, b = positive(n, condition), torch.randn(n, dtype=torch.float64)
    found = minimise(Quadratic(a, b), torch.zeros(n).double(), tol=1e-9, max_iter=1000)
    assert found.gradient <= 1e-9
    torch.testing.assert_close(found.theta, torch.linalg.solve(a, b), rtol=1e-6, atol=1e-8)
    exact = Quadratic(a, b, torch.linalg.inv(a))
    assert minimise(exact, torch.zeros(n).double(), tol=1e-9, max_iter=9).n_iter <= 2


def test_direction_is_that_of_the_dense_update():
    n, pairs = 12, 5
    a, p = positive(n, 100.0), positive(n, 10.0)
    steps = torch.randn(pairs, n, dtype=torch.float64)
    scaled = [(s / (s @ a @ s).sqrt(), a @ s / (s @ a @ s).sqrt()) for s in steps]
    last = scaled[-1][1]
    h = p / (last @ p @ last)
    for s, y in scaled:
        left = torch.eye(n, dtype=torch.float64) - torch.outer(s, y)
        h = left @ h @ left.T + torch.outer(s, s)
    g = torch.randn(n, dtype=torch.float64)
    torch.testing.assert_close(_direction(g, lambda v: p @ v, scaled), -h @ g)
    torch.testing.assert_close(_direction(last, lambda v: p @ v, scaled), -scaled[-1][0])


def test_stops_where_told_and_where_rounding_ends():
    a, b = positive(30, 1e3), torch.randn(30, dtype=torch.float64)
    assert minimise(Quadratic(a, b), torch.zeros(30).double(), tol=1e-9, max_iter=3).n_iter == 3
    f = Quadratic(a, b)
    found = minimise(f, torch.zeros(30).double(), tol=1e-300, max_iter=10_000)
    assert found.gradient < 1e-11
    assert f.calls < 500


def test_steps_shrink_when_the_model_is_wrong():
    steep = Quadratic(torch.eye(2).double(), torch.ones(2).double(), 1e6 * torch.eye(2).double())
    found = minimise(steep, torch.zeros(2).double(), tol=1e-9, max_iter=10)
    torch.testing.assert_close(found.theta, torch.ones(2).double())


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_value_gradient_and_preconditioner_against_autograd(k, bias):
    n, d = 50, 4
    x, s = torch.randn(n, d).double(), torch.rand(n).double()
    y = torch.rand(k, n).double()
    y = y / y.sum(0) if k > 1 else y
    f = PenalisedLikelihood(x, y, s, weight_decay=0.3, bias=bias)

    def dense(theta):
        w, b = theta.view(k, d + 1)[:, :d], theta.view(k, d + 1)[:, d] * bias
        z = x @ w.T + b
        log = torch.log(1 + z.exp().sum(1)) if k == 1 else z.exp().sum(1).log()
        return (s * (log - (y.T * z).sum(1))).sum() / s.sum() + 0.15 * w.square().sum()

    theta = torch.randn(k * (d + 1), dtype=torch.float64)
    value, g = f(theta)
    assert value == pytest.approx(float(dense(theta)))
    torch.testing.assert_close(g, torch.func.grad(dense)(theta))
    hessian = torch.func.jacrev(torch.func.grad(dense))(theta)
    solve = f.preconditioner(theta)
    inverse = torch.stack([solve(e) for e in torch.eye(len(theta)).double()])
    for i in range(0, len(theta), d + 1):
        own = slice(i, i + d + bias)  # decay on the bias, and damping, are in the inverse alone
        product = inverse[own, own] @ hessian[own, own]
        assert float((torch.linalg.eigvals(product).real - 1).abs().max()) < 0.8
        assert float((torch.linalg.eigvals(product).real - 1).abs().min()) < 0.02


def test_a_sampled_block_is_near_the_whole():
    x = torch.randn(20_000, 3) * torch.tensor([1.0, 5.0, 0.1])
    y = (x[:, :1].T > 0).float()
    f = PenalisedLikelihood(x, y, torch.ones(20_000), weight_decay=1e-6)
    theta = torch.tensor([2.0, 0.1, 1.0, 0.5]).double()
    p = (x @ theta[:3].float() + 0.5).sigmoid().double()
    wide = torch.cat([x, torch.ones(20_000, 1)], 1).double()
    hessian = (wide * (p * (1 - p))[:, None]).T @ wide / 20_000
    solve = f.preconditioner(theta)
    product = torch.stack([solve(e) for e in torch.eye(4).double()]) @ hessian
    spread = torch.linalg.eigvals(product).real
    assert float(spread.min()) > 0.8
    assert float(spread.max()) < 1.2


def test_single_precision_hands_over_to_double():
    x = torch.randn(400, 3)
    y = (torch.rand(1, 400) < 0.5).float()
    f = PenalisedLikelihood(x, y, torch.ones(400), weight_decay=0.0)
    found = minimise(f, torch.zeros(4).double(), tol=1e-13, max_iter=100)
    assert found.gradient <= 1e-13
    assert f.dtype == torch.float64
    assert not f.refine()
