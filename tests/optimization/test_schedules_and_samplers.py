"""Flows, continuation, schedules and samplers against closed forms and counts."""

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from scipy.special import zeta
from sklearn.exceptions import ConvergenceWarning
from torch.utils.data import DataLoader, TensorDataset

from vademecum.optimization import (
    CurriculumSampler,
    ImportanceSampler,
    continuation,
    gradient_flow,
    robbins_monro,
)

# Flows


def test_gradient_flow_of_a_stiff_quadratic():
    spectrum = torch.tensor([1e-2, 1.0, 1e5], dtype=torch.float64)
    Q = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    H, x0 = (Q * spectrum) @ Q.T, torch.randn(3, dtype=torch.float64)
    t = torch.tensor([0.0, 1e-5, 0.1, 3.0, 200.0], dtype=torch.float64)
    flow = gradient_flow(lambda x: x @ H @ x / 2, x0, t)
    wanted = torch.stack([torch.linalg.matrix_exp(-H * s) @ x0 for s in t])
    torch.testing.assert_close(flow.x, wanted, rtol=0, atol=1e-6)
    values = torch.stack([x @ H @ x / 2 for x in wanted])
    room = 1e-7 * float(values[0])
    torch.testing.assert_close(flow.values[0] - flow.dissipated, values, rtol=0, atol=room)
    assert flow.x[0].equal(x0)


def test_gradient_flow_of_a_quartic_in_single_precision():
    t = torch.tensor([0.5, 4.0])
    flow = gradient_flow(lambda x: (x**4).sum() / 4, torch.tensor([1.0, -2.0]), t)
    x0 = torch.tensor([1.0, -2.0])
    torch.testing.assert_close(flow.x, x0 / (1 + 2 * x0**2 * t[:, None]).sqrt())
    assert flow.x.dtype == torch.float32


BAD_FLOWS: list[Any] = [
    ({"t": torch.tensor([1.0, 0.5])}, "t must be at least 0 and increasing"),
    ({"t": torch.tensor([-1.0])}, "t must be at least 0 and increasing"),
    ({"x0": torch.ones(2, 2)}, "x0 must have 1 axes"),
    ({"tol": 0.0}, "tol must be > 0, got 0.0"),
    ({"f": lambda x: x}, r"f must return one number as a tensor, got shape \(1,\)"),
    ({"f": lambda x: 1.0}, "f must return one number as a tensor, got 1.0"),
    ({"f": lambda x: torch.tensor(1.0)}, "f must be differentiable"),
]


@pytest.mark.parametrize(("knobs", "message"), BAD_FLOWS)
def test_bad_flows(knobs, message, unchecked):
    given = {"f": lambda x: x @ x, "x0": torch.ones(1), "t": torch.ones(1)} | knobs
    f, x0, t = (given.pop(name) for name in ("f", "x0", "t"))
    with pytest.raises(ValueError, match=message):
        gradient_flow(f, x0, t, **given)


def test_a_flow_that_ends_is_said_to():
    with pytest.raises(ValueError, match="f must have a flow up to t = 2"):  # x = 1 / (1 - t)
        gradient_flow(lambda x: -(x**3).sum() / 3, torch.ones(1), torch.tensor([2.0]), tol=1e-3)


# Continuation


def shifted(x, level):
    return (x - level).square().sum(-1) / 2


def test_continuation_follows_the_minimum():
    x0 = torch.randn(4, 3, dtype=torch.float64)
    found = continuation(shifted, x0, [3.0, 2.0, 1.0], lr=0.5)
    wanted = torch.tensor([3.0, 2.0, 1.0], dtype=torch.float64)[:, None, None].expand(3, 4, 3)
    torch.testing.assert_close(found.path, wanted, rtol=0, atol=1e-7)
    assert found.x.equal(found.path[-1])
    assert found.converged.all()
    one = continuation(shifted, x0[0], [3.0], lr=0.5, tol=1e-2)
    assert one.x.shape == (3,)
    assert one.values.shape == ()
    assert 1e-6 < (one.x - 3).norm() <= 1e-2
    with pytest.warns(ConvergenceWarning, match="2 steps left a gradient of norm"):
        short = continuation(shifted, x0, [3.0], lr=0.5, max_iter=2)
    torch.testing.assert_close(short.x, 3 + (x0 - 3) / 4)
    assert not short.converged.any()


