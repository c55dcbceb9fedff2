"""What the course claims of the labellings that hyperplanes can realise."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import torch
from scipy.stats import binomtest
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, consistent, equals
from vademecum.connectionism.cover import cover_count, separable_probability
from vademecum.connectionism.dichotomies import count_dichotomies, dichotomies
from vademecum.connectionism.separability import separable

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
    by="exhaustion",
    sources=("B-049", "C-016", "C-017"),
    budget=1.0,
    full={"sizes": ((1, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4), (8, 3))},
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

    *Check.* All labellings of integer points, tried one by one by linear programming, are the ones
    that `dichotomies` enumerates, and as many as the formula says. In the plane a second oracle in
    integers: $s$ lines through the origin cut the circle of directions into $2 s$ arcs.
    (Cover, 1965; Schläfli, 1852.)
    """
    for s, n in sizes:
        for points in (moment_points, integer_points):
            x = points(s, n)
            found = labellings(x, bias=bias)
            yield equals(len(found), formula(s, n), s=s, n=n)
            if not bias:
                yield equals(dichotomies(x), found, s=s, n=n)
    for s, n in larger:
        yield equals(count_dichotomies(torch.randn(s, n)), formula(s, n), s=s, n=n)

    x = torch.randint(-3, 4, (6, 2)).double()
    x[0], x[1] = torch.tensor([1.0, 2.0]), torch.tensor([-2.0, -4.0])
    x = x[(x != 0).any(1)]
    lines = {Fraction(int(b), int(a)) if a else None for a, b in x.tolist()}
    yield equals(len(labellings(x, bias=bias)), 2 * len(lines), s=len(x), n=2)
    yield at_most(2 * len(lines), formula(len(x), 2) - 1, s=len(x), n=2)
    x = integer_points(5, 3)
    x[2] = x[0] - x[1]
    yield at_most(len(labellings(x, bias=bias)), formula(5, 3) - 1, s=5, n=3)


cover_counting.erratum(
    "B-049",
    printed=r"$C(s, n) = 2 \sum_{i=1}^{n-1} \binom{s-1}{i}$",
    right=r"$C(s, n) = 2 \sum_{i=0}^{n-1} \binom{s-1}{i}$",
    why="the sum starts at $i = 0$: one point on a line has 2 labellings, as printed it has none",
    formula=lambda s, n: 2 * sum(math.comb(s - 1, i) for i in range(1, n)),
)
cover_counting.foil(
    "a sum up to $n$ counts the hyperplanes that may miss the origin",
    formula=lambda s, n: cover_count(s, n + 1),
)
cover_counting.foil("hyperplanes that may miss the origin realise more", bias=True)


