"""PAC-Bayes bounds against 50 digits, their moment constant, and how often they fail."""

import math
from fractions import Fraction
from typing import Any

import mpmath
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import binom, binomtest

from vademecum.generalization import pac_bayes_bound

CASES = [(0.02, 50.0, 10_000, 0.05), (0.3, 2.0, 40, 0.1), (0.0, 0.0, 500, 0.01), (0.9, 7.0, 9, 0.5)]


def by_hand(kind: str, r: Any, kl: Any, n: int, delta: Any, C: float = 1.5) -> Any:
    with mpmath.workdps(40):
        r, kl, delta = (mpmath.mpf(v) for v in (r, kl, delta))
        B = (kl + mpmath.log(2 * mpmath.sqrt(n) / delta)) / n
        if kind == "mcallester":
            return r + mpmath.sqrt(B / 2)
        if kind == "quadratic":
            return (mpmath.sqrt(r + B / 2) + mpmath.sqrt(B / 2)) ** 2
        rest = (kl + mpmath.log(1 / delta)) / n
        return (1 - mpmath.exp(-C * r - rest)) / (1 - mpmath.exp(-mpmath.mpf(C)))


@pytest.mark.parametrize("kind", ["mcallester", "quadratic", "catoni"])
@pytest.mark.parametrize("case", CASES)
def test_formulas_and_never_below_them(kind: Any, case):
    r, kl, n, delta = case
    C = 1.5 if kind == "catoni" else None
    found, exact = pac_bayes_bound(r, kl, n, delta=delta, kind=kind, C=C), by_hand(kind, *case)
    assert found >= exact
    assert found == pytest.approx(float(exact), rel=1e-12)
    narrow = [torch.tensor(v) for v in (r, kl)]
    single = pac_bayes_bound(narrow[0], narrow[1], n, delta=delta, kind=kind, C=C)
    assert single.dtype == torch.float32
    assert single.item() >= by_hand(kind, narrow[0].item(), narrow[1].item(), n, delta)


@pytest.mark.parametrize("case", CASES)
def test_inverted_bound_solves_its_equation(case):
    r, kl, n, delta = case
    c = (kl + math.log(2 * math.sqrt(n) / delta)) / n

    def excess(p):
        return (r * math.log(r / p) if r else 0) + (1 - r) * math.log((1 - r) / (1 - p)) - c

    found = pac_bayes_bound(r, kl, n, delta=delta)
    assert found == pytest.approx(brentq(excess, max(r, 1e-12), 1 - 1e-15, xtol=1e-15), rel=1e-9)


@pytest.mark.parametrize("n", range(1, 30))
def test_the_moment_is_at_most_twice_the_root(n):
    """Maurer's constant holds for every n, the small ones by enumeration in fractions."""
    total = sum(
        math.comb(n, k) * Fraction(k, n) ** k * Fraction(n - k, n) ** (n - k) for k in range(n + 1)
    )
    assert total**2 <= 4 * n


def test_the_grid_is_never_better_than_the_best_parameter_and_pays_for_its_size():
    r, kl, n, delta = 0.05, 30.0, 5_000, 0.05
    best = min(
        pac_bayes_bound(r, kl, n, delta=delta, kind="catoni", C=c)
        for c in torch.logspace(-2, 1, 200).tolist()
    )
    J = 2 * math.ceil(math.log2(8 * math.sqrt(n))) + 1
    grid = [8 * 2 ** (-j / 2) for j in range(J)]
    found = pac_bayes_bound(r, kl, n, delta=delta, kind="catoni")
    union = min(float(by_hand("catoni", r, kl, n, delta / J, c)) for c in grid)
    assert found == pytest.approx(union, rel=1e-12)
    assert best < found < 1.1 * best


@pytest.mark.parametrize("kind", ["kl", "quadratic", "mcallester", "catoni"])
def test_gradients_point_the_right_way(kind):
    risk = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    kl = torch.tensor(20.0, dtype=torch.float64, requires_grad=True)

    def bound(risk, kl):
        return pac_bayes_bound(risk, kl, 1000, delta=0.05, kind=kind)

    assert torch.autograd.gradcheck(bound, (risk, kl))
    assert all(g > 0 for g in torch.autograd.grad(bound(risk, kl), (risk, kl)))
    single = pac_bayes_bound(risk.float(), 20.0, 1000, delta=0.05, kind=kind)
    (g,) = torch.autograd.grad(single, risk)
    assert g > 0


@pytest.mark.parametrize("kind", ["kl", "quadratic", "mcallester", "catoni"])
@pytest.mark.parametrize("seen", [False, True])
def test_coverage(kind, seen):
    """The best of a million coins: KL = ln K. A prior that saw them, KL = 0, is caught."""
    n, K, delta = 50, 10**6, 0.05
    u = torch.rand(1000, generator=torch.Generator().manual_seed(5)).double()
    least = torch.from_numpy(binom.ppf(-torch.expm1((-u).log1p() / K).numpy(), n, 0.5)) / n
    bound = pac_bayes_bound(least, 0.0 if seen else math.log(K), n, delta=delta, kind=kind)
    failures = int((bound < 0.5).sum())
    p_value = binomtest(failures, 1000, delta, alternative="greater").pvalue
    assert bool(p_value < 1e-6) is seen
