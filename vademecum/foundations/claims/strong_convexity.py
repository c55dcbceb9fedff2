"""Strong convexity: a parabola that fits underneath."""

from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import (
    Evidence,
    at_least,
    at_most,
    claim,
    equals,
    integers,
    with_eigenvalues,
)
from vademecum.foundations import (
    Ball,
    Box,
    bregman_divergence,
    smoothness_constant,
    strong_convexity_constant,
)
from vademecum.foundations.claims.convex_operations import logistic
from vademecum.foundations.claims.convexity import Function, search


def form(a: float, b: float, d: int) -> Tensor:
    """The matrix with a on the diagonal and b elsewhere."""
    return (a - b) * torch.eye(d) + b * torch.ones(d, d)


def quadratic(h: Tensor) -> Callable[[Tensor], Tensor]:
    r"""$\frac12 x^\top H x$ of rows."""
    return lambda x: ((x @ h) * x).sum(1) / 2


@claim(
    by="sampling",
    sources=("A-100", "C-102", "D-048"),
    budget=1.0,
    full={"n": 50_000},
    short=r"f(y) \ge f(x) + \nabla f(x)^\top (y - x) + \tfrac\mu2 \|y - x\|^2",
)
def strong_convexity(half: float = 0.5, surplus: float = 0.0, n: int = 200):
    r"""Strong convexity.

    A differentiable $f$ is $\mu$-strongly convex ($\mu > 0$) if
    $f(y) \ge f(x) + \nabla f(x)^\top (y - x) + \frac\mu2 \|y - x\|^2$ for all $x, y$; equivalently,
    $f - \frac\mu2 \|\cdot\|^2$ is convex. A quadratic $\frac12 x^\top H x$ is $\mu$-strongly convex
    exactly for $\mu \le \lambda_{\min}(H)$, and a ridge penalty $\frac\lambda2 \|w\|^2$ added to a
    convex loss gives $\mu \ge \lambda$.

    Checked for $H = (a - b) I + b \mathbf 1 \mathbf 1^\top$ with integers $a, b$ in two and three
    dimensions. Its eigenvalues are $a - b$, attained along $(1, -1, 0)$, and $a + (d - 1) b$, along
    $\mathbf 1$: `strong_convexity_constant` finds the smaller and `smoothness_constant` the larger.

    Knobs:
        half: The factor before $\mu \|y - x\|^2$.
        surplus: By how much $\mu$ exceeds the least eigenvalue.
        n: How many pairs $x, y$ are drawn.
    """
    for a, b, d in ((4, 0, 2), (5, -4, 2), (3, 2, 3)):
        h, at = form(a, b, d), {"d": d, "a": a, "b": b}
        f = quadratic(h)
        least, largest = sorted((a - b, a + (d - 1) * b))
        mu = least + surplus
        x, y = 2 * integers(2, n, d)
        y[0] = x[0] + (2.0 if b < 0 else torch.tensor([2.0, -2.0, 0.0])[:d])
        size = mu * (y - x).square().sum(1)
        gap = bregman_divergence(f, y, x)
        yield at_least("gap to the tangent", gap, half * size, tol=0.0, **at)  # exact in doubles
        yield equals("gap along the flattest direction", gap[0], size[0] / 2, **at)
        ball = Ball(torch.randn(d), 1.0)
        found = strong_convexity_constant(f, ball, pairs=20, starts=2, steps=2)
        yield equals("constant of strong convexity found", found.value, mu, **at)
        flattest = found.direction
        yield equals(
            "curvature along the flattest direction found", flattest @ h @ flattest, mu, **at
        )
        found = smoothness_constant(f, ball, pairs=20, starts=2, steps=2)
        yield equals("constant of smoothness found", found.value, largest, **at)
        bend = (h @ found.direction).norm()
        yield equals("change of slope along the direction found", bend, largest, **at)
    yield from less_a_square(quadratic(form(3, 2, 2)), 1.0 + surplus)
    for ridge in (0.1, 2.0):
        f = lambda w, r=ridge: logistic(w) + r / 2 * w.square().sum(1)  # noqa: E731
        x, y = 3 * torch.randn(2, n, 2)
        size = ridge * (y - x).square().sum(1)
        gap = bregman_divergence(f, y, x)
        yield at_least("gap of a loss with a ridge", gap, half * size, tol=1e-12, ridge=ridge)
        ball = Ball(torch.zeros(2), 20.0)
        found = strong_convexity_constant(f, ball, pairs=20, starts=2, steps=20)
        yield at_least("constant found with a ridge", found.value, ridge, ridge=ridge)


def less_a_square(f: Function, mu: float) -> Iterator[Evidence]:
    """A function of the plane less its share of the square is convex, and with more it is not."""
    for share in (mu, mu + 0.01):
        rest = lambda x, m=share: f(x) - m / 2 * x.square().sum(1)  # noqa: E731
        found = int(search(rest, -1.0, 1.0, d=2).found)
        name = "violations of convexity found for $f - \\frac\\mu2 |x|^2$"
        yield equals(name, found, int(share > mu), mu=share)


strong_convexity.foil(
    "the factor 1/2 is lost: along the flattest direction the gap is half as large", half=1.0
)
strong_convexity.foil("no constant larger than the least eigenvalue will do", surplus=0.01)


