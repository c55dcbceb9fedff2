"""Bounds hold where the run cancels large numbers, and where code jumps between formulas."""
# pyright: reportCallIssue=false, reportOperatorIssue=false

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
