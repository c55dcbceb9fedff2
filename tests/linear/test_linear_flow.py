"""Modes of learning: closed forms against quadrature, and trained networks against both."""

import math

import pytest
import torch
from scipy.integrate import quad

from vademecum.linear.landscape import critical_points
from vademecum.linear.linear_flow import draw_modes, linear_network_flow, mode_strengths

DOUBLE = torch.float64
G, T = torch.diag(torch.tensor([2.0, 1.0])), torch.tensor([0.0, 1.0])


def with_singular_values(*sigma, p=4, q=5):
    u, v = (torch.linalg.qr(torch.randn(n, len(sigma), dtype=DOUBLE)).Q for n in (p, q))
    return (u * torch.tensor(sigma, dtype=DOUBLE)) @ v.mT


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_prediction_against_quadrature(depth):
    """The time to reach a strength is the integral of 1 / (L a^(2 - 2/L) (s - a)) from a0."""
    gamma, tau = with_singular_values(3.0, 1.5, 0.8), 1.7
    times = torch.tensor([0.1, 0.4, 0.8], dtype=DOUBLE)
    flow = linear_network_flow(gamma, times, depth=depth, strength=0.05, tau=tau)
    for i, t in enumerate(times.tolist()):
        for s, a in zip((3.0, 1.5, 0.8), flow.predicted[i].tolist(), strict=False):
            slope = lambda a, s=s: depth * a ** (2 - 2 / depth) * (s - a)  # noqa: E731
            needed = quad(lambda a, f=slope: 1 / f(a), 0.05, a, epsabs=1e-12, epsrel=1e-12)[0]
            assert tau * needed == pytest.approx(t, rel=1e-6)


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("width", [None, 6])
def test_measurement_meets_prediction(depth, width):
    gamma = with_singular_values(2.0, 1.0, 0.5)
    times = torch.linspace(0, 8, 9, dtype=DOUBLE)
    flow = linear_network_flow(gamma, times, depth=depth, width=width, strength=0.02)
    torch.testing.assert_close(flow.measured, flow.predicted, rtol=0, atol=1e-5)
    torch.testing.assert_close(flow.measured[0, :3], torch.full((3,), 0.02, dtype=DOUBLE))
    torch.testing.assert_close(flow.singular_values, torch.linalg.svdvals(gamma))
    assert (flow.predicted[:, 3] <= 0.02).all()  # the mode with singular value 0 decays


def test_narrow_networks_learn_the_strongest_modes_alone():
    gamma, times = with_singular_values(3.0, 2.0, 1.0), torch.tensor([0.0, 400.0], dtype=DOUBLE)
    flow = linear_network_flow(gamma, times, width=2, learning_rate=0.1)
    wanted = torch.tensor([3.0, 2.0, 0.0, 0.0], dtype=DOUBLE)
    torch.testing.assert_close(flow.predicted[1], wanted)
    torch.testing.assert_close(flow.measured[1], wanted, rtol=0, atol=1e-9)


def test_gradient_descent_follows_the_flow_to_first_order():
    gamma, times = with_singular_values(2.0, 1.0), torch.linspace(0, 4, 9, dtype=DOUBLE)
    gaps = []
    for rate in (0.04, 0.02, 0.01):
        flow = linear_network_flow(gamma, times, strength=0.05, learning_rate=rate, tau=1.5)
        gaps.append((flow.measured - flow.predicted).abs().max().item())
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.1)
    assert gaps[1] / gaps[2] == pytest.approx(2, rel=0.1)


def test_gradient_descent_step_by_step():
    """One weight a layer: w <- w - rate (w^2 - 4) w, from w = 1."""
    times = torch.tensor([0.0, 0.1, 0.2, 0.25])
    flow = linear_network_flow(torch.tensor([[4.0]]), times, strength=1.0, learning_rate=0.1)
    first = 1 + 0.1 * 3
    second = first + 0.1 * (4 - first**2) * first
    third = second + 0.1 * (4 - second**2) * second
    wanted = [1.0, first**2, second**2, (second**2 + third**2) / 2]
    assert flow.measured[:, 0].tolist() == pytest.approx(wanted, rel=1e-5)
    options = {"depth": 1, "strength": 1.0, "learning_rate": 0.1}  # w <- w - rate (w - 4)
    flow = linear_network_flow(torch.tensor([[4.0]]), times, **options)
    wanted = [1.0, 1.3, 1.57, (1.57 + 1.813) / 2]
    assert flow.measured[:, 0].tolist() == pytest.approx(wanted, rel=1e-5)


def test_noise_moves_the_measurement_only():
    gamma, times = with_singular_values(2.0, 1.0), torch.linspace(0, 6, 4, dtype=DOUBLE)
    clean = linear_network_flow(gamma, times)
    draws = [
        linear_network_flow(gamma, times, noise=0.01, generator=torch.Generator().manual_seed(1))
        for _ in range(2)
    ]
    assert torch.equal(draws[0].predicted, clean.predicted)
    assert torch.equal(draws[0].measured, draws[1].measured)
    assert 1e-4 < (draws[0].measured - clean.measured).abs().max() < 0.5
    torch.testing.assert_close(draws[0].measured[-1], clean.measured[-1], rtol=0, atol=1e-2)


def test_long_times_and_single_precision():
    gamma, times = torch.diag(torch.tensor([3.0, 0.0])), torch.tensor([0.0, 100.0])
    for depth in (1, 2, 3):
        flow = linear_network_flow(gamma, times, depth=depth, learning_rate=0.05)
        assert flow.predicted.dtype == flow.measured.dtype == torch.float32
        assert flow.predicted[1, 0] == pytest.approx(3.0)
        assert flow.measured[1, 0] == pytest.approx(3.0, rel=1e-5)
        assert 0 <= flow.predicted[1, 1] <= 1e-3


