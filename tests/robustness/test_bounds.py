"""Bounds against closed forms, all corners, mixed-integer programs and the regions of a plane."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from tests.robustness.exact_ranges import exact_range, lp_least, paper_crown, random_mlp, weights
from vademecum.approximation import input_plane, linear_regions
from vademecum.robustness import crown_bounds, interval_bounds

BOTH = pytest.mark.parametrize("bounds", [interval_bounds, crown_bounds])
NORMS = pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
DUAL = {"linf": 1, "l2": 2, "l1": np.inf}


@BOTH
@NORMS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("arithmetic", ["real", "float"])
def test_linear_models_have_a_closed_form(bounds, norm, dtype, arithmetic):
    torch.manual_seed(0)
    layer, x = nn.Linear(7, 3, dtype=dtype), torch.randn(4, 7, dtype=dtype)
    radius = torch.tensor([0.0, 0.1, 0.5, 2.0], dtype=dtype)
    found = bounds(layer, x, norm=norm, radius=radius, box=None, arithmetic=arithmetic)
    W, b = layer.weight.detach().double(), layer.bias.detach().double()
    middle = x.double() @ W.T + b
    reach = radius.double()[:, None] * torch.linalg.vector_norm(W, DUAL[norm], dim=1)
    size = (x.double().abs() + radius.double()[:, None]) @ W.abs().T + b.abs()
    unit = torch.finfo(torch.float64 if arithmetic == "real" else dtype).eps
    allowed = 50 * unit * size  # sums of 8 terms, rounded twice, and a few roundings more
    for ends, wanted, sign in ((found.lower, middle - reach, 1), (found.upper, middle + reach, -1)):
        gap = sign * (wanted - ends.double())
        assert (gap >= -1e-12).all()
        assert (gap <= allowed).all()
    assert found.lower.dtype == (torch.float64 if arithmetic == "real" else dtype)
    assert found.arithmetic == arithmetic
    assert found.assumes == ""


@BOTH
def test_the_box_cuts_the_ball(bounds):
    torch.manual_seed(0)
    layer, x = nn.Linear(5, 2).double(), torch.rand(3, 5).double()
    found = bounds(layer, x, norm="linf", radius=0.4, arithmetic="real")
    low, high = (x - 0.4).clamp(min=0), (x + 0.4).clamp(max=1)
    corners = torch.tensor(list(itertools.product([0.0, 1.0], repeat=5))).double()
    images = layer(low[:, None] + corners * (high - low)[:, None]).detach()
    torch.testing.assert_close(found.lower, images.amin(1), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.upper, images.amax(1), rtol=1e-6, atol=1e-6)


@BOTH
def test_functions_of_outputs_are_folded_into_the_last_layer(bounds):
    torch.manual_seed(1)
    layer, x = nn.Linear(5, 4).double(), torch.rand(3, 5).double()
    spec = torch.randn(3, 2, 4).double()
    found = bounds(layer, x, norm="linf", radius=0.1, box=None, spec=spec, arithmetic="real")
    A = spec @ layer.weight.detach()
    middle = (A @ x[..., None])[..., 0] + spec @ layer.bias.detach()
    torch.testing.assert_close(found.lower, middle - 0.1 * A.abs().sum(2), rtol=0, atol=1e-6)
    torch.testing.assert_close(found.upper, middle + 0.1 * A.abs().sum(2), rtol=0, atol=1e-6)
    for_all = bounds(layer, x, norm="linf", radius=0.1, box=None, spec=spec[0], arithmetic="real")
    assert torch.equal(for_all.lower[:1], found.lower[:1])


@pytest.mark.parametrize("d", [4, 9, 12])
def test_no_corner_is_outside(d):
    torch.manual_seed(d)
    model, x = random_mlp(d, 9, 8, 3), torch.rand(1, d).double()
    corners = torch.tensor(list(itertools.product([-0.3, 0.3], repeat=d))).double()
    images = model((x + corners).clamp(0, 1)).detach()
    wide = interval_bounds(model, x, norm="linf", radius=0.3)
    narrow = crown_bounds(model, x, norm="linf", radius=0.3)
    for found in (wide, narrow):
        assert (found.lower <= images.amin(0)).all()
        assert (images.amax(0) <= found.upper).all()
    assert (wide.lower <= narrow.lower).all()
    assert (narrow.upper <= wide.upper).all()


@pytest.mark.parametrize("trial", range(4))
def test_interval_holds_crown_holds_slopes_holds_the_exact_range(trial):
    torch.manual_seed(trial)
    widths = [(4, 12, 2), (3, 8, 7, 2), (5, 7, 7, 3), (3, 6, 6, 6, 2)][trial]
    model, x = random_mlp(*widths), torch.randn(1, widths[0]).double()
    radius = 0.35
    knobs = {"norm": "linf", "radius": radius, "box": None, "arithmetic": "real"}
    row = torch.randn(1, widths[-1]).double()
    low, high = exact_range(model, x[0].numpy() - radius, x[0].numpy() + radius, row[0].numpy())
    found = [
        interval_bounds(model, x, spec=row, **knobs),
        crown_bounds(model, x, spec=row, **knobs),
        crown_bounds(model, x, spec=row, max_iter=20, **knobs),
    ]
    ends = [float(f.lower) for f in found] + [low, high] + [float(f.upper) for f in found[::-1]]
    assert all(a <= b + 1e-6 for a, b in itertools.pairwise(ends)), ends
    assert ends[-1] - ends[0] > 1.01 * (ends[-2] - ends[1])  # the chain is not one of equals


@pytest.mark.parametrize("trial", range(3))
def test_crown_bounds_are_what_their_authors_print(trial):
    torch.manual_seed(trial)
    model, x = random_mlp(5, 12, 10, 8, 3), torch.randn(2, 5).double()
    spec = torch.randn(2, 3).double()
    found = crown_bounds(model, x, norm="linf", radius=0.2, box=None, spec=spec, arithmetic="real")
    for i in range(2):
        low, high = x[i].numpy() - 0.2, x[i].numpy() + 0.2
        for j in range(2):
            row = spec[j].numpy()
            wanted = paper_crown(weights(model), low, high, row)
            assert float(found.lower[i, j]) == pytest.approx(wanted, abs=1e-6)
            upper = -paper_crown(weights(model), low, high, -row)
            assert float(found.upper[i, j]) == pytest.approx(upper, abs=1e-6)


@pytest.mark.parametrize("trial", range(3))
def test_the_best_slopes_are_those_of_the_linear_program(trial):
    """By duality, for one hidden layer: the best lines for rectifiers are as good as triangles."""
    torch.manual_seed(trial)
    model, x = random_mlp(4, 10, 2), torch.randn(1, 4).double()
    row = torch.randn(1, 2).double()
    wanted = lp_least(weights(model), x[0].numpy() - 0.5, x[0].numpy() + 0.5, row[0].numpy())
    knobs = {"norm": "linf", "radius": 0.5, "box": None, "spec": row, "arithmetic": "real"}
    plain = float(crown_bounds(model, x, **knobs).lower)
    best = float(crown_bounds(model, x, max_iter=200, **knobs).lower)
    assert plain <= best <= wanted + 1e-6
    assert wanted - best < 1e-3 + 0.05 * (wanted - plain)


@pytest.mark.parametrize("radius", [0.3, 1e-4])
def test_regions_of_a_plane(radius):
    """The range is that of the corners of all regions; within one of them bounds are exact."""
    torch.manual_seed(3)
    model, x = random_mlp(2, 7, 6, 2), torch.tensor([[0.2, -0.4]]).double()
    low, high = (tuple((x[0] + s * radius).tolist()) for s in (-1, 1))
    regions = linear_regions(model, input_plane(low=low, high=high))
    ones = torch.ones_like(regions.corners[..., :1])
    images = torch.cat([ones, regions.corners], 2) @ regions.maps.mT
    least, most = images.flatten(0, 1).amin(0), images.flatten(0, 1).amax(0)
    found = crown_bounds(model, x, norm="linf", radius=radius, box=None, arithmetic="real")
    assert (found.lower <= least + 1e-9).all()
    assert (most <= found.upper + 1e-9).all()
    if len(regions.maps) == 1:
        torch.testing.assert_close(found.lower[0], least, rtol=0, atol=1e-9)
        torch.testing.assert_close(found.upper[0], most, rtol=0, atol=1e-9)
    assert (len(regions.maps) == 1) == (radius < 0.01)


@NORMS
def test_balls_are_no_wider_than_their_boxes(norm):
    torch.manual_seed(2)
    model, x = random_mlp(6, 10, 8, 3), torch.rand(4, 6).double()
    ball = crown_bounds(model, x, norm=norm, radius=0.3)
    box = crown_bounds(model, x, norm="linf", radius=0.3)
    assert (ball.lower >= box.lower - 1e-9).all()
    if norm != "linf":
        assert (ball.upper - ball.lower).mean() < 0.8 * (box.upper - box.lower).mean()


@pytest.mark.parametrize("max_iter", [0, 3])
def test_memory_only_makes_portions(max_iter):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 3),
    )  # fmt: skip
    x = torch.rand(5, 1, 8, 8)
    knobs = {"norm": "linf", "radius": 0.02, "max_iter": max_iter}
    all_ = crown_bounds(model, x, **knobs)
    with pytest.raises(ValueError, match="memory must be >= "):
        crown_bounds(model, x, memory=100, **knobs)
    some = crown_bounds(model, x, memory=100_000, **knobs)
    torch.testing.assert_close(all_.lower, some.lower, rtol=0, atol=2e-5)
    torch.testing.assert_close(all_.upper, some.upper, rtol=0, atol=2e-5)
    plain = interval_bounds(model, x, norm="linf", radius=0.02)
    least = interval_bounds(model, x, norm="linf", radius=0.02, memory=8 * 192 * 4)
    torch.testing.assert_close(plain.lower, least.lower, rtol=0, atol=2e-5)
    with pytest.raises(ValueError, match="memory must be >= 6144 bytes for one example"):
        interval_bounds(model, x, norm="linf", radius=0.02, memory=8 * 192 * 4 - 1)


def test_examples_do_not_influence_each_other():
    torch.manual_seed(0)
    model, x = random_mlp(6, 12, 10, 3), torch.rand(7, 6).double()
    together = crown_bounds(model, x, norm="l2", radius=torch.linspace(0, 0.5, 7).double())
    for i in range(7):
        alone = crown_bounds(model, x[i : i + 1], norm="l2", radius=0.5 * i / 6)
        torch.testing.assert_close(alone.lower, together.lower[i : i + 1], rtol=0, atol=1e-6)
