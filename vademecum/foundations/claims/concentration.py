"""Concentration: the tail bounds of Markov, Chebyshev and Hoeffding."""

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import torch
from torch import Tensor

from vademecum.claims import at_most, claim, equals
from vademecum.foundations import (
    chebyshev_bound,
    chebyshev_sample_size,
    hoeffding_bound,
    hoeffding_sample_size,
    markov_bound,
)


def laws(count: int, *, low: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random laws on six integer atoms, with integer weights and their totals."""
    x, w = torch.randint(low, 10, (count, 6)), torch.randint(1, 10, (count, 6))
    return x, w, w.sum(1, keepdim=True)


@claim(
    by="sampling",
    sources=("A-004", "B-017"),
    budget=0.5,
    full={"count": 10**5},
    short=r"P(X \ge a) \le \frac{\mathbb E[X]}a \quad (X \ge 0,\; a > 0)",
)
def markov_inequality(nonnegative: bool = True, power: int = 1, count: int = 1000):
    r"""Markov's inequality.

    For a random variable $X \ge 0$ and $a > 0$: $P(X \ge a) \le \frac{\mathbb E[X]}a$, with
    equality if and only if $X \in \{0, a\}$ almost surely.

    *Proof.* $a \mathbf 1[X \ge a] \le X$; take expectations.

    Checked on random laws with integer atoms and weights, for $a$ over all positive atoms and the
    half-integers below them; equality in integers; the law on $\{0, a\}$ attains the bound.

    Knobs:
        nonnegative: Whether $X \ge 0$; without it $X = \pm 1$ is among the laws.
        power: The power of a in the bound.
        count: How many laws are drawn.
    """
    x, w, total = laws(count, low=0)
    x[0] = torch.tensor([0, 5, 0, 5, 5, 0])
    if not nonnegative:
        x[1], w[1], total[1] = torch.tensor([-1, 1, -1, 1, -1, 1]), 1, 6
    mean = (w * x).sum(1, keepdim=True) / total
    left = (w * x).sum(1, keepdim=True) - x * (w[:, None] * (x[:, None] >= x[:, :, None])).sum(-1)
    two_atoms = ((x[:, None] == 0) | (x[:, None] == x[:, :, None])).all(-1)
    yield equals("whether the bound is attained", (left == 0)[x > 0], two_atoms[x > 0])
    for shift in (0.0, 0.5):
        a = x - shift
        tail = (w[:, None] * (x[:, None] >= a[:, :, None])).sum(-1) / total
        bound = markov_bound(mean.expand_as(a)[a > 0], a[a > 0])
        yield at_most("probability of the tail", tail[a > 0], bound, shift=shift)
    for a in (1.0, 2.0, 7.0):
        mean = 0.25 * a  # of the law with 1/4 at a and the rest at 0
        yield equals("bound for 1/4 at a, the rest at 0", markov_bound(mean, a**power), 0.25, a=a)
    yield equals("bound beyond 1", markov_bound(3.0, 2.0), 1.0)


_SIGN = r"without $X \ge 0$: $X = \pm 1$ has $P(X \ge 1) = \frac12 > 0 = \mathbb E[X]$"
markov_inequality.foil(_SIGN, refuted_by="probability of the tail", nonnegative=False)
markov_inequality.foil(r"$\mathbb E[X] / a^2$ fails for $X \in \{0, 2\}$, $a = 2$", power=2)
markov_inequality.erratum(
    "B-017",
    printed=r"$\mathbb P(X \geq a) \leq \frac{\mathbb E[X]}{a}$ without hypotheses",
    right=r"$X \ge 0$ and $a > 0$ are needed",
    why=r"$X \ge 0$ and $a > 0$ are left out: $X = \pm 1$ with probability one half has"
    r" $P(X \ge 1) = \frac12$ but $\mathbb E[X] / 1 = 0$",
    weight="soft",
    refuted_by="probability of the tail",
    nonnegative=False,
)


def bounds_of_means(sigma: float, epsilon: float):
    """The bounds for means of n variables, and how many it takes, against exact ones."""
    at = {"epsilon": epsilon, "sigma": sigma}
    for n in (2, 7):
        both = min(sigma**2 / (n * epsilon**2), 1.0)
        bound = chebyshev_bound(sigma**2, epsilon, n)
        yield equals("bound for a mean of n", bound, both, n=n, **at)
        above = sigma**2 / (sigma**2 + n * epsilon**2)
        bound = chebyshev_bound(sigma**2, epsilon, n, two_sided=False)
        yield equals("one-sided bound for a mean of n", bound, above, n=n, **at)
    for delta in (0.5, 0.0625):
        exact = Fraction(sigma) ** 2 / Fraction(epsilon) ** 2 / Fraction(delta)
        n = chebyshev_sample_size(sigma**2, epsilon, delta)
        yield equals("sample size", n, math.ceil(exact), delta=delta, **at)
        n = chebyshev_sample_size(sigma**2, epsilon, delta, two_sided=False)
        least = max(1, math.ceil(exact * (1 - Fraction(delta))))
        yield equals("one-sided sample size", n, least, delta=delta, **at)


@claim(
    by="sampling",
    sources=("D-031", "E-032"),
    budget=0.5,
    full={"count": 10**5},
    short=r"P(|X - \mu| \ge \epsilon) \le \frac{\sigma^2}{\epsilon^2}",
)
def chebyshev_inequality(factor: float = 1.0, power: float = 1.0, count: int = 1000):
    r"""Chebyshev's inequality.

    If $\mathbb E[X] = \mu$ and $\mathrm{Var}[X] = \sigma^2 < \infty$ then
    $P(|X - \mu| \ge \epsilon) \le \frac{\sigma^2}{\epsilon^2}$ for every $\epsilon > 0$; for
    $\epsilon \ge \sigma$ the law with $P(\mu \pm \epsilon) = \frac{\sigma^2}{2 \epsilon^2}$ each
    and the rest at $\mu$ attains it. One-sided (Cantelli):
    $P(X - \mu \ge \epsilon) \le \frac{\sigma^2}{\sigma^2 + \epsilon^2}$, attained by two atoms.

    *Proof.* Markov's inequality for $(X - \mu)^2$; one-sided for $(X - \mu + \sigma^2/\epsilon)^2$.

    For a mean of $n$ uncorrelated variables $\frac{\sigma^2}n$ takes the place of $\sigma^2$, so
    that $n = \big\lceil \frac{\sigma^2}{\epsilon^2 \delta} \big\rceil$ of them keep within
    $\epsilon$ but for a probability $\delta$.

    Checked on random laws with integer atoms and weights, and on means of two draws from them, for
    $\epsilon$ over all distances $|x - \mu|$ that occur, tails counted in integers.

    Knobs:
        factor: What the two-sided bound is multiplied with.
        power: The power of the variance in the bound.
        count: How many laws are drawn.
    """
    x, w, total = laws(count, low=-9)
    off = total * x - (w * x).sum(1, keepdim=True)  # the deviations times the total weight
    variance = (w * off**2).sum(1, keepdim=True) / total**3
    pairs = (off[:, :, None] + off[:, None]).flatten(1)  # twice the deviations of means of two
    twice = (w[:, :, None] * w[:, None]).flatten(1)
    for two_sided in (True, False):
        for n, dev, weight in ((1, off, w), (2, pairs[:20], twice[:20])):
            size = dev.abs() if two_sided else dev
            rows = total[: len(dev)]
            mass = (weight[:, None] * (size[:, None] >= size[:, :, None])).sum(-1) / rows**n
            far = size > 0
            spread = variance[: len(dev)].expand_as(mass)[far] ** power
            bound = chebyshev_bound(spread, (size / (n * rows))[far], n, two_sided=two_sided)
            at = {"n": n, "two_sided": two_sided}
            yield at_most("probability of the tail of a mean", mass[far], factor * bound, **at)
    for sigma, epsilon in ((1.0, 1.0), (1.0, 2.0), (1.0, 3.0), (2.0, 2.0), (3.0, 0.125)):
        mass = sigma**2 / (2 * epsilon**2)
        bound = chebyshev_bound(sigma ** (2 * power), epsilon)
        at = {"epsilon": epsilon, "sigma": sigma}
        yield equals("bound for three atoms", factor * bound, min(2 * mass, 1.0), **at)
        above = 1 / (1 + epsilon**2 / sigma**2)  # atoms at epsilon and -sigma^2 / epsilon
        below = -(sigma**2) / epsilon
        yield equals("mean of two atoms", above * epsilon + (1 - above) * below, 0.0, **at)
        second = above * epsilon**2 + (1 - above) * below**2
        yield equals("variance of two atoms", second, sigma**2, **at)
        one_sided = chebyshev_bound(sigma**2, epsilon, two_sided=False)
        yield equals("one-sided bound for two atoms", one_sided, above, **at)
        yield from bounds_of_means(sigma, epsilon)


chebyshev_inequality.foil(r"the halved bound $\frac{\sigma^2}{2 \epsilon^2}$", factor=0.5)
chebyshev_inequality.foil(
    r"$\frac{\sigma}{\epsilon^2}$: at $\sigma = \epsilon = 2$ it is $\frac12$, the tail 1",
    refuted_by="bound for three atoms",
    power=0.5,
)


def tails(width: Tensor, p: Tensor, *, independent: bool) -> tuple[Tensor, Tensor]:
    """Deviations of a sum of variables `width[i] * Bernoulli(p[i])`, and their upper tails."""
    if not independent:  # all are copies of the first one
        pmf = torch.stack([1 - p[0], p[0]])
        return torch.stack([-p[0], 1 - p[0]]) * width.sum(), pmf.flip(0).cumsum(0).flip(0)
    pmf = torch.ones(1)
    for step, chance in zip(width.long().tolist(), p.tolist(), strict=True):
        wider = torch.zeros(len(pmf) + step)
        wider[: len(pmf)] += (1 - chance) * pmf
        wider[step:] += chance * pmf
        pmf = wider
    return torch.arange(len(pmf)) - width @ p, pmf.flip(0).cumsum(0).flip(0)


def one_sided(t: Tensor, width: Tensor) -> Tensor:
    """The library's bound for variables from 0 to their widths."""
    return hoeffding_bound(t, low=torch.zeros_like(width), high=width, two_sided=False)


def exponent(factor: float, power: int) -> Callable[[Tensor, Tensor], Tensor]:
    """The bound with a factor, and a power of n, of one's own."""
    return lambda t, w: (-factor * len(w) ** power * t**2 / w.square().sum()).exp()


@claim(
    by="sampling",
    sources=("A-002", "B-009", "B-010"),
    budget=0.5,
    full={"sizes": tuple(range(1, 61))},
    short=r"Z_i \in [a_i, b_i] \text{ independent}: P(\bar Z - \mathbb E \bar"
    r" Z \ge t) \le e^{-2 n^2 t^2 / \sum_i (b_i - a_i)^2}",
)
def hoeffding_inequality(
    formula: Callable[[Tensor, Tensor], Tensor] = one_sided,
    independent: bool = True,
    sizes: tuple[int, ...] = (1, 2, 10, 40, 60),
):
    r"""Hoeffding's inequality.

    For independent $Z_i \in [a_i, b_i]$ and $t \ge 0$:
    $P \big( \frac1n \sum_i (Z_i - \mathbb E Z_i) \ge t \big) \le
    \exp \Big( -\frac{2 n^2 t^2}{\sum_i (b_i - a_i)^2} \Big)$, equivalently
    $\exp(-2 \tau^2 / \sum_i (b_i - a_i)^2)$ for the sum exceeding its mean by $\tau = n t$; for
    ranges $[0, 1]$ it is $\exp(-2 n t^2)$. The lower tail obeys the same bound.

    *Proof.* $\mathbb E[e^{s (Z - \mathbb E Z)}] \le e^{s^2 (b - a)^2 / 8}$ (Hoeffding's lemma);
    multiply, apply Markov's inequality and minimise over $s$. (Hoeffding, 1963.)

    Checked on the logarithms of exact tails, by convolution, at all attainable levels, for sums of
    two-point variables with equal and unequal chances, ranges all 1 or from 1 to 3. Solved for n,
    the two-sided bound gives the sample size
    $n = \big\lceil \frac{(b - a)^2}{2 t^2} \ln \frac2\delta \big\rceil$ for a probability $\delta$.

    Knobs:
        formula: The bound as a function of t and of the ranges.
        independent: Whether the variables are independent, and not copies of the first.
        sizes: The numbers n of variables.
    """
    t, ten = torch.tensor([0.3]), torch.ones(10)
    yield equals("bound for ten ranges of 1", formula(t, ten), math.exp(-1.8), n=10, t=0.3)
    t, width = torch.tensor([0.2, 0.5]), torch.tensor([1.0, 2.0, 3.0])
    log = formula(t, width).log()
    yield equals("logarithm of the bound for ranges 1, 2, 3", log, -2 * 9 * t**2 / 14)
    for n in sizes:
        for p in (0.1, 0.3, 0.5, 0.9, None):
            chance = torch.rand(n) if p is None else torch.full((n,), p)
            for width in (torch.ones(n), torch.arange(n) % 3 + 1.0):
                at = {"n": n, "p": p or "drawn", "widest": float(width.max())}
                for side in (chance, 1 - chance):  # the lower tail is the upper one of b - Z
                    off, tail = tails(width, side, independent=independent)
                    t, tail = off[off > 1e-9] / n, tail[off > 1e-9]
                    log = formula(t, width).log()
                    yield at_most("logarithm of an exact tail", tail.log(), log, tol=1e-11, **at)
        t = torch.tensor([0.1, 0.3, 0.7])
        log = formula(t, torch.ones(n)).log()
        yield equals("logarithm of the bound for ranges of 1", log, -2 * n * t**2, n=n)
        both = hoeffding_bound(t, n, low=-1.0).log()
        exact = (math.log(2) - n * t**2 / 2).clamp(max=0)
        yield equals("logarithm of the two-sided bound for ranges of 2", both, exact, n=n)
    for epsilon, delta, low, high in ((0.1, 0.05, 0.0, 1.0), (0.03, 1e-6, -1.0, 2.0)):
        for sides in (1, 2):
            width, log = mpmath.mpf(high - low), mpmath.log(sides / mpmath.mpf(delta))
            exact = int(mpmath.ceil(width**2 / (2 * mpmath.mpf(epsilon) ** 2) * log))
            n = hoeffding_sample_size(epsilon, delta, low=low, high=high, two_sided=sides == 2)
            yield equals("sample size", n, exact, epsilon=epsilon, sides=sides)


hoeffding_inequality.foil(
    "exact tails exceed the doubled exponent",
    refuted_by="logarithm of an exact tail",
    formula=exponent(4, 2),
)
hoeffding_inequality.foil("copies of one variable do not concentrate", independent=False)
hoeffding_inequality.erratum(
    "B-010",
    printed=r"$\exp(-\frac{2 n t^2}{\sum_{i=1}^n (b_i - a_i)^2})$ for the mean exceeding its"
    r" expectation by $t$",
    right=r"$\exp(-\frac{2 n^2 t^2}{\sum_{i=1}^n (b_i - a_i)^2})$",
    why=r"as scanned, the exponent of $n$ is missing (sheet A prints $2 n^2 t^2$, so that the scan"
    r" may have lost it). The bound as scanned is still valid, but it is not Hoeffding's and does"
    r" not improve with $n$: with all ranges 1 it is $e^{-2 t^2}$ instead of the $e^{-2 n t^2}$ of"
    r" the line above it (0.835 against 0.165 at $n = 10$, $t = 0.3$)",
    weight="scan",
    formula=exponent(2, 1),
)
