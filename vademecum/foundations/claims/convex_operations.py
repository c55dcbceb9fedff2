"""What the course claims of minima of convex functions, and of operations that keep convexity."""

from collections.abc import Callable
from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations.claims.convexity import Function, bowl, excess, hinges, search

Point = list[Fraction]


def exact_functions(d: int) -> list[Callable[[Point], Fraction]]:
    """A random maximum of affine functions and a random convex quadratic, in exact arithmetic."""
    a, b = torch.randint(-5, 6, (4, d)).tolist(), torch.randint(-9, 10, (4,)).tolist()
    m, c = torch.randint(-3, 4, (d, d)).tolist(), torch.randint(-9, 10, (d,)).tolist()
    dot = lambda u, v: sum((p * q for p, q in zip(u, v, strict=True)), Fraction(0))  # noqa: E731
    return [
        lambda x: max(dot(u, x) + v for u, v in zip(a, b, strict=True)),
        lambda x: sum((dot(row, x) ** 2 for row in m), dot(c, x)),
    ]


def double_well(x: Point) -> Fraction:
    """A function of one variable with two minima of different depth."""
    return x[0] ** 4 - 2 * x[0] ** 2 + x[0] / 2


@claim(by="sampling", sources=("D-043", "E-041"), budget=0.5, full={"pairs": 200})
def convex_local_global(well: bool = False, pairs: int = 6):
    r"""Local minima of convex functions are global.

    If $f$ is convex on a convex set and $x$ is a local minimiser, then $x$ is a global minimiser:
    any $z$ with $f(z) < f(x)$ would give
    $f(x + \varepsilon (z - x)) \le f(x) - \varepsilon (f(x) - f(z)) < f(x)$ for every
    $\varepsilon \in (0, 1]$. The set of minimisers is convex.

    Checked in fractions, on random maxima of affine functions and random convex quadratics.
    """
    cases: list[tuple[Callable[[Point], Fraction], Point, Point]] = []
    if well:
        cases.append((double_well, [Fraction(1)], [Fraction(-1)]))
    for d in (1, 2, 4):
        for f in exact_functions(d) * pairs:
            x, z = ([Fraction(int(v), 3) for v in torch.randint(-9, 10, (d,))] for _ in range(2))
            cases.append((f, x, z) if f(z) < f(x) else (f, z, x))
    for f, x, z in cases:
        fx, fz = f(x), f(z)
        for e in (Fraction(1, 10**6), Fraction(1, 1000), Fraction(1, 100), Fraction(1, 2)):
            step = f([p + e * (q - p) for p, q in zip(x, z, strict=True)])
            yield at_least(int(step <= fx - e * (fx - fz)), 1, epsilon=float(e))
            yield at_least(int(step < fx or fz == fx), 1, epsilon=float(e))
    flat = lambda x: max(abs(x) - 1, Fraction(0))  # noqa: E731
    for x, z in ((Fraction(-1), Fraction(1)), (Fraction(-1, 3), Fraction(1))):  # both minimise
        yield equals(flat((x + 3 * z) / 4).numerator, 0)


convex_local_global.foil(
    "a double well has a local minimum that is not global: f(0.98) = -0.508 > -0.51", well=True
)


def undefeated(f: Function, candidates: Tensor, rivals: Callable[[Tensor], Tensor]) -> int:
    """How many candidates are beaten by no other one, and not by their rivals."""
    least = torch.minimum(f(rivals(candidates)), f(candidates).min())
    return int((f(candidates) <= least).sum())


