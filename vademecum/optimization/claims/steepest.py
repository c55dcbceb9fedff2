"""The direction of steepest descent: it depends on the norm of the step."""

import math
from collections.abc import Iterator
from itertools import product
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals, with_eigenvalues
from vademecum.foundations import dual_norm
from vademecum.optimization.claims._objectives import Function, gradients_of, quadratic, ripples

ETAS = torch.tensor([1e-1, 1e-2, 1e-3, 1e-4], dtype=torch.float64)
Direction = Literal["gradient", "ascent", "signs", "newton"]


def on_the_circle(f: Function, eta: Tensor) -> Tensor:
    """For each step size the unit vector of the plane with the lowest value around the origin.

    The best of 1000 angles, then bisection of the slope along the circle.
    """
    circle = lambda a: torch.stack([a.cos(), a.sin()], -1)  # noqa: E731
    angles = torch.linspace(0, 2 * math.pi, 1001)[:-1]
    values = f((eta[:, None, None] * circle(angles)).view(-1, 2)).view(len(eta), -1)
    middle = angles[values.argmin(1)]
    low, high = middle - 2 * math.pi / 1000, middle + 2 * math.pi / 1000
    for _ in range(50):
        middle = (low + high) / 2
        v = circle(middle)
        turned = torch.stack([-v[:, 1], v[:, 0]], -1)
        rises = (gradients_of(f, eta[:, None] * v) * turned).sum(1) > 0
        low, high = torch.where(rises, low, middle), torch.where(rises, middle, high)
    return circle((low + high) / 2)


def on_the_sphere(g: Tensor, h: Tensor, eta: Tensor) -> Tensor:
    r"""The same for $g \cdot x + \frac12 x^\top H x$ in any dimension, for each step size.

    $v = -(\tau I + \eta H)^{-1} g$ with the one $\tau > -\eta \lambda_{\min}$ for which
    $\|v\| = 1$: then $g + \eta H v = -\tau v$ is stationary, and $\tau I + \eta H \succ 0$ makes it
    the minimum.
    """
    values, vectors = torch.linalg.eigh(h)
    c, shift = vectors.T @ g, eta[:, None] * values
    low, high = -shift[:, :1], g.norm() + shift.abs().amax(1, keepdim=True)
    for _ in range(100):
        tau = (low + high) / 2
        long = (c / (tau + shift)).norm(dim=1, keepdim=True) > 1
        low, high = torch.where(long, tau, low), torch.where(long, high, tau)
    return -(c / ((low + high) / 2 + shift)) @ vectors.T


def stated_direction(direction: Direction, g: Tensor, h: Tensor) -> Tensor:
    """The unit vector that is said to be the limit."""
    vector = {
        "gradient": -dual_norm(g, 2).maximiser,
        "ascent": g,
        "signs": -dual_norm(g, math.inf).maximiser,
        "newton": -torch.linalg.solve(h, g),
    }[direction]
    return nn.functional.normalize(vector, dim=0)


def functions() -> Iterator[tuple[str, Function, Tensor, float]]:
    """Functions with their Hessian at the origin and their constant of smoothness."""
    h, c = torch.diag(torch.tensor([1.0, 10.0])), torch.tensor([3.0, 1.0])
    yield "3x + y + x^2/2 + 5y^2", (lambda x: x @ c + quadratic(h)(x)), h, 10.0
    h = torch.tensor([[0.0, 2.0], [2.0, 0.0]])
    yield "x + 2xy", (lambda x: x[:, 0] + x.prod(1) * 2), h, 2.0
    for _ in range(2):
        h, heights = with_eigenvalues(torch.tensor([-2.0, 1.0])), torch.tensor([1.0, -0.5])
        axes, c = (
            torch.linalg.qr(torch.randn(2, 2)).Q,
            nn.functional.normalize(torch.randn(2), dim=0),
        )
        wave, bowl = ripples(heights, axes), quadratic(h)
        bend = h - axes @ torch.diag(heights) @ axes.T
        f = lambda x, c=c, wave=wave, bowl=bowl: x @ c + wave(x) + bowl(x)  # noqa: E731
        yield "a wave and a saddle", f, bend, 3.0
    h, c = with_eigenvalues(torch.tensor([-1.0, 0.5, 2.0, 3.0])), torch.randn(4)
    c = 2 * nn.functional.normalize(c, dim=0)
    yield "quadratic of four variables", (lambda x: x @ c + quadratic(h)(x)), h, 3.0


