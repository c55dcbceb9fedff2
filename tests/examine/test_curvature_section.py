"""The curvature section where there is room for few vectors, as with large networks."""

import math

import pytest
import torch
from torch import nn

from vademecum.examine import _study, examine
from vademecum.examine._study import Study


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
    if vectors >= 40:  # room for the gradient of one example at a time, of which there are 60
        assert found["gradient_noise_scale"].n == 60
    assert 0 <= found.negative_share <= 1
    products = found["negative_share"].n
    assert products is not None
    assert 8 <= products <= max(8, vectors)


@pytest.mark.parametrize(
    ("width", "most", "planned"),
    [(2, 1000, 1000), (64, 1000, 2**32 // (64**2 * 9 * 16 * 64)), (64, 50, 50), (256, 1000, 64)],
)
def test_large_networks_are_passed_by_fewer_examples(width, most, planned):
    """As many as 2^32 multiply-adds are enough for, but 64."""
    study = Study(nn.Conv2d(16, width, 3, padding=1), torch.zeros(2, 16, 64, 64))
    assert study.multiply_adds == 64**2 * 9 * 16 * width
    assert study.planned(most) == planned


def test_the_section_of_a_large_network_is_whole(monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    monkeypatch.setattr(_study, "_PASS", 20 * (6 * 8 + 8 * 3))
    monkeypatch.setattr(_study, "_LEAST", 10)
    x, y, draw = torch.randn(60, 6), torch.randint(3, (60,)), torch.Generator().manual_seed(0)
    dossier = examine(model, x, y, sections=["curvature"], budget=math.inf, generator=draw)
    found = dossier["curvature"]
    assert found.status == "measured", found.reason
    assert found["largest_eigenvalue"].n == 20
