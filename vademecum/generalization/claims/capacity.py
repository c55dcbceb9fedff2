"""Capacity: how many labellings a class gives, and what bounds their number."""

import math
from collections.abc import Callable
from itertools import combinations, product
from typing import Any, Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.connectionism import separable
from vademecum.generalization import growth_function as growth
from vademecum.generalization import sauer_bound, vc_bound, vc_inequality
from vademecum.generalization import vc_dimension as dimension_of


def intervals(n: int) -> int:
    """The growth of intervals, by `growth_function`."""
    return growth("intervals", n)


def half_planes(n: int) -> int:
    """The growth of half-planes, by `growth_function`."""
    return growth("half-spaces", n, d=2)


def twice(n: int) -> int:
    """A wrong growth."""
    return 2 * n


def squared(n: int) -> int:
    """Another wrong growth."""
    return n**2


def steps(x: Tensor) -> set[tuple[int, ...]]:
    """The labellings of points on the line by thresholds, one threshold after the other."""
    places = [*x.tolist(), float(x.max()) + 1]
    return {tuple(int(v >= t) for v in x.tolist()) for t in places}


def stretches(x: Tensor) -> set[tuple[int, ...]]:
    """The labellings of points on the line by intervals, all pairs of ends."""
    found = {(0,) * len(x)}
    for a, b in product(x.tolist(), repeat=2):
        found.add(tuple(int(a <= v <= b) for v in x.tolist()))
    return found


def sides(x: Tensor, *, bias: bool = True) -> int:
    """How many labellings hyperplanes give, a linear programme for each pair of opposites."""
    found = 0
    for rest in product((-1, 1), repeat=len(x) - 1):
        found += 2 * separable(x, torch.tensor((1, *rest)), bias=bias).separable
    return found


def distinct(rows: Tensor) -> list[tuple[int, ...]]:
    """The distinct rows of a table, as tuples."""
    return sorted({tuple(row) for row in rows.long().tolist()})


def most_labellings(rows: list[tuple[int, ...]], n: int) -> int:
    """The growth of a finite class by its definition, with sets of tuples."""
    columns = combinations(range(len(rows[0])), n)
    return max(len({tuple(row[i] for i in chosen) for row in rows}) for chosen in columns)


@claim(
    by="identity",
    sources=("A-275", "B-417"),
    budget=0.8,
    short=r"S(n) = \max_x |\{(f(x_i))_i\}|: \text{thresholds } n+1, \text{intervals } "
    r"\binom{n+1}2 + 1, \text{half-planes } n^2-n+2",
)
def growth_function(
    intervals: Callable[[int], int] = intervals, half_planes: Callable[[int], int] = half_planes
):
    r"""Growth function (shatter coefficient).

    $S_{\mathcal F}(n) = \max_{x_1, \dots, x_n} |\{(f(x_1), \dots, f(x_n)) : f \in \mathcal F\}| \le
    2^n$ is the largest number of labellings that a class gives to $n$ points: $n + 1$ for
    thresholds, $\binom{n+1}2 + 1$ for intervals, $n^2 - n + 2$ for half-planes.

    Checked on drawn points, on which distinct points of the line, and points in general position,
    take as many as any: thresholds and intervals one by one for $n \le 10$, half-planes for $n \le
    6$, half-spaces in one and three dimensions and half-planes through the origin for $n = 5$, with
    a linear programme for each labelling; finite classes by sets of tuples.

    Knobs:
        intervals: The growth of intervals, of $n$.
        half_planes: The growth of half-planes, of $n$.
    """
    for n in range(2, 11):
        x = torch.randn(n)
        yield equals("labellings by thresholds", len(steps(x)), growth("thresholds", n), n=n)
        yield equals("their formula", growth("thresholds", n), n + 1, n=n)
        yield equals("labellings by intervals", len(stretches(x)), intervals(n), n=n)
    for n in (2, 3, 4, 6):
        yield equals("labellings by half-planes", sides(torch.randn(n, 2)), half_planes(n), n=n)
        yield equals("their formula", half_planes(n), n**2 - n + 2, n=n)
    family: Any
    for d, bias, family in (
        (1, True, "half-spaces"), (3, True, "half-spaces"), (2, False, "homogeneous half-spaces")
    ):  # fmt: skip
        counted = sides(torch.randn(5, d), bias=bias)
        yield equals(f"labellings by {family}", counted, growth(family, 5, d=d), n=5, d=d)
    for rows, m in ((7, 5), (20, 6), (3, 4)):
        values = torch.randint(2, (rows, m))
        for n in range(1, m + 1):
            counted = most_labellings(distinct(values), n)
            yield equals("labellings by a table", growth(values, n), counted, n=n, points=m)


growth_function.foil("as many intervals as twice the points", intervals=twice)
growth_function.foil("the square of the points for half-planes", half_planes=squared)


