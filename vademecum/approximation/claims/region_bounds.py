"""Counting regions: how many pieces depth can make."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Literal

import torch
from torch import nn

from vademecum.approximation import count_regions, input_plane, linear_regions, regions_along
from vademecum.approximation import montufar_bound as least
from vademecum.approximation import region_upper_bound as most
from vademecum.approximation.claims._networks import dense, rectified
from vademecum.claims import at_least, at_most, claim, equals

Layer = tuple[list[list[Fraction]], list[Fraction]]


def network(layers: list[Layer]) -> nn.Sequential:
    """A ReLU network of one input with rational weights, rounded to double."""
    return nn.Sequential(
        *(
            rectified(
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


def integer_layer(n: int, m: int) -> Layer:
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


def always_active(depth: int) -> list[Layer]:
    """A first layer with kinks at 0 and 1/2, and layers of positive weights and biases behind."""
    positive: Layer = ([[Fraction(1)] * 2] * 2, [Fraction(1)] * 2)
    return [folding(2)[0], *[positive] * (depth - 1)]


def folded_plane(m: int, depth: int) -> nn.Sequential:
    """Layers that fold each side of the unit square, and a last one of lines in general position.

    With k = m // 2 units a coordinate zigzags k times between 0 and 1. The lines of the last layer
    touch a circle around the centre, so that no three meet, and all meet within the square.
    """
    k = m // 2
    j = torch.arange(float(k))
    rise = torch.where(j % 2 == 0, 2.0 * k, -2.0 * k)
    rise[0] = k
    copies = torch.zeros(2, m)  # a row for each folded coordinate; spare units do nothing
    copies[0, :k], copies[1, k : 2 * k] = rise, rise
    units = torch.zeros(m, 2)
    units[:k, 0], units[k : 2 * k, 1] = 1.0, 1.0
    kinks = torch.cat([j / k, j / k, torch.zeros(m - 2 * k)])
    turn = math.pi * (torch.arange(m) + 0.5) / m
    lines = torch.stack([turn.cos(), turn.sin()], 1)
    offsets = -lines.sum(1) / 2 - 0.3 * math.sin(math.pi / (2 * m))
    layers: list[nn.Module] = []
    fold = torch.eye(2)
    for _ in range(depth - 1):
        layers += [dense(units @ fold, -kinks), nn.ReLU()]
        fold = copies
    return nn.Sequential(*layers, dense(lines @ fold, offsets), nn.ReLU())


def cells_of(m: int, n: int) -> int:
    r"""The sum $\sum_{j \le n} \binom mj$, by Pascal's rule for the regions themselves."""
    return 1 if m == 0 or n == 0 else cells_of(m - 1, n) + cells_of(m - 1, n - 1)


