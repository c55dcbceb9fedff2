"""The parabola above a smooth function: the decrease that it guarantees."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, with_eigenvalues
from vademecum.gradients import functional
from vademecum.optimization.claims._objectives import (
    Function,
    descend,
    gradients_of,
    objectives,
    quadratic,
    tangent_gap,
    unit,
)
from vademecum.optimization.claims.taylor import Fit


def along(f: Function, x: Tensor, y: Tensor, *, subtract: bool, nodes: int = 40) -> Tensor:
    """The integral of the change of the gradient from y to x, by Gauss-Legendre quadrature."""
    places, weights = (torch.tensor(v) for v in np.polynomial.legendre.leggauss(nodes))
    s, weights = (places + 1) / 2, weights / 2
    points = y + s[:, None, None] * (x - y)
    g = gradients_of(f, points.view(-1, x.shape[1])).view_as(points)
    change = g - gradients_of(f, y) if subtract else g
    return weights @ (change * (x - y)).sum(2)


def smooth_pairs(n: int) -> Iterator[tuple[str, Function, Tensor, Tensor, float | None]]:
    """Functions with pairs of points at distance at most 1, and their constants if known."""
    d, m = 3, 5
    a, b = torch.randn(m, d), torch.randn(m)
    y = torch.randn(n, d)
    L = float(torch.linalg.matrix_norm(a, 2)) ** 2 / 2  # diag(p) - p p^T has norm 1/2 at most
    yield "log-sum-exp", (lambda x: (x @ a.T + b).logsumexp(1)), y + unit(n, d), y, L
    fit = Fit()
    theta = functional(fit.net).theta.detach()
    y = theta + unit(n, len(theta)) / 2
    yield "tanh network", fit.risk, y + torch.rand(n, 1) * unit(n, len(theta)), y, None
    h = with_eigenvalues(torch.tensor([2.0, -3.0]))
    y = torch.randn(n, 2)
    yield "quadratic", quadratic(h), y + unit(n, 2), y, 3.0
    y = torch.randn(n, 2).abs()  # on one side of the kink of the gradient, where it is a parabola
    yield "x|x|/2", (lambda x: (x * x.abs()).sum(1) / 2), y + unit(n, 2).abs(), y, 1.0


@claim(
    by="identity",
    sources=("A-103",),
    budget=0.5,
    full={"n": 2000},
    short=r"f(y + v) - f(y) - \nabla f(y)^\top v ="
    r" \int_0^1 [\nabla f(y + s v) - \nabla f(y)]^\top v\,ds",
)
def taylor_remainder(subtract: bool = True, half: float = 0.5, n: int = 20):
    r"""The integral form of the first-order remainder.

    For $f \in C^1$, $f(x) - f(y) - \nabla f(y)^\top (x - y) = \int_0^1 [\nabla f(y + s (x - y))
    - \nabla f(y)]^\top (x - y)\,ds$; with an $L$-Lipschitz gradient the right side is at most
    $\frac L2 \|x - y\|^2$ in modulus.

    *Proof.* The fundamental theorem of calculus along the segment; the integrand is at most
    $s L \|x - y\|^2$. Checked by Gauss-Legendre quadrature with 40 points, on segments of length 1
    at most, where the poles of the functions are far: for log-sum-exp, a tanh network, a quadratic
    and $\frac12 x |x|$, which has no second derivative at 0 and, across it, is integrated in two
    pieces.

    Knobs:
        subtract: Whether $\nabla f(y)$ is subtracted under the integral.
        half: The factor of $L \|x - y\|^2$.
        n: How many pairs are drawn for each function.
    """
    for name, f, x, y, L in smooth_pairs(n):
        gap = tangent_gap(f, x, y)
        total = along(f, x, y, subtract=subtract)
        yield equals("remainder of the tangent plane", gap, total, tol=1e-10, f=name)
        if L is not None:
            most = half * L * (x - y).square().sum(1)
            yield at_most("modulus of the integral", total.abs(), most, f=name)
    f = lambda x: (x * x.abs()).sum(1) / 2  # noqa: E731
    y, x, middle = -torch.rand(n, 1), torch.rand(n, 1), torch.zeros(n, 1)
    pieces = along(f, middle, y, subtract=False) + along(f, x, middle, subtract=False)
    total = pieces - (gradients_of(f, y) * (x - y)).sum(1) * int(subtract)
    yield equals("remainder across a kink", tangent_gap(f, x, y), total, tol=1e-10)
    for factor, d in ((3.0, 1), (-2.0, 3)):
        x, y = torch.randn(2, n, d)
        total = along(quadratic(factor * torch.eye(d)), x, y, subtract=subtract)
        most = half * abs(factor) * (x - y).square().sum(1)
        yield equals("modulus of the integral for a sphere", total.abs(), most, d=d)


taylor_remainder.foil("without $\\nabla f(y)$ the integral is $f(x) - f(y)$", subtract=False)
taylor_remainder.foil(
    "$\\frac L4$ is too little for a sphere",
    refuted_by="modulus of the integral for a sphere",
    half=0.25,
)


def least_constants(
    f: Function, x: Tensor, y: Tensor, half: float, sides: int
) -> tuple[Tensor, Tensor]:
    """The least L of the parabolic bound over pairs, and that of the gradient."""
    square = (x - y).square().sum(1)
    gap = tangent_gap(f, x, y) / (half * square)
    change = (gradients_of(f, x) - gradients_of(f, y)).norm(dim=1) / square.sqrt()
    return (gap.abs() if sides == 2 else gap).amax().clamp(min=0), change.amax()


@claim(
    by="sampling",
    sources=("A-102", "B-220", "C-080"),
    budget=0.5,
    full={"n": 50_000},
    short=r"f\ L\text{-smooth} \iff |f(x) - f(y) - \nabla f(y)^\top (x - y)|"
    r" \le \tfrac L2 \|x - y\|^2",
)
def descent_lemma(sides: Literal[1, 2] = 2, half: float = 0.5, n: int = 500):
    r"""The descent lemma.

    If $f$ is $L$-smooth, then $f(x) \le f(y) + \nabla f(y)^\top (x - y) + \frac L2 \|x - y\|^2$ for
    all $x, y$. The converse holds for convex $f$; in general $L$-smoothness is equivalent to the
    two-sided bound $|f(x) - f(y) - \nabla f(y)^\top (x - y)| \le \frac L2 \|x - y\|^2$.

    Checked on random pairs for quadratics of both signs, a logistic loss and sums of cosines; and
    as an equivalence, by the least $L$ for which the bound holds, which must be the least for which
    the gradient is $L$-Lipschitz, over pairs that include the steepest direction. For convex
    functions the upper bound alone must give the same.

    Knobs:
        sides: Whether the bound holds from above only, or from both sides.
        half: The factor of $L \|x - y\|^2$.
        n: How many pairs are drawn for each objective.
    """
    x, y = torch.cat([torch.ones(1, 1), torch.randn(n, 1)]), torch.zeros(n + 1, 1)
    bound, change = least_constants(quadratic(torch.tensor([[-10.0]])), x, y, half, sides)
    yield equals("least L of the bound for $-5 x^2$", bound, change)
    for d in (2, 5):
        for name, f, L, steep, convex in objectives(d):
            at = {"f": name, "d": d}
            x, y = 3 * torch.randn(2, n, d)
            gap, most = tangent_gap(f, x, y), half * L * (x - y).square().sum(1)
            yield at_most("rise above the tangent plane", gap, most, tol=1e-12, **at)
            yield at_least("fall below the tangent plane", gap, -most, tol=1e-12, **at)
            h = 1e-3 * steep[None]  # where cosines and logistic losses are parabolas up to 1e-5
            x, y = torch.cat([x, h]), torch.cat([y, -h])
            bound, change = least_constants(f, x, y, half, 1 if convex else sides)
            yield equals("least L of the bound", bound, change, tol=1e-5, **at)
            yield equals("least L of the bound, against L", bound, L, tol=1e-5, **at)


descent_lemma.foil("without the factor 1/2 the bound is not tight", half=1.0)
descent_lemma.foil("a factor of 0.45 is too little along the steepest direction", half=0.45)
descent_lemma.erratum(
    "B-220",
    printed=r"$\|\nabla f(x) - \nabla f(y)\| \le L \|x - y\| \Leftrightarrow"
    r" f(x) \le f(y) + \nabla f(y)^\top (x - y) + \frac L2 \|x - y\|^2$",
    right=r"$\Rightarrow$; and $\Leftrightarrow$ for convex $f$, or with the modulus of"
    r" $f(x) - f(y) - \nabla f(y)^\top (x - y)$",
    why=r"the direction from right to left fails for non-convex $f$: $f(x) = -5 x^2$ satisfies the"
    " upper bound even with $L = 0$, but its gradient has the Lipschitz constant 10",
    weight="hard",
    refuted_by="least L of the bound for $-5 x^2$",
    sides=1,
)


@claim(
    by="sampling",
    sources=("A-104", "D-060"),
    budget=0.5,
    full={"n": 50_000},
    short=r"f(\theta) - f(\theta - \eta \nabla f(\theta)) \ge"
    r" \eta (1 - \tfrac{L \eta}2) \|\nabla f(\theta)\|^2",
)
def guaranteed_decrease(half: float = 0.5, n: int = 1000):
    r"""The guaranteed decrease of a gradient step.

    For $L$-smooth $f$ and $\eta = 1/L$, $f(\theta - \frac1L \nabla f(\theta)) \le f(\theta)
    - \frac1{2 L} \|\nabla f(\theta)\|^2$; for general $\eta > 0$ the decrease is at least
    $\eta (1 - \frac{L \eta}2) \|\nabla f\|^2$, which is negative beyond $2/L$.

    *Proof.* The descent lemma with $x = \theta - \eta \nabla f(\theta)$. Checked for the step of
    torch's `SGD` on quadratics of both signs, a logistic loss and sums of cosines; on
    $\frac L2 \|\theta\|^2$ it is an equality.

    Knobs:
        half: The factor of $L \eta$ in the bound.
        n: How many points are drawn for each objective.
    """
    for d in (2, 5):
        L = float(1 + 4 * torch.rand(()))
        sphere, x = quadratic(L * torch.eye(d)), torch.randn(n, d)
        for share in (0.3, 1.0, 1.7, 2.5):
            eta = share / L
            fall = sphere(x) - sphere(descend(sphere, x, eta, 1)[-1])
            wanted = eta * (1 - half * share) * (L * x).square().sum(1)
            yield equals("decrease on a sphere", fall, wanted, d=d, eta=f"{share}/L")
        for name, f, L, *_ in objectives(d):
            x = 3 * torch.randn(n, d)
            square = gradients_of(f, x).square().sum(1)
            for share in (0.1, 1.0, 1.9, 2.5):
                eta = share / L
                fall = f(x) - f(descend(f, x, eta, 1)[-1])
                least = eta * (1 - half * share) * square
                at = {"f": name, "d": d, "eta": f"{share}/L"}
                yield at_least("decrease of a step", fall, least, tol=1e-12, **at)
            fall = f(x) - f(descend(f, x, 1 / L, 1)[-1])
            least = (1 - half) / L * square
            yield at_least("decrease of the step 1/L", fall, least, tol=1e-12, f=name, d=d)


guaranteed_decrease.foil("the factor 2 is lost: $\\frac1L |\\nabla f|^2$", half=0.0)
guaranteed_decrease.foil("a quarter is too little on a sphere", half=0.25)
