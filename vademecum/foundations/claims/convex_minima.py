"""Minima of convex functions: local ones are global."""

from collections.abc import Callable
from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, lowest
from vademecum.foundations.claims.convexity import Function

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


def quartic(x: Point, *, well: bool) -> Fraction:
    """A convex quartic of one variable, or one with two minima of different depth."""
    return x[0] ** 4 + (-2 if well else 2) * x[0] ** 2 + x[0] / 2


@claim(
    by="sampling",
    sources=("D-043", "E-041"),
    budget=0.5,
    full={"pairs": 200},
    short=r"f(x + \varepsilon (z - x)) \le f(x) - \varepsilon (f(x) - f(z)),"
    r" \quad \varepsilon \in [0, 1]",
)
def convex_local_global(well: bool = False, pairs: int = 6):
    r"""Local minima of convex functions are global.

    If $f$ is convex on a convex set and $x$ is a local minimiser, then $x$ is a global minimiser:
    any $z$ with $f(z) < f(x)$ would give
    $f(x + \varepsilon (z - x)) \le f(x) - \varepsilon (f(x) - f(z)) < f(x)$ for every
    $\varepsilon \in (0, 1]$. The set of minimisers is convex.

    Checked in fractions, which are rounded only to be compared, on a quartic, on random maxima of
    affine functions and on random convex quadratics.

    Knobs:
        well: Whether the quartic has two wells, and so is not convex.
        pairs: How many pairs of points are drawn for each random function.
    """
    cases: list[tuple[Callable[[Point], Fraction], Point, Point]] = [
        (lambda x: quartic(x, well=well), [Fraction(1)], [Fraction(-1)])
    ]
    for d in (1, 2, 4):
        for f in exact_functions(d) * pairs:
            x, z = ([Fraction(int(v), 3) for v in torch.randint(-9, 10, (d,))] for _ in range(2))
            cases.append((f, x, z) if f(z) < f(x) else (f, z, x))
    for f, x, z in cases:
        fx, fz = f(x), f(z)
        for e in (Fraction(1, 2), Fraction(1, 100), Fraction(1, 1000), Fraction(1, 10**6)):
            step = f([p + e * (q - p) for p, q in zip(x, z, strict=True)])
            at, chord = {"epsilon": float(e), "d": len(x)}, float(fx - e * (fx - fz))
            yield at_most("value a step towards a lower point", float(step), chord, tol=0.0, **at)
            if fz < fx:
                fall = float((fx - step) / (e * (fx - fz)))
                yield at_least("fall of a step over that of the chord", fall, 1.0, tol=0.0, **at)
    flat = lambda x: max(abs(x) - 1, Fraction(0))  # noqa: E731
    for x, z in ((Fraction(-1), Fraction(1)), (Fraction(-1, 3), Fraction(1))):  # both minimise
        between = float(flat((x + 3 * z) / 4))
        yield equals("value between two minimisers", between, 0.0, tol=0.0, x=float(x))


convex_local_global.foil(
    "a double well: from 1 the way to the lower point -1 leads over 0 > -1", well=True
)


def undefeated(f: Function, candidates: Tensor, rivals: Callable[[Tensor], Tensor]) -> int:
    """How many candidates are beaten by no other one, and not by their rivals."""
    least = torch.minimum(f(rivals(candidates)), f(candidates).min())
    return int((f(candidates) <= least).sum())


@claim(
    by="sampling",
    sources=("D-040", "D-044", "E-042"),
    budget=0.5,
    full={"n": 100_000},
    short=r"f \text{ strictly convex} \implies |\arg\min f| \le 1",
)
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

    Knobs:
        promise: How many minimisers a strictly convex function is said to have.
        functions: Which functions are searched for minimisers; "strict" is the exponential function
            and minus the logarithm.
        n: How many candidates for a minimiser are tried.
    """
    lowest("n", n, 2)
    zoo: dict[str, tuple[Function, Tensor, Callable[[Tensor], Tensor]]] = {
        "exponential": (torch.exp, torch.linspace(-50, 50, n), lambda x: x - 1),
        "logarithm": (lambda x: -x.log(), torch.linspace(0.01, 50, n), lambda x: 2 * x),
        "flat": (lambda x: (x.abs() - 1).relu(), torch.linspace(-2, 2, n), lambda x: x / 2),
    }
    for name in ("exponential", "logarithm") if functions == "strict" else (functions,):
        found = undefeated(*zoo[name])
        compare = at_most if promise == "at most one" else equals
        yield compare("candidates that no point beats", found, 1, function=name)
    for d in (1, 3, 5):
        b, centre = torch.randint(-3, 4, (d, d)), torch.randint(-9, 10, (d,))
        off = torch.randint(-9, 10, (50, d))
        off[:, 0] += 20 * (off[:, 0] >= 0) - 10  # so that it is nowhere zero
        x, y = centre + off, centre - off
        f = lambda x, b=b, c=centre: (  # noqa: E731
            ((x - c)[:, None] * b).sum(2).square().sum(1) + (x - c).square().sum(1)
        )
        yield equals("values at mirrored points", f(x), f(y), d=d)
        yield at_most("value half-way, less that at the ends", f((x + y) // 2) - f(x), -1, d=d)
    x = torch.linspace(-2, 2, n)
    slope = 2 * x + x.exp()  # of the coercive x^2 + e^x
    changes = int((slope[:-1].sign() != slope[1:].sign()).sum())
    yield equals("changes of sign of the slope of $x^2 + e^x$", changes, 1)


strict_convexity_uniqueness.foil("without strictness a whole interval minimises", functions="flat")
for where, name, text, why in (
    (
        "D-040",
        "exponential",
        "claims that strict convexity guarantees a (unique) global minimum",
        r"strict convexity gives uniqueness, not existence: $e^x$ is strictly convex on $\mathbb R$"
        r" and its infimum 0 is not attained",
    ),
    (
        "D-044",
        "logarithm",
        r"strictly convex $\Rightarrow$ has a unique global minimum, in the list of properties",
        r"the same claim again in the list of properties: $-\log x$ on $(0, \infty)$ is strictly"
        r" convex and unbounded below",
    ),
    (
        "E-042",
        "exponential",
        r"strict convexity $\Rightarrow$ exactly one global minimum",
        r"the same claim on the sibling sheet; $f(x) = e^x$ has none",
    ),
):
    strict_convexity_uniqueness.erratum(
        where,
        printed=text,
        right="strictly convex: has at most one global minimum",
        why=why,
        weight="hard",
        promise="exactly one",
        functions=name,
    )