@claim(
    by="sampling",
    sources=("A-277", "B-420"),
    budget=0.8,
    full={"classes": 1000},
    short=r"\mathrm{VC}(\mathcal F) \le \log_2 |\mathcal F|",
)
def vc_finite_class(
    relation: Literal["at most", "equal"] = "at most", base: float = 2.0, classes: int = 40
):
    r"""VC dimension of a finite class.

    $\mathrm{VC}(\mathcal F) \le \log_2 |\mathcal F|$, since shattering $n$ points needs $2^n$
    different functions. Checked for drawn classes of 2 to 64 functions on 6 points, whose dimension
    by `vc_dimension` is that found by going through all sets of points; with equality for all
    labellings of three points, and 1 for the 7 thresholds on 6 points.

    Knobs:
        relation: How the dimension and the whole part of the logarithm are said to compare.
        base: The base of the logarithm.
        classes: How many classes are drawn.
    """
    compare = at_most if relation == "at most" else equals
    tables = [torch.randint(2, (int(torch.randint(2, 65, ())), 6)) for _ in range(classes)]
    full = torch.tensor(list(product((0, 1), repeat=3)))
    thresholds = torch.ones(7, 6).triu().long()
    for kind, values in (
        *(("drawn", v) for v in tables), ("all labellings of 3 points", full),
        ("thresholds", thresholds),
    ):  # fmt: skip
        rows = distinct(values)
        by_hand = max(
            n for n in range(values.shape[1] + 1) if n == 0 or most_labellings(rows, n) == 2**n
        )
        found = dimension_of(values)
        assert found.points is not None
        yield equals("VC dimension", found.value, by_hand, kind=kind, functions=len(rows))
        shown = {tuple(row[i] for i in found.points.tolist()) for row in rows}
        yield equals("labellings of the set found", len(shown), 2**found.value, kind=kind)
        most = math.floor(math.log(len(rows)) / math.log(base) + 1e-12)
        yield compare(f"dimension, {relation}", found.value, most, kind=kind, functions=len(rows))
    yield equals("dimension of all labellings of 3 points", dimension_of(full).value, 3)
    yield equals("dimension of thresholds", dimension_of(thresholds).value, 1)


vc_finite_class.foil("equality for all classes", relation="equal")
vc_finite_class.foil("with the natural logarithm", base=math.e)


@claim(
    by="sampling",
    sources=("A-279", "D-381"),
    budget=0.8,
    short=r"S_{\mathcal F}(n) \le \sum_{i=0}^d \binom ni \le (en/d)^d \quad (n \ge d)",
)
def sauer_lemma(terms: int = 1, lower: bool = True, classes: int = 12):
    r"""Sauer's lemma and the need for finite VC dimension.

    If $\mathrm{VC}(\mathcal F) = d < \infty$ then $S_{\mathcal F}(n) \le \sum_{i=0}^d \binom ni \le
    (en/d)^d$ for $n \ge d \ge 1$: the growth turns from exponential to polynomial. Otherwise
    $S_{\mathcal F}(n) = 2^n$ for all $n$, and the bound of Vapnik and Chervonenkis says nothing;
    nor does it for a finite $d$ that is large relative to $n$, although such models may
    generalise.

    Checked for the growth of drawn finite classes, counted by sets of tuples, and of half-planes;
    with equality for thresholds ($d = 1$) and intervals ($d = 2$). The bound is 2.3 at $d = 10^4$,
    $n = 5 \cdot 10^4$; for $d \ge 2n$ the growth is all of $2^{2n}$.

    Knobs:
        terms: How many terms the sum has beyond $d$.
        lower: Whether the terms below $\binom nd$ count; without them it is $n^d$.
        classes: How many classes are drawn.
    """

    def bound(n: int, d: int) -> int:
        return sauer_bound(n, d + terms - 1) if lower else n**d

    for _ in range(classes):
        values = torch.randint(2, (int(torch.randint(3, 40, ())), 7))
        d, rows = dimension_of(values).value, distinct(values)
        for n in range(d, 8):
            yield at_most("labellings", most_labellings(rows, n), bound(n, d), n=n, d=d)
    for n in (2, 3, 5, 9, 30):
        families: Any = (("thresholds", 1), ("intervals", 2))
        for family, d in families:
            found = growth(family, n)
            yield equals(f"labellings by {family}", found, bound(n, d), n=n, d=d)
        yield at_most("labellings by half-planes", half_planes(n + 1), bound(n + 1, 3), n=n + 1)
        for d in range(1, n + 1):
            yield at_most("Sauer's sum", float(bound(n, d)), (math.e * n / d) ** d, n=n, d=d)
            by_hand = sum(math.comb(n, i) for i in range(d + 1))
            yield equals("Sauer's sum, by coefficients", sauer_bound(n, d), by_hand, n=n, d=d)
    for n, epsilon in ((10, 1.0), (1000, 0.5), (10**5, 1.0)):
        found = vc_inequality(epsilon, n, growth=2**n)
        yield equals("probability by the inequality with all labellings", found, 1.0, n=n)
    n = 50_000
    for d, compare in ((10_000, at_least), (10, at_most)):
        excess = vc_bound(0.0, n, delta=0.05, dimension=d)
        yield compare("VC bound, against 1", excess, 1.0, n=n, d=d)
        term = total = 1
        for i in range(d):  # binomial coefficients as integers
            term = term * (2 * n - i) // (i + 1)
            total += term
        formula = 2 * math.sqrt(2 * (math.log(total) + math.log(2 / 0.05)) / n)
        yield equals("VC bound by Sauer's sum in integers", excess, formula, n=n, d=d)
    for n in (30, 3000):
        full = 2 * math.sqrt(2 * (2 * n * math.log(2) + math.log(40)) / n)
        for d in (2 * n, 5 * n):
            found = vc_bound(0.0, n, delta=0.05, dimension=d)
            yield equals("bound for d >= 2 n", found, full, n=n, d=d)


sauer_lemma.foil("a sum that ends one term earlier", terms=0)
sauer_lemma.foil("without the lower terms", lower=False)
