"""The radial network against the composition of two interpolants."""

import math

import numpy as np
import pytest
import torch

from vademecum.approximation.radial import radial_network


@pytest.mark.parametrize(("n", "inner", "outer"), [(1, 2, 1), (2, 7, 5), (5, 10, 30)])
@pytest.mark.parametrize("radius", [1.0, 2.5])
def test_composition(n, inner, outer, radius):
    net = radial_network(torch.cos, n, inner=inner, outer=outer, radius=radius, dtype=torch.float64)
    x = (torch.rand(200, n).double() * 2 - 1) * radius / n**0.5
    t = np.linspace(-radius, radius, inner + 1)
    s = np.linspace(0, radius**2, outer + 1)
    total = np.interp(x.numpy(), t, t**2).sum(1)
    beyond = np.cos(s[-1]) + (total - s[-1]) * (np.cos(s[-1]) - np.cos(s[-2])) / (s[-1] - s[-2])
    expected = np.where(total <= s[-1], np.interp(total, s, np.cos(s)), beyond)
    assert net(x)[:, 0].detach().numpy() == pytest.approx(expected)
    assert net[0].out_features <= n * inner
    assert net[2].out_features <= outer + 1


def test_bound_and_defaults():
    net = radial_network(lambda s: 3 * s, 3, inner=20, outer=4).requires_grad_(False)
    x = torch.nn.functional.normalize(torch.randn(500, 3)) * torch.rand(500, 1)
    gap = net(x)[:, 0] - 3 * x.square().sum(1)
    assert float(gap.min()) >= -1e-5
    assert float(gap.max()) <= 3 * 3 / 20**2 + 1e-5
    assert net(x).dtype == torch.float32


ERRORS = [
    ({"n": 0}, "n must be >= 1, got 0"),
    ({"inner": 1}, "inner must be >= 2, got 1"),
    ({"outer": 0}, "outer must be >= 1, got 0"),
    ({"outer": 1.5}, "outer must be an integer"),
    ({"radius": 0.0}, "radius must be > 0, got 0.0"),
    ({"radius": math.inf}, "radius must be <= .*, got inf"),
    ({"radius": 1e20}, r"radius must be <= 1.84467e\+19, got 1e\+20"),  # its square overflows
    ({"radius": math.nan}, "radius must be .*, got nan"),
    ({"g": torch.log}, r"g\(s\) must be finite, got -inf"),
    ({"g": torch.sum}, r"g\(s\) must have shape \(6,\), got \(\)"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("knobs", "message"), ERRORS)
def test_errors(knobs, message):
    arguments = {"g": torch.cos, "n": 2, "inner": 5, "outer": 5} | knobs
    with pytest.raises(ValueError, match=message):
        radial_network(**arguments)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    x = torch.rand(20, 3)
    there = radial_network(torch.cos, 3, inner=9, outer=9, device="cuda")
    here = radial_network(torch.cos, 3, inner=9, outer=9)
    torch.testing.assert_close(there(x.cuda()).cpu(), here(x))
