"""Flows: determinants, inverses, densities, contexts, gradients, refusals."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tests.generative.flow_makers import COUPLINGS, MAKERS, jacobians, made, points
from vademecum.generative import (
    MAF,
    Compose,
    LinearFlow,
    PlanarFlow,
    RealNVP,
    SplineFlow,
    Transformed,
)

NAMES = list(MAKERS)


@pytest.mark.parametrize("context", [0, 2])
@pytest.mark.parametrize("name", NAMES)
def test_log_determinants_are_those_of_autograds_jacobian(name, context):
    flow, x = made(name, 5, context), points(4, 5)
    given = points(1, 2)[0] if context else None
    z, log_det = flow(x, given)
    wanted = torch.linalg.slogdet(jacobians(lambda v: flow(v, given).value, x)).logabsdet
    torch.testing.assert_close(log_det, wanted, rtol=0, atol=1e-9)
    back, log_back = flow.inverse(z.detach(), given)
    found = torch.linalg.slogdet(jacobians(lambda v: flow.inverse(v, given).value, z.detach()))
    torch.testing.assert_close(log_back, found.logabsdet, rtol=0, atol=1e-8)
    torch.testing.assert_close(back, x, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_inverses_in_both_precisions(name):
    flow, x = made(name, 7, 3, spread=0.7), points(50, 7)
    given = points(50, 3, seed=2)
    for dtype, tol in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
        flow, x, given = flow.to(dtype), x.to(dtype), given.to(dtype)
        for a, b in ((flow, flow.inverse), (flow.inverse, flow)):
            there, out = a(x, given)
            back, home = b(there, given)
            torch.testing.assert_close(back, x, rtol=0, atol=tol * float(1 + x.abs().max()))
            torch.testing.assert_close(home, -out, rtol=0, atol=100 * tol)
            with torch.no_grad():
                torch.testing.assert_close(b(there, given).value, back, rtol=0, atol=tol)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in COUPLINGS])
def test_densities_integrate_to_one_in_one_dimension(name):
    flow = made(name, 1, spread=0.7, seed=3)
    x = torch.linspace(-60, 60, 200_001, dtype=torch.float64)[:, None]
    mass = flow.log_prob(x).exp().sum() * (x[1, 0] - x[0, 0])
    assert float(mass.detach()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_densities_integrate_to_one_in_two_dimensions(name):
    """Never above the truth: the rectangle rule on a fine grid, bends included."""
    flow = made(name, 2, 1, spread=0.8, seed=4)
    with torch.no_grad():
        spread = flow.sample(2000, torch.ones(1).double(), generator=torch.Generator())
        low, high = spread.amin(0) - 6, spread.amax(0) + 6
        sides = [
            torch.linspace(float(a), float(b), 601).double() for a, b in zip(low, high, strict=True)
        ]
        grid = torch.cartesian_prod(*sides)
        cell = math.prod(float(side[1] - side[0]) for side in sides)
        mass = sum(
            flow.log_prob(g, torch.ones(1).double()).exp().sum() for g in grid.split(200_000)
        )
    assert float(mass * cell) == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("name", NAMES)
def test_samples_follow_the_density(name):
    """Data drawn by a flow are standard normal noise again, and log-densities agree."""
    flow, context = made(name, 3, 2), points(3000, 2)
    with torch.no_grad():
        x, log_prob = flow.rsample_with_log_prob(3000, context, generator=torch.Generator())
        again = flow.sample(3000, context, generator=torch.Generator())
        torch.testing.assert_close(again, x)
        torch.testing.assert_close(flow.log_prob(x, context), log_prob, rtol=0, atol=1e-8)
        z = flow(x, context).value
    for column in z.T:
        assert stats.kstest(column.numpy(), "norm").pvalue > 1e-6


def test_noise_has_unit_variance():
    """The flow that begins as the identity; five standard errors of a variance."""
    x = LinearFlow(2, kind="diagonal").sample(50_000, generator=torch.Generator())
    torch.testing.assert_close(x.var(0), torch.ones(2), rtol=0, atol=5 * math.sqrt(2 / 50_000))
    torch.testing.assert_close(x.mean(0), torch.zeros(2), rtol=0, atol=5 / math.sqrt(50_000))


def test_densities_of_linear_flows_are_normal():
    for kind in ("qr", "triangular", "diagonal"):
        flow = made({"qr": "qr"}.get(kind, kind), 4)
        b = flow.inverse(torch.zeros(1, 4).double()).value
        A = (flow.inverse(torch.eye(4).double()).value - b).T
        x = points(6, 4)
        wanted = stats.multivariate_normal(b[0].detach(), (A @ A.T).detach()).logpdf(x)
        np.testing.assert_allclose(flow.log_prob(x).detach(), wanted, atol=1e-9)
        if kind == "triangular":
            assert not A.triu(1).any()
        elif kind == "diagonal":
            assert A.equal(A.diagonal().diag())
        else:
            assert float(A.detach().abs().min()) > 1e-4


def test_reflections_are_the_product_of_householder_matrices():
    flow = made("qr", 4)
    Q = torch.eye(4).double()
    for v in flow.reflections.T:
        Q = Q @ (torch.eye(4) - 2 * torch.outer(v, v) / (v @ v))
    U = torch.eye(4) + flow.mixing.triu(1)
    A = Q @ U * flow.log_scale.exp()
    z = points(5, 4)
    torch.testing.assert_close(flow.inverse(z).value, z @ A.T + flow.shift)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_through_samples_are_those_of_differences(name):
    """Also where coordinates follow one by one, or a root is sought; and twice."""
    flow, noise = made(name, 3), points(4, 3, scale=0.5)
    p = next(iter(flow.parameters()))

    def loss():
        x, log_det = flow.inverse(noise)
        return (x.sin().sum() + log_det.square().sum()) / 4

    (grad,) = torch.autograd.grad(loss(), p, create_graph=True)
    step = torch.randn(p.shape, generator=torch.Generator().manual_seed(3)).double()
    (second,) = torch.autograd.grad((grad * step).sum(), p)
    start, h, values, slopes = p.data.clone(), 1e-5, [], []
    for sign in (1, -1):
        p.data = start + sign * h * step
        at = loss()
        values.append(at.detach())
        slopes.append((torch.autograd.grad(at, p)[0] * step).sum())
    assert float((grad * step).sum().detach()) == pytest.approx(
        float(values[0] - values[1]) / (2 * h), rel=1e-5, abs=1e-7
    )
    wanted = float(slopes[0] - slopes[1]) / (2 * h)
    assert float((second * step).sum()) == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def test_planar_flows_are_invertible_for_all_parameters():
    """Where u and w point against each other a thousand times over, and where w vanishes."""
    for activation in ("tanh", "logistic"):
        for size in (0.0, 1e-3, 1.0, 30.0):
            flow = PlanarFlow(3, activation=activation).double()
            flow.w.data = size * torch.tensor([1.0, -2.0, 0.5]).double()
            flow.u.data = -1000 * torch.tensor([1.0, -2.0, 0.5]).double()
            x = points(40, 3)
            z, log_det = flow(x)
            back, home = flow.inverse(z)
            assert torch.isfinite(log_det).all()
            torch.testing.assert_close(back, x, rtol=0, atol=1e-9)
            wanted = torch.linalg.slogdet(jacobians(lambda v, f=flow: f(v).value, x[:3])).logabsdet
            torch.testing.assert_close(log_det[:3], wanted, rtol=0, atol=1e-7)
            grads = torch.autograd.grad(home.sum() + log_det.sum(), list(flow.parameters()))
            assert all(torch.isfinite(g).all() for g in grads)


@pytest.mark.parametrize("activation", ["tanh", "logistic"])
def test_planar_flows_with_a_short_w_and_a_long_u(activation):
    flow = PlanarFlow(2, activation=activation).double()
    flow.w.data = torch.tensor([1e-7, 0.0]).double()
    flow.u.data = torch.tensor([-1e9, 0.0]).double()
    x = points(30, 2)
    z, log_det = flow(x)
    torch.testing.assert_close(flow.inverse(z).log_det, -log_det, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_give_none(name):
    flow = made(name, 3, 2)
    none, context = torch.zeros(0, 3).double(), torch.ones(2).double()
    for value, log_det in (flow(none, context), flow.inverse(none, context)):
        assert value.shape == (0, 3)
        assert log_det.shape == (0,)
    assert flow.log_prob(none, context).shape == (0,)


@pytest.mark.parametrize("activation", ["tanh", "logistic"])
def test_planar_flows_reach_the_limit(activation):
    """Where u points far against w, the slope in the middle is the least that is allowed."""
    flow = PlanarFlow(2, activation=activation).double()
    flow.w.data = torch.tensor([1.0, 2.0]).double()
    flow.u.data, flow.b.data = -50 * flow.w.data, torch.zeros(1).double()
    found = flow(torch.zeros(1, 2).double()).log_det.exp()
    torch.testing.assert_close(found, torch.tensor([1e-3]).double(), rtol=1e-6, atol=0)


class Cubed(nn.Module):
    """A map that somebody else wrote, x + x^3 / 3 in each coordinate."""

    d, context = 2, 0

    def forward(self, x, context=None):
        return x + x**3 / 3, torch.log1p(x.square()).sum(1)

    def inverse(self, z, context=None):
        x = 2 * torch.sinh(torch.asinh(1.5 * z) / 3)
        return x, -torch.log1p(x.square()).sum(1)


def test_compose_takes_any_invertible_module():
    flow = Compose([Cubed(), made("qr", 2, 3)])
    x, context = points(5, 2), points(5, 3)
    z, log_det = flow(x, context)
    assert isinstance(flow(x, context), Transformed)
    wanted = torch.linalg.slogdet(jacobians(lambda v: flow(v, context[:1]).value, x[:1])).logabsdet
    torch.testing.assert_close(log_det[:1], wanted)
    torch.testing.assert_close(flow.inverse(z, context).value, x)
    plain = Compose([Cubed()])
    assert plain.sample(3).shape == (3, 2)
    assert plain.log_prob(torch.zeros(1, 2)).item() == pytest.approx(-math.log(2 * math.pi))


def test_networks_of_ones_own_are_used_and_scales_are_limited():
    calls = []

    def network(inputs, outputs):
        calls.append((inputs, outputs))
        return nn.Linear(inputs, outputs)

    flow: Any = RealNVP(5, transforms=3, context=2, network=network, max_log_scale=0.5)
    assert calls == [(3 + 2, 2 * 2), (2 + 2, 2 * 3), (3 + 2, 2 * 2)]
    for layer in flow.networks:
        layer.bias.data.fill_(1e6)
    log_det = flow(torch.randn(50, 5), torch.randn(2)).log_det
    torch.testing.assert_close(log_det, torch.full((50,), 0.5 * 7))
    free: Any = RealNVP(
        2, transforms=1, network=lambda i, o: nn.Linear(i, o), max_log_scale=math.inf
    )
    free.networks[0].weight.data.fill_(3.0)
    free.networks[0].bias.data.fill_(1.0)
    z, log_det = free(torch.tensor([[2.0, 1.0]]))
    assert log_det.tolist() == [7.0]
    assert z[0, 1].item() == pytest.approx(math.exp(7) + 7, rel=1e-6)


def test_nan_comes_out_as_nan():
    for flow in (RealNVP(2), SplineFlow(2), MAF(2), PlanarFlow(2), LinearFlow(2)):
        found = flow.log_prob(torch.tensor([[0.0, math.nan], [0.0, 1.0]]))
        assert found.isnan().tolist() == [True, False]


@pytest.mark.parametrize("name", NAMES)
def test_each_row_has_its_own_context(name):
    flow, x, context = made(name, 3, 2), points(4, 3), points(4, 2, seed=5)
    alone = [flow.log_prob(a[None], c) for a, c in zip(x, context, strict=True)]
    torch.testing.assert_close(flow.log_prob(x, context), torch.cat(alone))
    moved = flow.log_prob(x, context) - flow.log_prob(x, context.flip(0))
    assert moved.detach().abs().min() > 1e-3, "the context counts"


def test_contexts_move_parameters_linearly():
    """A flow with a context is the flow without, whose parameters were moved."""
    context = points(1, 2)[0]
    for kind in ("qr", "diagonal"):
        flow, plain = made(kind, 3, 2), made(kind, 3)
        plain.load_state_dict({k: v for k, v in flow.state_dict().items() if k != "moved.weight"})
        scale, shift = flow.moved(context).chunk(2)
        plain.log_scale.data += scale.detach()
        plain.shift.data += shift.detach()
        torch.testing.assert_close(flow.inverse(points(4, 3), context), plain.inverse(points(4, 3)))
    flow, plain = made("planar, tanh", 3, 2), made("planar, tanh", 3)
    moves = flow.moved(context).detach().split([3, 3, 1])
    for p, own, move in zip(
        (plain.u, plain.w, plain.b), (flow.u, flow.w, flow.b), moves, strict=True
    ):
        p.data = own.data + move
    torch.testing.assert_close(flow(points(4, 3), context), plain(points(4, 3)))


@pytest.mark.parametrize("activation", ["tanh", "logistic"])
def test_inverses_of_planar_flows_have_two_derivatives(activation):
    flow = made(f"planar, {activation}", 3, seed=2).requires_grad_(False)
    z = points(3, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: tuple(flow.inverse(z)), (z,))
    assert torch.autograd.gradgradcheck(lambda z: tuple(flow.inverse(z)), (z,))