BAD_STAGES: list[Any] = [
    ({"levels": []}, "levels must not be empty"),
    ({"x0": torch.ones(2, 2, 2)}, r"x0 be \(d,\) or \(n, d\), got 1 levels"),
    ({"lr": 0.0}, "lr must be > 0, got 0.0"),
    ({"tol": -1.0}, "tol must be > 0, got -1.0"),
    ({"max_iter": 0}, "max_iter must be >= 1, got 0"),
    ({"f": lambda x, s: x}, r"f must return shape \(\) for x of \(1,\), got \(1,\)"),
    ({"f": lambda x, s: (x**4).sum(), "lr": 1e10, "x0": torch.full((1,), 1e9)}, "finite gradients"),
]


@pytest.mark.parametrize(("knobs", "message"), BAD_STAGES)
def test_bad_stages(knobs, message, unchecked):
    given = {"f": shifted, "x0": torch.ones(1), "levels": [1.0], "lr": 0.1} | knobs
    f, x0, levels = (given.pop(name) for name in ("f", "x0", "levels"))
    with pytest.raises(ValueError, match=message):
        continuation(f, x0, levels, **given)


# Schedules


@pytest.mark.parametrize(
    ("a", "b", "far", "settling"),
    [
        (0, 0, True, False),
        (Fraction(1, 3), 0, True, False),
        (0.5, 0, True, False),
        (0.5, 0.5, True, False),
        (0.5, Fraction(51, 100), True, True),
        (Fraction(501, 1000), -5, True, True),
        (1, 1, True, True),
        (1.0, 1.5, False, True),
        (1, -3, True, True),
        (Fraction(1001, 1000), -9, False, True),
        (2, 0, False, True),
        (-1, 0, True, False),
    ],
)
def test_robbins_monro_decides_powers(a, b, far, settling):
    found = robbins_monro(a, log=b, terms=10)
    assert (found.sum_diverges, found.squares_converge) == (far, settling)
    assert found.satisfied == (far and settling)


def test_robbins_monro_sums():
    found = robbins_monro(1, terms=2500)
    assert found.terms.tolist() == [1, 10, 100, 1000, 2500]
    for count, s, q in zip(found.terms.tolist(), found.sums, found.squares, strict=True):
        assert float(s) == pytest.approx(math.fsum(1 / t for t in range(1, count + 1)))
        assert float(q) == pytest.approx(zeta(2) - zeta(2, count + 1))
    logs = robbins_monro(1, log=2, terms=3)
    wanted = math.fsum(1 / (t * math.log(t) ** 2) for t in (2, 3, 4))
    assert float(logs.sums[-1]) == pytest.approx(wanted)
    own = robbins_monro(lambda t: 2 / t, terms=100)
    assert (own.satisfied, own.sum_diverges, own.squares_converge) == (None, None, None)
    torch.testing.assert_close(own.sums, 2 * found.sums[:3])
    torch.testing.assert_close(own.squares, 4 * found.squares[:3])


BAD_SCHEDULES: list[Any] = [
    (math.nan, {}, "schedule must be"),
    ("fast", {}, "schedule must be a number, got 'fast'"),
    (1, {"log": math.inf}, "log must be finite, got inf"),
    (1, {"terms": 0}, "terms must be >= 1, got 0"),
    (lambda t: t, {"log": 1}, "log must be 0 for a schedule that is a function, got 1"),
    (lambda t: -t, {}, "schedule must give finite step sizes >= 0"),
    (lambda t: 1 / (t - 1), {}, "schedule must give finite step sizes >= 0"),
    (lambda t: t.sum(), {}, "schedule must give a step size for each of 1000000"),
]


@pytest.mark.parametrize(("schedule", "knobs", "message"), BAD_SCHEDULES)
def test_bad_schedules(schedule, knobs, message, unchecked):
    with pytest.raises(ValueError, match=message):
        robbins_monro(schedule, **knobs)


# Samplers


def test_importance_sampler_draws_by_its_probabilities():
    scores = torch.tensor([1.0, 2.0, 0.0, 5.0], dtype=torch.float64)
    sampler = ImportanceSampler(scores, size=40_000, uniform=0.2)
    p = 0.8 * scores / 8 + 0.05
    torch.testing.assert_close(sampler.probabilities, p)
    torch.testing.assert_close(sampler.weights, 1 / (4 * p))
    counts = torch.tensor(list(sampler)).bincount(minlength=4)
    assert len(sampler) == counts.sum() == 40_000
    assert ((counts / 40_000 - p).abs() <= 5 * (p * (1 - p) / 40_000).sqrt()).all()


