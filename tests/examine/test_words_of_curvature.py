"""What the curvature section tells of eigenvalues that are known: errors, signs, an end in time."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.examine import examine
from vademecum.examine._clock import Clock
from vademecum.examine._study import Study
from vademecum.examine.sections import curvature
from vademecum.foundations import Eigenpairs, LinearOperator
from vademecum.optimization import GradientNoise


def pairs(values: list[float], residuals: list[float], dtype: Any = torch.float64) -> Eigenpairs:
    vectors = torch.eye(9, dtype=dtype)[:, : len(values)]
    theta, away = (torch.tensor(each, dtype=dtype) for each in (values, residuals))
    return Eigenpairs(theta, vectors, away, 7, True)


def test_the_error_of_the_critical_step_is_that_of_its_eigenvalue():
    items: list[Any] = list(curvature._told(pairs([4.0], [1e-3]), 5))
    (step,) = (each for each in items if each.name == "critical_learning_rate")
    assert step.value == 0.5
    assert step.error == pytest.approx(2 / (4 - 1e-3) - 2 / 4, rel=1e-3)


class Saddle(nn.Module):
    """Log-densities whose mean has the eigenvalues -10,000 and 1."""

    def __init__(self):
        super().__init__()
        self.theta = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return 0 * x.sum(1) - (1e4 * self.theta[0] ** 2 - self.theta[1] ** 2) / 2


def test_the_smallest_eigenvalue_is_no_better_known_than_the_largest_is_rounded():
    found, low = (pairs([each], [0.0], torch.float32) for each in (1000.0, -1.0))
    assert curvature._rounding(found, low) == pytest.approx(32 * 2.0**-23 * 1000)
    section: Any = examine(Saddle(), torch.randn(9, 2), sections=["curvature"],
                           budget=math.inf)["curvature"]  # fmt: skip
    assert section.largest_eigenvalue == pytest.approx(1e4)
    assert section.smallest_eigenvalue == pytest.approx(-1, abs=0.05)
    assert section["smallest_eigenvalue"].error >= 32 * 2.0**-23 * 1e4 * (1 - 1e-6)


@pytest.mark.parametrize(
    ("bottom", "residual", "down"),
    [(0.1, 0.0, False), (-1e-4, 0.0, False), (-1e-2, 0.0, True), (-1e-2, 1e-2, False)],
)
def test_a_way_down_is_steeper_than_what_counts_as_flat(bottom, residual, down):
    words = curvature._sentence(pairs([10.0], [0.0]), pairs([bottom], [residual]), None)
    assert ("there is a way down" in words) is down
    assert ("no direction of downward curvature" in words) is not down


def test_the_search_ends_where_it_has_converged():
    study = Study(nn.Linear(2, 3), torch.randn(9, 2), torch.arange(9) % 3)
    matrix = torch.arange(1.0, 10.0).diag()
    H = LinearOperator((9, 9), lambda v: matrix @ v, lambda v: matrix @ v)
    found = list(curvature._largest(study, Clock(math.inf), H))
    assert [each.converged for each in found] == [True]
    assert found[0].values.tolist() == pytest.approx([9, 8, 7, 6, 5])


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (0.3, "than about 1 example are"),
        (1.0, "than about 1 example are"),
        (1.25, "than about 1.25 examples are"),
        (math.inf, "no gradient is seen"),
    ],
)
def test_no_batch_is_smaller_than_one_example(scale, words):
    assert words in curvature._sentence(pairs([1.0], [0.0]), None, scale)


@pytest.mark.parametrize(("applications", "products"), [(7, 256), (700, 700)])
def test_the_smallest_eigenvalue_is_looked_for_as_long_as_the_largest(
    monkeypatch, applications, products
):
    asked, known = dict[str, Any](), pairs([1.0], [0.0])
    monkeypatch.setattr(curvature, "eigsh", lambda *_, **knobs: asked.update(knobs) or known)
    study = Study(nn.Linear(2, 3), torch.randn(9, 2), torch.arange(9) % 3)
    H = LinearOperator((9, 9), lambda v: v, lambda v: v)
    curvature._smallest(study, H, known._replace(applications=applications))
    assert (asked["which"], asked["max_iter"]) == ("smallest", products)


def test_gradients_of_examples_have_a_quarter_of_the_room(monkeypatch):
    asked: dict[str, Any] = {}

    def noise(*_, **knobs):
        asked.update(knobs)
        return GradientNoise(5.0, 2.0, 9.0, 10.0, 2.0, 40)

    monkeypatch.setattr(curvature, "gradient_noise", noise)
    model, x, y = nn.Linear(3, 2), torch.randn(60, 3), torch.arange(60) % 2
    examine(model, x, y, sections=["curvature"], budget=math.inf, memory=2**22)
    assert asked["memory"] == 2**20


@pytest.mark.parametrize(("high", "words"), [(9.0, "than about 5 ex"), (math.inf, "no gradient")])
def test_what_cannot_be_told_from_zero_is_no_gradient(monkeypatch, high, words):
    known = GradientNoise(5.0, 2.0, high, 10.0, 2.0, 40)
    monkeypatch.setattr(curvature, "gradient_noise", lambda *_, **__: known)
    model, x, y = nn.Linear(3, 2), torch.randn(60, 3), torch.arange(60) % 2
    assert (
        words in examine(model, x, y, sections=["curvature"], budget=math.inf)["curvature"].sentence
    )


class Normal(nn.Module):
    """Log-densities of numbers around a mean."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return -(x[:, 0] - self.mean).square() / 2


def test_gradients_of_densities_have_noise_as_others_have():
    """They are mean - x: a variance over a square, of which the variance of the mean is taken."""
    x = torch.randn(200, 1)
    section: Any = examine(Normal(), x, sections=["curvature"], budget=math.inf)["curvature"]
    spread, away = float(x.double().var()), 2 - float(x.double().mean())
    scale = spread / (away**2 - spread / 200)
    assert section.gradient_noise_scale == pytest.approx(scale, rel=1e-4)
    assert section["gradient_noise_scale"].n == 200


def test_the_noise_of_gradients_has_its_own_interval_and_examples(monkeypatch):
    known = GradientNoise(5.0, 2.0, 9.0, 10.0, 2.0, 40)
    monkeypatch.setattr(curvature, "gradient_noise", lambda *_, **__: known)
    model, x, y = nn.Linear(3, 2), torch.randn(60, 3), torch.arange(60) % 2
    section = examine(model, x, y, sections=["curvature"], budget=math.inf)["curvature"]
    told = section["gradient_noise_scale"]
    assert (told.value, told.error, told.n) == (5.0, (2.0, 9.0), 40)
    assert "batches of more than about 5 examples" in section.sentence