def test_only_the_start():
    for depth in (1, 2, 3):
        flow = linear_network_flow(G, T[:1], depth=depth, strength=0.25)
        torch.testing.assert_close(flow.predicted, torch.full((1, 2), 0.25))
        torch.testing.assert_close(flow.measured, torch.full((1, 2), 0.25))


def test_steps_are_small_enough_for_a_wide_noisy_start():
    """Where the weights are far larger than their product."""
    flow = linear_network_flow(G.double(), 0.01 * T.double(), width=3000, noise=1.0)
    torch.testing.assert_close(flow.measured[1], G.double().diagonal())


def test_mode_strengths():
    gamma, a = torch.randn(3, 4, dtype=DOUBLE), torch.randn(3, 4, dtype=DOUBLE)
    u, s, vh = torch.linalg.svd(gamma, full_matrices=False)
    torch.testing.assert_close(mode_strengths(a, gamma), (u.mT @ a @ vh.mT).diagonal())
    torch.testing.assert_close(mode_strengths(gamma, gamma), s)


def test_draw_modes():
    flow = linear_network_flow(torch.diag(torch.tensor([2.0, 1.0])), torch.linspace(0, 6, 5))
    (axes,) = draw_modes(flow).axes
    lines = axes.get_lines()
    assert len(lines) == 4
    assert lines[0].get_ydata() == pytest.approx(flow.predicted[:, 0].tolist())
    assert lines[3].get_ydata() == pytest.approx(flow.measured[:, 1].tolist())
    assert axes.get_legend_handles_labels()[1] == ["s = 2", "s = 1"]
    assert draw_modes(flow, axes) is axes.figure


@pytest.mark.parametrize(("r", "width"), [(1, 1), (2, 1), (3, 2), (3, 3), (3, 5), (4, 2)])
def test_critical_points(r, width):
    sigma = torch.arange(r, 0, -1, dtype=DOUBLE)
    gamma = with_singular_values(*sigma.tolist())
    points = critical_points(gamma, width)
    assert len(points) == sum(math.comb(r, j) for j in range(min(r, width) + 1))
    assert len({point.modes for point in points}) == len(points)
    for point in points:
        wanted = torch.tensor([s if i in point.modes else 0.0 for i, s in enumerate(sigma)])
        torch.testing.assert_close(mode_strengths(point.product, gamma)[:r], wanted.double())
        assert point.loss == pytest.approx((point.product - gamma).square().sum().item() / 2)
    assert [p.loss for p in points] == sorted(p.loss for p in points)
    assert [p.modes for p in points if p.saddle_index == 0] == [tuple(range(min(r, width)))]
    assert points[-1].saddle_index == r * width  # at zero


ERRORS = [
    (lambda: linear_network_flow(G[0], T), "gamma must have 2 axes"),
    (lambda: linear_network_flow(G * math.nan, T), "gamma must be finite, got nan"),
    (lambda: linear_network_flow(G.long(), T), "gamma must be floating point"),
    (lambda: linear_network_flow(G, T[:0]), "times must not be empty"),
    (lambda: linear_network_flow(G, -T), r"times must ascend from 0 or later, got \[-0.0, -1.0\]"),
    (lambda: linear_network_flow(G, T - 1), "times must ascend from 0 or later"),
    (lambda: linear_network_flow(G, T, depth=0), "depth must be >= 1, got 0"),
    (lambda: linear_network_flow(G, T, width=0), "width must be >= 1, got 0"),
    (lambda: linear_network_flow(G, T, strength=0.0), "strength must be > 0, got 0"),
    (lambda: linear_network_flow(G, T, tau=-1.0), "tau must be > 0, got -1"),
    (lambda: linear_network_flow(G, T, noise=-1.0), "noise must be >= 0, got -1"),
    (lambda: linear_network_flow(G, T, learning_rate=0.0), "learning_rate must be > 0, got 0"),
    (
        lambda: linear_network_flow(G, 500 * T, strength=1.0, learning_rate=5.0),
        "learning_rate must be smaller: the weights diverge at 5",
    ),
    (lambda: mode_strengths(G[:, :1], G), r"product must have the shape \(2, 2\) of gamma"),
    (lambda: mode_strengths(G * math.nan, G), "product must be finite, got nan"),
    (lambda: critical_points(G, 0), "width must be >= 1, got 0"),
    (lambda: critical_points(torch.eye(2), 1), "gamma must have distinct singular values"),
    (lambda: critical_points(G * math.inf, 1), "gamma must be finite"),
    (
        lambda: critical_points(torch.diag(torch.arange(1.0, 31.0)), 15),
        "gamma must have at most 100000 critical points, got 614429672",
    ),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
@pytest.mark.usefixtures("unchecked")
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_cuda(depth):
    gamma, times = with_singular_values(2.0, 1.0), torch.linspace(0, 3, 4, dtype=DOUBLE)
    gpu = linear_network_flow(gamma.cuda(), times.cuda(), depth=depth, strength=0.05)
    cpu = linear_network_flow(gamma, times, depth=depth, strength=0.05)
    assert gpu.predicted.is_cuda
    torch.testing.assert_close(gpu.predicted.cpu(), cpu.predicted)
    torch.testing.assert_close(gpu.measured.cpu(), cpu.measured)
