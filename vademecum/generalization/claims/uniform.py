"""Uniform bounds: gaps between risk and risk on a sample, for one function and for a class."""

import math
from collections.abc import Callable
from decimal import Decimal
from itertools import combinations_with_replacement, product

import torch
from scipy.stats import binom, binomtest, kstwo
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, consistent, equals
from vademecum.foundations import hoeffding_bound
from vademecum.generalization import finite_class_bound, growth_function, vc_bound
from vademecum.generalization import generalisation_gap as gap_of
from vademecum.generalization import vc_inequality as vapnik_chervonenkis


class Table(nn.Module):
    """A classifier of the points 0, ..., m - 1 by a table of its answers."""

    def __init__(self, answers: Tensor):
        super().__init__()
        self.register_buffer("scores", nn.functional.one_hot(answers, 2).double())

    def forward(self, x: Tensor) -> Tensor:
        """The scores of two classes."""
        return self.get_buffer("scores")[x]


def any_of(log_count: float, log_tail: float) -> float:
    """The probability that one of exp(log_count) independent events happens, in log space."""
    tail = math.exp(min(log_tail, 0.0))
    each = log_tail if tail < 1e-9 else math.log(-math.log1p(-tail)) if tail < 1 else math.inf
    return -math.expm1(-math.exp(min(log_count + each, 700.0)))


def samples(m: int, n: int) -> list[tuple[tuple[int, ...], float]]:
    """The multisets of n points among m, each with the probability of being drawn."""
    found = []
    for each in combinations_with_replacement(range(m), n):
        orders = math.factorial(n)
        for i in range(m):
            orders //= math.factorial(each.count(i))
        found.append((each, orders / m**n))
    return found


@claim(
    by="identity",
    sources=("A-282", "C-273", "C-280", "D-380"),
    budget=1.0,
    short=r"\mathbb E[\mathcal R(f) - \hat{\mathcal R}_n(f)] = 0 \le"
    r" \mathbb E[\mathcal R(\hat f) - \hat{\mathcal R}_n(\hat f)]",
)
def generalisation_gap(selected: float = 0.5, lost: int = 0):
    r"""Risk, empirical risk and generalisation gap.

    With a loss in $[0, 1]$ the gap is $\mathcal R(f) - \hat{\mathcal R}_n(f)$, population minus
    empirical risk (some authors clip it at 0). For a function fixed before the sample the empirical
    risk is unbiased, for the 0-1 loss with variance $e_f (1 - e_f) / n$, so the mean gap is 0. For
    a minimiser of the empirical risk it is not negative, $\mathbb E \hat{\mathcal R}_n(\hat f) \le
    \min_f \mathcal R(f) \le \mathbb E \mathcal R(\hat f)$, because it was selected on the same
    data.

    Checked with `generalisation_gap` for all classifiers of 3 and of 2 points with drawn labels,
    all samples of 2 and of 5, exactly: averaged over all minimisers of a sample the mean gap is
    $\frac12 (1 - \frac1m)^n$, half of the points not seen, 2/9 and 1/64. The inequalities also for
    drawn classes of some of the classifiers.

    Knobs:
        selected: The share of errors that a minimiser makes on points not seen.
        lost: How many examples the variance loses.
    """
    for m, n in ((3, 2), (2, 5)):
        truth = torch.randint(2, (m,))
        domain, drawn = torch.arange(m), samples(m, n)
        weights = torch.tensor([w for _, w in drawn])
        training, risks = [], []
        for answers in product((0, 1), repeat=m):
            model = Table(torch.tensor(answers))
            found = [gap_of(model, torch.tensor(s), truth[list(s)], fresh=(domain, truth))
                     for s, _ in drawn]  # fmt: skip
            seen, e = torch.tensor([f.training for f in found]), found[0].fresh
            gaps = torch.tensor([f.gap for f in found])
            at = {"points": m, "n": n}
            yield equals("mean gap of a fixed classifier", weights @ gaps, 0.0, tol=1e-12, **at)
            spread = weights @ (seen - e).square()
            yield equals("variance of its empirical risk", spread, e * (1 - e) / (n - lost), **at)
            wrong = sum(int(a != t) for a, t in zip(answers, truth.tolist(), strict=True)) / m
            yield equals("risk of a fixed classifier", e, wrong, **at)
            training.append(seen)
            risks.append(e)
        yield from _selected(torch.stack(training), torch.tensor(risks), weights, selected, m, n)


