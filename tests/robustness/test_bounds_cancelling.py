"""Bounds hold where the run cancels large numbers, and where code jumps between formulas."""
# pyright: reportCallIssue=false, reportOperatorIssue=false

from fractions import Fraction

import pytest
import torch
from torch import nn

from vademecum.robustness import crown_bounds, interval_bounds

BOTH = pytest.mark.parametrize("bounds", [interval_bounds, crown_bounds])


@BOTH
def test_shifts_that_cancel_in_batch_normalisation(bounds):
    for _ in range(10):
        net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)).eval()
        norm = net[1]
        norm.running_mean.copy_(100 * torch.randn(6))
        norm.running_var.copy_(torch.rand(6) + 0.1)
        norm.bias.data = norm.running_mean / (norm.running_var + norm.eps).sqrt()  # nothing is left
        x = torch.rand(20, 4)
        found = bounds(net, x, norm="linf", radius=0.0)
        with torch.no_grad():
            alone = torch.cat([net(row[None]) for row in x])
        assert (alone >= found.lower).all()
        assert (alone <= found.upper).all()


@BOTH
@pytest.mark.parametrize("arithmetic", ["real", "float"])
def test_softplus_jumps_where_it_becomes_the_identity(bounds, arithmetic):
    net = nn.Sequential(nn.Linear(1, 1), nn.Softplus()).double()
    net[0].weight.data.fill_(1.0)
    net[0].bias.data.fill_(19.5)
    middle = torch.tensor([[0.5]], dtype=torch.float64)
    ends = middle + torch.tensor([[-1e-12], [1e-12]], dtype=torch.float64)
    below, above = net(ends).flatten().tolist()
    assert below - above > 2e-9
    found = bounds(net, middle, norm="linf", radius=1e-12, arithmetic=arithmetic)
    assert found.lower.item() <= above
    assert found.upper.item() >= below


@BOTH
def test_large_means_that_cancel_are_no_mixture_of_examples(bounds):
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).eval()
    net[0].bias.data = 1e5 * torch.randn(6)
    net[1].running_mean.copy_(net[0].bias.data)
    net[1].running_var.fill_(1e-2)
    x = torch.rand(5, 4)
    found = bounds(net, x, norm="linf", radius=0.0)
    with torch.no_grad():
        assert (net(x) >= found.lower).all()
        assert (net(x) <= found.upper).all()


class Thrice(nn.Module):
    """A value that is read by three steps, which only move its entries."""

    def __init__(self, unit: nn.Module):
        super().__init__()
        self.unit = unit

    def forward(self, x):
        h = self.unit(x)
        return torch.cat([h, h.flip(1), h.roll(1, 1)], 1)


@pytest.mark.parametrize("unit", [nn.Identity(), nn.ReLU()])
@pytest.mark.parametrize("arithmetic", ["real", "float"])
def test_coefficients_that_cancel_where_three_ways_meet(unit, arithmetic):
    """Of b + a - a nothing is left of b's last digits, which the bound must pay for."""
    for _ in range(5):
        x = torch.rand(1, 2, dtype=torch.float64) + 0.5
        b, a = torch.rand(2, dtype=torch.float64) * torch.tensor([1.0, 2.0**40])
        spec = torch.zeros(1, 6, dtype=torch.float64)
        spec[0, 0], spec[0, 3], spec[0, 5] = b, a, -a  # all of the first entry
        found = crown_bounds(Thrice(unit), x, norm="linf", radius=0.0, box=None, spec=spec,
                             arithmetic=arithmetic)  # fmt: skip
        exact = Fraction(b.item()) * Fraction(x[0, 0].item())
        assert Fraction(found.lower.item()) <= exact <= Fraction(found.upper.item())
        assert found.upper.item() - found.lower.item() < 0.01


class Insists(nn.Module):
    """Code that insists on single precision, before or after its layers."""

    def __init__(self, before: bool):
        super().__init__()
        self.layers, self.before = (
            nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)),
            before,
        )

    def forward(self, x):
        return self.layers(x.float()) if self.before else self.layers(x).float()


@pytest.mark.parametrize("before", [True, False])
def test_code_that_insists_on_its_dtype(before):
    net, x = Insists(before), torch.rand(5, 4)
    wide = interval_bounds(net, x, norm="linf", radius=0.1)
    found = crown_bounds(net, x, norm="linf", radius=0.1, max_iter=2)
    plain = crown_bounds(net.layers, x, norm="linf", radius=0.1, max_iter=2)
    assert (found.lower >= wide.lower).all()
    assert (found.upper <= wide.upper).all()
    torch.testing.assert_close(found.lower, plain.lower, rtol=0, atol=1e-3)
    with torch.no_grad():
        for _ in range(20):
            z = net((x + 0.1 * torch.randn_like(x).sign()).clamp(0, 1))
            assert ((z >= found.lower) & (z <= found.upper)).all()
    with pytest.raises(ValueError, match=r"model (does not take|must consist)"):
        crown_bounds(net, x, norm="linf", radius=0.1, arithmetic="real")
