"""What the course claims of convex sets and functions, and of their derivatives."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations.bregman import bregman_divergence
from vademecum.foundations.convexity import ConvexityViolation, convexity_violation
from vademecum.foundations.curvature_constants import strong_convexity_constant
from vademecum.foundations.regions import Ball, Box

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


def search(f: Function, low: float, high: float, d: int = 1) -> ConvexityViolation:
    """A short search for violating chords of a function on a cube."""
    cube = Box(torch.full((d,), low), torch.full((d,), high))
    return convexity_violation(f, cube, chords=128, starts=4, steps=25, generator=dice())


def dice() -> torch.Generator:
    """A generator that depends on the seed of the run."""
    return torch.Generator().manual_seed(int(torch.randint(2**60, ())))


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


@claim(
    by="sampling",
    sources=("D-037", "D-038", "E-036", "E-037"),
    budget=0.5,
    full={"pairs": 200_000},
)
def convex_set(
    shapes: str = "half-space ball orthant subspace empty everything", pairs: int = 2000
):
    r"""Convex sets.

    $S \subseteq \mathbb R^d$ is convex if $\lambda x + (1 - \lambda) x' \in S$ for all
    $x, x' \in S$ and $\lambda \in [0, 1]$. Half-spaces, balls, the simplex, affine subspaces, the
    empty set and $\mathbb R^d$ itself are convex, and so is every intersection of convex sets.

    Checked on exact integer chords; the boxes and balls of this room keep the chords of their
    samples, up to rounding.
    """
    names = shapes.split()
    sets = [(name,) for name in names] + [(a, b) for a in names for b in names if a < b]
    for d in (1, 2, 3):
        x, y, _, z = chords(pairs, d, reach=8)
        for parts in sets:
            ends = torch.stack([members(name, v) for name in parts for v in (x, y)]).all(0)
            between = torch.stack([members(name, z) for name in parts]).all(0)
            yield equals(int((ends & ~between).sum()), 0, d=d, set=" and ".join(parts))
        counts = torch.multinomial(torch.ones(d + 1), 6 * 50, replacement=True).view(50, 6)
        corners = 8 * torch.nn.functional.one_hot(counts, d + 1).sum(1)  # of a simplex, times 48
        middle = (3 * corners + 5 * corners.flip(0)) // 8
        yield equals(middle.sum(1), 48, d=d, set="simplex")
        yield at_least(middle, 0, d=d, set="simplex")
        for region in (Box(-torch.rand(d), torch.ones(d)), Ball(torch.randn(d), 2.0)):
            x, y = region.sample(100, generator=dice()).chunk(2)
            z = torch.lerp(x, y, torch.rand(50, 1))
            yield equals(region.project(z), z, d=d, set=type(region).__name__)


convex_set.foil("the annulus misses the middle of a diameter", shapes="annulus")
convex_set.foil("two half-lines miss what is between them", shapes="half-lines")


@claim(
    by="sampling",
    sources=("A-098", "B-217", "C-099", "D-039", "E-038"),
    budget=2.0,
    full={"n": 100_000},
)
def convex_function(
    among: Literal["convex", "sine", "cubic", "concave"] = "convex", sense: int = 1, n: int = 300
):
    r"""Convex functions.

    $f : S \to \mathbb R$ on a convex set $S$ is convex if
    $f(\lambda x + (1 - \lambda) x') \le \lambda f(x) + (1 - \lambda) f(x')$ for all $x, x' \in S$,
    $\lambda \in [0, 1]$: chords lie above the graph, or equivalently, the epigraph is convex. It is
    strictly convex if the inequality is strict for $x \ne x'$ and $0 < \lambda < 1$.

    Checked on exact integer chords; and `convexity_violation` finds no violation where there is
    none, and the worst one of $\sin$ on $[0, \pi]$ (which is 1), of $x^3$ on $[-2, 0]$
    ($\frac{16}{3 \sqrt 3}$) and of $-x^2$ on $[-1, 1]$ (1).
    """
    wrong: dict[str, tuple[Function, float, float, float]] = {
        "sine": (lambda x: x[:, 0].sin(), 0.0, math.pi, 1.0),
        "cubic": (lambda x: x[:, 0] ** 3, -2.0, 0.0, 16 / 27**0.5),
        "concave": (lambda x: -(x[:, 0] ** 2), -1.0, 1.0, 1.0),
    }
    if among != "convex":
        found = search(*wrong[among][:3])
        yield at_most(found.gap, found.tol, tol=0.0)
    for d in (1, 2, 4):
        quartic = lambda x: (x**4).sum(1)  # noqa: E731
        for f in (lambda x: x.abs().sum(1), hinges(d), bowl(d), quartic):
            yield at_most(sense * excess(f, n, d), 0, d=d)
            x, y, k, z = chords(n, d)
            above = torch.randint(0, 50, (2, n))  # heights of points of the epigraph
            height = k * (f(x) + above[0]) + (8 - k) * (f(y) + above[1])
            yield at_most(sense * (8 * f(z) - height), 0, d=d)
        x, y, k, z = chords(n, d)
        inner = (x != y).any(1) & (k > 0) & (k < 8)
        strict = 8 * quartic(z) - k * quartic(x) - (8 - k) * quartic(y)
        yield at_most(sense * strict[inner], -1, d=d)
    for f in (lambda x: x.logsumexp(1), lambda x: torch.nn.functional.softplus(x).sum(1)):
        found = search(f, -3.0, 3.0, d=3)
        yield at_most(found.gap, found.tol, tol=0.0)
    for f, low, high, worst in wrong.values():
        yield equals(search(f, low, high).gap, worst, tol=1e-6)


convex_function.foil("the sine lies above its chord from 0 to pi", among="sine")
convex_function.foil("the cube is concave on the left", among="cubic")
convex_function.foil("minus the square is concave", among="concave")
convex_function.foil("the reversed inequality is that of concave functions", sense=-1)


@claim(
    by="sampling",
    sources=("A-099", "B-218", "C-101", "D-041", "E-039"),
    budget=0.5,
    full={"n": 100_000},
)
def convexity_first_order(
    among: Literal["convex", "cubic", "saddle"] = "convex", sense: int = 1, n: int = 300
):
    r"""The first-order characterisation of convexity.

    A differentiable $f$ on an open convex set is convex if and only if
    $f(y) \ge f(x) + \nabla f(x)^\top (y - x)$ for all $x, y$: every tangent plane is a global
    underestimator. Hence $\nabla f(x) = 0$ makes $x$ a global minimiser.

    Checked by `bregman_divergence`: exactly on integers for $\|B x\|^2$, where the gap is
    $\|B (y - x)\|^2$, and for $(a^\top x)^4$; for log-sum-exp the gap is
    $\mathrm{KL}(\mathrm{softmax}(x) \,\|\, \mathrm{softmax}(y))$.
    """
    wrong: dict[str, Function] = {
        "cubic": lambda x: (x**3).sum(1),
        "saddle": lambda x: x[:, 0] ** 2 - 2 * x.square().sum(1),
    }
    for d in (2, 3, 5):
        x, y = torch.randint(-9, 10, (2, n, d)).double()
        x[0], y[0] = 0, -2
        b, a = torch.randint(-3, 4, (d, d)).double(), torch.randint(-3, 4, (d,)).double()
        f = wrong.get(among, lambda x, a=a: (x @ a) ** 4)
        yield at_least(sense * bregman_divergence(f, y, x).long(), 0, d=d)  # exact integers
        gap = bregman_divergence(lambda x, b=b: (x @ b.T).square().sum(1), y, x)
        yield equals(gap.long(), ((y - x) @ b.T).square().sum(1).long(), d=d)
        x, y = torch.randn(2, n, d)
        gap = bregman_divergence(lambda x: x.logsumexp(1), y, x)
        p, q = x.log_softmax(1), y.log_softmax(1)
        yield equals(gap, (p.exp() * (p - q)).sum(1), tol=1e-12, d=d)
        bottom = torch.randn(d)  # where the gradient of the next function vanishes
        f = lambda x, b=b, c=bottom: ((x - c) @ b.T).square().sum(1)  # noqa: E731
        yield at_least(sense * (f(y) - f(bottom[None])), 0.0, d=d)


convexity_first_order.foil("the cube falls below its tangent at 0", among="cubic")
convexity_first_order.foil("a saddle falls below its tangent plane", among="saddle")
convexity_first_order.foil("the reversed inequality is that of concave functions", sense=-1)


@claim(by="sampling", sources=("C-100", "D-042", "E-040"), budget=2.0, full={"n": 5000})
def convexity_second_order(order: int = 2, n: int = 100):
    r"""The second-order characterisation of convexity.

    A twice differentiable $f$ on an open interval is convex if and only if $f''(x) \ge 0$
    everywhere; in several variables if and only if $\nabla^2 f(x) \succeq 0$ everywhere on the open
    convex domain. ($f'' > 0$ is sufficient, not necessary, for strict convexity: $x^4$.)

    Checked exactly for all quartics $x^4 + a x^3 + b x^2$ with integers $|a|, |b| \le 8$, where
    $\min f'' = 2 b - \frac34 a^2$ at $x_0 = -\frac a4$: if it is negative, the chord between
    $x_0 \pm \frac13$ lies below the graph, and if not, no chord does. In several variables the
    least eigenvalue found by `strong_convexity_constant` is negative exactly where
    `convexity_violation` finds a chord.
    """
    a, b = (v.flatten()[:, None] for v in torch.meshgrid(*[torch.arange(-8, 9)] * 2, indexing="ij"))
    f = lambda x: x**4 + 12 * a * x**3 + 144 * b * x**2  # x in units of 1/12  # noqa: E731
    x, y, k, z = (v.flatten() for v in chords(n, 1, reach=12))
    crossed = 8 * f(z) > k * f(x) + (8 - k) * f(y)
    violated = crossed.any(1) | (2 * f(-3 * a) > f(-3 * a + 4) + f(-3 * a - 4))[:, 0]
    least = {2: 8 * b - 3 * a**2, 1: torch.full_like(b, -1)}[order]  # f' has no lower bound
    yield equals((least >= 0)[:, 0], ~violated, order=order)
    for c in (0.3, 1.9, 2.1):  # the Hessian has the eigenvalues 2 + c and 2 - c
        f = lambda x, c=c: x.square().sum(1) + c * x.prod(1)  # noqa: E731
        cube = Box(-torch.ones(2), torch.ones(2))
        least = strong_convexity_constant(f, cube, pairs=20, starts=2, steps=2).value
        yield equals(least, 2 - c, c=c)
        yield equals(int(least < 0), int(search(f, -1.0, 1.0, d=2).found), c=c)
    known: list[tuple[Function, float, float, float]] = [
        (torch.nn.functional.softplus, -5.0, 5.0, 1 / (2 + 2 * math.cosh(5))),
        (lambda x: -x.log(), 0.5, 4.0, 1 / 16),
        (lambda x: x**4, -1.0, 1.0, 0.0),
    ]
    for f, low, high, least in known:
        box = Box(torch.tensor([low]), torch.tensor([high]))
        found = strong_convexity_constant(lambda x, f=f: f(x)[:, 0], box, pairs=20, starts=4)
        yield equals(found.value, least, tol=1e-8, high=high)


for where in ("D-042", "E-040"):
    convexity_second_order.erratum(
        where,
        printed=r"$f'(x) \ge 0$ (first derivative) as the condition for convexity",
        right=r"$f''(x) \ge 0$",
        why="one prime is missing: a function with this property is non-decreasing; the convex"
        " square has the derivative -2 at -1, and the cube has it and is not convex",
        weight="hard",
        order=1,
    )