@claim(by="exhaustion", sources=("B-050", "B-051", "C-016"), budget=0.5)
def cover_recurrence(
    back: int = 0, first: int = 2, most: int = 40, sizes: Sizes = ((3, 2), (5, 3), (8, 4))
):
    r"""Recurrence for the number of linear dichotomies.

    $$C(s + 1, n) = C(s, n) + C(s, n - 1), \qquad C(1, n) = 2 \ (n \ge 1), \qquad C(s, 0) = 0.$$

    A new point in general position splits exactly those labellings of the old points that a
    hyperplane through the new point realises, and these are labellings of the old points projected
    along it, in dimension $n - 1$. Pascal's rule turns this into the closed form.

    *Check.* The table filled by the recurrence is that of `cover_count`; and of the labellings of
    the first $s$ of $s + 1$ random points, $C(s, n - 1)$ extend both ways.
    """
    table = {(s, 0): 0 for s in range(1, most + 1)} | {(1, n): first for n in range(1, most // 2)}
    for s, n in product(range(1, most), range(1, most // 2)):
        table[s + 1, n] = table[s, n] + table[max(s - back, 1), n - 1]
    cells = sorted(table)
    wrong = [cell for cell in cells if table[cell] != cover_count(*cell)]
    s, n = (wrong or cells[-1:])[0]
    yield equals(table[s, n], cover_count(s, n), s=s, n=n)

    for s, n in sizes:
        _, ways = dichotomies(torch.randn(s + 1, n))[:, :s].unique(dim=0, return_counts=True)
        yield equals(len(ways), table[s, n], s=s, n=n)
        yield equals(int((ways == 2).sum()), table[max(s - back, 1), n - 1], s=s, n=n)


cover_recurrence.foil("one point too few behind the second term", back=1)
cover_recurrence.foil("a single point has two labellings, not one", first=1)


@claim(by="exhaustion", sources=("B-053", "C-018"), budget=0.5)
def cover_shattering(independent: bool = True, bias: bool = False, most: int = 20):
    r"""Half-spaces through the origin have VC dimension $n$.

    They realise all $2^s$ labellings of $s \le n$ linearly independent points, so that
    $C(s, n) = 2^s$, but not all of any set of more than $n$ points, so that $C(s, n) < 2^s$ for
    $s > n$. With a bias the VC dimension is $n + 1$. Independence matters: $x$ and $2 x$ always get
    the same label.

    *Proof.* If the rows of $X$ are independent, $X \theta = y$ has a solution for every $y$. If
    $\sum_i c_i x_i = 0$ with $c \ne 0$, the labels $y_i = \operatorname{sign} c_i$ are impossible
    (any label where $c_i = 0$): they would make $\sum_i c_i \langle \theta, x_i \rangle$ positive.
    """
    for s, n in product(range(1, most + 1), repeat=2):
        shattered = cover_count(s, n) == 2**s
        if shattered != (s <= n) or s == n:
            yield equals(shattered, s <= n, s=s, n=n)

    for n in range(2, 5):
        x = integer_points(n, n)
        if not independent:
            x[1] = 2 * x[0]
        every = torch.tensor(list(product((-1.0, 1.0), repeat=n)))
        theta = torch.linalg.pinv(x) @ every.T
        yield equals((x @ theta).T.sign(), every, s=n, n=n)

        x = integer_points(n + 1, n)
        c = torch.stack(
            [(-1) ** i * torch.linalg.det(torch.cat([x[:i], x[i + 1 :]])) for i in range(n + 1)]
        )
        yield equals(separable(x, c.sign(), bias=bias).separable, False, s=n + 1, n=n)
        realised = (dichotomies(x) == c.sign()).all(1).any()
        yield equals(realised, False, s=n + 1, n=n)


cover_shattering.erratum(
    "B-053",
    printed=r"$n$ points are shattered by linear functions in $n$ dimensions: all $2^n$ points",
    right=r"$n$ linearly independent points are shattered: all $2^n$ labellings of them",
    why="it is labellings, not points, and $x$ and $2 x$ in the plane never get opposite labels",
    weight="soft",
    independent=False,
)
cover_shattering.foil("with a bias $n + 1$ points can be shattered", bias=True)


@claim(
    by="sampling",
    sources=("C-019", "C-020"),
    budget=1.5,
    full={"trials": 100, "sizes": ((30, 20), (40, 20), (52, 20))},
)
def cover_capacity(
    ratio: float = 2.0,
    shift: int = 0,
    empty_above: bool = True,
    trials: int = 40,
    sizes: Sizes = ((15, 10), (20, 10), (26, 10)),
):
    r"""The capacity of the perceptron is two points per weight.

    A uniformly random labelling of $s$ points in general position in $\mathbb{R}^n$ is separable
    with probability

    $$\frac{C(s, n)}{2^s} = P\big(\mathrm{Bin}(s - 1, \tfrac12) \le n - 1\big),$$

    which is exactly $\frac12$ at $s = 2 n$ and becomes a step at $s / n = 2$ as $n \to \infty$. So
    an empty version space (no consistent weights) is the exception for $s < 2 n$ and the rule for
    $s > 2 n$.

    *Check.* The half in integers; the probability against the exact distribution of a sum of coins;
    Hoeffding's bound on the tails at $10 \%$ from the step; and random labellings of Gaussian
    points, tried by linear programming. (Cover, 1965.)
    """
    for n in range(1, 61):
        yield equals(2 * cover_count(2 * n + shift, n), 2 ** (2 * n + shift), n=n)
    for n in (2, 10, 50):
        for s in (3 * n // 2, 2 * n, 3 * n):
            coins = [1]  # how often a sum of coins takes each value, by adding one at a time
            for _ in range(s - 1):
                coins = [a + b for a, b in zip([0, *coins], [*coins, 0], strict=True)]
            exact = Fraction(sum(coins[:n]), 2 ** (s - 1))
            yield equals(separable_probability(s, n), float(exact), s=s, n=n)
        empty = 1 - separable_probability(torch.tensor([3 * n // 2, 3 * n]), n)
        rule, exception = empty.flip(0) if empty_above else empty
        yield at_least(rule, 0.8, n=n)
        yield at_most(exception, 0.25, n=n)
    for n in (10**2, 10**4, 10**6):
        below, above = round(0.9 * ratio * n), round(1.1 * ratio * n)
        yield at_least(separable_probability(below, n), 1 - _hoeffding(below, n), n=n)
        yield at_most(separable_probability(above, n), _hoeffding(above, n - 1), n=n)
    for s, n in sizes:
        labels = torch.randint(2, (trials, s)) * 2 - 1
        count = sum(separable(torch.randn(s, n), y, bias=False).separable for y in labels)
        p = separable_probability(s, n)
        yield consistent(float(binomtest(count, trials, p).pvalue), alpha=1e-7, s=s, n=n)


def _hoeffding(s: int, k: int) -> float:
    """The bound on the tail of $s - 1$ coins that begins at `k` heads, away from the mean."""
    return math.exp(-2 * (s - 1) * (0.5 - k / (s - 1)) ** 2)


cover_capacity.erratum(
    "C-020",
    printed=r"for $s > 2 n$ an empty version space is the exception",
    right=r"for $s > 2 n$ an empty version space is the rule, for $s < 2 n$ the exception",
    why="at $s = 150$, $n = 50$ only one labelling in 50000 leaves a non-empty version space",
    empty_above=False,
)
cover_capacity.foil("one point per weight is far from the capacity", ratio=1.0)
cover_capacity.foil("the half is not at $s = 2 n + 1$", shift=1)
