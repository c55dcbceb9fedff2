"""What the course claims of the number of linear regions."""

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import torch
from torch import Tensor, nn

from vademecum.approximation.patterns import activation_pattern
from vademecum.approximation.regions import (
    count_regions,
    input_plane,
    linear_regions,
    regions_along,
    zaslavsky_count,
)
from vademecum.approximation.regions import (
    montufar_bound as least,
)
from vademecum.approximation.regions import (
    region_upper_bound as most,
)
from vademecum.claims import at_least, at_most, claim, equals
from vademecum.connectionism.cover import cover_count
from vademecum.connectionism.dichotomies import count_dichotomies

Layer = tuple[list[list[Fraction]], list[Fraction]]


def layer(w: Tensor, b: Tensor | None = None) -> nn.Sequential:
    """One layer of ReLUs with given weights."""
    dense = nn.Linear(w.shape[1], w.shape[0], bias=b is not None)
    dense.weight.data = w.clone()
    if b is not None:
        dense.bias.data = b.clone()
    return nn.Sequential(dense, nn.ReLU())


@claim(by="exhaustion", sources=("B-174",), budget=0.5)
def pattern_count(formula: Callable[[int, int], int] = cover_count, missing: int = 0):
    r"""The number of activation patterns of a bias-free layer.

    The $m$ units $H(\Theta x)$ realise at most $2^m$ patterns over $x \in \mathbb{R}^n$. All $2^m$
    occur if the rows of $\Theta$ are linearly independent (so $m \le n$); for $m > n$ strictly
    fewer occur, and for rows in general position the open cells number
    $2 \sum_{i=0}^{n-1} \binom{m-1}{i}$ (Cover: $x$ and the rows change places).

    The patterns are enumerated twice: as cells of the hyperplanes, by deletion and restriction, and
    as labellings of the rows by $x$, from the signs of determinants.
    """
    orthants = count_regions(layer(torch.eye(3)))
    yield equals(orthants, 8, m=3, n=3)
    yield at_most(orthants, 2**3 - missing, m=3, n=3)
    sizes = list(range(1, 7))
    for n in (1, 2, 3):
        thetas = torch.randn(sum(sizes), n).split(sizes)
        seen = activation_pattern(layer(torch.cat(thetas)), torch.randn(200, n)).split(sizes, 1)
        for m, theta, sample in zip(sizes, thetas, seen, strict=True):
            patterns = count_dichotomies(theta)
            yield equals(count_regions(layer(theta)), patterns, m=m, n=n)
            yield equals(patterns, formula(m, n), m=m, n=n)
            yield at_most(patterns, 2**m - (m > n), m=m, n=n)
            yield at_most(len(sample.unique(dim=0)), patterns, m=m, n=n)


pattern_count.foil("the count of hyperplanes with biases", formula=zaslavsky_count)
pattern_count.erratum(
    "B-174",
    printed=r"$\|H(\Theta x) : x \in \mathbb{R}^n\| \le 2^m$, but is less since not every boolean"
    " vector is a valid activation pattern",
    right=r"$|\{H(\Theta x)\}| \le 2^m$, less if $m > n$",
    why=r"$\Theta = I_n$ realises every Boolean vector, one for each orthant; strictly fewer need "
    r"$m > n$ or dependent rows.",
    weight="soft",
    missing=1,
)


@claim(by="exhaustion", sources=("A-060", "C-067"), budget=0.5)
def zaslavsky(formula: Callable[[int, int], int] = zaslavsky_count):
    r"""Zaslavsky's count of hyperplane regions.

    An arrangement of $m$ affine hyperplanes in $\mathbb{R}^n$ cuts space into at most
    $R(m) = \sum_{i=0}^{\min\{m, n\}} \binom{m}{i}$ connected regions, with equality in general
    position; hence one ReLU layer with biases has at most that many cells.

    The regions are enumerated by deletion and restriction, and again as half the cells of the cones
    over them in $\mathbb{R}^{n+1}$, with the hyperplane at infinity, by determinants; in the plane
    also as polygons.
    """
    for n in (1, 2, 3):
        for m in range(1, 7):
            w, b = torch.randn(m, n), torch.randn(m)
            infinity = torch.tensor([[0.0] * n + [1.0]])
            cones = torch.cat([torch.cat([w, b[:, None]], 1), infinity])
            regions = count_regions(layer(w, b))
            yield equals(2 * regions, count_dichotomies(cones), m=m, n=n)
            yield equals(regions, formula(m, n), m=m, n=n)
    lines = torch.tensor([[1.0, 0], [0, 1], [1, 1], [1, -1]])
    cases = {  # lines in the plane, their offsets, and regions counted on paper
        "general": (lines, torch.tensor([0.0, 0, 0.5, 0.25]), 11),
        "concurrent": (lines, torch.zeros(4), 8),
        "parallel": (lines[[0, 0, 0, 0]], torch.arange(4.0) / 4, 5),
        "grid": (lines[[0, 0, 1, 1]], torch.tensor([0.0, 0.5, 0, 0.5]), 9),
        "the same twice": (lines[[0, 0, 1, 2]], torch.tensor([0.0, 0, 0, 0.5]), 7),
    }
    for case, (w, b, regions) in cases.items():
        yield equals(count_regions(layer(w, b)), regions, case=case)
        box = input_plane((-3.0, -3.0), (3.0, 3.0))
        yield equals(len(linear_regions(layer(w, b), box).maps), regions, case=case)
        yield at_most(regions, zaslavsky_count(4, 2) - (case != "general"), case=case)


