"""Named laws: Bernoulli, binomial, Poisson and exponential."""

import math
from collections.abc import Callable
from fractions import Fraction

import scipy.stats
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Binomial, Exponential, Poisson

from vademecum.claims import at_most, claim, consistent, equals
from vademecum.foundations import total_variation
from vademecum.foundations.claims.information import quadrature
from vademecum.foundations.claims.probability_rules import refusals

Formula = Callable[..., Tensor]


@claim(
    by="identity",
    sources=("A-019", "B-031"),
    budget=0.5,
    full={"draws": 10**6},
    short=r"P(x \mid p) = p^x (1 - p)^{1 - x},\; x \in \{0, 1\}:"
    r" \; \mathbb E[x] = p,\; \mathrm{Var}[x] = p (1 - p)",
)
def bernoulli(
    formula: Formula = lambda x, p: p**x * (1 - p) ** (1 - x),
    variance: Formula = lambda p: p * (1 - p),
    draws: int = 4000,
):
    r"""The Bernoulli distribution.

    $P(x \mid p) = p^x (1 - p)^{1 - x}$ for $x \in \{0, 1\}$ and $0 \le p \le 1$; the mean is $p$
    and the variance $p (1 - p) \le \frac14$.

    Checked on torch's probabilities, moments and the derivative $\frac{x - p}{p (1 - p)}$ of its
    log-probability, for $p = \frac k{12}$; and on the number of ones that it draws, by an exact
    binomial test.

    Knobs:
        formula: The probability of x given p.
        variance: The variance as a function of p.
        draws: How many draws are counted for each of three values of p.
    """
    p = torch.arange(13.0) / 12
    law, x = Bernoulli(p), torch.tensor([[0.0], [1.0]])
    table = formula(x, p)
    yield equals("torch's probabilities", law.log_prob(x.expand(2, 13)).exp(), table)
    yield equals("sum of the probabilities", table.sum(0), 1.0)
    yield equals("mean", (x * table).sum(0), p)
    yield equals("torch's mean", law.mean, p)
    yield equals("variance", (x**2 * table).sum(0) - p**2, variance(p))
    yield equals("torch's variance", law.variance, variance(p))
    yield at_most("variance", variance(p), 0.25)
    yield equals("variance of a fair coin", variance(torch.tensor(0.5)), 0.25)
    inner = p[1:-1].clone().requires_grad_()
    for value in (0.0, 1.0):
        log = Bernoulli(inner).log_prob(torch.full_like(inner, value))
        (slope,) = torch.autograd.grad(log.sum(), inner)
        exact = (value - inner) / (inner * (1 - inner))
        yield equals("slope of the log-probability", slope, exact, x=value)
    for k in (1, 5, 9):
        ones = int(Bernoulli(k / 12).sample(torch.Size([draws])).sum())
        test = scipy.stats.binomtest(ones, draws, k / 12)
        yield consistent("p-value of the ones drawn", float(test.pvalue), alpha=1e-7, p=k / 12)


bernoulli.foil("the roles of 0 and 1 exchanged", formula=lambda x, p: p ** (1 - x) * (1 - p) ** x)
bernoulli.foil("the variance is not $p$", variance=lambda p: p)


def binomial_pmf(x: int, n: int, p: Fraction) -> Fraction:
    """The probability of x successes in n trials."""
    return math.comb(n, x) * p**x * (1 - p) ** (n - x)


def hypergeometric_pmf(x: int, n: int, p: Fraction) -> Fraction:
    """Without replacement, from n balls for each unit of the denominator."""
    good, bad = n * p.numerator, n * (p.denominator - p.numerator)
    return Fraction(math.comb(good, x) * math.comb(bad, n - x), math.comb(good + bad, n))