@claim(by="sampling", sources=("D-040", "D-044", "E-042"), budget=0.5, full={"n": 100_000})
def strict_convexity_uniqueness(
    promise: Literal["at most one", "exactly one"] = "at most one",
    functions: Literal["strict", "exponential", "logarithm", "flat"] = "strict",
    n: int = 1000,
):
    r"""A strictly convex function has at most one minimiser.

    If a strictly convex $f$ attains its minimum on a convex set, it does so at exactly one point.
    Existence is not implied: for continuous $f$ it follows, for instance, from coercivity, from
    strong convexity on a closed domain, or from compactness; $e^x$ on $\mathbb R$ and $-\log x$ on
    $(0, \infty)$ have no minimiser.

    *Proof.* The midpoint of two minimisers would be lower. Checked exactly on pairs of equal value;
    every candidate for a minimiser of $e^x$ is beaten by $x - 1$, and of $-\log x$ by $2 x$.
    """
    zoo: dict[str, tuple[Function, Tensor, Callable[[Tensor], Tensor]]] = {
        "exponential": (torch.exp, torch.linspace(-50, 50, n), lambda x: x - 1),
        "logarithm": (lambda x: -x.log(), torch.linspace(0.01, 50, n), lambda x: 2 * x),
        "flat": (lambda x: (x.abs() - 1).relu(), torch.linspace(-2, 2, n), lambda x: x / 2),
    }
    for name in ("exponential", "logarithm") if functions == "strict" else (functions,):
        found = undefeated(*zoo[name])
        compare = at_most if promise == "at most one" else equals
        yield compare(found, 1, n=n)
    for d in (1, 3, 5):
        b, centre = torch.randint(-3, 4, (d, d)), torch.randint(-9, 10, (d,))
        off = torch.randint(-9, 10, (50, d))
        off[:, 0] += 20 * (off[:, 0] >= 0) - 10  # so that it is nowhere zero
        x, y = centre + off, centre - off
        f = lambda x, b=b, c=centre: (  # noqa: E731
            ((x - c)[:, None] * b).sum(2).square().sum(1) + (x - c).square().sum(1)
        )
        yield equals(f(x), f(y), d=d)
        yield at_most(f((x + y) // 2) - f(x), -1, d=d)
    x = torch.linspace(-2, 2, n)
    slope = 2 * x + x.exp()  # of the coercive x^2 + e^x
    yield equals(int((slope[:-1].sign() != slope[1:].sign()).sum()), 1)


strict_convexity_uniqueness.foil("without strictness a whole interval minimises", functions="flat")
for where, name, text in (
    ("D-040", "exponential", "strict convexity guarantees a (unique) global minimum"),
    (
        "D-044",
        "logarithm",
        r"strictly convex $\Rightarrow$ has a unique global minimum, in the "
        "list of properties",
    ),
    ("E-042", "exponential", r"strict convexity $\Rightarrow$ exactly one global minimum"),
):
    strict_convexity_uniqueness.erratum(
        where,
        printed=text,
        right="strictly convex: has at most one global minimum",
        why="strict convexity gives uniqueness, not existence: the exponential function and minus"
        " the logarithm are strictly convex and have no minimiser",
        weight="hard",
        promise="exactly one",
        functions=name,
    )


def logistic(w: Tensor) -> Tensor:
    """The logistic loss of four fixed examples."""
    z = torch.tensor([[1.0, 2.0], [-1.0, 0.5], [2.0, -1.0], [0.3, 0.3]]).to(w)
    return torch.nn.functional.softplus(-(w @ z.T)).sum(1)


@claim(by="sampling", sources=("D-045", "E-043"), budget=0.5, full={"n": 100_000})
def convex_nonnegative_combination(weight: int = 2, n: int = 300):
    r"""Non-negative combinations of convex functions.

    If $f, g$ are convex on the same set and $\alpha, \beta \ge 0$, then $\alpha f + \beta g$ is
    convex; in particular a sum of convex losses plus a convex regulariser is convex.

    Checked on exact integer chords, and by `convexity_violation` for a logistic loss with a ridge.
    """
    for d in (1, 2, 4):
        parts = [lambda x: x.abs().sum(1), lambda x: x.square().sum(1), hinges(d), bowl(d)]
        parts.append(lambda x: (x**4).sum(1))
        alpha = torch.randint(0, 10, (len(parts), 1))
        mix = lambda x, p=parts, a=alpha: (a * torch.stack([f(x) for f in p])).sum(0)  # noqa: E731
        yield at_most(excess(mix, n, d), 0, d=d)
        yield at_most(excess(lambda x: x[:, 0] ** 2 + weight * x[:, 0] ** 2, n, d), 0, d=d)
    found = search(lambda w: logistic(w) + weight * w.square().sum(1), -3.0, 3.0, d=2)
    yield at_most(found.gap, found.tol, tol=0.0)


convex_nonnegative_combination.foil("a negative weight: the square less twice itself", weight=-2)


@claim(by="sampling", sources=("D-046", "E-044"), budget=0.5, full={"n": 100_000})
def convex_maximum(pick: Literal["max", "min"] = "max", n: int = 300):
    r"""The pointwise maximum of convex functions.

    The pointwise maximum (supremum) of convex functions is convex, since its epigraph is the
    intersection of theirs; maxima of affine functions, ReLU and the max-pooling of convex maps are
    examples, and so is every norm, $\|x\| = \sup_{\|a\| \le 1} a^\top x$.
    """
    choose = {"max": torch.amax, "min": torch.amin}[pick]
    for d in (1, 2, 4):
        parts = [f(d) for f in (hinges, bowl) for _ in range(5)]
        yield at_most(excess(lambda x, p=parts: choose(torch.stack([f(x) for f in p]), 0), n, d), 0)
        wedge = lambda x: choose(torch.stack([x[:, 0], -x[:, 0]]), 0)  # noqa: E731
        yield at_most(excess(wedge, n, d), 0, d=d)
        relu = lambda x: choose(torch.stack([x[:, 0], 0 * x[:, 0]]), 0)  # noqa: E731
        yield at_most(excess(relu, n, d), 0, d=d)
    found = search(lambda x: torch.linalg.vector_norm(x, dim=1), -1.0, 1.0, d=3)
    yield at_most(found.gap, found.tol, tol=0.0)


convex_maximum.foil("the pointwise minimum of x and -x is -|x|", pick="min")


@claim(by="sampling", sources=("D-047", "E-045"), budget=0.5, full={"n": 100_000})
def convex_composition(
    outer: Literal["increasing", "parabola", "decreasing", "concave"] = "increasing",
    inner: Literal["convex", "concave"] = "convex",
    n: int = 300,
):
    r"""A convex non-decreasing function of a convex function.

    If $f$ is convex and $g : \mathbb R \to \mathbb R$ is convex and non-decreasing (on the range of
    $f$ and between), then $g \circ f$ is convex. When $f$ is affine, $g$ need not be monotone.

    *Proof.* $g(f(\lambda x + (1 - \lambda) y)) \le g(\lambda f(x) + (1 - \lambda) f(y)) \le
    \lambda g(f(x)) + (1 - \lambda) g(f(y))$, the first step by monotonicity.
    """
    shapes: dict[str, list[Function]] = {
        "increasing": [lambda u: u.clamp(min=0) ** 2, lambda u: torch.maximum(u, 2 * u - 1)],
        "parabola": [lambda u: (u - 64) ** 2],  # of x^2, with 8 as the unit of x
        "decreasing": [torch.neg],
        "concave": [lambda u: u.clamp(max=0)],
    }
    sign = 1 if inner == "convex" else -1
    for d in (1, 2, 4):
        for f in (lambda x: x.square().sum(1), lambda x: x[:, 0], hinges(d), bowl(d)):
            for g in shapes[outer]:
                yield at_most(excess(lambda x, f=f, g=g: g(sign * f(x)), n, d), 0, d=d)
        a = torch.randint(-5, 6, (d,))
        for g in (lambda u: (u - 1) ** 2, torch.abs, torch.neg):
            yield at_most(excess(lambda x, a=a, g=g: g((x * a).sum(1) + 3), n, d), 0, d=d)
    found = search(lambda x: (x[:, 0] ** 2).exp(), -1.0, 1.0)
    yield at_most(found.gap, found.tol, tol=0.0)


convex_composition.foil("a parabola is not monotone: 0, 1, 0 at -1, 0, 1", outer="parabola")
convex_composition.foil("a decreasing g: minus the square is not convex", outer="decreasing")
convex_composition.foil("an increasing g that is not convex, after x", outer="concave")
convex_composition.foil("an increasing g of a function that is not convex", inner="concave")
