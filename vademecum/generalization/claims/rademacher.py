"""Rademacher complexity: noise that a class can fit, and the bound that follows."""

import math
from itertools import product
from typing import Any, Literal

import torch
from scipy.stats import binom
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, in_mean
from vademecum.generalization import rademacher_bound as bound_of
from vademecum.generalization import rademacher_complexity as complexity
from vademecum.generalization.claims.uniform import any_of


def enumerated(values: Tensor, order: str) -> float:
    """The complexity of a finite class by its definition, sign vector after sign vector."""
    n = values.shape[1]
    fits = [
        [sum(s * v for s, v in zip(signs, row, strict=True)) / n for row in values.tolist()]
        for signs in product((-1, 1), repeat=n)
    ]
    if order == "inside":
        return sum(map(max, fits)) / 2**n
    return max(sum(each) / 2**n for each in zip(*fits, strict=True))


def dual(v: Tensor, p: float) -> float:
    """The largest value of w . v over the ball of a norm, for p = 1, 2 and infinity."""
    if p == 2:
        return math.sqrt(sum(float(a) ** 2 for a in v))
    return max(map(abs, v.tolist())) if p == 1 else sum(map(abs, v.tolist()))


@claim(
    by="identity",
    sources=("C-277",),
    budget=0.6,
    short=r"\mathfrak R_n(\mathcal F) = \mathbb E_{S, \sigma} [\sup_{f \in \mathcal F}"
    r" \frac1n \sum_i \sigma_i f(x_i)]",
)
def rademacher_complexity(
    order: Literal["inside", "outside"] = "inside", massart: float = 2.0, power: float = 0.5
):
    r"""Rademacher complexity.

    $\mathfrak R_n(\mathcal F) = \mathbb E_{S, \sigma} [\sup_{f \in \mathcal F} \frac1n \sum_i
    \sigma_i f(x_i)]$ with independent uniform signs: how well the class fits pure noise. For linear
    functions with $\|w\| \le B$ its value on given points is $\frac Bn \mathbb E_\sigma \|\sum_i
    \sigma_i x_i\| \le B R / \sqrt n$ when $\|x_i\| \le R$. It is 1 for all sign functions, 0 for
    one function, and at most $\sqrt{2 \ln |\mathcal F| / n}$ for values in $[-1, 1]$ (Massart).

    Checked with `rademacher_complexity` on given points against sums over all signs by the
    definition: finite classes, and linear ones with three norms; closed forms for orthogonal
    points; and intervals from drawn signs, which may fail with probability $10^{-7}$ each.

    Knobs:
        order: Whether the supremum is inside the expectation over signs, or outside.
        massart: The number before the logarithm in Massart's bound.
        power: The power of $n$ in the bound for linear functions.
    """
    for K, n in ((3, 5), (6, 8), (2, 7)):
        values = 2 * torch.rand(K, n) - 1
        found = complexity(values)
        yield equals("a finite class", found.value, enumerated(values, order), K=K, n=n)
        most = math.sqrt(massart * math.log(K) / n)
        yield at_most("the same, by Massart", found.value, most, K=K, n=n)
        drawn = complexity(values, draws=3000, delta=1e-7)
        yield at_most("lower end of an interval", drawn.low, found.value, K=K, n=n)
        yield at_least("upper end of an interval", drawn.high, found.value, K=K, n=n)
        length = 2 * math.sqrt(2 * math.log(2 / 1e-7) / (3000 * n))  # McDiarmid, for values up to 1
        yield at_most("its length", drawn.high - drawn.low, length, K=K, n=n)
        yield equals("one function", complexity(values[:1]).value, 0.0, tol=1e-12, n=n)
    for n in (3, 6):
        every = torch.tensor(list(product((-1.0, 1.0), repeat=n)))
        found = complexity(every).value
        yield equals("all sign functions", found, 1.0, n=n)
        most = math.sqrt(massart * math.log(2**n) / n)
        yield at_most("all sign functions, by Massart", found, most, n=n)
    for n, d, B, p in ((6, 2, 1.5, 2.0), (7, 3, 0.5, 1.0), (5, 4, 2.0, math.inf)):
        x, at = torch.randn(n, d), {"n": n, "d": d, "p": p}
        found = complexity("linear", x, radius=B, p=p)
        sums = [dual(torch.tensor(s) @ x, p) for s in product((-1.0, 1.0), repeat=n)]
        yield equals("linear functions", found.value, B * sum(sums) / 2**n / n, **at)
        if p == 2:
            R = float(x.norm(dim=1).max())
            yield at_most("linear functions, by their radius", found.value, B * R / n**power, **at)
    x = 3 * torch.eye(30)[torch.randperm(30)[:25]]
    found = complexity("linear", x)
    yield equals("linear functions of 25 orthogonal points", found.value, 3 / 25**power, n=25)


