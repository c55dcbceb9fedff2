"""The curvature section where there is room for few vectors, as with large networks."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.examine import _study, examine
from vademecum.examine._clock import Clock
from vademecum.examine._study import Study
from vademecum.examine.sections import curvature


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


class Together(nn.Module):
    """It takes a single example for a batch of rows."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(36, 3)

    def forward(self, x):
        return self.layer(x.squeeze().flatten(1))


def test_what_an_example_takes_is_seen_from_as_many_as_the_network_takes():
    assert Study(Together(), torch.rand(9, 1, 6, 6)).multiply_adds == 36 * 3
    assert Study(nn.Linear(5, 3), torch.rand(3, 5)).multiply_adds == 15
    assert Study(nn.Embedding(5, 3), torch.zeros(9, 4).long()).multiply_adds == 1


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


def test_products_are_planned_as_they_are_made(monkeypatch):
    """Of those that are affordable, the density has as many as it takes."""
    times, real = [], Clock.affordable

    def noted(self, *rest, **knobs):
        times.append(knobs["times"])
        return real(self, *rest, **knobs)

    monkeypatch.setattr(Clock, "affordable", noted)
    model, x, y = nn.Linear(6, 9), torch.randn(30, 6), torch.randint(9, (30,))
    for memory in (20 * 63 * 4, 200 * 63 * 4):
        dossier: Any = examine(model, x, y, sections=["curvature"], budget=math.inf, memory=memory)
        assert times[-1] == curvature._PRODUCTS + dossier["curvature"]["negative_share"].n
    assert times[0] < times[1]


class Quadratic(nn.Module):
    """Log-densities whose mean has a Hessian with known eigenvalues, up to the sign."""

    def __init__(self, eigenvalues: torch.Tensor):
        super().__init__()
        self.theta = nn.Parameter(torch.ones_like(eigenvalues))
        self.eigenvalues = nn.Buffer(eigenvalues)

    def forward(self, x):
        return 0 * x.sum(1) - (self.eigenvalues * self.theta**2).sum() / 2


def test_a_known_hessian():
    model, x = Quadratic(torch.tensor([5.0, 4.0, 0.0, 0.0, -2.0, -3.0])), torch.randn(30, 4)
    found: Any = examine(model, x, sections=["curvature"], budget=math.inf)["curvature"]
    assert found.largest_eigenvalue == pytest.approx(5)
    assert found.critical_learning_rate == pytest.approx(2 / 5)
    assert found.smallest_eigenvalue == pytest.approx(-3, rel=1e-4)
    assert found.trace == pytest.approx(4)
    assert found.negative_share == pytest.approx(2 / 6)
    assert found["negative_share"].error < 1e-5  # random signs see all of a diagonal
    assert found.gradient_norm == pytest.approx(math.sqrt(25 + 16 + 4 + 9))