zaslavsky.foil(r"$2^m$ for $m > n$", formula=lambda m, _: 2**m)
zaslavsky.foil(
    "the sum stopped at $n - 1$: 4 instead of 7 for three lines",
    formula=lambda m, n: zaslavsky_count(m, n - 1),
)


def network(layers: list[Layer]) -> nn.Sequential:
    """A ReLU network of one input with rational weights, rounded to double."""
    return nn.Sequential(
        *(
            layer(
                torch.tensor([[float(v) for v in row] for row in w]),
                torch.tensor(list(map(float, b))),
            )
            for w, b in layers
        )
    )


def cells(layers: list[Layer], low: Fraction, high: Fraction) -> int:
    """The cells of a ReLU network of one input within an interval, in rational arithmetic."""
    parts = [(low, high, [(Fraction(1), Fraction(0))])]
    for w, b in layers:
        following = []
        for left, right, h in parts:
            z = [
                (sum(v * a for v, (a, _) in zip(row, h, strict=True)),
                 sum((v * c for v, (_, c) in zip(row, h, strict=True)), bias))
                for row, bias in zip(w, b, strict=True)
            ]  # fmt: skip
            roots = {-c / a for a, c in z if a}
            for start, end in pairwise(
                [left, *sorted(r for r in roots if left < r < right), right]
            ):
                middle = (start + end) / 2
                following.append((start, end, [
                    (a, c) if a * middle + c > 0 else (Fraction(0), Fraction(0)) for a, c in z
                ]))  # fmt: skip
        parts = following
    return len(parts)


def measured(layers: list[Layer], low: float, high: float) -> int:
    """The same count as `regions_along` has it."""
    return len(regions_along(network(layers), torch.tensor([low]), torch.tensor([high])).maps)


def iterated(depth: int, signs: str, kinks: str, out: str, constant: int) -> list[Layer]:
    r"""The map $c + \sum_i a_i (s_i (x - k_i))_+$, of itself, of itself ...: one layer each."""
    s, k, a = ([Fraction(v) for v in text.split()] for text in (signs, kinks, out))
    first: Layer = ([[v] for v in s], [-v * t for v, t in zip(s, k, strict=True)])
    again: Layer = (
        [[v * factor for factor in a] for v in s],
        [v * (constant - t) for v, t in zip(s, k, strict=True)],
    )
    return [first, *[again] * (depth - 1)]


def integers(n: int, m: int) -> Layer:
    """A layer with small integer weights; with one input its units have distinct kinks."""
    w = torch.randint(1, 4, (m, n)) * (torch.randint(2, (m, n)) * 2 - 1)
    b = torch.randperm(m) if n > 1 else torch.arange(m) * w.abs()[:, 0]
    return [[Fraction(v) for v in row] for row in w.tolist()], [Fraction(v) for v in b.tolist()]


def folding(depth: int) -> list[Layer]:
    """Tent maps, two units each, and a last layer whose units switch at the thirds."""
    thirds = iterated(2, "1 -1", "1/3 2/3", "2 -4", 0)
    return [*iterated(depth, "1 1", "0 1/2", "2 -4", 0)[:-1], thirds[min(depth - 1, 1)]]


def zigzag(depth: int) -> list[Layer]:
    """Three units that fold [0, 1] four times: through 0, 1, 0, 1, 0 at 0, 0.2, 0.4, 0.9, 1."""
    return iterated(depth, "1 -1 -1", "1/5 2/5 9/10", "-10 7 -12", 8)


