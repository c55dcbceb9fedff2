"""The curvature section where there is room for few vectors, as with large networks."""

import math

import pytest
import torch
from torch import nn

from vademecum.examine import examine


@pytest.mark.parametrize("vectors", [8, 40, 70, 200])
def test_few_vectors_fit(vectors):
    """Two probes at least, of fewer steps: no more products than vectors that may be kept."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 300), nn.Tanh(), nn.Linear(300, 3))
    x, y = torch.randn(60, 6), torch.randint(3, (60,))
    own = sum(4 * p.numel() for p in model.parameters())
    found = examine(model, x, y, sections=["curvature"], budget=math.inf, memory=vectors * own,
                    generator=torch.Generator().manual_seed(0))["curvature"]  # fmt: skip
    assert found.status == "measured", found.reason
    assert 0 <= found.negative_share <= 1
    products = found["negative_share"].n
    assert products is not None
    assert 8 <= products <= max(8, vectors)