rademacher_complexity.foil("the supremum outside the expectation is 0", order="outside")
rademacher_complexity.foil("Massart's bound without the 2", massart=1.0)
rademacher_complexity.foil("falling like 1 / n for linear functions", power=1.0)


@claim(
    by="sampling",
    sources=("C-278",),
    budget=0.6,
    short=r"P(\sup_f [\mathcal R(f) - \hat{\mathcal R}_n(f)] > 2 \mathfrak"
    r" R_n(\mathcal F) + \epsilon) \le e^{-2 n \epsilon^2}",
)
def rademacher_bound(factor: float = 2.0, tables: int = 100):
    r"""Rademacher generalisation bound.

    For losses in $[0, 1]$ and $\mathcal F$ the class of loss functions, with probability at least
    $1 - \delta$ for all $f$: $\mathcal R(f) \le \hat{\mathcal R}_n(f) + 2 \mathfrak R_n(\mathcal F)
    + \sqrt{\ln(1/\delta) / (2n)}$.

    Checked with `rademacher_bound` for $K$ functions whose losses are independent fair coins.
    Whatever the signs, their sums are $\mathrm{Bin}(n, \frac12)$ less the number of negative signs,
    so that $n\, \mathfrak R_n = \mathbb E \max_{k \le K} \mathrm{Bin}_k(n, \frac12) - \frac n2$,
    which the complexity of drawn tables has to have on average. The probability that any risk is
    above the bound is exact, for up to $10^6$ functions. With the complexity of the sample itself
    the root is $3 \sqrt{\ln(2/\delta) / (2n)}$ (its formula, its coverage is quoted).

    Knobs:
        factor: The number before the complexity.
        tables: How many tables of losses are drawn.
    """
    for K, n in ((64, 50), (5, 20)):
        found = [complexity(torch.randint(2, (K, n)).double(), draws=60) for _ in range(tables)]
        values = torch.tensor([f.value for f in found])
        yield in_mean("complexity of coins", values, coins(K, n), K=K, n=n)
    grid: Any = product((50, 100), (1, 64, 10**6), (0.2, 0.05))
    for n, K, delta in grid:
        at = {"n": n, "functions": K, "delta": delta}
        bound = bound_of(0.0, factor / 2 * coins(K, n), n, delta=delta)
        log_tail = float(binom.logcdf(math.ceil(n * (0.5 - bound)) - 1, n, 0.5))
        missed = any_of(math.log(K), log_tail)
        yield at_most("probability that any risk is above", missed, delta, **at)
        rest = bound_of(0.25, 0.125, n, delta=delta) - 0.25 - factor * 0.125
        yield equals("Hoeffding's bound at the root", math.exp(-2 * n * rest**2), delta, **at)
        rest = bound_of(0.25, 0.125, n, delta=delta, empirical=True) - 0.5
        tail = 2 * math.exp(-2 * n * rest**2 / 9)
        yield equals("twice Hoeffding's bound at a third of the root", tail, delta, **at)


def coins(K: int, n: int) -> float:
    """The complexity of K functions whose losses are fair coins, from the law of a maximum."""
    k = torch.arange(n + 1)
    below = torch.from_numpy(binom.cdf(k.numpy(), n, 0.5)) ** K
    mean = n - float(below[:-1].sum())  # the sum of P(max > k)
    return (mean - n / 2) / n


rademacher_bound.foil(
    "without the complexity",
    refuted_by="probability that any risk is above",
    factor=0.0,
)
