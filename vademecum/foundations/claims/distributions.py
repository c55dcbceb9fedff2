"""What the course claims of the Bernoulli, binomial, Poisson and exponential laws."""

import math
from collections.abc import Callable
from fractions import Fraction

import scipy.stats
import torch
from torch import Tensor
from torch.distributions import Bernoulli, Binomial, Exponential, Poisson

from vademecum.claims import at_most, claim, consistent, equals
from vademecum.foundations.claims.information import quadrature
from vademecum.foundations.claims.probability_rules import refusals
from vademecum.foundations.divergences import total_variation

Formula = Callable[..., Tensor]


@claim(by="identity", sources=("A-019", "B-031"), budget=0.5, full={"draws": 10**6})
def bernoulli(
    formula: Formula = lambda x, p: p**x * (1 - p) ** (1 - x),
    variance: Formula = lambda p: p * (1 - p),
    draws: int = 4000,
):
    r"""The Bernoulli distribution.

    $P(x \mid p) = p^x (1 - p)^{1 - x}$ for $x \in \{0, 1\}$ and $0 \le p \le 1$; the mean is $p$
    and the variance $p (1 - p) \le \frac14$.

    *Check.* Torch's probabilities, moments and the derivative $\frac{x - p}{p (1 - p)}$ of its
    log-probability, for $p = \frac k{12}$; the number of ones that it draws, by an exact binomial
    test.
    """
    p = torch.arange(13.0) / 12
    law, x = Bernoulli(p), torch.tensor([[0.0], [1.0]])
    table = formula(x, p)
    yield equals(law.log_prob(x.expand(2, 13)).exp(), table)
    yield equals(table.sum(0), 1.0)
    yield equals((x * table).sum(0), law.mean)
    yield equals(law.mean, p)
    yield equals((x**2 * table).sum(0) - p**2, variance(p))
    yield equals(law.variance, variance(p))
    yield at_most(variance(p), 0.25)
    inner = p[1:-1].clone().requires_grad_()
    for value in (0.0, 1.0):
        log = Bernoulli(inner).log_prob(torch.full_like(inner, value))
        (slope,) = torch.autograd.grad(log.sum(), inner)
        yield equals(slope, (value - inner) / (inner * (1 - inner)), x=value)
    for k in (1, 5, 9):
        ones = int(Bernoulli(k / 12).sample(torch.Size([draws])).sum())
        test = scipy.stats.binomtest(ones, draws, k / 12)
        yield consistent(float(test.pvalue), alpha=1e-7, p=k / 12)


bernoulli.foil("the roles of 0 and 1 exchanged", formula=lambda x, p: p ** (1 - x) * (1 - p) ** x)
bernoulli.foil("the variance is not $p$", variance=lambda p: p)


def binomial_pmf(x: int, n: int, p: Fraction) -> Fraction:
    """The probability of x successes in n trials."""
    return math.comb(n, x) * p**x * (1 - p) ** (n - x)


def hypergeometric_pmf(x: int, n: int, p: Fraction) -> Fraction:
    """Without replacement, from n balls for each unit of the denominator."""
    good, bad = n * p.numerator, n * (p.denominator - p.numerator)
    return Fraction(math.comb(good, x) * math.comb(bad, n - x), math.comb(good + bad, n))


@claim(by="identity", sources=("A-020", "B-032"), budget=0.5, full={"trials": (1, 2, 3, 20, 60)})
def binomial(
    formula: Callable[[int, int, Fraction], Fraction] = binomial_pmf,
    trials: tuple[int, ...] = (1, 2, 3, 7, 12),
):
    r"""The binomial distribution.

    $P(x \mid n, p) = \binom nx p^x (1 - p)^{n - x}$ for $x = 0, \dots, n$: the number of successes
    in $n$ independent Bernoulli trials of probability $p$; the mean is $n p$ and the variance
    $n p (1 - p)$.

    *Check.* Against the $n$-fold convolution of the Bernoulli law, in fractions; torch's
    log-probabilities too.
    """
    for n in trials:
        for k in range(1, 7):
            p = Fraction(k, 7)
            law = [Fraction(1)]
            for _ in range(n):
                law = [(1 - p) * a + p * b for a, b in zip([*law, 0], [0, *law], strict=True)]
            pmf = [formula(x, n, p) for x in range(n + 1)]
            yield equals([(a - b).numerator for a, b in zip(pmf, law, strict=True)], 0, n=n, k=k)
            torch_law = Binomial(n, torch.tensor(k / 7))
            logs = torch_law.log_prob(torch.arange(n + 1.0))
            yield equals(logs.exp(), [float(value) for value in pmf], n=n, k=k)
            mean = sum(x * value for x, value in enumerate(pmf))
            spread = sum(x * x * value for x, value in enumerate(pmf)) - mean**2
            yield equals([float(mean), float(spread)], [n * k / 7, n * k * (7 - k) / 49], n=n, k=k)
            moments = torch.stack([torch_law.mean, torch_law.variance])
            yield equals(moments, [float(mean), float(spread)], n=n, k=k)