@claim(
    by="identity",
    sources=("A-020", "B-032"),
    budget=0.5,
    full={"trials": (1, 2, 3, 20, 60)},
    short=r"P(x \mid n, p) = \tbinom nx p^x (1 - p)^{n - x}:"
    r" \; \mathbb E[x] = n p,\; \mathrm{Var}[x] = n p (1 - p)",
)
def binomial(
    formula: Callable[[int, int, Fraction], Fraction] = binomial_pmf,
    trials: tuple[int, ...] = (1, 2, 3, 7, 12),
):
    r"""The binomial distribution.

    $P(x \mid n, p) = \binom nx p^x (1 - p)^{n - x}$ for $x = 0, \dots, n$: the number of successes
    in $n$ independent Bernoulli trials of probability $p$; the mean is $n p$ and the variance
    $n p (1 - p)$.

    Checked in fractions, which are rounded only to be compared, against the $n$-fold convolution of
    the Bernoulli law; torch's log-probabilities too.

    Knobs:
        formula: The probability of x given n and p.
        trials: The numbers n of trials.
    """
    for n in trials:
        for k in range(1, 7):
            p = Fraction(k, 7)
            law = [Fraction(1)]
            for _ in range(n):
                law = [(1 - p) * a + p * b for a, b in zip([*law, 0], [0, *law], strict=True)]
            pmf = [formula(x, n, p) for x in range(n + 1)]
            at, exact = {"n": n, "k": k}, [float(v) for v in law]
            found = [float(v) for v in pmf]
            yield equals("probabilities", found, exact, tol=0.0, **at)
            torch_law = Binomial(n, torch.tensor(k / 7))
            logs = torch_law.log_prob(torch.arange(n + 1.0))
            yield equals("torch's log-probabilities", logs, [math.log(v) for v in found], **at)
            mean = sum(x * v for x, v in enumerate(pmf))
            spread = sum(x * x * v for x, v in enumerate(pmf)) - mean**2
            yield equals("mean", float(mean), float(n * p), tol=0.0, **at)
            yield equals("variance", float(spread), float(n * p * (1 - p)), tol=0.0, **at)
            yield equals("torch's mean", torch_law.mean, float(mean), **at)
            yield equals("torch's variance", torch_law.variance, float(spread), **at)


binomial.foil(
    "without the coefficient one order of the successes is counted",
    formula=lambda x, n, p: p**x * (1 - p) ** (n - x),
)
binomial.foil("draws without replacement have the same mean", formula=hypergeometric_pmf)


@claim(
    by="identity",
    sources=("A-021", "B-033"),
    budget=0.5,
    full={"sizes": (50, 500, 5000)},
    short=r"P(x \mid \lambda) = \tfrac{\lambda^x e^{-\lambda}}{x!}:"
    r" \; \mathbb E[x] = \mathrm{Var}[x] = \lambda",
)
def poisson(
    log_formula: Formula = lambda x, rate: x * rate.log() - rate - torch.lgamma(x + 1),
    variance: Formula = lambda rate: rate,
    power: int = 1,
    sizes: tuple[int, ...] = (50, 500),
):
    r"""The Poisson distribution.

    $P(x \mid \lambda) = \frac{\lambda^x e^{-\lambda}}{x!}$ for $x = 0, 1, 2, \dots$ and
    $\lambda > 0$; mean and variance are both $\lambda$. It is the limit of
    $\mathrm{Binomial}(n, \frac\lambda n)$, with a total variation distance of at most
    $\frac{\lambda^2}n$ (Le Cam, 1960).

    Checked on the formula and on torch's and SciPy's probabilities, by their logarithms, against
    the products $e^{-\lambda} \frac\lambda1 \cdots \frac\lambda x$; sums run up to 250, beyond
    which less than $10^{-100}$ is left. The distance is that of torch's binomial laws.

    Knobs:
        log_formula: The logarithm of the probability of x given the rate.
        variance: The variance as a function of the rate.
        power: The power of n in the bound of the distance.
        sizes: The numbers n of trials of the binomial laws.
    """
    x = torch.arange(251.0)
    for rate in torch.tensor([0.5, 3.0, 20.0]):
        law, at = Poisson(rate), float(rate)
        log = log_formula(x, rate)
        pmf = log.exp()
        yield equals("sum of the probabilities", pmf.sum(), 1.0, rate=at)
        exact = -rate + torch.cat([torch.zeros(1), (rate / x[1:]).log().cumsum(0)])
        yield equals("log-probabilities", log, exact, rate=at)
        yield equals("torch's log-probabilities", law.log_prob(x), exact, rate=at)
        scipys = scipy.stats.poisson.logpmf(x.numpy(), at)
        yield equals("SciPy's log-probabilities", scipys, exact, rate=at)
        mean = (x * pmf).sum()
        spread = ((x - mean) ** 2 * pmf).sum()
        yield equals("mean", mean, at, rate=at)
        yield equals("torch's mean", law.mean, at, rate=at)
        yield equals("variance", spread, variance(rate), rate=at)
        yield equals("torch's variance", law.variance, variance(rate), rate=at)
        for n in sizes:
            few = Binomial(n, rate / n).log_prob(x[: n + 1]).exp()
            width = max(251, n + 1)
            p, q = (torch.nn.functional.pad(v, (0, width - len(v))) for v in (pmf, few))
            p, q = p / p.sum(), q / q.sum()
            distance = total_variation(p, q)
            where = {"n": n, "rate": at}
            yield equals(
                "distance from a binomial law", distance, (p - q).clamp(min=0).sum(), **where
            )
            most = rate**2 / n**power
            yield at_most("distance from a binomial law", distance, most, **where)