@claim(
    by="sampling",
    sources=("A-061", "C-068", "E-119"),
    budget=1.0,
    short=r"\max_\theta \#\text{regions} \ge R(m) \lfloor m / n \rfloor^{n (L - 1)}, \quad"
    r" R(m) = \textstyle\sum_{j \le n} \binom mj",
)
def montufar_bound(
    weights: Literal["folding", "positive"] = "folding", growth: int = 4, depths: int = 6
):
    r"""Montúfar's lower bound on the maximal number of linear regions.

    The maximum over parameters of the number of linear regions of a ReLU network with $n$ inputs
    and $L$ hidden layers of width $m \ge n$ is at least
    $R(m) \lfloor m / n \rfloor^{n (L - 1)}$ with $R(m) = \sum_{j \le n} \binom{m}{j}$, that is
    $\Omega\big((m / n)^{n (L - 1)} m^n\big)$, exponential in the depth. It is a lower bound on the
    best network: not an upper bound, and not a statement about every network or generic weights.

    *Proof.* $\lfloor m / n \rfloor$ units fold $[0, 1]$ as often onto itself, so $L - 1$ layers
    that fold every coordinate repeat the $R(m)$ cells of the last one in each of
    $\lfloor m / n \rfloor^{n (L - 1)}$ boxes.

    The construction is counted, and attains the bound: on $[0, 1]$ for $m = 2$, in rational
    arithmetic too, and on the unit square for $m = 4, 5, 6$. No upper bound: three units fold
    $[0, 1]$ four times, so that $L$ layers have $4^L$ cells. Quoted beyond.

    Knobs:
        weights: The network whose regions are counted: one that folds, or one whose layers behind
            the first have positive weights and biases, and so are always active.
        growth: The number whose powers $\mathrm{growth}^L$ bound the cells of three units a layer.
        depths: The largest $L$ on a line.
    """
    zigzags = measured(zigzag(depths), 0.0, 1.0)
    yield at_most("regions of the zigzag", zigzags, growth**depths, L=depths)
    yield at_least("regions of the zigzag", zigzags, least(1, [3] * depths), L=depths)
    build = folding if weights == "folding" else always_active
    for depth in sorted({1, 2, 3, depths}):
        layers = build(depth)
        count = measured(layers, -10.0, 10.0)
        exact = cells(layers, Fraction(-10), Fraction(10))
        yield equals("regions on a line, against fractions", count, exact, L=depth)
        bound = least(1, [2] * depth)
        yield at_least("regions on a line", count, bound, L=depth)
        inside = cells(folding(depth), Fraction(0), Fraction(1))
        yield equals("bound for two units a layer", bound, inside, L=depth)
    for m, depth in ((4, 2), (5, 2), (6, 2), (4, 3)):
        square = input_plane(low=(0.0, 0.0), high=(1.0, 1.0))
        found = len(linear_regions(folded_plane(m, depth), square).maps)
        yield equals("bound for two inputs", least(2, [m] * depth), found, m=m, L=depth)
    for n, widths in ((2, [4, 7, 5]), (3, [3, 7, 6]), (3, [9, 4])):
        folds = math.prod((m // n) ** n for m in widths[:-1])
        bound = folds * cells_of(widths[-1], n)
        yield equals("bound for unequal widths", least(n, widths), bound, n=n, L=len(widths))


montufar_bound.erratum(
    "A-061",
    printed=r"$\#$ cells $= R(m, L) \ge R(m) \lfloor \tfrac mn \rfloor^{n (L - 1)}$ assuming"
    " general position",
    right=r"$\max_\theta \#$ cells $\ge R(m) \lfloor \tfrac mn \rfloor^{n (L - 1)}$",
    why="It bounds the best achievable count, not that of every net in general position. For"
    " $n = 1, m = 2, L = 2$ the bound is 6, but a second layer with positive weights and biases is"
    " always active, so such nets, an open set of weights, have only 3 cells.",
    weight="hard",
    refuted_by="regions on a line",
    weights="positive",
)
montufar_bound.erratum(
    "E-119",
    printed=r"$\#\text{Regions} = O\left((n / d)^{(L - 1) d} n^d\right)$",
    right=r"$\max \#\text{Regions} = \Omega\left((n / d)^{(L - 1) d} n^d\right)$",
    why=r"As scanned: the theorem gives $\Omega$, which the scan may have read as $O$. As an upper"
    " bound it is false: with $d = 1$, $n = 3$ it reads $O(3^L)$, but three ReLUs fold $[0, 1]$"
    " four times onto itself, so depth $L$ gives $4^L$ regions (exact count 4096 at $L = 6$ against"
    " 729).",
    weight="scan",
    refuted_by="regions of the zigzag",
    growth=3,
)


@claim(
    by="sampling",
    sources=("E-120",),
    budget=1.0,
    full={"nets": 200},
    short=r"\#\text{regions} \le \big(\textstyle\sum_{j = 0}^d \binom nj\big)^L = O(n^{d L})",
)
def region_upper_bound(
    bound: Callable[[int, list[int]], int] = most, nets: int = 1, depths: int = 5
):
    r"""Regions grow exponentially with depth, polynomially with width.

    A ReLU network with $d$ inputs and $L$ hidden layers of width $n$ has at most
    $\big(\sum_{j=0}^d \binom nj\big)^L = O(n^{dL})$ linear regions: polynomial in the width at
    fixed depth, while for fixed $n > d$ the maximum does grow exponentially in $L$.

    *Proof.* On a region of the first layers the next one's kinks are at most $n$ hyperplanes of
    $\mathbb{R}^d$, which by Zaslavsky's count cut it into at most $\sum_{j \le d} \binom nj$ parts.

    One layer in general position attains the bound in up to three dimensions, and a zigzag of three
    units a layer attains it on $[0, 1]$ at any depth. Random networks of one and of two inputs are
    counted; of one input in rational arithmetic too.

    Knobs:
        bound: The bound as a function of the number of inputs and the widths.
        nets: How many random networks of each size are counted.
        depths: The largest depth of the zigzag.
    """
    for depth in range(1, depths + 1):
        folds = measured(zigzag(depth), 0.0, 1.0)
        yield at_most("regions of the zigzag", folds, bound(1, [3] * depth), L=depth)
        yield equals("regions of the zigzag, against $4^L$", folds, 4**depth, L=depth)
        yield equals("bound for the zigzag", bound(1, [3] * depth), 4**depth, L=depth)
    for d, n in ((1, 5), (2, 5), (3, 6)):
        one = count_regions(rectified(torch.randn(n, d), torch.randn(n)))
        yield equals("bound for one layer", bound(d, [n]), one, d=d, n=n)
        for depth in (2, 3):
            wanted = cells_of(n, d) ** depth
            yield equals("bound for layers of one width", bound(d, [n] * depth), wanted, d=d, n=n,
                         L=depth)  # fmt: skip
    for n in (2, 3, 4):
        for depth in (1, 2, 3):
            for _ in range(nets):
                widths = [1, *[n] * depth]
                layers = [integer_layer(k, n) for k in widths[:-1]]
                count = measured(layers, -100.0, 100.0)
                exact = cells(layers, Fraction(-100), Fraction(100))
                at = {"n": n, "L": depth}
                yield equals("regions on a line, against fractions", count, exact, **at)
                yield at_most("regions on a line", count, bound(1, widths[1:]), **at)
    deep = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU())
    box = input_plane(low=(-5.0, -5.0), high=(5.0, 5.0))
    found = len(linear_regions(deep, box).maps)
    yield at_most("regions on a square", found, bound(2, [6, 5]), L=2)


region_upper_bound.foil(
    "a bound that adds up over the layers: 16 regions against 7",
    refuted_by="regions of the zigzag",
    bound=lambda _, widths: sum(widths) + 1,
)