binomial.foil(
    "without the coefficient one order of the successes is counted",
    formula=lambda x, n, p: p**x * (1 - p) ** (n - x),
)
binomial.foil("draws without replacement have the same mean", formula=hypergeometric_pmf)


@claim(by="identity", sources=("A-021", "B-033"), budget=0.5, full={"sizes": (50, 500, 5000)})
def poisson(
    formula: Formula = lambda x, rate: (x * rate.log() - rate - torch.lgamma(x + 1)).exp(),
    variance: Formula = lambda rate: rate,
    power: int = 1,
    sizes: tuple[int, ...] = (50, 500),
):
    r"""The Poisson distribution.

    $P(x \mid \lambda) = \frac{\lambda^x e^{-\lambda}}{x!}$ for $x = 0, 1, 2, \dots$ and
    $\lambda > 0$; mean and variance are both $\lambda$. It is the limit of
    $\mathrm{Binomial}(n, \frac\lambda n)$, with a total variation distance of at most
    $\frac{\lambda^2}n$ (Le Cam, 1960).

    *Check.* Torch's and SciPy's probabilities, summed up to 250, beyond which less than $10^{-100}$
    is left; torch's binomial ones for the limit. `power` is that of $n$ in the bound.
    """
    x = torch.arange(251.0)
    for rate in torch.tensor([0.5, 3.0, 20.0]):
        law, at = Poisson(rate), float(rate)
        pmf = formula(x, rate)
        yield equals(pmf.sum(), 1.0, rate=at)
        yield equals(law.log_prob(x).exp(), pmf, rate=at)
        yield equals(scipy.stats.poisson.pmf(x.numpy(), at), pmf, rate=at)
        mean = (x * pmf).sum()
        spread = ((x - mean) ** 2 * pmf).sum()
        yield equals(torch.stack([mean, law.mean]), at, rate=at)
        yield equals(torch.stack([spread, law.variance]), variance(rate), rate=at)
        for n in sizes:
            few = Binomial(n, rate / n).log_prob(x[: n + 1]).exp()
            width = max(251, n + 1)
            p, q = (torch.nn.functional.pad(v, (0, width - len(v))) for v in (pmf, few))
            distance = total_variation(p / p.sum(), q / q.sum())
            yield at_most(distance, rate**2 / n**power, rate=at, n=n)


poisson.foil(
    r"$\lambda$ is the variance, not the standard deviation", variance=lambda rate: rate**2
)
poisson.foil("without $x!$ it adds up to 1.2", formula=lambda x, rate: rate**x * (-rate).exp())
poisson.foil(r"the distance does not fall as fast as $n^{-2}$", power=2)


@claim(by="identity", sources=("A-018", "B-030"), budget=0.5)
def exponential(
    formula: Formula = lambda x, rate: torch.where(x >= 0, rate * (-rate * x).exp(), 0),
):
    r"""The exponential distribution.

    $p(x \mid \lambda) = \lambda e^{-\lambda x}$ for $x \ge 0$ and 0 for $x < 0$, with the rate
    $\lambda > 0$; the mean is $\frac1\lambda$ and the variance $\frac1{\lambda^2}$. It is
    memoryless: $P(X > s + t \mid X > s) = P(X > t)$.

    Torch takes the rate and SciPy the scale $\frac1\lambda$; torch refuses negative $x$, where it
    would not cut the density off.
    """
    for rate in (0.5, 2.0, 3.0):
        law = Exponential(rate)
        x = torch.cat([torch.rand(20) * 5 / rate, -torch.rand(5), torch.zeros(1)])
        density = scipy.stats.expon.pdf(x.numpy(), scale=1 / rate)
        yield equals(formula(x, rate), density, rate=rate)
        inside = x[x >= 0]
        yield equals(law.log_prob(inside).exp(), formula(inside, rate), rate=rate)
        below = scipy.stats.expon.cdf(inside.numpy(), scale=1 / rate)
        yield equals(law.cdf(inside), below, rate=rate)
        yield equals(refusals(lambda law=law: law.log_prob(torch.tensor(-1.0))), 1, rate=rate)
        t, w = quadrature(0.0, 45 / rate)
        moments = torch.stack([(w * t**k * formula(t, rate)).sum() for k in range(3)])
        yield equals(moments, [1.0, 1 / rate, 2 / rate**2], rate=rate)
        yield equals(torch.stack([law.mean, law.variance]), [1 / rate, 1 / rate**2], rate=rate)
        s, t = torch.rand(2, 10) / rate
        later = (1 - law.cdf(s + t)) / (1 - law.cdf(s))
        yield equals(later, 1 - law.cdf(t), rate=rate)


exponential.foil(
    r"$\lambda$ read as the scale: mean 2 instead of $\frac12$",
    formula=lambda x, rate: torch.where(x >= 0, (-x / rate).exp() / rate, 0),
)
exponential.foil("not cut off at 0", formula=lambda x, rate: rate * (-rate * x).exp())
