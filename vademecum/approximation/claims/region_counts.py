"""Counting cells: how many pieces one layer cuts space into."""

from collections.abc import Callable
from itertools import product

import torch

from vademecum.approximation import (
    activation_pattern,
    count_regions,
    input_plane,
    linear_regions,
    zaslavsky_count,
)
from vademecum.approximation.claims._networks import rectified
from vademecum.claims import at_most, claim, equals
from vademecum.connectionism import count_dichotomies, cover_count


@claim(
    by="identity",
    sources=("B-174",),
    budget=1.0,
    short=r"|\{H(\Theta x) : x \in \mathbb R^n\}| \le 2^m, \text{ in general position }"
    r" 2 \textstyle\sum_{i < n} \binom{m - 1}{i}",
)
def pattern_count(formula: Callable[[int, int], int] = cover_count, missing: int = 0):
    r"""The number of activation patterns of a bias-free layer.

    The $m$ units $H(\Theta x)$ realise at most $2^m$ patterns over $x \in \mathbb{R}^n$. All $2^m$
    occur if the rows of $\Theta$ are linearly independent (so $m \le n$); for $m > n$ strictly
    fewer occur, and for rows in general position the open cells number
    $2 \sum_{i=0}^{n-1} \binom{m-1}{i}$ (Cover: $x$ and the rows change places).

    The patterns are enumerated twice: as cells of the hyperplanes, by deletion and restriction, and
    as labellings of the rows by $x$, from the signs of determinants. Checked for random rows,
    $m \le 6$ and $n \le 3$; for the identity; and for two rows that are parallel.

    Knobs:
        formula: The number of open cells in general position, as a function of $m$ and $n$.
        missing: How many of $2^m$ patterns the identity is said to miss at least.
    """
    for n in (2, 3):
        orthants = count_regions(rectified(torch.eye(n)))
        yield at_most("patterns of the identity", orthants, 2**n - missing, n=n)
        points = torch.tensor(list(product((-1.0, 1), repeat=n)))
        seen = activation_pattern(rectified(torch.eye(n)), points).unique(dim=0)
        yield equals("patterns of the identity, one an orthant", len(seen), 2**n, n=n)
    parallel = rectified(torch.tensor([[1.0, 0], [2, 0], [0, 1]]))
    yield equals("patterns of two parallel units and a third", count_regions(parallel), 4)
    sizes = list(range(1, 7))
    for n in (1, 2, 3):
        thetas = torch.randn(sum(sizes), n).split(sizes)
        layer = rectified(torch.cat(thetas))
        samples = activation_pattern(layer, torch.randn(200, n)).split(sizes, 1)
        for m, theta, sample in zip(sizes, thetas, samples, strict=True):
            patterns = count_dichotomies(theta)
            yield equals("cells of the hyperplanes", count_regions(rectified(theta)), patterns,
                         m=m, n=n)  # fmt: skip
            yield equals("patterns in general position", patterns, formula(m, n), m=m, n=n)
            yield at_most("patterns, against $2^m$", patterns, 2**m - (m > n), m=m, n=n)
            seen = len(sample.unique(dim=0))
            yield at_most("patterns among 200 random inputs", seen, patterns, m=m, n=n)


pattern_count.foil("the count of hyperplanes with biases", formula=zaslavsky_count)
pattern_count.erratum(
    "B-174",
    printed=r"$\|H(\boldsymbol{\Theta} \mathbf{x}) : \mathbf{x} \in \mathbb{R}^n\| \leq 2^m$, but"
    " is less since not every boolean vector is a valid activation pattern",
    right=r"$|\{H(\Theta x)\}| \le 2^m$, less if $m > n$",
    why=r"Strict inequality needs $m > n$ or dependent rows: $\Theta = I_n$ realises every Boolean"
    " vector, one per orthant. (The bars, doubled as scanned, denote the cardinality of a set.)",
    weight="scan",
    refuted_by="patterns of the identity",
    missing=1,
)


@claim(
    by="identity",
    sources=("A-060", "C-067"),
    budget=1.0,
    short=r"\#\text{regions of } m \text{ hyperplanes in } \mathbb R^n \le"
    r" \textstyle\sum_{i = 0}^{\min\{m, n\}} \binom mi",
)
def zaslavsky(formula: Callable[[int, int], int] = zaslavsky_count):
    r"""Zaslavsky's count of hyperplane regions.

    An arrangement of $m$ affine hyperplanes in $\mathbb{R}^n$ cuts space into at most
    $R(m) = \sum_{i=0}^{\min\{m, n\}} \binom{m}{i}$ connected regions, with equality in general
    position; hence one ReLU layer with biases has at most that many cells.

    The regions are enumerated by deletion and restriction, and again as half the cells of the cones
    over them in $\mathbb{R}^{n+1}$, with the hyperplane at infinity, by determinants; in the plane
    also as polygons. Checked for random hyperplanes, $m \le 6$ and $n \le 3$, and for five
    arrangements of lines that were counted on paper.

    Knobs:
        formula: The number of regions in general position, as a function of $m$ and $n$.
    """
    for n in (1, 2, 3):
        for m in range(1, 7):
            w, b = torch.randn(m, n), torch.randn(m)
            infinity = torch.tensor([[0.0] * n + [1.0]])
            cones = torch.cat([torch.cat([w, b[:, None]], 1), infinity])
            regions = count_regions(rectified(w, b))
            yield equals(
                "twice the number of regions, against the cells of cones",
                2 * regions,
                count_dichotomies(cones),
                m=m,
                n=n,
            )
            yield equals("regions in general position", regions, formula(m, n), m=m, n=n)
    lines = torch.tensor([[1.0, 0], [0, 1], [1, 1], [1, -1]])
    cases = {  # lines in the plane, their offsets, and regions counted on paper
        "general": (lines, torch.tensor([0.0, 0, 0.5, 0.25]), 11),
        "concurrent": (lines, torch.zeros(4), 8),
        "parallel": (lines[[0, 0, 0, 0]], torch.arange(4.0) / 4, 5),
        "grid": (lines[[0, 0, 1, 1]], torch.tensor([0.0, 0.5, 0, 0.5]), 9),
        "the same twice": (lines[[0, 0, 1, 2]], torch.tensor([0.0, 0, 0, 0.5]), 7),
    }
    for case, (w, b, regions) in cases.items():
        layer = rectified(w, b)
        yield equals("regions of four lines", count_regions(layer), regions, lines=case)
        box = input_plane(low=(-3.0, -3.0), high=(3.0, 3.0))
        polygons = len(linear_regions(layer, box).maps)
        yield equals("polygons of four lines", polygons, regions, lines=case)
        most = formula(4, 2) - (case != "general")
        yield at_most("regions of four lines, against the formula", regions, most, lines=case)


zaslavsky.foil(r"$2^m$ for $m > n$", formula=lambda m, _: 2**m)
zaslavsky.foil(
    "the sum stopped at $n - 1$: 4 instead of 7 for three lines",
    formula=lambda m, n: zaslavsky_count(m, n - 1),
)