poisson.foil(
    r"$\lambda$ is the variance, not the standard deviation", variance=lambda rate: rate**2
)
poisson.foil("without $x!$ it adds up to 1.2", log_formula=lambda x, rate: x * rate.log() - rate)
poisson.foil(r"the distance does not fall as fast as $n^{-2}$", power=2)


@claim(
    by="identity",
    sources=("A-018", "B-030"),
    budget=0.5,
    short=r"p(x \mid \lambda) = \lambda e^{-\lambda x},\; x \ge 0:"
    r" \; \mathbb E[x] = 1/\lambda,\; \mathrm{Var}[x] = 1/\lambda^2",
)
def exponential(
    formula: Formula = lambda x, rate: torch.where(x >= 0, rate * (-rate * x).exp(), 0),
):
    r"""The exponential distribution.

    $p(x \mid \lambda) = \lambda e^{-\lambda x}$ for $x \ge 0$ and 0 for $x < 0$, with the rate
    $\lambda > 0$; the mean is $\frac1\lambda$ and the variance $\frac1{\lambda^2}$. It is
    memoryless: $P(X > s + t \mid X > s) = P(X > t)$.

    Torch takes the rate and SciPy the scale $\frac1\lambda$; torch refuses negative $x$, where it
    would not cut the density off.

    Knobs:
        formula: The density at x given the rate.
    """
    for rate in (0.5, 2.0, 3.0):
        law = Exponential(rate, validate_args=True)  # a default that `torch.compile` turns off
        x = torch.cat([torch.rand(20) * 5 / rate, -torch.rand(5), torch.zeros(1)])
        inside, outside = x[x >= 0], x[x < 0]
        density = torch.as_tensor(scipy.stats.expon.pdf(inside.numpy(), scale=1 / rate))
        share = formula(inside, rate) / density
        yield equals("density over SciPy's", share, 1.0, rate=rate)
        yield equals("density left of 0", formula(outside, rate), 0.0, tol=0.0, rate=rate)
        share = law.log_prob(inside).exp() / density
        yield equals("torch's density over SciPy's", share, 1.0, rate=rate)
        below = scipy.stats.expon.cdf(inside.numpy(), scale=1 / rate)
        yield equals("torch's distribution function", law.cdf(inside), below, rate=rate)
        refused = refusals(lambda law=law: law.log_prob(torch.tensor(-1.0)))
        yield equals("refusals of torch to look left of 0", refused, 1, rate=rate)
        t, w = quadrature(0.0, 45 / rate)
        for k, exact in enumerate((1.0, 1 / rate, 2 / rate**2)):
            moment = (w * t**k * formula(t, rate)).sum()
            yield equals("moment of order k", moment, exact, k=k, rate=rate)
        yield equals("torch's mean", law.mean, 1 / rate, rate=rate)
        yield equals("torch's variance", law.variance, 1 / rate**2, rate=rate)
        s, t = torch.rand(2, 10) / rate
        later = (1 - law.cdf(s + t)) / (1 - law.cdf(s))
        yield equals("chance to outlast t after s", later, 1 - law.cdf(t), rate=rate)


exponential.foil(
    r"$\lambda$ read as the scale: $\frac1\lambda e^{-x / \lambda}$",
    formula=lambda x, rate: torch.where(x >= 0, (-x / rate).exp() / rate, 0),
)
exponential.foil("not cut off at 0", formula=lambda x, rate: rate * (-rate * x).exp())