def test_importance_sampler_in_a_loader_and_updates():
    sampler = ImportanceSampler(torch.ones(6))
    loader = DataLoader(TensorDataset(torch.arange(6)), batch_size=3, sampler=sampler)
    assert [len(x) for (x,) in loader] == [3, 3]
    sampler.update(torch.tensor([4]), torch.tensor([5.0]))
    torch.testing.assert_close(sampler.weights, torch.ones(6))  # until the next pass
    iter(loader)._next_data()
    torch.testing.assert_close(sampler.weights[4], torch.tensor(10 / (6 * 5.0)))
    huge = ImportanceSampler(torch.tensor([1e38, 3e38]))
    torch.testing.assert_close(huge.probabilities, torch.tensor([0.25, 0.75]))


def test_curriculum_sampler_orders_and_grows():
    difficulty = torch.tensor([0.3, 0.1, 0.9, 0.1, 0.5])
    sampler = CurriculumSampler(difficulty)
    assert list(sampler) == [1, 3, 0, 4, 2]
    sampler.share = 0.5
    assert list(sampler) == [1, 3, 0]
    assert len(sampler) == 3
    drawn = CurriculumSampler(difficulty, share=0.6, shuffle=True)
    orders = {tuple(drawn) for _ in range(60)}
    assert len(orders) == 6
    assert all(sorted(order) == [0, 1, 3] for order in orders)


BAD_SAMPLERS: list[Any] = [
    (ImportanceSampler, torch.tensor([1.0, 0.0]), {}, "scores must be > 0 where uniform is 0"),
    (ImportanceSampler, torch.tensor([1.0, -1.0]), {"uniform": 0.5}, "scores must be >= 0 and not"),
    (ImportanceSampler, torch.zeros(2), {"uniform": 0.5}, "scores must be >= 0 and not all 0"),
    (ImportanceSampler, torch.ones(2, 2), {}, "scores must have 1 axes"),
    (ImportanceSampler, torch.ones(2).long(), {}, "scores must be floating point"),
    (ImportanceSampler, torch.tensor([torch.nan]), {}, "scores must be finite"),
    (ImportanceSampler, torch.ones(2), {"uniform": 1.1}, "uniform must be <= 1, got 1.1"),
    (ImportanceSampler, torch.ones(2), {"size": 0}, "size must be >= 1, got 0"),
    (CurriculumSampler, torch.ones(2), {"share": 0.0}, "share must be > 0, got 0.0"),
    (CurriculumSampler, torch.ones(2), {"share": 1.5}, "share must be <= 1, got 1.5"),
    (CurriculumSampler, torch.ones(0), {}, "difficulty must not be empty"),
]


@pytest.mark.parametrize(("kind", "scores", "knobs", "message"), BAD_SAMPLERS)
def test_bad_samplers(kind, scores, knobs, message, unchecked):
    with pytest.raises(ValueError, match=message):
        kind(scores, **knobs)


@pytest.mark.parametrize(
    ("index", "scores", "message"),
    [
        (torch.tensor([3]), torch.ones(1), r"index must be in 0 ... 2, got \[3\]"),
        (torch.tensor([0.0]), torch.ones(1), "index must be integers, one for each score"),
        (torch.tensor([0, 1]), torch.ones(1), "index must be integers, one for each score"),
        (torch.tensor([0]), -torch.ones(1), "scores must be > 0 where uniform is 0, got -1 at 0"),
    ],
)
def test_bad_updates(index, scores, message, unchecked):
    sampler = ImportanceSampler(torch.ones(3))
    with pytest.raises(ValueError, match=message):
        sampler.update(index, scores)
    torch.testing.assert_close(sampler.probabilities, torch.full((3,), 1 / 3))


def test_rare_examples_are_drawn_also_in_half_precision():
    n = 20_000
    sampler = ImportanceSampler(torch.ones(n, dtype=torch.float16), size=20 * n)
    seen = torch.bincount(torch.tensor(list(sampler)), minlength=n)
    assert seen.min() > 0  # each is missed with probability exp(-20)
    assert seen.max() < 60


def test_a_share_is_not_rounded_up():
    for share, count in ((0.07, 7), (0.28, 28), (0.281, 29), (1e-9, 1), (1.0, 100)):
        assert len(CurriculumSampler(torch.arange(100.0), share=share)) == count
