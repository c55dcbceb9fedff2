"""Curves of robust accuracy, against linear models in closed form."""
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from functools import partial

import pytest
import torch
from matplotlib.figure import Figure
from scipy.stats import binomtest
from torch import nn
from torch.utils.data import DataLoader

from tests.robustness.digit_networks import digits, honest
from vademecum.robustness import (
    apgd,
    auto_attack,
    draw_robust_accuracy,
    fgsm,
    linear_radius,
    pgd,
    robust_accuracy,
)


def linear_problem(dtype=torch.float64, n=30, k=4):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = nn.Linear(5, k).to(dtype)
        x = torch.randn(n, 5).to(dtype)
    z = model(x)
    y = z.argmax(1)
    y[:4] = (y[:4] + 1) % k
    return model, x, y


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_robust_accuracy_of_linear_models(norm, dtype):
    model, x, y = linear_problem(dtype)
    exact = linear_radius(model.weight.detach(), model.bias.detach(), x, norm=norm)
    exact = exact.radius if hasattr(exact, "radius") else exact
    right = model(x).argmax(1) == y
    radii = torch.tensor([0.3, 0.0, 0.1, 0.6, 1.5])
    attack = partial(auto_attack, steps=25, square_steps=1)
    found = robust_accuracy(model, x, y, radii=radii, norm=norm, attack=attack, box=None)
    by_formula = torch.stack([(right & (exact.double() > r)).double().mean() for r in radii])
    assert (found.accuracy - by_formula.to(found.accuracy)).abs().max() <= 1.01 / len(x)
    assert (found.accuracy >= by_formula.to(found.accuracy)).all()
    assert found.accuracy[1] == right.double().mean()
    assert (found.distance[~right] == 0).all()
    assert (found.distance[right] >= exact[right] * (1 - 1e-5)).all()


@pytest.mark.parametrize("sure", [0.9, 0.99])
def test_intervals_are_those_of_the_counts(sure):
    model, x, y = linear_problem()
    found = robust_accuracy(model, x, y, radii=[0.0, 0.5], attack=pgd, box=None, confidence=sure)
    for accuracy, low, high in zip(found.accuracy, found.low, found.high, strict=True):
        exact = binomtest(round(float(accuracy) * len(x)), len(x)).proportion_ci(sure)
        assert float(low) == pytest.approx(exact.low, abs=1e-9)
        assert float(high) == pytest.approx(exact.high, abs=1e-9)


def test_curves_fall_and_points_are_reused():
    asked = []

    def weak(model, x, y, *, radius, **knobs):
        asked.append((len(x), radius))
        found = fgsm(model, x, y, radius=radius, **knobs)
        shy = radius > 0.2  # an attack that is worse at larger radii
        return found._replace(fooled=found.fooled & (not shy))

    _, _, x, y = digits()
    found = robust_accuracy(honest("relu"), x, y, radii=[0.25, 0.1, 0.2, 0.0], attack=weak)
    order = found.radii.argsort()
    assert (found.accuracy[order].diff() <= 0).all()
    assert [radius for _, radius in asked] == [0.0, 0.1, 0.2, 0.25]
    sizes = [size for size, _ in asked]
    survivors = [round(float(a) * len(x)) for a in found.accuracy[order]]
    assert sizes[0] == len(x)
    assert sizes[1:] == survivors[:-1]
    assert found.accuracy[0] == found.accuracy[2]


def test_a_point_found_late_counts_at_smaller_radii_that_hold_it():
    def late(model, x, y, *, radius, **knobs):
        found = fgsm(model, x, y, radius=0.0, **knobs)
        fooled = torch.full_like(found.fooled, radius > 0.5)
        return found._replace(fooled=fooled, distance=torch.full_like(found.distance, 0.3))

    model, x, y = linear_problem()
    y = model(x).argmax(1)
    found = robust_accuracy(model, x, y, radii=[0.2, 0.4, 0.6], attack=late, box=None)
    assert found.accuracy.tolist() == [1.0, 0.0, 0.0]


def test_rounding_of_distances_does_not_save_an_example():
    def rounded(model, x, y, *, radius, **knobs):
        found = fgsm(model, x, y, radius=radius, **knobs)
        above = torch.full_like(found.distance, radius * (1 + 1e-9))
        return found._replace(fooled=torch.ones_like(found.fooled), distance=above)

    model, x, y = linear_problem()
    found = robust_accuracy(model, x, y, radii=[0.2], attack=rounded, box=None)
    assert found.accuracy.tolist() == [0.0]


def test_loaders_give_what_tensors_give():
    model, x, y = linear_problem(torch.float32)
    knobs = {"radii": [0.1, 0.4], "attack": partial(apgd, steps=20), "box": None}
    whole = robust_accuracy(model, x, y, **knobs)
    pairs = list(zip(x, y, strict=True))
    parts = robust_accuracy(model, DataLoader(pairs, batch_size=11), **knobs)
    assert (whole.accuracy - parts.accuracy).abs().max() <= 1.01 / len(x)
    assert len(parts.distance) == len(x)


def test_draw_robust_accuracy():
    model, x, y = linear_problem()
    found = robust_accuracy(model, x, y, radii=[0.5, 0.0, 0.2], attack=fgsm, box=None)
    figure = draw_robust_accuracy(found, label="linear")
    (axes,) = figure.axes
    (line,) = axes.get_lines()
    assert line.get_xdata().tolist() == pytest.approx([0.0, 0.2, 0.5])
    assert line.get_ydata().tolist() == pytest.approx(found.accuracy[[1, 2, 0]].tolist())
    assert axes.get_legend().get_texts()[0].get_text() == "linear"
    own = Figure().add_subplot()
    assert draw_robust_accuracy(found, own) is own.figure


BAD = [
    ({"radii": []}, "radii must not be empty"),
    ({"radii": [0.1, -0.1]}, "radii must be >= 0, got -0.1"),
    ({"radii": [float("nan")]}, "radii must be finite, got nan"),
    ({"radii": [0.1], "confidence": 1.0}, "confidence must be < 1, got 1.0"),
    ({"radii": [0.1], "norm": "l7"}, "norm must be one of"),
]


@pytest.mark.parametrize(("knobs", "message"), BAD)
def test_bad_arguments_are_refused(knobs, message, unchecked):
    model, x, y = linear_problem()
    with pytest.raises(ValueError, match=message):
        robust_accuracy(model, x, y, attack=pgd, box=None, **knobs)


def test_empty_loaders_are_refused():
    with pytest.raises(ValueError, match="x must hold batches, got an empty DataLoader"):
        robust_accuracy(nn.Identity(), DataLoader([]), radii=[0.1])
