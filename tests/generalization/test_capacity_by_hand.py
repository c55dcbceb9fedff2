"""Growth by linear programs, witnesses that are asked, and intervals of complexities by hand."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor, nn

from vademecum.generalization import growth_function, rademacher_complexity, shatters


def separable(x: np.ndarray, signs: np.ndarray, *, bias: bool) -> bool:
    """Whether some half-space has these points inside, by a linear program."""
    A = np.concatenate([x, np.ones((len(x), 1))], 1) if bias else x
    rows = -signs[:, None] * A
    found = linprog(np.zeros(A.shape[1]), A_ub=rows, b_ub=-np.ones(len(x)),
                    bounds=[(None, None)] * A.shape[1])  # fmt: skip
    return found.status == 0


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_growth_of_half_spaces_is_that_of_points_in_general_position(bias, d):
    name: Any = "half-spaces" if bias else "homogeneous half-spaces"
    x = np.random.default_rng(d).standard_normal((5, d))
    for n in range(6):
        every = [np.array(s) for s in product((-1.0, 1.0), repeat=n)]
        count = sum(n == 0 or separable(x[:n], signs, bias=bias) for signs in every)
        assert growth_function(name, n, d=d) == count


@pytest.mark.parametrize("n", range(6))
def test_growth_on_the_line_by_all_ends(n):
    ends = [i - 0.5 for i in range(n + 1)]
    rays = {tuple(x >= t for x in range(n)) for t in ends}
    segments = {tuple(a <= x <= b for x in range(n)) for a in ends for b in ends}
    assert growth_function("thresholds", n) == len(rays)
    assert growth_function("intervals", n) == len(segments)
    assert growth_function("rectangles", n, d=1) == len(segments)


def labels_of(family: str, witness: Tensor, x: Tensor) -> Tensor:
    """What each witness says of each point."""
    if family == "thresholds":
        return x[:, 0] >= witness[:, None]
    if family == "intervals":
        return (x[:, 0] >= witness[:, :1]) & (x[:, 0] <= witness[:, 1:])
    if family == "rectangles":
        low, high = witness[:, None].unbind(2)
        return ((x >= low) & (x <= high)).all(2)
    ones = torch.ones(len(x), 1).double()
    points = torch.cat([x, ones], 1) if family == "half-spaces" else x
    return witness @ points.T >= 0


DIAMOND = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, -1.0], [-1.0, 0.0]]).double()
SETS = {
    "thresholds": torch.tensor([[0.3]]).double(),
    "intervals": torch.tensor([[0.3], [-2.0]]).double(),
    "rectangles": DIAMOND,
    "half-spaces": DIAMOND[:3],
    "homogeneous half-spaces": DIAMOND[:2] + 0.1,
}


@pytest.mark.parametrize("family", SETS)
def test_witnesses_give_their_labels(family: Any):
    x = SETS[family]
    found = shatters(family, x)
    assert found.shattered
    assert found.missing is None
    assert found.labels is not None
    assert len(found.labels.unique(dim=0)) == 2 ** len(x)
    assert labels_of(family, found.witness, x).long().equal(found.labels)
    assert not shatters(family, torch.cat([x, x.mean(0, keepdim=True)])).shattered


def test_a_point_on_the_side_of_a_box():
    """All three are extreme along some axis, by a tie; the first lies between the others."""
    found = shatters("rectangles", torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
    assert found.missing is not None
    assert found.missing.tolist() == [0, 1, 1]
    assert found.proof == 0


def test_functions_are_asked_for_each_labelling():
    x, asked = torch.zeros(3, 2), []

    def up_to_two(points: Tensor, labels: Tensor) -> Any:
        assert points.equal(x)
        asked.append(labels.tolist())
        return None if labels.sum() > 2 else len(asked)

    found = shatters(up_to_two, x)
    assert found.missing is not None
    assert found.missing.tolist() == [1, 1, 1]
    assert asked == [list(bits) for bits in product((0, 1), repeat=3)]
    every = shatters(lambda points, labels: labels.sum(), x)
    assert every.shattered
    assert torch.stack(every.witness).equal(every.labels.sum(1))  # pyright: ignore


VALUES = torch.tensor([[0.5, -1.0, 2.0], [0.0, 0.3, -0.2]]).double()


def test_a_finite_class_by_all_signs():
    best = [max(float(torch.tensor(s).double() @ f) for f in VALUES)
            for s in product((-1.0, 1.0), repeat=3)]  # fmt: skip
    for memory in (None, 1):
        found = rademacher_complexity(VALUES, memory=memory)
        assert found.value == pytest.approx(sum(best) / 8 / 3)
        assert found.low == found.high == found.value
        assert found.kind == "exact"
        assert found.draws == 8


@pytest.mark.parametrize("memory", [None, 1, 400])
def test_intervals_by_hand(memory):
    """Half a width of sqrt(2 sum of squares ln(2 / delta) / draws) / n, cut at what is possible."""
    largest = torch.tensor([0.5, 1.0, 2.0])
    for draws, delta in ((50, 0.1), (3000, 0.01)):
        found = rademacher_complexity(VALUES, draws=draws, delta=delta, memory=memory)
        error = math.sqrt(2 * 5.25 * math.log(2 / delta) / draws) / 3
        most = float(largest.sum()) / 3
        assert found.kind == "interval"
        assert found.draws == draws
        assert found.low == pytest.approx(max(found.value - error, -most))
        assert found.high == pytest.approx(min(found.value + error, most))
        exact = rademacher_complexity(VALUES).value
        assert found.low <= exact <= found.high
    few = rademacher_complexity(VALUES, draws=1, delta=1e-9)
    assert (few.low, few.high) == pytest.approx((-3.5 / 3, 3.5 / 3))


def test_radius_is_a_factor_and_orthogonal_points_a_formula():
    x = torch.tensor([[3.0, 0.0, 0.0], [0.0, -4.0, 0.0]]).double()
    formula = rademacher_complexity("linear", x, radius=1.5)
    assert formula.draws == 0
    assert formula.value == pytest.approx(1.5 * 5 / 2)
    turned = x + 1e-9
    enumerated = rademacher_complexity("linear", turned, radius=1.5)
    assert enumerated.draws == 4
    assert enumerated.value == pytest.approx(formula.value)
    drawn = rademacher_complexity("linear", x, radius=1.5, draws=7)
    assert drawn.draws == 7  # where they are asked for
    assert drawn.value == pytest.approx(formula.value)  # whatever the signs
    for p, size in ((1.0, 4.0), (math.inf, 7.0)):
        found = rademacher_complexity("linear", turned, radius=2.0, p=p)
        assert found.value == pytest.approx(2 * size / 2)


def test_many_points_are_drawn_for_by_default():
    x = torch.randn(21, 2).double()
    assert rademacher_complexity("linear", x).draws == 10_000
    assert rademacher_complexity("linear", x[:9]).draws == 512
    found = rademacher_complexity(nn.Linear(2, 1).double(), x, steps=0)
    assert (found.draws, found.kind, found.high) == (8, "lower bound", math.inf)
    assert found.low == found.value


def test_a_million_labellings_are_the_most():
    with pytest.raises(ValueError, match="n must be <= 20, got 21"):
        shatters(lambda points, labels: None, torch.zeros(21, 1))
    assert not shatters(lambda points, labels: None, torch.zeros(20, 1)).shattered