def on_the_cube(n: int) -> Iterator[Evidence]:
    """In the maximum norm the lowest point of a small cube is the corner opposite to the signs."""
    for d in (2, 3):
        h = with_eigenvalues(torch.linspace(-1, 2, d))
        g = torch.where(torch.rand(d) < 0.5, -1.0, 1.0) * (1 + torch.rand(d))
        f = lambda x, g=g, h=h: x @ g + quadratic(h)(x)  # noqa: E731
        eta = 0.9 / (2 * d**0.5)  # the signs of all slopes hold as long as eta L sqrt d < |g_i|
        corners = torch.tensor(list(product((-1.0, 1.0), repeat=d)))
        points = torch.cat([2 * torch.rand(n, d) - 1, corners])
        lowest = points[f(eta * points).argmin()]
        stated = -dual_norm(g, math.inf).maximiser
        yield equals("lowest point of a cube", lowest, stated, tol=0.0, d=d)
        yield equals("lowest point of a cube, in signs", lowest, -g.sign(), tol=0.0, d=d)


@claim(
    by="sampling",
    sources=("A-072", "B-146"),
    budget=0.5,
    full={"n": 100_000},
    short=r"\arg\min_{\|v\|_2 = 1} f(\theta + \eta v) \to -\nabla f(\theta) / \|\nabla f(\theta)\|,"
    r"\ \eta \to 0",
)
def steepest_descent(direction: Direction = "gradient", power: int = 1, n: int = 1000):
    r"""The negative gradient is the direction of steepest descent.

    If $f$ is differentiable with $g = \nabla f(\theta) \ne 0$, the unit vector $v$ that minimises
    $f(\theta + \eta v)$ over $\|v\|_2 = 1$ tends to $-g / \|g\|$ as $\eta \to 0$; for $L$-smooth
    $f$ the sine of the angle between them is at most $L \eta / \|g\|$, and the cosine at least
    $1 - L \eta / \|g\|$. In another norm the direction changes: for $\|\cdot\|_\infty$ it is
    $-\operatorname{sign} g$, once $\eta < \min_i |g_i| / (L \sqrt d)$.

    *Proof.* $\nabla f(\theta + \eta v)$ is a multiple of $v$ at the minimum on the sphere, and
    differs from $g$ by at most $L \eta$: so much of $g$ is perpendicular to $v$. In $x + 2 x y$ at
    the origin the sine $s$ obeys $s = \eta L (1 - 2 s^2)$, so that the bound is attained in the
    limit. Checked for functions of two and four variables.

    Knobs:
        direction: The direction that is said to be the steepest.
        power: The power of $\eta$ in the bound of the sine.
        n: How many points of a cube are compared with its corners.
    """
    for name, f, h, L in functions():
        d = len(h)
        g = gradients_of(f, torch.zeros(1, d))[0]
        v = on_the_circle(f, ETAS) if d == 2 else on_the_sphere(g, h, ETAS)
        stated = stated_direction(direction, g, h)
        cosine = v @ stated
        sine = (stated - cosine[:, None] * v).norm(dim=1)
        room = L * ETAS**power / g.norm()
        for eta, s, c, most in zip(ETAS.tolist(), sine, cosine, room, strict=True):
            at = {"eta": eta, "f": name}
            yield at_most("sine of the angle to the lowest point of a sphere", s, most, **at)
            yield at_least("cosine of that angle", c, 1 - most, **at)
            if name == "x + 2xy":
                closed = ((1 + 8 * (eta * L) ** 2) ** 0.5 - 1) / (4 * eta * L)
                yield equals("sine of that angle, over eta L", s / (eta * L), closed / (eta * L))
        others = f((ETAS[:, None, None] * nn.functional.normalize(torch.randn(n, d), dim=1))
                   .view(-1, d)).view(len(ETAS), n)  # fmt: skip
        yield at_least("lowest of random directions", others.amin(1), f(ETAS[:, None] * v), f=name)
    yield from on_the_cube(n)


steepest_descent.foil("the gradient itself leads uphill", direction="ascent")
steepest_descent.foil(
    "the steepest direction of the maximum norm keeps the sine 0.447 at the gradient (3, 1)",
    direction="signs",
)
steepest_descent.foil("Newton's direction keeps the sine 0.284 there", direction="newton")
steepest_descent.foil("the angle vanishes like the step, not like its square", power=2)
