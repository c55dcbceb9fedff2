"""Growth, shattering, VC dimensions and Rademacher complexities against brute force."""

import math
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import nn

from vademecum.generalization import (
    finite_class_bound,
    generalisation_gap,
    gibbs_measure,
    growth_function,
    rademacher_bound,
    rademacher_complexity,
    sauer_bound,
    shatters,
    vc_bound,
    vc_dimension,
    vc_inequality,
)
from vademecum.models import mlp


def shattered(rows: set[tuple[int, ...]], columns: tuple[int, ...]) -> bool:
    return len({tuple(r[i] for i in columns) for r in rows}) == 2 ** len(columns)


@pytest.mark.parametrize("drawn", range(12))
def test_dimension_and_growth_of_tables(drawn):
    g = torch.Generator().manual_seed(drawn)
    values = torch.randint(2, (5 + 4 * drawn, 4 + drawn % 4), generator=g)
    rows, m = {tuple(r) for r in values.tolist()}, values.shape[1]
    best = max(
        k for k in range(m + 1) if any(shattered(rows, c) for c in combinations(range(m), k))
    )
    found = vc_dimension(values)
    assert found.value == best
    assert found.points is not None
    assert shattered(rows, tuple(found.points.tolist()))
    for n in range(m + 1):
        counts = [len({tuple(r[i] for i in c) for r in rows}) for c in combinations(range(m), n)]
        assert growth_function(values, n) == max(counts)
    answer = shatters(values)
    assert answer.shattered == (len(rows) == 2**m)
    if not answer.shattered:
        assert answer.missing is not None
        assert tuple(answer.missing.tolist()) not in rows


def test_a_wide_table_has_a_missing_labelling():
    values = torch.randint(2, (9, 40), generator=torch.Generator().manual_seed(0))
    missing = shatters(values).missing
    assert missing is not None
    assert missing.tolist() not in values.tolist()
    assert vc_dimension(values).value <= 3
    one = torch.ones(1, 5)
    assert vc_dimension(one).value == 0
    assert vc_dimension(one).points is not None


def test_all_labellings_of_a_table_have_a_row():
    every = torch.tensor(list(product((0, 1), repeat=3)))[torch.randperm(8)]
    twice = torch.cat((every, every))
    found = shatters(twice)
    assert found.shattered
    assert found.labels is not None
    assert torch.equal(twice[found.witness], found.labels)
    assert found.witness.max() < 8  # the first row of each


FAMILIES: Any = ["thresholds", "intervals", "half-spaces", "homogeneous half-spaces", "rectangles"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_far_too_many_points_have_a_proof(family, d):
    d = 1 if family in ("thresholds", "intervals") else d
    x = torch.randn(300 if "half" not in family else 40, d)
    found = shatters(family, x)
    assert not found.shattered
    assert found.missing is not None
    ones = found.missing.bool()
    if "half-spaces" in family:
        weights = found.proof
        scale = weights.abs().max() * x.abs().max() * len(x)
        assert float((weights @ x.double()).abs().max() / scale) < 1e-12
        assert (weights[ones] > 0).all()
        assert (weights[~ones] <= 0).all()
        assert (weights < 0).any()
    else:
        inside = x[found.proof]
        assert not ones[found.proof]
        assert (inside >= x[ones].amin(0)).all()
        assert family == "thresholds" or (inside <= x[ones].amax(0)).all()


def test_equal_points_the_origin_and_almost_dependent_points():
    twin = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    for family in ("half-spaces", "homogeneous half-spaces", "rectangles"):
        found = shatters(family, twin)
        assert not found.shattered
        assert found.missing is not None
        assert found.missing.sum() == 1
    origin = shatters("homogeneous half-spaces", torch.zeros(1, 2))
    assert origin.missing is not None
    assert origin.missing.tolist() == [0]  # w . 0 >= 0 whatever w
    opposite = shatters("homogeneous half-spaces", torch.tensor([[1.0], [-1.0]]))
    assert not opposite.shattered
    near = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0 + 1e-6]])
    assert shatters("half-spaces", near).shattered
    assert shatters("intervals", torch.tensor([[1e17], [2e17]])).shattered


def test_sauer():
    for n, d in product(range(12), range(14)):
        assert sauer_bound(n, d) == sum(math.comb(n, i) for i in range(d + 1))
    for n, d in ((40, 3), (1500, 700), (3000, 40), (3000, 2999), (9000, 9000)):
        exact = math.log(sum(math.comb(2 * n, i) for i in range(min(d, 2 * n) + 1)))
        want = 2 * math.sqrt(2 * (exact + math.log(2 / 0.05)) / n)
        assert vc_bound(0.0, n, delta=0.05, dimension=d) == pytest.approx(want, rel=1e-10)
    many = vc_bound(0.0, 10**8, delta=0.05, dimension=2 * 10**6)
    few = vc_bound(0.0, 10**8, delta=0.05, dimension=10**6)
    assert few < many < 1.5 * few  # by entropy above a million, by the sum below
    assert vc_inequality(0.1, 50, growth=10**400) == 1.0


