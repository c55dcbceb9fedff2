"""What an adversary may do: nearest and furthest points by brute force, with no ulp to spare."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import optimize
from torch import Tensor

from vademecum.robustness import sample_ball
from vademecum.robustness._threat import NORMS, as_threat

ALL = ("linf", "l2", "l1", "l0")
BOX = (0.0, 1.0)


def threat(x: Tensor, norm: str, radius, box=BOX, **more):
    return as_threat(x, norm, radius, box, norms=ALL, **more)


def away(x0: Tensor, x: Tensor, norm: str) -> Tensor:
    """Distances in double precision, by a formula of its own."""
    gap = (x.double() - x0.double()).abs().flatten(1)
    if norm == "l0":
        return (gap > 0).sum(1).double()
    return {"linf": gap.amax(1), "l2": gap.square().sum(1).sqrt(), "l1": gap.sum(1)}[norm]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", ALL)
@pytest.mark.parametrize("box", [BOX, None, (-0.1, 1.1)])
def test_projections_never_exceed_by_one_ulp(norm, dtype, box):
    for trial in range(25):
        x = torch.rand(20, 3, 5, dtype=dtype)
        radius = (
            8 / 255 if trial < 8 else torch.rand(20, dtype=torch.float64) * 10.0 ** -(trial % 9)
        )
        if norm == "l0":
            radius = 3 if trial < 8 else torch.randint(0, 15, (20,)).double()
        z = x + torch.randn_like(x) * 10.0 ** float(torch.randn(()))
        for point in (threat(x, norm, radius, box).project(x, z),
                      threat(x, norm, radius, box).project(x, x + 1e-3 * (z - x))):  # fmt: skip
            assert bool((away(x, point, norm) <= torch.as_tensor(radius).double()).all())
            low, high = box or (-math.inf, math.inf)
            assert float(point.double().min()) >= low
            assert float(point.double().max()) <= high


@pytest.mark.parametrize("norm", ALL)
def test_what_is_allowed_stays_and_projections_are_idempotent(norm):
    x = torch.rand(30, 6)
    radius = {"l0": 4}.get(norm, 0.5)
    rule = threat(x, norm, radius)
    inside = (x + 0.9 * (rule.project(x, x + torch.randn_like(x)) - x)).clamp(0, 1)
    inside = torch.where(away(x, inside, norm)[:, None] <= radius, inside, x)
    assert torch.equal(rule.project(x, inside), inside)
    once = rule.project(x, x + 3 * torch.randn_like(x))
    torch.testing.assert_close(rule.project(x, once), once, rtol=0, atol=1e-7)
    zero = threat(x, norm, 0).project(x, x + torch.randn_like(x))
    assert torch.equal(zero, x)


@pytest.mark.parametrize("norm", ALL)
@pytest.mark.parametrize("box", [BOX, None])
def test_nearest_points_of_what_is_inside_are_itself(norm, box):
    """Up to rounding; a point well within the ball is not taken to its sphere."""
    x = 0.2 + 0.6 * torch.rand(20, 6, dtype=torch.float64)
    z = x + 0.01 * torch.randn_like(x)
    rule = threat(x, norm, 6 if norm == "l0" else 0.3, box)
    assert bool((away(x, z, norm) <= rule.radius).all())
    torch.testing.assert_close(rule.nearest(x, z), z, rtol=0, atol=1e-15)


def test_sparse_projections_keep_the_bits_of_what_may_change():
    x = torch.rand(50, 6) + 1e-3
    z = torch.where(torch.arange(6) < 2, torch.rand(50, 6) * 1e-3, x)
    assert bool((x + (z - x) != z).any())
    assert torch.equal(threat(x, "l0", 2).project(x, z), z)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("box", [BOX, None])
def test_nearest_points_are_those_of_a_solver(norm, box):
    p = NORMS[norm]
    for _ in range(4):
        x = torch.rand(1, 4, dtype=torch.float64)
        z = x + torch.randn(1, 4, dtype=torch.float64)
        radius = float(torch.rand(())) + 0.1
        found = threat(x, norm, radius, box).nearest(x, z)[0].numpy()
        wanted = solved(x[0].numpy(), z[0].numpy(), p, radius, box)
        np.testing.assert_allclose(found, wanted, atol=2e-5)
        moved = wanted - x[0].numpy()
        long = max(np.linalg.norm(moved, p) / radius, 1.0)  # the solver keeps to its tolerance
        inside = x[0].numpy() + moved / long
        away_found, away_inside = (np.sum((v - z[0].numpy()) ** 2) for v in (found, inside))
        assert away_found <= away_inside + 1e-9


def solved(x0, z0, p, radius, box):
    """The nearest point by sequential quadratic programming, in positive and negative parts."""

    def room(v):
        size = np.sum((v[:4] - v[4:]) ** 2) - radius**2 if p == 2 else np.sum(v) - radius
        return -size

    top = radius if p == math.inf else 9.0
    bounds = [(0.0, min(top, 1 - a) if box else top) for a in x0]
    bounds += [(0.0, min(top, a) if box else top) for a in x0]
    best = optimize.minimize(
        lambda v: np.sum((x0 + v[:4] - v[4:] - z0) ** 2), np.full(8, 1e-3), bounds=bounds,
        constraints=[] if p == math.inf else [{"type": "ineq", "fun": room}], method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    return x0 + best.x[:4] - best.x[4:]


@pytest.mark.parametrize("box", [BOX, None])
def test_sparse_projections_are_the_best_of_all_supports(box):
    x = torch.rand(5, 6, dtype=torch.float64)
    z = x + torch.randn_like(x)
    k = torch.tensor([0, 1, 2, 4, 6]).double()
    found = threat(x, "l0", k, box).project(x, z)
    for row in range(5):
        best = math.inf
        for support in itertools.combinations(range(6), int(k[row])):
            point = x[row].clone()
            free = list(support)
            point[free] = z[row, free].clamp(0, 1) if box else z[row, free]
            best = min(best, float((point - z[row]).square().sum()))
        assert float((found[row] - z[row]).square().sum()) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("norm", ["linf", "l1", "l2"])
@pytest.mark.parametrize("box", [BOX, None])
def test_furthest_points_beat_a_linear_programme_or_draws(norm, box):
    for _ in range(4):
        x, g = torch.rand(1, 5, dtype=torch.float64), torch.randn(1, 5, dtype=torch.float64)
        radius = float(torch.rand(())) * 1.5 + 0.05
        rule = threat(x, norm, radius, box)
        found = rule.furthest(x, g)
        assert float(away(x, found, norm)) <= radius * (1 + 1e-12)
        value = float(((found - x) * g).sum())
        if norm == "l2":
            ball = sample_ball(20_000, (5,), norm="l2", radius=radius, dtype=torch.float64)
            drawn = x + ball / torch.linalg.vector_norm(ball, dim=1, keepdim=True) * radius
            drawn = drawn.clamp(0, 1) if box else drawn
            assert float(((drawn - x) @ g.T).max()) <= value + 1e-12
            if box is None:
                assert value == pytest.approx(radius * float(g.norm()))
            continue
        ends = [(0.0, min(radius, (1 - a) if box else 9.0)) for a in x[0].tolist()]
        ends += [(0.0, min(radius, a if box else 9.0)) for a in x[0].tolist()]
        c = np.concatenate([-g[0].numpy(), g[0].numpy()])
        limits = {"A_ub": np.ones((1, 10)), "b_ub": [radius]} if norm == "l1" else {}
        best = optimize.linprog(c, bounds=ends, **limits)
        assert value == pytest.approx(-best.fun, abs=1e-9)


def test_furthest_stays_where_nothing_changes():
    x, g = torch.rand(2, 3), torch.tensor([[1.0, 0.0, -2.0], [0.0, 0.0, 0.0]])
    for norm in ALL:
        found = threat(x, norm, 2 if norm == "l0" else 0.3).furthest(x, g)
        assert torch.equal(found[g == 0], x[g == 0])


def test_furthest_in_a_box_goes_on_where_one_entry_ends():
    x = torch.tensor([[0.9, 0.5, 0.5]])
    g = torch.tensor([[3.0, 2.0, 0.1]])
    found = threat(x, "l1", 0.4).furthest(x, g)
    torch.testing.assert_close(found, torch.tensor([[1.0, 0.8, 0.5]]))
    found = threat(x, "l2", 0.3).furthest(x, g) - x
    torch.testing.assert_close(found[0, 0], torch.tensor(0.1))
    torch.testing.assert_close(torch.linalg.vector_norm(found), torch.tensor(0.3))
    torch.testing.assert_close(found[0, 1] / found[0, 2], torch.tensor(20.0))


def test_steps_are_steepest():
    g = torch.randn(4, 2, 3)
    x = torch.rand(4, 2, 3)
    assert torch.equal(threat(x, "linf", 1.0).step(g), g.sign())
    unit = g / torch.linalg.vector_norm(g, dim=(1, 2), keepdim=True)
    torch.testing.assert_close(threat(x, "l2", 1.0).step(g), unit)
    one = threat(x, "l1", 1.0).step(g).flatten(1)
    assert torch.equal(one.abs().sum(1), torch.ones(4))
    torch.testing.assert_close((one * g.flatten(1)).sum(1), g.flatten(1).abs().amax(1))


@pytest.mark.parametrize("outward", [False, True])
def test_radius_and_box_are_rounded_to_the_safe_side(outward):
    x = torch.full((1, 2), 0.5)
    made = threat(x, "linf", 0.1, (-0.1, 0.7), outward=outward)
    assert made.box is not None
    sign = 1 if outward else -1
    for value, wanted in ((float(made.radius), 0.1), (made.box[1], 0.7), (-made.box[0], 0.1)):
        assert sign * (value - wanted) >= 0
        assert value == pytest.approx(wanted, rel=1e-6)
    assert threat(x, "linf", 0.25).radius.item() == 0.25


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"radius": -0.1}, "radius must be >= 0, got -0.1"),
        ({"radius": math.nan}, "radius must be >= 0, got nan"),
        ({"radius": math.inf}, "radius must be finite, got inf"),
        ({"radius": "a"}, "radius must be a number, got 'a'"),
        ({"radius": torch.tensor([0.1, 0.2])}, "radius must be a number or 3 of them"),
        ({"radius": torch.tensor([0.1, -0.2, 0.1])}, "radius must be >= 0 and finite, got -0.2"),
        ({"radius": torch.tensor([0.1, math.nan, 0.1])}, "radius must be >= 0 and finite, got nan"),
        ({"norm": "l3"}, "norm must be one of 'linf', 'l2', 'l1', got 'l3'"),
        ({"norm": "l0", "norms": ALL, "radius": 1.5}, "radius must be a whole number of entries"),
        ({"box": (1.0, 0.0)}, r"box\[1\] must be > 1, got 0"),
        ({"box": 3.0}, "box must be None or two numbers"),
        ({"box": (0.2, 1.0)}, "x must lie in box, from 0.2 to 1, got entries from 0 to 0.9"),
        ({"x": torch.zeros(3)}, "x must be real with examples along the first of at least two"),
        ({"x": torch.zeros(2, 2, dtype=torch.long)}, "x must be floating point, got torch.int64"),
        ({"x": torch.tensor([[math.nan]])}, "x must be finite, got nan"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_makes_no_sense_is_refused_by_name(knobs, message):
    given = {"x": torch.linspace(0, 0.9, 6).view(3, 2), "norm": "linf", "radius": 0.1, "box": BOX}
    given |= knobs
    with pytest.raises(ValueError, match=message):
        as_threat(given.pop("x"), given.pop("norm"), given.pop("radius"), given.pop("box"), **given)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_lie_in_the_ball(norm, dtype):
    for d, radius in ((1, 0.3), (7, 1e-3), (900, 5.0)):
        x = sample_ball(500, (d,), norm=norm, radius=radius, dtype=dtype)
        assert x.dtype == dtype
        assert float(away(torch.zeros_like(x), x, norm).max()) <= radius
        assert float(away(torch.zeros_like(x), x, norm).max()) > 0.5 * radius


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_draws_are_uniform(norm):
    """Lengths to the power d are uniform, entries have the law's second moment and no mean."""
    n = 4000
    for d in (1, 3):
        x = sample_ball(n, (d,), norm=norm, radius=2.0, dtype=torch.float64) / 2
        power = away(torch.zeros_like(x), x, norm) ** d
        assert abs(float(power.mean()) - 1 / 2) < 5 * math.sqrt(1 / 12 / n)
        second = {"linf": 1 / 3, "l2": 1 / (d + 2), "l1": 2 / (d + 1) / (d + 2)}[norm]
        assert float((x.mean(0).abs() / math.sqrt(second / n)).max()) < 5
        assert float((x.square().mean(0) / second - 1).abs().max()) < 5 * math.sqrt(6 / n)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"n": 0}, "n must be >= 1, got 0"),
        ({"shape": (0,)}, "shape must be >= 1, got 0"),
        ({"norm": "l0"}, "norm must be one of 'linf', 'l2', 'l1', got 'l0'"),
        ({"radius": -1.0}, "radius must be >= 0, got -1"),
        ({"dtype": torch.int64}, "dtype must be floating point"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_draws_that_make_no_sense_are_refused(knobs, message):
    given = {"n": 2, "shape": (3,), "norm": "l2", "radius": 1.0} | knobs
    with pytest.raises(ValueError, match=message):
        sample_ball(given.pop("n"), given.pop("shape"), **given)