def least_curvature(f: Function, region: Ball | Box, least: float, **at: str) -> list[Evidence]:
    """The search for the least curvature never goes below it, and gets there."""
    found = strong_convexity_constant(f, region, pairs=50, starts=4, steps=20).value
    return [
        at_least("least curvature found", found, least, tol=1e-12, **at),
        equals(
            "least curvature found, in the end", found, least, tol=1e-6, **at
        ),  # observed: 1e-15
    ]


def at_the_places_found(f: Function) -> Iterator[Evidence]:
    """The curvature 2 - cos x of x^2 + cos x, where the searches say that it is extreme."""
    for low, high in ((-20.0, 20.0), (0.5, 2.0)):
        box = Box(torch.tensor([low]), torch.tensor([high]))
        ends = 2 - torch.tensor([low, high]).cos()
        wide, at = high - low > 2 * torch.pi, {"low": low, "high": high}
        for name, find, end in (
            ("least", strong_convexity_constant, 1.0 if wide else float(ends.min())),
            ("largest", smoothness_constant, 3.0 if wide else float(ends.max())),
        ):
            found = find(f, box, pairs=20, starts=4, steps=20)
            yield equals(f"{name} curvature found on an interval", found.value, end, **at)
            there = 2 - float(found.x.cos())  # the direction does not matter on a line
            yield equals(f"curvature where it is {name}", there, end, **at)
            yield at_least("places found", found.x, low, tol=0.0, **at)
            yield at_most("places found, from above", found.x, high, tol=0.0, **at)


def with_many_variables(d: int = 33) -> Iterator[Evidence]:
    """Extreme curvatures of a form in so many variables that only products are taken."""
    values = torch.linspace(-1, 2, d)
    h = with_eigenvalues(values)
    ball = Ball(torch.randn(d), 1.0)
    for name, find, end in (
        ("flattest", strong_convexity_constant, -1.0),
        ("steepest", smoothness_constant, 2.0),
    ):
        found = find(quadratic(h), ball, pairs=4, starts=2, steps=1)
        yield equals(f"curvature found along the {name} direction", found.value, end, d=d)
        along = found.direction @ h @ found.direction
        yield equals(f"curvature along the {name} direction", along, end, d=d)


@claim(
    by="sampling",
    sources=("C-103",),
    budget=1.0,
    full={"n": 100_000},
    short=r"f \text{ is } \mu\text{-strongly convex} \iff \nabla^2 f(x) \succeq \mu I\ \forall x",
)
def strong_convexity_curvature(
    mu: float = 1.0, shape: Literal["ripple", "quartic"] = "ripple", n: int = 2000
):
    r"""The curvature criterion of strong convexity.

    A twice differentiable $f$ is $\mu$-strongly convex if and only if $f''(x) \ge \mu$ for all $x$;
    in several variables if and only if $\nabla^2 f(x) \succeq \mu I$ everywhere.

    Checked for $x^2 + \cos x$, where $f'' = 2 - \cos x \ge 1$; and for $x^4$, which is strictly and
    not strongly convex: $\inf f'' = 0$, and for every $\mu > 0$ the pair $\pm \frac{\mu}{10}$
    violates the inequality.

    Knobs:
        mu: The constant of strong convexity.
        shape: The function that is said to have it: $x^2 + \cos x$, or $x^4$.
        n: How many pairs $x, y$ are drawn.
    """
    shapes: dict[str, Function] = {
        "ripple": lambda x: x[:, 0] ** 2 + x[:, 0].cos(),
        "quartic": lambda x: x[:, 0] ** 4,
    }
    x, y = 40 * torch.rand(2, n, 1) - 20
    x[0], y[0] = 0.0, 0.1
    x[1:2], y[1:2] = -0.01, 0.01
    step = (y - x)[:, 0]
    # The gap over the half square of the step; values up to 400, four operations deep, are rounded.
    share = (bregman_divergence(shapes[shape], y, x) + 1e-12) / (step**2 / 2)
    yield at_least("mean curvature between two points", share, mu, tol=0.0)
    box = Box(torch.tensor([-20.0]), torch.tensor([20.0]))
    yield from least_curvature(shapes["ripple"], box, 1.0, of="x^2 + cos x")
    yield from least_curvature(shapes["quartic"], box, 0.0, of="x^4")
    yield from at_the_places_found(shapes["ripple"])
    for small in (1.0, 0.1, 0.01):
        h = torch.tensor([[small / 10]])
        share = bregman_divergence(shapes["quartic"], h, -h) / (small / 2 * (2 * h[0]) ** 2)
        # 8 h^4 of 2 mu h^2: 0.04 mu, where 1 is needed
        yield equals("gap of $x^4$ over $\\frac{\\mu^2}2 (y - x)^2$", share / small, 0.04, mu=small)
    plane: Function = lambda x: x[:, 0] ** 2 + x[:, 0].cos() + 3 * x[:, 1] ** 2 / 2  # noqa: E731
    yield from least_curvature(plane, Ball(torch.zeros(2), 5.0), 1.0, of="x^2 + cos x + 3/2 y^2")
    yield from with_many_variables()


strong_convexity_curvature.foil("1.05 is too much near zero", mu=1.05)
strong_convexity_curvature.foil(
    "strictly convex does not imply strongly convex", shape="quartic", mu=0.01
)
