"""Sums: the geometric series and Pascal's rule."""

import math
from fractions import Fraction
from itertools import combinations

from vademecum.claims import at_least, claim, equals
from vademecum.foundations.claims.calculus import fraction


@claim(
    by="identity",
    sources=("B-007", "B-008"),
    budget=0.5,
    full={"draws": 200},
    short=r"\sum_{k=0}^n a r^k = a\,\frac{1 - r^{n+1}}{1 - r} \;\; (r \ne 1)",
)
def geometric_series(shift: int = 1, draws: int = 10):
    r"""The geometric sum and the geometric series.

    For every $a$ and $r \ne 1$, $\sum_{k=0}^n a r^k = a\,\frac{1 - r^{n+1}}{1 - r}$; for $r = 1$
    the sum is $a (n + 1)$. For $|r| < 1$ the infinite series converges to $\frac{a}{1 - r}$, with a
    remainder of exactly $\frac{a\,r^{n+1}}{1 - r}$ after the term of $r^n$; for $|r| \ge 1$ and
    $a \ne 0$ it diverges.

    *Proof.* The sum times $1 - r$ telescopes. For $|r| \ge 1$ the terms do not tend to zero. The
    check is in fractions, which are rounded only to be compared.

    Knobs:
        shift: What is added to n in the exponent.
        draws: How many ratios from -2 to 2 are drawn, beside 2, 1, -1, 0 and 1/3.
    """
    ratios = [Fraction(2), Fraction(1), Fraction(-1), Fraction(0), Fraction(1, 3)]
    for i, r in enumerate([*ratios, *(fraction(-2, 2) for _ in range(draws))]):
        a = Fraction(1) if i == 0 else fraction(1, 5)
        total = Fraction(0)
        for n in range(21):
            total += a * r**n
            closed = a * (n + 1) if r == 1 else a * (1 - r ** (n + shift)) / (1 - r)
            at = {"n": n, "r": float(r)}
            yield equals("closed form of the sum", float(closed), float(total), tol=0.0, **at)
            if abs(r) < 1:
                rest = float(a / (1 - r) - total)
                tail = float(a * r ** (n + shift) / (1 - r))
                yield equals("remainder of the series", tail, rest, tol=0.0, **at)
            else:
                yield at_least("size of a term", float(abs(a * r**n)), float(a), tol=0.0, **at)
    total = math.fsum(1.01**k for k in range(2001))
    yield at_least("partial sum of a diverging series", total, 1e8, n=2000, r=1.01)
    closed = (1 - 1.01 ** (2000 + shift)) / (1 - 1.01)
    yield equals("closed form of a long sum", closed, total, n=2000, r=1.01)


geometric_series.foil("the exponent is the number of terms, n + 1", shift=0)


@claim(
    by="identity",
    sources=("B-051",),
    budget=0.5,
    full={"largest": 14},
    short=r"\tbinom nk = \tbinom{n-1}k + \tbinom{n-1}{k-1}",
)
def pascal_rule(drop: int = 1, neighbour: int = -1, largest: int = 10):
    r"""Pascal's rule.

    For integers $1 \le k \le n$: $\binom nk = \binom{n-1}k + \binom{n-1}{k-1}$. The first term
    counts the $k$-subsets that avoid a marked element, the second those that contain it. It is the
    step that turns the recurrence of the linear dichotomies, $C(N + 1, d) = C(N, d) + C(N, d - 1)$,
    into Cover's closed form $C(N, d) = 2 \sum_{k < d} \binom{N-1}k$.

    Checked by counting subsets of up to ten elements, and in integers for $n \le 50$.

    Knobs:
        drop: What is taken from the upper index.
        neighbour: What is added to k in the second term.
        largest: The most elements whose subsets are listed.
    """
    for n in range(1, largest + 1):
        ks = range(1, n + 1)
        subsets = [list(combinations(range(n), k)) for k in ks]
        inside = [sum(n - 1 in subset for subset in every) for every in subsets]
        outside = [len(every) - i for every, i in zip(subsets, inside, strict=True)]
        first = [math.comb(max(n - drop, 0), k) for k in ks]
        second = [math.comb(max(n - drop, 0), k + neighbour) for k in ks]
        yield equals("subsets that avoid the last element", first, outside, n=n)
        yield equals("subsets that contain the last element", second, inside, n=n)
    cover = lambda n, d: 2 * sum(math.comb(n - 1, k) for k in range(d))  # noqa: E731
    for n in range(1, 51):
        ks = range(1, n + 1)
        m = max(n - drop, 0)
        both = [math.comb(m, k) + math.comb(m, k + neighbour) for k in ks]
        yield equals("sum of two neighbours", both, [math.comb(n, k) for k in ks], n=n)
        grown = [cover(n + 1, d) for d in ks]
        parts = [cover(n, d) + cover(n, d - 1) for d in ks]
        yield equals("dichotomies of one more point", grown, parts, n=n)


pascal_rule.foil(
    "the upper index is lowered too: 2 instead of 1 for n = k = 1",
    refuted_by="sum of two neighbours",
    drop=0,
)
pascal_rule.foil(
    "the wrong neighbour: 0 instead of 1 for n = k = 1",
    refuted_by="sum of two neighbours",
    neighbour=1,
)
