"""Cover's count: how many labellings hyperplanes can realise."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.connectionism import count_dichotomies, cover_count, dichotomies, separable

Sizes = tuple[tuple[int, int], ...]


def moment_points(s: int, n: int) -> Tensor:
    """Points $(1, t, ..., t^{n-1})$ with distinct integers $t$: any n are independent."""
    t = torch.randperm(2 * s)[:s] - s // 2
    return (t[:, None] ** torch.arange(n)).double()


def integer_points(s: int, n: int) -> Tensor:
    """Random small integers of which any n points are independent, also with a 1 appended."""
    while True:
        x = torch.randint(-9, 10, (s, n)).double()
        lifted = torch.cat([x, torch.ones(s, 1)], 1)
        if _independent(x) and _independent(lifted):
            return x


def _independent(x: Tensor) -> bool:
    """Whether any n rows are independent, by integer determinants far below $2^{53}$."""
    s, n = x.shape
    if s < n:
        return round(torch.linalg.det(x @ x.T).item()) != 0
    sets = torch.combinations(torch.arange(s), n)
    return bool((torch.linalg.det(x[sets]).round() != 0).all())


def labellings(x: Tensor, *, bias: bool = False) -> Tensor:
    """The separable ones among all labellings, each tried by linear programming."""
    every = torch.tensor(list(product((-1, 1), repeat=len(x))), dtype=torch.int8)
    half = every[len(every) // 2 :]  # the negative of a separable labelling is separable too
    found = half[torch.tensor([separable(x, y, bias=bias).separable for y in half])]
    return torch.cat([-found.flip(0), found])


@claim(
    by="identity",
    sources=("B-049", "C-016", "C-017"),
    budget=1.0,
    full={"sizes": ((1, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4), (8, 3))},
    short=r"C(s, n) = 2 \textstyle\sum_{i=0}^{n-1} \binom{s-1}{i} \text{"
    r" labellings of } s \text{ points in general position}",
)
def cover_counting(
    formula: Callable[[int, int], int] = cover_count,
    bias: bool = False,
    sizes: Sizes = ((1, 1), (3, 2), (4, 2), (5, 3), (6, 3)),
    larger: Sizes = ((40, 1), (30, 2), (12, 4), (9, 6)),
):
    r"""Cover's function counting theorem.

    Let $C(S, n)$ be the number of labellings of a set $S \subset \mathbb{R}^n$ of points that
    hyperplanes through the origin realise. For $s$ points in general position (every $n$ of them
    linearly independent, or all if they are fewer) it depends on $s$ alone:

    $$C(s, n) = 2 \sum_{i=0}^{n-1} \binom{s-1}{i}.$$

    Points that are not in general position admit fewer.

    *Check.* Of random integer points, and for even $s$ of points on the moment curve, all
    labellings are tried one by one by linear programming: they are the ones that `dichotomies`
    enumerates, and as many as the formula says. In the plane a second oracle in integers: $s$ lines
    through the origin cut the circle of directions into $2 s$ arcs. (Cover, 1965; Schläfli, 1852.)

    Knobs:
        formula: The count $C(s, n)$, a function of $s$ and $n$.
        bias: Whether the hyperplanes may miss the origin.
        sizes: The $(s, n)$ for which all labellings are tried.
        larger: The $(s, n)$ for which labellings of random points are enumerated.
    """
    for s, n in sizes:
        for points in (moment_points, integer_points)[s % 2 :]:
            x = points(s, n)
            found = labellings(x, bias=bias)
            yield equals("labellings by linear programming", len(found), formula(s, n), s=s, n=n)
            if not bias:
                yield equals("labels enumerated, one by one", dichotomies(x), found, s=s, n=n)
    for s, n in larger:
        count = count_dichotomies(torch.randn(s, n))
        yield equals("number of labellings enumerated", count, formula(s, n), s=s, n=n)

    x = torch.randint(-3, 4, (5, 2)).double()
    x[0], x[1] = torch.tensor([1.0, 2.0]), torch.tensor([-2.0, -4.0])
    x = x[(x != 0).any(1)]
    lines = {Fraction(int(b), int(a)) if a else None for a, b in x.tolist()}
    count, at = len(labellings(x, bias=bias)), {"s": len(x), "n": 2}
    yield equals("labellings of points on common lines", count, 2 * len(lines), **at)
    yield at_most("arcs between common lines", 2 * len(lines), formula(len(x), 2) - 1, **at)
    x = integer_points(5, 3)
    x[2] = x[0] - x[1]
    count = len(labellings(x, bias=bias))
    yield at_most("labellings of dependent points", count, formula(5, 3) - 1, s=5, n=3)


cover_counting.erratum(
    "B-049",
    printed=r"$C(s,n)=2\sum_{i=1}^{n-1}\binom{s-1}{i}$",
    right=r"$C(s,n)=2\sum_{i=0}^{n-1}\binom{s-1}{i}$",
    why="as scanned: the sum must start at $i=0$; sheet C prints it so, and a 0 read as 1 in a "
    "small index cannot be excluded; one point in one dimension has 2 dichotomies, the formula as "
    "scanned gives 0, three points in the plane have 6, as scanned 4, and $(s,n)=(5,3)$ has 22, as "
    "scanned 20",
    weight="scan",
    formula=lambda s, n: 2 * sum(math.comb(s - 1, i) for i in range(1, n)),
)
cover_counting.foil(
    "a sum up to $n$ counts the hyperplanes that may miss the origin",
    formula=lambda s, n: cover_count(s, n + 1),
)
cover_counting.foil("hyperplanes that may miss the origin realise more", bias=True)


@claim(
    by="identity",
    sources=("B-050", "B-051", "C-016"),
    budget=0.5,
    short=r"C(s + 1, n) = C(s, n) + C(s, n - 1),\quad C(1, n) = 2\ (n \ge 1),\quad C(s, 0) = 0",
)
def cover_recurrence(
    back: int = 0, first: int = 2, most: int = 40, sizes: Sizes = ((3, 2), (5, 3), (8, 4))
):
    r"""Recurrence for the number of linear dichotomies.

    $$C(s + 1, n) = C(s, n) + C(s, n - 1), \qquad C(1, n) = 2 \ (n \ge 1), \qquad C(s, 0) = 0.$$

    A new point in general position splits exactly those labellings of the old points that a
    hyperplane through the new point realises, and these are labellings of the old points projected
    along it, in dimension $n - 1$. Pascal's rule turns this into the closed form.

    *Check.* The table filled by the recurrence is that of `cover_count`, for $s \le 40$ and
    $n < 20$; and of the labellings of the first $s$ of $s + 1$ random points, $C(s, n - 1)$ extend
    both ways.

    Knobs:
        back: How many points fewer the second term has, $C(s - k, n - 1)$.
        first: The value of $C(1, n)$ with which the table begins.
        most: Up to how many points the table goes.
        sizes: The $(s, n)$ for which a point is added to $s$ random ones.
    """
    dimensions = range(1, max(2, most // 2))
    table = {(s, 0): 0 for s in range(1, most + 1)} | {(1, n): first for n in dimensions}
    for s, n in product(range(1, most), dimensions):
        table[s + 1, n] = table[s, n] + table[max(s - back, 1), n - 1]
    for n in (0, *dimensions):
        wrong = (s for s in range(1, most + 1) if cover_count(s, n) != table[s, n])
        s = next(wrong, most)
        yield equals("closed form, against the table", cover_count(s, n), table[s, n], s=s, n=n)

    for s, n in sizes:
        _, ways = dichotomies(torch.randn(s + 1, n))[:, :s].unique(dim=0, return_counts=True)
        old, both = cover_count(s, n), cover_count(max(s - back, 1), n - 1)
        yield equals("labellings of the old points", len(ways), old, s=s, n=n)
        extending = int((ways == 2).sum())
        yield equals("labellings that extend both ways", extending, both, s=s, n=n)


cover_recurrence.foil("one point too few behind the second term", back=1)
cover_recurrence.foil("a single point has two labellings, not one", first=1)


@claim(
    by="sampling",
    sources=("B-053", "C-018"),
    budget=0.8,
    short=r"C(s, n) = 2^s \iff s \le n: \text{ homogeneous half-spaces have VC dimension } n",
)
def cover_shattering(independent: bool = True, bias: bool = False, most: int = 20):
    r"""Half-spaces through the origin have VC dimension $n$.

    They realise all $2^s$ labellings of $s \le n$ linearly independent points, so that
    $C(s, n) = 2^s$, but not all of any set of more than $n$ points, so that $C(s, n) < 2^s$ for
    $s > n$. With a bias the VC dimension is $n + 1$. Independence matters: $x$ and $2 x$ always get
    the same label.

    *Proof.* If the rows of $X$ are independent, $X \theta = y$ has a solution for every $y$. If
    $\sum_i c_i x_i = 0$ with $c \ne 0$, the labels $y_i = \operatorname{sign} c_i$ are impossible
    (any label where $c_i = 0$): they would make $\sum_i c_i \langle \theta, x_i \rangle$ positive.

    *Check.* The count for all $s, n \le 20$; for $n \le 4$ random integer points, $s \le n$ of
    them shattered, or $n + 1$ with a bias, and the impossible labels of $n + 1$ points of
    $\mathbb{R}^n$ and of $n + 2$ points with a bias.

    Knobs:
        independent: Whether the points that are to be shattered are independent; else the second is
            twice the first.
        bias: Whether the half-spaces that are to fail on $n + 1$ points may miss the origin.
        most: Up to which $s$ and $n$ the count is compared with $2^s$.
    """
    for s, n in product(range(1, most + 1), repeat=2):
        shattered = cover_count(s, n) == 2**s
        if shattered != (s <= n) or s == n or s == n + 1:
            yield equals("whether the count is $2^s$", shattered, s <= n, s=s, n=n)

    for n in range(2, 5):
        for s in range(2, n + 1):
            x = integer_points(s, n)
            if not independent:
                x[1] = 2 * x[0]
            every = torch.tensor(list(product((-1, 1), repeat=s)))
            realised = sum(separable(x, y, bias=False).separable for y in every)
            yield equals("labellings of at most $n$ points", realised, 2**s, s=s, n=n)

        realised = len(labellings(integer_points(n + 1, n), bias=True))
        yield equals("labellings of $n + 1$ points with a bias", realised, 2 ** (n + 1), n=n)

        for lifted in (False, True):
            x = integer_points(n + 1 + lifted, n)
            z = torch.cat([x, torch.ones(len(x), 1)], 1) if lifted else x
            minors = [torch.cat([z[:i], z[i + 1 :]]) for i in range(len(z))]
            c = torch.stack([(-1) ** i * torch.linalg.det(m) for i, m in enumerate(minors)])
            found = separable(x, c.sign(), bias=bias or lifted).separable
            at = {"s": len(x), "n": n, "bias": lifted}
            yield equals("whether the impossible labels are realised", found, False, **at)
            listed = (dichotomies(z) == c.sign()).all(1).any()
            yield equals("whether the impossible labels are enumerated", listed, False, **at)
    yield from _proofs()


def _proofs():
    """What is found in proof of either answer: a hyperplane, or weights of the examples."""
    for s, n, bias in ((9, 7, True), (7, 2, True), (8, 3, False), (150, 50, True)):
        x, y = torch.randn(s, n), torch.randint(2, (s,)) * 2 - 1
        found, at = separable(x, y, bias=bias), {"s": s, "n": n}
        lifted = y[:, None] * torch.cat([x, torch.ones(s, int(bias))], 1)
        w, b, weights = found.w, found.b, found.certificate
        yield equals("whether there is a proof of one kind", weights is None, w is not None, **at)
        if w is not None and b is not None:
            margins = y * (x @ w + b) / w.norm()
            yield equals("margin of the hyperplane found", found.margin, margins.min(), **at)
            yield at_least("margins of the examples", margins, 1e-12, tol=0.0, **at)
        if weights is not None:
            yield equals("sum of the weights in proof", weights.sum(), 1.0, **at)
            yield at_least("weights in proof", weights, 0.0, tol=0.0, **at)
            left = (weights @ lifted).norm()
            yield equals("weighted sum of the signed examples", left, 0.0, tol=1e-12, **at)
            yield equals("residual that is stated", found.residual, left, tol=1e-14 * s, **at)
    close = torch.stack([torch.ones(6), torch.arange(6) * 2.0**-50], 1)  # nearly one direction
    found = count_dichotomies(close)
    yield equals("labellings of points that rounding confuses", found, cover_count(6, 2))


cover_shattering.erratum(
    "B-053",
    printed=r"$n$ points shattered by linear functions in $n$ dimensions, glossed as realising "
    r'"all $2^n$ points"',
    right=r"$n$ linearly independent points are shattered: all $2^n$ labellings of them",
    why=r"it is $2^n$ labellings of $n$ points, not $2^n$ points, and the points must be linearly "
    r"independent: $x$ and $2x$ in $\mathbb R^2$ never receive opposite labels",
    weight="soft",
    independent=False,
)
cover_shattering.foil("with a bias $n + 1$ points can be shattered", bias=True)