def _selected(training: Tensor, risks: Tensor, weights: Tensor, share: float, m: int, n: int):
    """Evidence on minimisers: of all classifiers, and of drawn halves of them."""
    seen, risk = _minimised(training, risks, weights)
    formula = share * (1 - 1 / m) ** n
    yield equals("mean gap of a minimiser", risk - seen, formula, points=m, n=n)
    for _ in range(5):
        some = torch.randperm(len(risks))[: len(risks) // 2]
        seen, risk = _minimised(training[some], risks[some], weights)
        least = float(risks[some].min())
        yield at_most("mean empirical risk of a minimiser", seen, least, points=m, n=n)
        yield at_least("mean risk of a minimiser", risk, least, points=m, n=n)


def _minimised(training: Tensor, risks: Tensor, weights: Tensor) -> tuple[float, float]:
    """Mean empirical and true risk over all minimisers of each sample."""
    least = training.amin(0)
    best = (training <= least + 1e-12).double()
    return float(weights @ least), float(weights @ ((risks @ best) / best.sum(0)))


generalisation_gap.foil("the empirical risk of a minimiser is unbiased", selected=0.0)
generalisation_gap.foil("a variance over n - 1", lost=1)


@claim(
    by="identity",
    sources=("A-274", "C-274"),
    budget=0.5,
    short=r"P(\sup_{f \in \mathcal F} |\hat{\mathcal R}_n(f) - \mathcal R(f)| > \epsilon) \le"
    r" 2 |\mathcal F| e^{-2 n \epsilon^2}",
)
def uniform_bound(counted: bool = True, width: float = 1.0):
    r"""Hoeffding bound for one function and uniform bound for a finite class.

    For one function fixed in advance and a loss in $[0, 1]$, $\mathcal R(f) - \hat{\mathcal R}_n(f)
    \le \sqrt{\ln(1/\delta) / (2n)}$ with probability at least $1 - \delta$. A uniform bound
    controls $\sup_{f \in \mathcal F} |\hat{\mathcal R}_n(f) - \mathcal R(f)|$ for the whole class
    at once; for finite $\mathcal F$ the union bound gives $P(\sup > \epsilon) \le 2 |\mathcal F|\,
    e^{-2 n \epsilon^2}$.

    Checked with `finite_class_bound`: exact binomial tails for one function, and for up to $10^6$
    functions with independent errors of probability 1/2, on one side and both; with equality of the
    union of `hoeffding_bound` at its width.

    Knobs:
        counted: Whether the size of the class enters the bound.
        width: By how much its width is multiplied.
    """
    for n, e, delta in product((10, 100, 1000), (0.1, 0.3, 0.5), (0.2, 0.05, 0.001)):
        k = torch.arange(n + 1).double()
        bound = finite_class_bound(k / n, 1, n, delta=delta)
        fails = (k / n + width * (bound - k / n) < e).numpy()
        missed = float(binom.pmf(k.numpy(), n, e)[fails].sum())
        yield at_most("probability that the risk is above", missed, delta, n=n, e=e, delta=delta)
    for n, K, delta in product((100, 400), (1, 1000, 10**6), (0.05, 0.001)):
        size, at = (K if counted else 1), {"n": n, "functions": K, "delta": delta}
        for two_sided in (False, True):
            excess = finite_class_bound(0.0, size, n, delta=delta, two_sided=two_sided)
            tail = K * hoeffding_bound(excess, n, two_sided=two_sided)
            yield equals("union of Hoeffding's bounds", tail, delta, **at)
            log_tail = float(binom.logcdf(math.ceil(n * (0.5 - width * excess)) - 1, n, 0.5))
            log_tail += math.log(1 + two_sided)
            missed = any_of(math.log(K), log_tail)
            yield at_most("probability that any risk is off", missed, delta, **at)


uniform_bound.foil(
    "the bound for one function, for the best of a million",
    refuted_by="probability that any risk is off",
    counted=False,
)
uniform_bound.foil("half the width", width=0.5)


@claim(
    by="identity",
    sources=("A-278", "C-276"),
    budget=0.5,
    short=r"P[\sup_f |\hat{\mathcal R}_n(f) - \mathcal R(f)| > \epsilon] \le"
    r" 8\, S_{\mathcal F}(n)\, e^{-n \epsilon^2 / 32}",
)
def vc_inequality(counted: bool = True, rate: float = 32.0):
    r"""Vapnik-Chervonenkis inequality.

    $P[\sup_{f \in \mathcal F} |\hat{\mathcal R}_n(f) - \mathcal R(f)| > \epsilon] \le 8\,
    S_{\mathcal F}(n)\, e^{-n \epsilon^2 / 32}$ for every law of the data.

    Checked with `vc_inequality` for classes of $K$ classifiers with independent errors of
    probability 1/2, exactly, up to $K = e^{300}$ and $n = 5000$; and for thresholds with the exact
    law of Kolmogorov's statistic, whatever the continuous law of the data.

    Knobs:
        counted: Whether the growth function enters the bound.
        rate: The number by which the exponent is divided.
    """

    def bound(epsilon: float, n: int, growth: float) -> float:
        return vapnik_chervonenkis(epsilon * math.sqrt(32 / rate), n, growth=growth)

    grid = product((100, 2000, 5000), (0.05, 0.1, 0.2, 0.5, 0.8), (0.0, 20.0, 200.0, 300.0))
    for n, epsilon, log_K in grid:
        growth = min(math.exp(log_K), 2.0 ** min(n, 1000)) if counted else 1
        off = math.floor(n * (0.5 - epsilon) - 1e-9)  # strictly farther than epsilon
        log_tail = float(binom.logcdf(off, n, 0.5)) + math.log(2) if off >= 0 else -math.inf
        missed = any_of(log_K, log_tail)
        at = {"n": n, "epsilon": epsilon, "log_K": log_K}
        yield at_most("probability that any risk is off", missed, bound(epsilon, n, growth), **at)
    for n, epsilon in product((50, 500, 4000), (0.02, 0.05, 0.2, 0.5)):
        growth = growth_function("thresholds", n) if counted else 1
        missed = float(kstwo.sf(epsilon, n))
        yield at_most("off by thresholds", missed, bound(epsilon, n, growth), n=n, epsilon=epsilon)
    for n, twice, S in ((2000, 1, 2001), (5000, 2, 10**9)):
        exponent = Decimal(-n * twice**2) / (4 * 32)  # epsilon = twice / 2
        exact = min(8 * S * exponent.exp(), Decimal(1))
        yield equals("the bound itself", bound(twice / 2, n, S), float(exact), n=n, S=S)


vc_inequality.foil(
    "the bound without the growth function",
    refuted_by="probability that any risk is off",
    counted=False,
)
vc_inequality.foil("a quarter of the denominator", rate=8.0)


@claim(
    by="sampling",
    sources=("B-421", "D-381"),
    budget=0.8,
    full={"repetitions": 20_000},
    short=r"P(\sup_f [\mathcal R(f) - \hat{\mathcal R}_n(f)] > \epsilon)"
    r" \le 2 S_{\mathcal F}(2n)\, e^{-n \epsilon^2 / 8}",
)
def vc_generalisation_bound(counted: bool = True, width: float = 1.0, repetitions: int = 2000):
    r"""VC generalisation bound.

    With probability at least $1 - \delta$, simultaneously for all $f \in \mathcal F$: $\mathcal
    R(f) \le \hat{\mathcal R}_n(f) + 2 \sqrt{2 (\ln S_{\mathcal F}(2n) + \ln \frac2\delta) / n}$; it
    says nothing (is above 1) once $\ln S_{\mathcal F}(2n)$ is of the order of $n / 8$.

    Checked with `vc_bound` for $K$ classifiers with independent errors of probability 1/2, exactly;
    for thresholds on 200 points with a fifth of the labels wrong, by an exact binomial test. At its
    width $\epsilon$, $2 S_{\mathcal F}(2n)\, e^{-n \epsilon^2 / 8} = \delta$.

    Knobs:
        counted: Whether the growth function enters the bound.
        width: By how much its width is multiplied.
        repetitions: How many samples are drawn.
    """
    grid = product((400, 3000), (0.0, 5.0, 80.0), (0.2, 0.05, 0.001))
    for n, log_K, delta in grid:
        growth, at = (math.exp(log_K) if counted else 1), {"n": n, "log_K": log_K, "delta": delta}
        excess = width * vc_bound(0.0, n, delta=delta, growth=growth)
        tail = 2 * math.exp(log_K - n * excess**2 / 8)
        yield equals("twice the growth times the exponential", tail, delta, **at)
        missed = any_of(log_K, float(binom.logcdf(math.ceil(n * (0.5 - excess)) - 1, n, 0.5)))
        yield at_most("probability that any risk is above", missed, delta, **at)
    for n in (800, 8000):
        edge = vc_bound(0.0, n, delta=0.05, growth=int(math.exp(n / 80)) ** 10)
        yield at_least("the bound where the growth is exp(n / 8)", edge, 1.0, n=n)
        yield at_most("the bound at a hundredth of it",
                      vc_bound(0.0, n, delta=0.05, growth=math.exp(n / 800)), 1.0, n=n)  # fmt: skip
    n, delta = 200, 0.1
    growth = growth_function("thresholds", 2 * n) if counted else 1

    def limit(risk: Tensor) -> Tensor:
        return risk + width * (vc_bound(risk, n, delta=delta, growth=growth) - risk)

    missed = _missed_thresholds(n, repetitions, limit)
    test = binomtest(missed, repetitions, delta, alternative="greater")
    yield consistent("p-value of failing too often", float(test.pvalue), failures=missed)


def _missed_thresholds(n: int, repetitions: int, bound: Callable[[Tensor], Tensor]) -> int:
    """In how many samples a threshold has a risk above its bound; a fifth of labels is wrong."""
    x = torch.rand(repetitions, n).sort(1).values
    y = (x >= 0.5) ^ (torch.rand(repetitions, n) < 0.2)
    zeros = torch.zeros(repetitions, 1)
    below = torch.cat((zeros, y.double().cumsum(1)), 1)  # ones below the threshold are wrong
    above = torch.cat(((~y).double().flip(1).cumsum(1).flip(1), zeros), 1)
    seen = (below + above) / n
    ends = torch.cat((zeros, x), 1), torch.cat((x, zeros + 1), 1)
    risk = torch.stack([0.2 + 0.6 * (t - 0.5).abs() for t in ends]).amax(0)  # largest in between
    return int((risk > bound(seen)).any(1).sum())


vc_generalisation_bound.foil(
    "without the growth function",
    refuted_by="probability that any risk is above",
    counted=False,
)
vc_generalisation_bound.foil("a fifth of the width", width=0.2)