def test_bounds_of_tensors():
    risks = torch.tensor([0.0, 0.25, 1.0])
    for f in (
        lambda r: finite_class_bound(r, 7, 50, delta=0.1),
        lambda r: vc_bound(r, 50, delta=0.1, growth=7),
        lambda r: rademacher_bound(r, 0.125, 50, delta=0.1),
    ):
        torch.testing.assert_close(f(risks), torch.tensor([f(float(r)) for r in risks]))


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 4.0, math.inf])
def test_linear_complexities_against_a_search_over_the_ball(p):
    g = torch.Generator().manual_seed(1)
    x = torch.randn(5, 2, generator=g).double()
    angle = torch.linspace(0, 2 * math.pi, 20_001).double()
    ball = torch.stack((angle.cos(), angle.sin()), 1)
    ball = 0.7 * ball / torch.linalg.vector_norm(ball, p, 1, keepdim=True)
    fits = [(ball @ (torch.tensor(s).double() @ x)).max() for s in product((-1.0, 1.0), repeat=5)]
    want = float(torch.stack(fits).mean()) / 5
    found = rademacher_complexity("linear", x, radius=0.7, p=p)
    assert found.kind == "exact"
    assert found.value == pytest.approx(want, rel=1e-6)
    assert rademacher_complexity("linear", x, radius=0.7, p=p, memory=100).value == pytest.approx(
        found.value, rel=1e-12
    )


def test_intervals_cover_and_are_not_far_too_long():
    values = torch.randn(9, 12, generator=torch.Generator().manual_seed(2)).double()
    exact = rademacher_complexity(values).value
    g = torch.Generator().manual_seed(3)
    found = [rademacher_complexity(values, draws=50, delta=0.05, generator=g) for _ in range(400)]
    missed = sum(not f.low <= exact <= f.high for f in found)
    assert binom.sf(missed - 1, 400, 0.05) > 1e-6
    spread = np.std([f.value for f in found])
    assert found[0].high - found[0].low < 20 * spread
    again = rademacher_complexity(values, draws=50, generator=torch.Generator().manual_seed(3))
    assert again.value == found[0].value


def test_networks_fit_noise_up_to_a_lower_bound():
    torch.manual_seed(0)
    x = torch.randn(6, 3)
    model = mlp([3, 40, 1], nn.Tanh)
    before = [p.clone() for p in model.parameters()]
    found = rademacher_complexity(model, x, draws=4, generator=torch.Generator().manual_seed(0))
    assert found.kind == "lower bound"
    assert 0.8 < found.value <= 1  # six points in general position are shattered
    assert found.high == math.inf
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    start = rademacher_complexity(model, x, draws=4, steps=0,
                                  generator=torch.Generator().manual_seed(0))  # fmt: skip
    signs = 2.0 * torch.randint(2, (4, 6), generator=torch.Generator().manual_seed(0)) - 1
    want = (signs * torch.tanh(model(x)[:, 0])).mean().item()
    assert start.value == pytest.approx(want, abs=1e-6)
    two = mlp([3, 40, 2], nn.Tanh)
    assert rademacher_complexity(two, x, draws=2).value > 0.8


def test_the_complexity_of_the_sample_has_three_times_the_root():
    found = rademacher_bound(0.1, 0.05, 200, delta=0.05, empirical=True)
    assert found == pytest.approx(0.1 + 2 * 0.05 + 3 * math.sqrt(math.log(40) / 400))


def test_gibbs_is_a_tilted_law():
    p = torch.tensor([0.2, 0.0, 0.8])
    q = gibbs_measure(p, torch.tensor([1.0, 5.0, 0.0]))
    want = p * torch.tensor([1.0, 5.0, 0.0]).exp()
    torch.testing.assert_close(q, want / want.sum())


def test_gap_with_a_loss_of_ones_own():
    x, y = torch.randn(50, 3), torch.rand(50, 1)
    model = nn.Linear(3, 1)

    def loss(z, y):
        return (z - y).square().clamp(max=1)[:, 0]

    found = generalisation_gap(model, x[:20], y[:20], fresh=(x[20:], y[20:]), loss=loss, delta=0.1)
    with torch.no_grad():
        each = loss(model(x), y)
    assert found.training == pytest.approx(float(each[:20].mean()), rel=1e-6)
    assert found.gap == pytest.approx(float(each[20:].mean() - each[:20].mean()), abs=1e-6)
    r, c = float(each[20:].mean()), math.log(20) / 30

    def kl(p):
        return r * math.log(r / p) + (1 - r) * math.log((1 - r) / (1 - p))

    assert kl(found.low + found.training) == pytest.approx(c, rel=1e-4)
    assert kl(found.high + found.training) == pytest.approx(c, rel=1e-4)
    assert found.low < found.gap < found.high


