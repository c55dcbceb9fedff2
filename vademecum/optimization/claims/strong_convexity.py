"""Strongly convex objectives: their gradients and their one minimiser."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals, with_eigenvalues
from vademecum.foundations import (
    Ball,
    Box,
    strong_convexity_constant,
)
from vademecum.optimization import ProjectedSGD
from vademecum.optimization.claims._objectives import (
    Function,
    descend,
    gradients_of,
    logistic,
    quadratic,
    tangent_gap,
)


def flat_objectives(d: int) -> list[tuple[str, Function, float, Tensor]]:
    """Strongly convex functions with their constants and a direction in which they are reached."""
    values = torch.cat([torch.tensor([0.5]), 1 + 3 * torch.rand(d - 1)])
    h = with_eigenvalues(values)
    _, vectors = torch.linalg.eigh(h)
    x, y = torch.randn(d - 1, d), torch.randn(d - 1).sign()  # too few examples to span the space
    free = torch.linalg.svd(x).Vh[-1]
    return [
        ("quadratic", quadratic(h), 0.5, vectors[:, 0]),
        ("logistic loss with a ridge", logistic(x, y, ridge=0.3), 0.3, free),
    ]


@claim(
    by="sampling",
    sources=("B-221", "E-159", "E-160"),
    budget=0.5,
    full={"n": 50_000},
    short=r"\langle \nabla f(x) - \nabla f(y), x - y \rangle \ge \mu \|x - y\|^2 \iff"
    r" f - \tfrac\mu2 \|\cdot\|^2 \text{ convex}",
)
def strong_convexity(sign: int = 1, half: float = 0.5, surplus: float = 0.0, n: int = 500):
    r"""Strong convexity of objectives.

    A differentiable $f$ is $\mu$-strongly convex ($\mu > 0$) if and only if
    $f(y) \ge f(x) + \nabla f(x)^\top (y - x) + \frac\mu2 \|y - x\|^2$ for all $x, y$; equivalently
    the gradient is strongly monotone,
    $\langle \nabla f(x) - \nabla f(y), x - y \rangle \ge \mu \|x - y\|^2$, or
    $f - \frac\mu2 \|\cdot\|^2$ is convex.

    Checked for quadratics, $\mu = \lambda_{\min}$, and for a logistic loss with a ridge $\mu$ and
    fewer examples than variables, on random pairs and along the direction in which nothing but
    $\mu$ bends the function: there all three are equalities. `strong_convexity_constant` finds
    $\mu$.

    Knobs:
        sign: The sign of the second factor, $x - y$, of the scalar product.
        half: The factor of $\mu \|y - x\|^2$ in the first inequality.
        surplus: By which share $\mu$ exceeds the constant.
        n: How many pairs are drawn for each objective.
    """
    half_square = lambda x: x[:, 0] ** 2 / 2  # noqa: E731
    x, y = torch.zeros(1, 1), torch.ones(1, 1)
    product = sign * ((gradients_of(half_square, x) - gradients_of(half_square, y)) * (x - y)).sum()
    yield at_least("scalar product for $x^2 / 2$ at 0 and 1", product, 1.0 + surplus)
    for d in (2, 4):
        for name, f, known, flat in flat_objectives(d):
            mu = known * (1 + surplus)
            x, y = 2 * torch.randn(2, n, d)
            y[0] = x[0] + flat
            at: dict[str, Any] = {"f": name, "d": d}
            square = (x - y).square().sum(1)
            product = ((gradients_of(f, x) - gradients_of(f, y)) * (x - y)).sum(1)
            k = torch.rand(n)
            middle = torch.lerp(y, x, k[:, None])
            rest = [f(z) - mu / 2 * z.square().sum(1) for z in (x, y, middle)]
            for what, measured, least in (
                ("rise above the tangent", tangent_gap(f, y, x), half * mu * square),
                ("scalar product", sign * product, mu * square),
                ("chord of $f - \\frac\\mu2 |x|^2$ over its graph", torch.lerp(rest[1], rest[0], k)
                 - rest[2], 0 * square),
            ):  # fmt: skip
                yield at_least(what, measured, least, tol=1e-12, **at)
                flattest = f"{what}, along the flattest direction"
                yield equals(flattest, measured[0], least[0], tol=1e-11, **at)
            found = strong_convexity_constant(
                f, Ball(torch.zeros(d), 1.0), pairs=10, starts=2, steps=4
            )
            yield equals("constant found", found.value, mu, tol=1e-7, **at)


strong_convexity.foil("a constant larger by one percent", surplus=0.01)
strong_convexity.foil("the factor 1/2 is lost", half=1.0)
strong_convexity.erratum(
    "E-159",
    printed=r"$(\nabla f(x) - \nabla f(y),\, y - x) \ge \mu \|y - x\|^2$",
    right=r"$(\nabla f(x) - \nabla f(y),\, x - y) \ge \mu \|x - y\|^2$",
    why=r"the second argument has the wrong sign: for $f = \frac12 x^2$, $x = 0$, $y = 1$ the left"
    r" side is $(0 - 1)(1 - 0) = -1$; the printed line defines strong concavity",
    weight="hard",
    sign=-1,
)


def classes(data: str, n: int = 20, d: int = 3) -> tuple[Tensor, Tensor]:
    """Examples and labels: not separable, separable, or not separable with two equal columns."""
    x = torch.randn(n, d)
    y = torch.where(torch.arange(n) % 2 == 0, 1.0, -1.0)
    if data == "separable":
        return x + 3 * y[:, None], y
    x[1] = x[0]  # one point with both labels: no line separates
    if data == "duplicated":
        x[:, 2] = x[:, 1]
    return x, y


def within(f: Function, starts: Tensor, box: Box, eta: float, steps: int = 80) -> Tensor:
    """The ends of projected gradient descent on a box, each start with a constraint of its own."""
    runs: list[Tensor] = [nn.Parameter(start.clone()) for start in starts]
    optimizer = ProjectedSGD([{"params": [x]} for x in runs], eta, box)
    for _ in range(steps):
        for x, g in zip(runs, torch.autograd.grad(f(torch.stack(runs)).sum(), runs), strict=True):
            x.grad = g
        optimizer.step()
    return torch.stack(runs).detach()


@claim(
    by="sampling",
    sources=("D-049",),
    budget=0.5,
    full={"n": 20_000},
    short=r"f\ \mu\text{-strongly convex} \implies \exists!\, x^*: f(x) - f(x^*) \ge"
    r" \tfrac\mu2 \|x - x^*\|^2",
)
def unique_minimiser(
    ridge: float = 0.5,
    data: Literal["overlapping", "separable", "duplicated"] = "overlapping",
    half: float = 0.5,
    n: int = 500,
):
    r"""A strongly convex function has exactly one minimiser.

    A strongly convex function on $\mathbb R^d$ (or a lower semicontinuous one on a non-empty closed
    convex set) is coercive and strictly convex, and therefore has one and only one global
    minimiser $x^*$; moreover $\frac\mu2 \|x - x^*\|^2 \le f(x) - f(x^*)$.

    Checked for a logistic loss with a ridge penalty, $\mu = \lambda$: torch's `SGD` from 20 starts
    of norm up to 100 ends at one and the same point. With steps $\frac{1.5}L$ the distance of two
    runs shrinks by $\max\{\frac12, 1 - \frac{1.5 \mu}L\}$ a step at least, to 1e-10 after 80
    steps. On a box that
    does not contain $x^*$ the iterates of `ProjectedSGD` end at one point, too, where
    $\langle \nabla f(x^*), x - x^* \rangle \ge 0$ for all $x$ of the box. The inequality is an
    equality along the flattest direction of a quadratic.

    Knobs:
        ridge: The penalty $\lambda$.
        data: Whether the examples overlap, can be separated, or have two equal columns.
        half: The factor of $\mu \|x - x^*\|^2$.
        n: How many points are compared with the minimum.
    """
    x, y = classes(data)
    d = x.shape[1]
    f = logistic(x, y, ridge)
    L = ridge + float(torch.linalg.eigvalsh(x.T @ x)[-1]) / (4 * len(x))
    starts = nn.functional.normalize(torch.randn(20, d), dim=1) * torch.logspace(-1, 2, 20)[:, None]
    ends = descend(f, starts, 1.5 / L, 80)[-1]
    yield at_most("distance of the ends of two runs", torch.pdist(ends), 1e-8, tol=0.0)
    yield at_most("size of the gradient at the ends", gradients_of(f, ends).norm(dim=1), 1e-8,
                  tol=0.0)  # fmt: skip
    best, points = ends[:1], ends[:1] + 5 * torch.randn(n, d)
    least = half * ridge * (points - best).square().sum(1)
    yield at_least("rise above the minimum", f(points) - f(best), least, tol=1e-10)
    box = Box(best[0] + 0.5, best[0] + 2.0)
    inside = within(f, starts[::4], box, 1.5 / L)
    yield equals("nearest point of the box to an end", box.project(inside), inside, tol=1e-12)
    yield at_most("distance of two ends on a box", torch.pdist(inside), 1e-8, tol=0.0)
    points, best = box.sample(n), inside[:1]
    slope = (gradients_of(f, best) * (points - best)).sum(1)
    yield at_least("slope from the end to points of the box", slope, 0.0)
    least = half * ridge * (points - best).square().sum(1)
    yield at_least("rise above the minimum on a box", f(points) - f(best), least, tol=1e-10)
    for d in (2, 4):
        for name, g, mu, flat in flat_objectives(d):
            if name == "quadratic":
                rise = g(3 * flat[None])  # from the minimiser 0
                yield equals("rise along the flattest direction", rise, half * mu * 9, d=d)


unique_minimiser.foil(
    "without a ridge, data that can be separated: the infimum is not attained",
    refuted_by="distance of the ends of two runs",
    ridge=0.0,
    data="separable",
)
unique_minimiser.foil(
    "without a ridge, two equal columns: many minimisers",
    refuted_by="distance of the ends of two runs",
    ridge=0.0,
    data="duplicated",
)
unique_minimiser.foil("the factor 1/2 is lost", half=1.0)
