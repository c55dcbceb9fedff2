"""The capacity of a perceptron: how many points it can hold."""

import math
from fractions import Fraction

import torch
from scipy.stats import binomtest

from vademecum.claims import at_least, at_most, claim, consistent, equals
from vademecum.connectionism import cover_count, separable, separable_probability
from vademecum.connectionism.claims.cover import Sizes


@claim(
    by="sampling",
    sources=("C-019", "C-020"),
    budget=1.0,
    full={"trials": 100, "sizes": ((30, 20), (40, 20), (52, 20))},
    short=r"P(\text{separable}) = C(s, n) / 2^s = P(\mathrm{Bin}(s - 1, \tfrac12) \le n - 1),"
    r"\ \tfrac12 \text{ at } s = 2n",
)
def cover_capacity(
    ratio: float = 2.0,
    shift: int = 0,
    empty_above: bool = True,
    trials: int = 24,
    sizes: Sizes = ((15, 10), (20, 10), (26, 10)),
):
    r"""The capacity of the perceptron is two points per weight.

    A uniformly random labelling of $s$ points in general position in $\mathbb{R}^n$ is separable
    with probability

    $$\frac{C(s, n)}{2^s} = P\big(\mathrm{Bin}(s - 1, \tfrac12) \le n - 1\big),$$

    which is exactly $\frac12$ at $s = 2 n$ and becomes a step at $s / n = 2$ as $n \to \infty$. So
    an empty version space (no consistent weights) is the exception for $s < 2 n$ and the rule for
    $s > 2 n$: it has a probability below and above $\frac12$.

    *Check.* The half in integers for $n \le 60$; the probability against the exact distribution of
    a sum of coins; Hoeffding's bound on the tails at $10 \%$ from the step; and random labellings
    of Gaussian points, tried by linear programming. (Cover, 1965.)

    Knobs:
        ratio: The number of points per weight at which the step is said to be.
        shift: How far from $s = 2 n$ the probability is said to be $\frac12$.
        empty_above: Whether an empty version space is the rule above the step and the exception
            below, or the other way round.
        trials: How many random labellings are tried for each size.
        sizes: The $(s, n)$ for which they are.
    """
    for n in range(1, 61):
        twice, all_of_them = 2 * cover_count(2 * n + shift, n), 2 ** (2 * n + shift)
        yield equals("twice the number of labellings", twice, all_of_them, n=n)
    for n in (50, 10, 2):
        for s in (n, 3 * n // 2, 2 * n, 3 * n, 6 * n):
            measured = separable_probability(s, n) / float(_coins(s, n))
            yield equals("probability, relative to coins", measured, 1.0, s=s, n=n)
        yield from _version_space(n, empty_above)
    for n in (10**2, 10**4, 10**6):
        below, above = round(0.9 * ratio * n), round(1.1 * ratio * n)
        low, high = (separable_probability(s, n) for s in (below, above))
        yield at_least("probability below the step", low, 1 - _hoeffding(below, n), n=n)
        yield at_most("probability above the step", high, _hoeffding(above, n - 1), n=n)
    for s, n in sizes:
        labels = torch.randint(2, (trials, s)) * 2 - 1
        count = sum(separable(torch.randn(s, n), y, bias=False).separable for y in labels)
        p = float(binomtest(count, trials, separable_probability(s, n)).pvalue)
        yield consistent("p-value of the separable ones", p, alpha=1e-7, s=s, n=n)


def _version_space(n: int, empty_above: bool):
    """Which side of one half the share of labellings without consistent weights is on."""
    for s in (3 * n, 3 * n // 2):
        empty = 1 - float(separable_probability(torch.tensor([s]), n))
        above_half = at_least if (s > 2 * n) == empty_above else at_most
        yield above_half("share with an empty version space", empty, 0.5, s=s, n=n)


def _coins(s: int, n: int) -> Fraction:
    """The probability that $s - 1$ coins show at most $n - 1$ heads, by adding one at a time."""
    counts = [1]
    for _ in range(s - 1):
        counts = [a + b for a, b in zip([0, *counts], [*counts, 0], strict=True)]
    return Fraction(sum(counts[:n]), 2 ** (s - 1))


def _hoeffding(s: int, k: int) -> float:
    """The bound on the tail of $s - 1$ coins that begins at `k` heads, away from the mean."""
    return math.exp(-2 * (s - 1) * (0.5 - k / (s - 1)) ** 2)


cover_capacity.erratum(
    "C-020",
    printed=r"for $s>2n$ an empty version space is called the exception",
    right=r"for $s>2n$ an empty version space is the rule, for $s<2n$ the exception",
    why=r"direction reversed: at $s=150$, $n=50$ only a share "
    r"$C(150,50)/2^{150}\approx1.8\cdot10^{-5}$ of the labellings has a non-empty version space, "
    "so empty is the rule; it is the exception for $s<2n$ (share 0.0017 at $s=75$)",
    refuted_by="share with an empty version space",
    empty_above=False,
)
cover_capacity.foil("one point per weight is far from the capacity", ratio=1.0)
cover_capacity.foil("the half is not at $s = 2 n + 1$", shift=1)