BAD: Any = "circles"
X, Y = torch.randn(4, 2), torch.tensor([0, 1, 0, 1])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: growth_function(BAD, 3), "family must be one of 'thresholds', 'intervals'"),
        (lambda: growth_function("half-spaces", 3), "d must be given for half-spaces, got None"),
        (lambda: growth_function("intervals", 3, d=2), "d must be 1 for intervals, got 2"),
        (lambda: growth_function("rectangles", 3, d=2), "family must have a formula"),
        (lambda: growth_function(2 * torch.ones(2, 2), 1), "entries of family must be 0 or 1"),
        (lambda: growth_function(torch.ones(2, 2), 3), "n must be <= 2, got 3"),
        (lambda: shatters(BAD, X), "family must be one of .* got 'circles'"),
        (lambda: shatters(torch.ones(2, 2), X), "x must be None for a table, got Tensor"),
        (lambda: shatters("intervals", X), r"x must be \(n, 1\) for intervals"),
        (lambda: shatters("half-spaces", X * torch.nan), "x must be finite, got nan"),
        (lambda: vc_dimension(torch.ones(2, 2), d=1), "d must be None for a table, got 1"),
        (lambda: sauer_bound(-1, 2), "n must be >= 0, got -1"),
        (lambda: finite_class_bound(0.1, 0, 9, delta=0.1), "size must be >= 1, got 0"),
        (lambda: finite_class_bound(1.1, 2, 9, delta=0.1), "risk must be <= 1, got 1.1"),
        (lambda: finite_class_bound(0.1, 2, 0, delta=0.1), "n must be >= 1, got 0"),
        (lambda: finite_class_bound(0.1, 2, 9, delta=1.0), "delta must be < 1, got 1"),
        (lambda: vc_bound(torch.tensor(2.0), 9, delta=0.1, growth=2), r"risk must be in \[0, 1\]"),
        (lambda: vc_bound(0.1, 9, delta=0.1), "one of dimension and growth must be given"),
        (lambda: vc_bound(0.1, 9, delta=0.1, growth=2, dimension=1), "one of dimension and growth"),
        (lambda: vc_inequality(0.0, 9, growth=2), "epsilon must be > 0, got 0"),
        (lambda: rademacher_bound(0.1, -0.1, 9, delta=0.1), "complexity must be >= 0, got -0.1"),
        (lambda: rademacher_bound(0.1, -X.abs(), 9, delta=0.1), "complexity must be >= 0, got -"),
        (lambda: rademacher_complexity(BAD, X), "family must be 'linear' or a table of values"),
        (lambda: rademacher_complexity(X, X), "x must be None for a table of values, got Tensor"),
        (lambda: rademacher_complexity("linear", X, p=0.5), "p must be >= 1, got 0.5"),
        (lambda: rademacher_complexity("linear", X, draws=0), "draws must be >= 1, got 0"),
        (lambda: rademacher_complexity("linear", X, delta=0.0), "delta must be > 0, got 0"),
        (lambda: rademacher_complexity(nn.Linear(2, 3), X), "model must give one number or two"),
        (lambda: gibbs_measure(torch.ones(2), torch.ones(2)), "p must sum to one"),
        (lambda: gibbs_measure(torch.ones(1), torch.ones(2)), "z must have the shape and dtype"),
        (lambda: generalisation_gap(nn.Linear(2, 2), X, Y, fresh=(X, Y), delta=0.0), "delta must"),
        (
            lambda: generalisation_gap(nn.Linear(2, 2), X, Y[:3], fresh=(X, Y)),
            "y must hold a class",
        ),
        (
            lambda: generalisation_gap(nn.Linear(2, 2), X, Y, fresh=(X[:0], Y[:0])),
            "fresh must have examples with outputs, got no example",
        ),
        (
            lambda: generalisation_gap(nn.Linear(2, 2), X, Y, fresh=(X * torch.nan, Y)),
            "fresh must have examples with outputs, got nan",
        ),
        (
            lambda: generalisation_gap(
                nn.Linear(2, 2), X, Y, fresh=(X, Y), loss=lambda z, y: y * 2
            ),
            r"losses must be in \[0, 1\], got 2",
        ),
        (
            lambda: generalisation_gap(nn.Linear(2, 2), X, Y, fresh=(X, Y), loss=lambda z, y: z),
            "loss must give a number for each of 4 examples",
        ),
    ],
)
def test_errors(act, message):
    with pytest.raises(ValueError, match=message):
        act()
