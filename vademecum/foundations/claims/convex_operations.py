"""Operations that keep convexity: sums, maxima, compositions."""

from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import at_most, claim
from vademecum.foundations.claims.convexity import (
    ROUNDING,
    Function,
    bowl,
    excess,
    hinges,
    search,
)


def logistic(w: Tensor) -> Tensor:
    """The logistic loss of four fixed examples."""
    z = torch.tensor([[1.0, 2.0], [-1.0, 0.5], [2.0, -1.0], [0.3, 0.3]]).to(w)
    return torch.nn.functional.softplus(-(w @ z.T)).sum(1)


@claim(
    by="sampling",
    sources=("D-045", "E-043"),
    budget=0.5,
    full={"n": 100_000},
    short=r"f, g \text{ convex},\; \alpha, \beta \ge 0 \implies \alpha f + \beta g \text{ convex}",
)
def convex_nonnegative_combination(weight: int = 2, n: int = 300):
    r"""Non-negative combinations of convex functions.

    If $f, g$ are convex on the same set and $\alpha, \beta \ge 0$, then $\alpha f + \beta g$ is
    convex; in particular a sum of convex losses plus a convex regulariser is convex.

    Checked on exact integer chords, and by `convexity_violation` for a logistic loss with a ridge.

    Knobs:
        weight: The weight of the second square, and of the ridge.
        n: How many exact chords are drawn for each function.
    """
    for d in (1, 2, 4):
        parts = [lambda x: x.abs().sum(1), lambda x: x.square().sum(1), hinges(d), bowl(d)]
        parts.append(lambda x: (x**4).sum(1))
        alpha = torch.randint(0, 10, (len(parts), 1))
        mix = lambda x, p=parts, a=alpha: (a * torch.stack([f(x) for f in p])).sum(0)  # noqa: E731
        yield at_most("eightfold gap of a combination", excess(mix, n, d), 0, d=d)
        squares = excess(lambda x: x[:, 0] ** 2 + weight * x[:, 0] ** 2, n, d)
        yield at_most("eightfold gap of two squares", squares, 0, d=d)
    found = search(lambda w: logistic(w) + weight * w.square().sum(1), -3.0, 3.0, d=2)
    yield at_most("gap found of a regularised loss", found.gap, ROUNDING, tol=0.0)


convex_nonnegative_combination.foil("a negative weight: the square less twice itself", weight=-2)


@claim(
    by="sampling",
    sources=("D-046", "E-044"),
    budget=0.5,
    full={"n": 100_000},
    short=r"f_i \text{ convex} \implies \textstyle\max_i f_i \text{ convex}",
)
def convex_maximum(pick: Literal["max", "min"] = "max", n: int = 300):
    r"""The pointwise maximum of convex functions.

    The pointwise maximum (supremum) of convex functions is convex, since its epigraph is the
    intersection of theirs; maxima of affine functions, ReLU and the max-pooling of convex maps are
    examples, and so is every norm, $\|x\| = \sup_{\|a\| \le 1} a^\top x$ over the dual ball.

    Checked on exact integer chords for maxima of ten affine and quadratic functions, and by
    `convexity_violation` for the Euclidean norm.

    Knobs:
        pick: Whether the largest or the least of the functions is taken.
        n: How many exact chords are drawn for each function.
    """
    choose = {"max": torch.amax, "min": torch.amin}[pick]
    for d in (1, 2, 4):
        parts = [f(d) for f in (hinges, bowl) for _ in range(5)]
        peak = excess(lambda x, p=parts: choose(torch.stack([f(x) for f in p]), 0), n, d)
        yield at_most("eightfold gap of the largest of ten", peak, 0, d=d)
        wedge = excess(lambda x: choose(torch.stack([x[:, 0], -x[:, 0]]), 0), n, d)
        yield at_most("eightfold gap of the larger of x and -x", wedge, 0, d=d)
        relu = excess(lambda x: choose(torch.stack([x[:, 0], 0 * x[:, 0]]), 0), n, d)
        yield at_most("eightfold gap of the larger of x and 0", relu, 0, d=d)
    found = search(lambda x: torch.linalg.vector_norm(x, dim=1), -1.0, 1.0, d=3)
    yield at_most("gap found of a norm", found.gap, ROUNDING, tol=0.0)


convex_maximum.foil(
    "the pointwise minimum of x and -x is -|x|",
    refuted_by="eightfold gap of the larger of x and -x",
    pick="min",
)


@claim(
    by="sampling",
    sources=("D-047", "E-045"),
    budget=0.5,
    full={"n": 100_000},
    short=r"f \text{ convex},\; g \text{ convex, non-decreasing} \implies g \circ f \text{ convex}",
)
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

    Checked on exact integer chords, and by `convexity_violation` for $e^{x^2}$.

    Knobs:
        outer: What kind of function g is.
        inner: What kind of function f is.
        n: How many exact chords are drawn for each pair of functions.
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
                gap = excess(lambda x, f=f, g=g: g(sign * f(x)), n, d)
                yield at_most("eightfold gap of $g \\circ f$", gap, 0, d=d)
        a = torch.randint(-5, 6, (d,))
        for g in (lambda u: (u - 1) ** 2, torch.abs, torch.neg):
            gap = excess(lambda x, a=a, g=g: g((x * a).sum(1) + 3), n, d)
            yield at_most("eightfold gap of g of an affine function", gap, 0, d=d)
    found = search(lambda x: (x[:, 0] ** 2).exp(), -1.0, 1.0)
    yield at_most("gap found of $e^{x^2}$", found.gap, ROUNDING, tol=0.0)


convex_composition.foil("a parabola is not monotone: 0, 1, 0 at -1, 0, 1", outer="parabola")
convex_composition.foil("a decreasing g: minus the square is not convex", outer="decreasing")
convex_composition.foil("an increasing g that is not convex, after x", outer="concave")
convex_composition.foil("an increasing g of a function that is not convex", inner="concave")
