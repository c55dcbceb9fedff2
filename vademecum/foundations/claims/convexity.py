"""Convexity: sets and functions that chords do not leave."""

import math
from collections.abc import Callable
from typing import Literal

import scipy.stats
import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, consistent, equals, in_mean
from vademecum.foundations import Ball, Box, ConvexityViolation, convexity_violation

ROUNDING = 1e-12
"""More than rounding does to a gap: twenty units of roundoff of values up to 100."""

Function = Callable[[Tensor], Tensor]


def chords(n: int, d: int, reach: int = 9) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Integer x, y and k such that z = (k x + (8 - k) y) / 8 is an integer too: exact chords.

    The first chord is the middle of (8, 0, ...) and (-8, 0, ...).
    """
    x, y = 8 * torch.randint(-reach, reach + 1, (2, n, d))
    k = torch.randint(0, 9, (n,))
    x[0], k[0] = 8 * torch.eye(d, dtype=torch.long)[0], 4
    y[0] = -x[0]
    return x, y, k, (k[:, None] * x + (8 - k)[:, None] * y) // 8


def excess(f: Function, n: int, d: int, reach: int = 9) -> Tensor:
    """Eight times the gap of an integer function on n exact chords."""
    x, y, k, z = chords(n, d, reach)
    return 8 * f(z) - k * f(x) - (8 - k) * f(y)


def hinges(d: int, pieces: int = 5) -> Function:
    """The maximum of random integer affine functions."""
    a, b = torch.randint(-5, 6, (pieces, d)), torch.randint(-20, 21, (pieces,))
    return lambda x: ((x[:, None] * a).sum(2) + b).amax(1)


def bowl(d: int) -> Function:
    """A random convex quadratic form with integer coefficients, |B x|^2."""
    b = torch.randint(-3, 4, (d, d))
    return lambda x: (x[:, None] * b).sum(2).square().sum(1)


def search(
    f: Function, low: float, high: float, d: int = 1, *, steps: int = 15
) -> ConvexityViolation:
    """A short search for violating chords of a function on a cube."""
    cube = Box(torch.full((d,), low), torch.full((d,), high))
    return convexity_violation(f, cube, chords=128, starts=4, steps=steps)


def members(shape: str, x: Tensor) -> Tensor:
    """Which integer points belong to a set; 16 is the unit of length."""
    square = x.square().sum(1)
    return {
        "half-space": x[:, 0] <= 16,
        "ball": square <= 60**2,
        "orthant": (x >= 0).all(1),
        "subspace": x[:, 0] == x[:, -1],
        "empty": torch.zeros(len(x), dtype=torch.bool),
        "everything": torch.ones(len(x), dtype=torch.bool),
        "annulus": (square >= 8**2) & (square <= 60**2),
        "half-lines": (x[:, 0].abs() >= 8),
    }[shape]


def sampled_law(region: Box | Ball, x: Tensor):
    """Evidence that points are uniform on a box, or on a ball."""
    d, kind = x.shape[1], type(region).__name__
    if isinstance(region, Box):
        share = ((x - region.low) / (region.high - region.low)).T
    else:
        off = x - region.centre
        share = (off.norm(dim=1) / region.radius)[None] ** d
        for i, column in enumerate(off.T):
            at = {"d": d, "axis": i}
            yield in_mean("mean of a ball's sample, off its centre", column, 0.0, sigmas=6, **at)
            moment = region.radius**2 / (d + 2)
            yield in_mean("second moment of a ball's sample", column**2, moment, sigmas=6, **at)
    for column in share:
        p = float(scipy.stats.kstest(column.numpy(), "uniform").pvalue)
        yield consistent("p-value of a uniform law of samples", p, alpha=1e-8, d=d, set=kind)


@claim(
    by="sampling",
    sources=("D-037", "D-038", "E-036", "E-037"),
    budget=0.5,
    full={"pairs": 200_000},
    short=r"x, x' \in S,\; \lambda \in [0, 1] \implies \lambda x + (1 - \lambda) x' \in S",
)
def convex_set(
    shapes: tuple[str, ...] = (
        "half-space",
        "ball",
        "orthant",
        "subspace",
        "empty",
        "everything",
    ),
    pairs: int = 2000,
):
    r"""Convex sets.

    $S \subseteq \mathbb R^d$ is convex if $\lambda x + (1 - \lambda) x' \in S$ for all
    $x, x' \in S$ and $\lambda \in [0, 1]$. Half-spaces, balls, the simplex, affine subspaces, the
    empty set and $\mathbb R^d$ itself are convex, and so is every intersection of convex sets.

    Checked on exact integer chords, for all intersections of two of the sets. The boxes and balls
    of this room keep the chords of their samples, up to rounding, and the samples are uniform: of
    a ball $(\|x - c\| / r)^d$ is, and $\mathbb E (x_i - c_i)^2 = \frac{r^2}{d + 2}$.

    Knobs:
        shapes: Which sets are said to be convex.
        pairs: How many chords are drawn in each dimension.
    """
    sets = [(name,) for name in shapes] + [(a, b) for a in shapes for b in shapes if a < b]
    for d in (1, 2, 3):
        x, y, _, z = chords(pairs, d, reach=8)
        for parts in sets:
            ends = torch.stack([members(name, v) for name in parts for v in (x, y)]).all(0)
            between = torch.stack([members(name, z) for name in parts]).all(0)
            left = int((ends & ~between).sum())
            yield equals("chords that leave the set", left, 0, d=d, set=" and ".join(parts))
        counts = torch.multinomial(torch.ones(d + 1), 6 * 50, replacement=True).view(50, 6)
        corners = 8 * torch.nn.functional.one_hot(counts, d + 1).sum(1)  # of a simplex, times 48
        middle = (3 * corners + 5 * corners.flip(0)) // 8
        yield equals("sum of the weights between two of a simplex", middle.sum(1), 48, d=d)
        yield at_least("weights between two of a simplex", middle, 0, d=d)
        for region in (Box(-torch.rand(d), torch.ones(d)), Ball(torch.randn(d), 2.0)):
            points = region.sample(2000)
            x, y = points.chunk(2)
            z = torch.lerp(x, y, torch.rand(1000, 1))
            kind = type(region).__name__
            yield equals("projection of a point between two", region.project(z), z, d=d, set=kind)
            yield from sampled_law(region, points)


convex_set.foil("the annulus misses the middle of a diameter", shapes=("annulus",))
convex_set.foil("two half-lines miss what is between them", shapes=("half-lines",))


@claim(
    by="sampling",
    sources=("A-098", "B-217", "C-099", "D-039", "E-038"),
    budget=1.0,
    full={"n": 100_000},
    short=r"f(\lambda x + (1 - \lambda) x') \le \lambda f(x) +"
    r" (1 - \lambda) f(x'),\ \lambda \in [0, 1]",
)
def convex_function(
    among: Literal["convex", "sine", "cubic", "concave", "saddle"] = "convex",
    sense: int = 1,
    n: int = 300,
):
    r"""Convex functions.

    $f : S \to \mathbb R$ on a convex set $S$ is convex if
    $f(\lambda x + (1 - \lambda) x') \le \lambda f(x) + (1 - \lambda) f(x')$ for all $x, x' \in S$,
    $\lambda \in [0, 1]$: chords lie above the graph, or equivalently, the epigraph is convex. It is
    strictly convex if the inequality is strict for $x \ne x'$ and $0 < \lambda < 1$.

    Checked on exact integer chords; and `convexity_violation` finds no violation of $x^2$ and of
    log-sum-exp, and the worst one of $x^3$ on $[-2, 0]$, which is $\frac{16}{3 \sqrt 3}$, and of
    $x_1 x_2$ on $[-1, 1]^2$, which is 1.

    Knobs:
        among: What is searched for a violation as if it were convex.
        sense: The direction of the inequality.
        n: How many exact chords are drawn for each function.
    """
    yield from exact_chords(sense, n)
    wrong: dict[str, tuple[Function, float, float, int]] = {
        "sine": (lambda x: x[:, 0].sin(), 0.0, math.pi, 1),
        "cubic": (lambda x: x[:, 0] ** 3, -2.0, 0.0, 1),
        "concave": (lambda x: -(x[:, 0] ** 2), -1.0, 1.0, 1),
        "saddle": (lambda x: x.prod(1), -1.0, 1.0, 2),
    }
    right: list[tuple[Function, float, float, int]] = [
        wrong.get(among, (lambda x: x[:, 0] ** 2, -1.0, 1.0, 1)),
        (lambda x: x.logsumexp(1), -3.0, 3.0, 3),
    ]
    for f, low, high, d in right:
        found = search(f, low, high, d, steps=8)
        yield at_most("largest gap found of a convex function", found.gap, ROUNDING, tol=0.0, d=d)
        yield at_most("gap that is put down to rounding", found.tol, ROUNDING, tol=0.0, d=d)
    for name, worst in {"cubic": 16 / 27**0.5, "saddle": 1.0}.items():
        f, low, high, d = wrong[name]
        found = search(f, low, high, d, steps=8)
        yield equals("largest gap found", found.gap, worst, function=name)
        x, y, lam = found.x[None], found.y[None], found.lam
        gap = f(lam * x + (1 - lam) * y) - lam * f(x) - (1 - lam) * f(y)
        yield equals("gap of the chord found", gap, found.gap, function=name)
        ends = torch.cat([x, y])
        yield equals("ends of the chord found", ends.clamp(low, high), ends, function=name)


def exact_chords(sense: int, n: int):
    """The gaps of integer functions, their epigraphs, and strict convexity, on exact chords."""
    for d in (1, 2, 4):
        quartic = lambda x: (x**4).sum(1)  # noqa: E731
        for f in (lambda x: x.abs().sum(1), hinges(d), bowl(d), quartic):
            yield at_most("eightfold gap on exact chords", sense * excess(f, n, d), 0, d=d)
            x, y, k, z = chords(n, d)
            above = torch.randint(0, 50, (2, n))  # heights of points of the epigraph
            height = k * (f(x) + above[0]) + (8 - k) * (f(y) + above[1])
            under = sense * (8 * f(z) - height)
            yield at_most("graph above a chord of the epigraph, eightfold", under, 0, d=d)
        x, y, k, z = chords(n, d)
        inner = (x != y).any(1) & (k > 0) & (k < 8)
        strict = 8 * quartic(z) - k * quartic(x) - (8 - k) * quartic(y)
        yield at_most("eightfold gap of a strict function", sense * strict[inner], -1, d=d)


convex_function.foil("the sine lies above its chord from 0 to pi", among="sine")
convex_function.foil("the cube is concave on the left", among="cubic")
convex_function.foil("minus the square is concave", among="concave")
convex_function.foil("the reversed inequality is that of concave functions", sense=-1)
convex_function.foil("a saddle is convex along each axis, and not between them", among="saddle")
