"""What the course claims of strong convexity."""

from typing import Literal

import torch

from vademecum.claims import at_least, claim, equals
from vademecum.foundations.bregman import bregman_divergence
from vademecum.foundations.claims.convex_operations import logistic
from vademecum.foundations.claims.convexity import Function, search
from vademecum.foundations.curvature_constants import (
    smoothness_constant,
    strong_convexity_constant,
)
from vademecum.foundations.regions import Ball, Box


@claim(by="sampling", sources=("A-100", "C-102", "D-048"), budget=1.5, full={"n": 50_000})
def strong_convexity(half: float = 0.5, surplus: float = 0.0, n: int = 200):
    r"""Strong convexity.

    A differentiable $f$ is $\mu$-strongly convex ($\mu > 0$) if
    $f(y) \ge f(x) + \nabla f(x)^\top (y - x) + \frac\mu2 \|y - x\|^2$ for all $x, y$; equivalently,
    $f - \frac\mu2 \|\cdot\|^2$ is convex. A quadratic $\frac12 x^\top H x$ is $\mu$-strongly convex
    exactly for $\mu \le \lambda_{\min}(H)$, and a ridge penalty $\frac\lambda2 \|w\|^2$ added to a
    convex loss gives $\mu \ge \lambda$.

    Checked for $H = \begin{pmatrix} a & b \\ b & a \end{pmatrix}$ with integers $a > |b|$, where
    $\mu = a - |b|$ exactly, attained along $(1, \mp 1)$; `strong_convexity_constant` finds it, and
    `smoothness_constant` finds $a + |b|$.
    """
    for a, b in ((4, 0), (5, -4), (3, 2)):
        h = torch.tensor([[a, b], [b, a]]).double()
        mu = a - abs(b) + surplus
        f = lambda x, h=h: ((x @ h) * x).sum(1) / 2  # noqa: E731
        x, y = 2 * torch.randint(-9, 10, (2, n, 2)).double()
        y[0] = x[0] + torch.tensor([2.0, -2.0 if b > 0 else 2.0])
        least = mu * (y - x).square().sum(1)
        gap = bregman_divergence(f, y, x)
        yield at_least(gap, half * least, tol=0.0, a=a, b=b)  # exact in doubles
        yield equals(gap[0], least[0] / 2, a=a, b=b)
        ball = Ball(torch.randn(2), 1.0)
        found = strong_convexity_constant(f, ball, pairs=20, starts=2, steps=2)
        yield equals(found.value, mu, a=a, b=b)
        found = smoothness_constant(f, ball, pairs=20, starts=2, steps=2)
        yield equals(found.value, a + abs(b), a=a, b=b)
    for shift in (0.0, 0.01):  # f less its share of the square is convex, and with more it is not
        rest = lambda x, m=mu + shift: f(x) - m / 2 * x.square().sum(1)  # noqa: E731
        yield equals(int(search(rest, -1.0, 1.0, d=2).found), int(shift > 0), shift=shift)
    for ridge in (0.1, 2.0):
        f = lambda w, r=ridge: logistic(w) + r / 2 * w.square().sum(1)  # noqa: E731
        x, y = 3 * torch.randn(2, n, 2)
        least = ridge * (y - x).square().sum(1)
        yield at_least(bregman_divergence(f, y, x), half * least, tol=1e-12, ridge=ridge)
        ball = Ball(torch.zeros(2), 20.0)
        found = strong_convexity_constant(f, ball, pairs=20, starts=2, steps=20)
        yield at_least(found.value, ridge, ridge=ridge)


strong_convexity.foil("the factor 1/2 is lost: the half square has the constant 1", half=1.0)
strong_convexity.foil("no constant larger than the least eigenvalue will do", surplus=0.01)


@claim(by="sampling", sources=("C-103",), budget=0.5, full={"n": 100_000})
def strong_convexity_curvature(
    mu: float = 1.0, shape: Literal["ripple", "quartic"] = "ripple", n: int = 2000
):
    r"""The curvature criterion of strong convexity.

    A twice differentiable $f$ is $\mu$-strongly convex if and only if $f''(x) \ge \mu$ for all $x$;
    in several variables if and only if $\nabla^2 f(x) \succeq \mu I$ everywhere.

    Checked for $x^2 + \cos x$, where $f'' = 2 - \cos x \ge 1$; and for $x^4$, which is strictly and
    not strongly convex: $\inf f'' = 0$, and for every $\mu > 0$ the pair $\pm \frac{\mu}{10}$
    violates the inequality.
    """
    shapes: dict[str, Function] = {
        "ripple": lambda x: x[:, 0] ** 2 + x[:, 0].cos(),
        "quartic": lambda x: x[:, 0] ** 4,
    }
    x, y = 40 * torch.rand(2, n, 1) - 20
    x[0], y[0] = 0.0, 0.1
    x[1], y[1] = -0.01, 0.01
    gap = bregman_divergence(shapes[shape], y, x)
    rounding = 1e-12  # of values up to 400, four operations deep
    yield at_least(gap + rounding, mu / 2 * (y - x)[:, 0].square(), tol=0.0)
    for name, least in (("ripple", 1.0), ("quartic", 0.0)):
        box = Box(torch.tensor([-20.0]), torch.tensor([20.0]))
        found = strong_convexity_constant(shapes[name], box, pairs=50, starts=4, steps=20)
        yield equals(found.value, least, tol=1e-6)
    for small in (1.0, 0.1, 0.01):
        h = torch.tensor([[small / 10]])
        share = bregman_divergence(shapes["quartic"], h, -h) / (small / 2 * (2 * h[0]) ** 2)
        yield equals(share, 0.04 * small, mu=small)  # 8 h^4 of 2 mu h^2, where 1 is needed
    plane: Function = lambda x: x[:, 0] ** 2 + x[:, 0].cos() + 3 * x[:, 1] ** 2 / 2  # noqa: E731
    ball = Ball(torch.zeros(2), 5.0)
    found = strong_convexity_constant(plane, ball, pairs=50, starts=4, steps=20)
    yield equals(found.value, 1.0, tol=1e-8)


strong_convexity_curvature.foil("1.05 is too much near zero", mu=1.05)
strong_convexity_curvature.foil(
    "strictly convex does not imply strongly convex", shape="quartic", mu=0.01
)