@claim(by="witness", sources=("A-061", "C-068", "E-119"), budget=0.5)
def montufar_bound(reading: str = "best", depths: int = 6):
    r"""Montúfar's lower bound on the maximal number of linear regions.

    The maximum over parameters of the number of linear regions of a ReLU network with $n$ inputs
    and $L$ hidden layers of width $m \ge n$ is at least
    $R(m) \lfloor m / n \rfloor^{n (L - 1)}$ with $R(m) = \sum_{j \le n} \binom{m}{j}$, that is
    $\Omega\big((m / n)^{n (L - 1)} m^n\big)$, exponential in the depth. It is a lower bound on the
    best network: not an upper bound, and not a statement about every network or generic weights.

    *Proof for $n = 1$, $m = 2$.* A tent map folds $[0, 1]$ twice onto itself, so $L - 1$ of them
    repeat the three cells of the last layer $2^{L-1}$ times.
    """
    positive = [folding(2)[0], ([[Fraction(1)] * 2] * 2, [Fraction(1)] * 2)]
    for depth in range(1, depths + 1):
        folds = measured(folding(depth), -10.0, 10.0)
        yield equals(folds, cells(folding(depth), Fraction(-10), Fraction(10)), L=depth)
        if reading == "best":
            yield at_least(folds, least(1, [2] * depth), L=depth)
            yield equals(least(1, [2] * depth), 3 * 2 ** (depth - 1), L=depth)
        if reading == "every" and depth == 2:
            yield at_least(measured(positive, -10.0, 10.0), least(1, [2, 2]), L=2)
        if reading == "upper" and depth > 1:  # O(3^L): no more than threefold with each layer
            before, after = (measured(zigzag(d), 0.0, 1.0) for d in (depth - 1, depth))
            yield at_most(after, 3 * before, L=depth)


montufar_bound.erratum(
    "A-061",
    printed=r"$\#$ cells $= R(m, L) \ge R(m) \lfloor \tfrac mn \rfloor^{n (L - 1)}$ assuming"
    " general position",
    right=r"$\max_\theta \#$ cells $\ge R(m) \lfloor \tfrac mn \rfloor^{n (L - 1)}$",
    why="It bounds the best count, not every network's: with $n = 1$, $m = L = 2$ and a second "
    "layer of positive weights and biases, an open set, there are 3 cells, and not 6.",
    reading="every",
)
montufar_bound.erratum(
    "E-119",
    printed=r"$\#\text{Regions} = O\left((n / d)^{(L - 1) d} n^d\right)$",
    right=r"$\max \#\text{Regions} = \Omega\left((n / d)^{(L - 1) d} n^d\right)$",
    why="As an upper bound it reads $O(3^L)$ for $d = 1$, $n = 3$; but three ReLUs fold $[0, 1]$ "
    "four times onto itself, so that depth $L$ gives $4^L$ regions: 4096 against 729 at $L = 6$.",
    reading="upper",
)


@claim(by="sampling", sources=("E-120",), budget=1.0, full={"nets": 200})
def region_upper_bound(
    bound: Callable[[int, list[int]], int] = most, nets: int = 1, depths: int = 5
):
    r"""Regions grow exponentially with depth, polynomially with width.

    A ReLU network with $d$ inputs and $L$ hidden layers of width $n$ has at most
    $\big(\sum_{j=0}^d \binom nj\big)^L = O(n^{dL})$ linear regions: polynomial in the width at
    fixed depth, while for fixed $n > d$ the maximum does grow exponentially in $L$.

    *Proof.* On a region of the first layers the next one's kinks are at most $n$ hyperplanes of
    $\mathbb{R}^d$, which by Zaslavsky's count cut it into at most $\sum_{j \le d} \binom nj$ parts.
    """
    for depth in range(1, depths + 1):
        folds = measured(zigzag(depth), 0.0, 1.0)
        yield equals(folds, 4**depth, n=3, L=depth)
        yield at_most(folds, bound(1, [3] * depth), n=3, L=depth)
    for n in (2, 3, 4):
        for depth in (1, 2, 3):
            for _ in range(nets):
                widths = [1, *[n] * depth]
                layers = [integers(k, n) for k in widths[:-1]]
                count = measured(layers, -100.0, 100.0)
                yield equals(count, cells(layers, Fraction(-100), Fraction(100)), n=n, L=depth)
                yield at_most(count, bound(1, widths[1:]), n=n, L=depth)
    deep = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU())
    box = input_plane((-5.0, -5.0), (5.0, 5.0))
    yield at_most(len(linear_regions(deep, box).maps), bound(2, [6, 6]), n=6, L=2)
    yield equals(measured([integers(1, 5)], -100.0, 100.0), bound(1, [5]), n=5, L=1)


region_upper_bound.foil(
    "a bound that adds up over the layers: 16 regions against 7",
    bound=lambda _, widths: sum(widths) + 1,
)
