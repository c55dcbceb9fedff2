"""The curvature section where there is room for few vectors, as with large networks."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.examine import _study, examine
from vademecum.examine._clock import Clock
from vademecum.examine._study import Study
from vademecum.examine.sections import curvature
from vademecum.foundations import SpectralDensity


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
    model, x = Quadratic(torch.tensor([5.0, 4.0, 0.0, 0.0, -4.0, -3.0])), torch.randn(30, 4)
    found: Any = examine(model, x, sections=["curvature"], budget=math.inf)["curvature"]
    assert found.largest_eigenvalue == pytest.approx(5)
    assert found.critical_learning_rate == pytest.approx(2 / 5)
    assert found.smallest_eigenvalue == pytest.approx(-4, rel=1e-4)
    assert found.trace == pytest.approx(2)
    assert found.negative_share == pytest.approx(2 / 6)
    assert found["negative_share"].error < 1e-5  # random signs see all of a diagonal
    assert found.gradient_norm == pytest.approx(math.sqrt(25 + 16 + 16 + 9))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(6 * 16, 3),
    )  # fmt: skip


@pytest.mark.parametrize(("make", "shape", "targets", "away"), [
    (lambda: nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)), (300, 6), "y", 0.0),
    (lambda: nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3)), (300, 6), "c", 30.0),
    (convolutional, (60, 1, 6, 6), "c", 0.0),
])  # fmt: skip
def test_errors_hold_beside_double_precision(make, shape, targets, away):
    """Residuals are of products as they are rounded, and may be far below what rounding does."""
    for seed in range(2):
        torch.manual_seed(seed)
        model, x = make(), torch.randn(shape) + away
        y = torch.randn(shape[0], 1) if targets == "y" else torch.randint(3, (shape[0],))
        double = copy.deepcopy(model).double(), x.double(), y.double() if targets == "y" else y
        both: list[Any] = [
            examine(*given, sections=["curvature"], budget=math.inf,
                    generator=torch.Generator().manual_seed(0))["curvature"]
            for given in ((model, x, y), double)
        ]  # fmt: skip
        single, exact = both
        for name in ("largest_eigenvalue", "smallest_eigenvalue", "critical_learning_rate"):
            one, other = single[name], exact[name]
            assert abs(one.value - other.value) <= one.error + other.error
        assert single["trace"].error > 0
        apart = abs(single["trace"].value - exact["trace"].value)
        assert apart <= single["trace"].error + exact["trace"].error
        assert single["largest_eigenvalue"].error < 1e-3 * single["largest_eigenvalue"].value


def test_a_way_down_is_told_of_where_two_examples_have_no_noise():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    found: Any = examine(model, torch.randn(2, 6), torch.tensor([0, 1]), sections=["curvature"])
    section = found["curvature"]
    assert "gradient_noise_scale" not in section
    assert section.smallest_eigenvalue < 0
    assert f"there is a way down with curvature {section.smallest_eigenvalue:.3g}" in (
        section.sentence
    )


def test_what_is_no_further_from_the_edge_than_the_resolution_may_be_on_its_other_side():
    nodes = torch.tensor([[-9.0, -1.4, -0.9, 0.0, 5.0], [-9.0, -1.6, -0.4, 0.0, 5.0]])
    weights = torch.tensor([[0.1, 0.2, 0.1, 0.5, 0.1], [0.2, 0.1, 0.1, 0.5, 0.1]])
    found = curvature._negative(SpectralDensity(nodes, weights, 9, 10, False, 1.0, 0.1))
    assert found.value == pytest.approx(0.3)  # 0.1 + 0.2 and 0.2 + 0.1
    assert found.error == pytest.approx(0.3 / 2 / 2)  # half of -1.4 and -0.9, which one of two has
    assert found.n == 10
    assert "below -1, " in found.method
    exact = curvature._negative(SpectralDensity(nodes, weights, 9, 10, True, 0.0, 0.0))
    assert (exact.value, exact.error) == (pytest.approx(0.4), 0.0)


def test_probes_that_differ_are_an_error_of_the_share_of_negative_eigenvalues():
    nodes, weights = torch.tensor([[-9.0, 5.0]]).expand(4, 2), torch.tensor([0.1, 0.2, 0.3, 0.4])
    both = torch.stack([weights, 1 - weights], 1)
    found = curvature._negative(SpectralDensity(nodes, both, 9, 8, False, 1.0, 0.1))
    assert found.value == pytest.approx(0.25)
    assert found.error == pytest.approx(float(weights.std()) / 2)


class Mixed(nn.Module):
    """Log-densities with a Hessian whose entries beside the diagonal are seen by random signs."""

    def __init__(self):
        super().__init__()
        self.theta = nn.Parameter(torch.ones(100))
        draw = torch.Generator().manual_seed(0)
        self.matrix = nn.Buffer(torch.randn(100, 100, generator=draw))

    def forward(self, x):
        return 0 * x.sum(1) - ((self.matrix @ self.theta) ** 2).sum() / 2


def test_errors_of_random_vectors_and_of_the_worst_of_some_eigenvalues(monkeypatch):
    eigenvalues = 1 + torch.arange(200.0) / 200  # of which the fifth is not found so soon
    monkeypatch.setattr(curvature, "_STAGES", (16, 17, 18))
    known = Quadratic(eigenvalues)
    dossier: Any = examine(known, torch.randn(30, 4), sections=["curvature"], budget=math.inf)
    found = dossier["curvature"]
    assert found["eigenvalues"].error > 3 * found["largest_eigenvalue"].error
    dossier = examine(Mixed(), torch.randn(30, 4), sections=["curvature"], budget=math.inf,
                      generator=torch.Generator().manual_seed(0))  # fmt: skip
    trace, H = dossier["curvature"]["trace"], Mixed().matrix.T @ Mixed().matrix
    beside = (H - H.diag().diag()).square().sum()  # twice it is the variance of one of 64
    assert trace.error == pytest.approx(math.sqrt(2 * beside / 64), rel=0.5)
    assert abs(trace.value - H.trace()) < 5 * trace.error


def test_vectors_there_is_room_for():
    model = nn.Linear(6, 9)
    study = Study(model, torch.randn(30, 6), memory=20 * 63 * 4)
    assert curvature._held(study) == 20


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_has_no_second_derivatives(dtype):
    model, x = nn.Linear(6, 3).to(dtype), torch.randn(30, 6).to(dtype)
    found: Any = examine(model, x, torch.arange(30) % 3, sections=["curvature"])["curvature"]
    assert found.status == "not applicable"
    assert "are mostly rounding" in found.reason
