"""Smoothness: how fast a gradient may turn, and the Hessian that says so."""

from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, with_eigenvalues
from vademecum.foundations import Ball, smoothness_constant
from vademecum.optimization.claims._objectives import (
    Function,
    Objective,
    gradients_of,
    objectives,
    quadratic,
    ripples,
    tangent_gap,
)


def quotients(f: Function, x: Tensor, y: Tensor) -> Tensor:
    """The change of the gradient over the distance, for rows of pairs."""
    return (gradients_of(f, x) - gradients_of(f, y)).norm(dim=1) / (x - y).norm(dim=1)


@claim(
    by="sampling",
    sources=("A-101", "B-219", "C-077", "E-149", "E-150"),
    budget=0.5,
    full={"n": 50_000},
    short=r"\|\nabla f(x) - \nabla f(y)\| \le L \|x - y\|; \quad"
    r" L = \tfrac1{4 s} \lambda_{\max}(X^\top X) \text{ (logistic)}",
)
def smoothness(meaning: Literal["change", "size"] = "change", quarter: float = 0.25, n: int = 500):
    r"""$L$-smoothness.

    A differentiable $f$ is $L$-smooth if its gradient is $L$-Lipschitz,
    $\|\nabla f(x) - \nabla f(y)\| \le L \|x - y\|$ for all $x, y$. $L$ bounds how fast the gradient
    changes and says nothing about its size. The mean logistic loss of $s$ examples is smooth with
    $L = \frac1{4 s} \lambda_{\max}(X^\top X)$, a quadratic with $L = \max_i |\lambda_i|$.

    Checked on random pairs; the constant is reached along the steepest eigenvector, for the
    logistic loss in the limit at the origin; and `smoothness_constant` finds it. The line
    $10^6 \theta$ has $L = 0$, the parabola $\frac12 \theta^2$ has $L = 1$ and slopes of any size.

    Knobs:
        meaning: What $L$ is said to bound: the change of the gradient over the distance, or its
            size.
        quarter: The factor of $\lambda_{\max}(X^\top X) / s$ for the logistic loss.
        n: How many pairs are drawn for each objective.
    """
    one = torch.ones(1)
    line = Objective("10^6 theta", lambda x: 1e6 * x[:, 0], 0.0, one, convex=True)
    parabola = Objective("theta^2 / 2", lambda x: x[:, 0] ** 2 / 2, 1.0, one, convex=True)
    for name, f, L, steep, _ in (line, parabola, *objectives(2), *objectives(5)):
        d = len(steep)
        L *= 4 * quarter if name == "logistic loss" else 1.0
        x, y = 3 * torch.randn(2, n, d)
        at = {"f": name, "d": d}
        change, size = quotients(f, x, y), gradients_of(f, x).norm(dim=1)
        if meaning == "change":
            yield at_most("change of the gradient over the distance", change, L, **at)
        else:
            yield at_most("size of the gradient", size, L, **at)
        h = 1e-3 * steep[None]  # cosines and logistic losses turn by L (1 - O(h^2)) near 0
        reached = quotients(f, h, -h)
        yield equals("change of the gradient near the origin", reached, L, tol=1e-5, **at)
        ball = Ball(torch.zeros(d), 1e-3)  # where curvatures differ by 1e-5, however it is searched
        found = smoothness_constant(f, ball, pairs=10, starts=2, steps=2)
        yield equals("largest change found near the origin", found.value, L, tol=1e-4, **at)


smoothness.foil("an eighth in place of a quarter", quarter=0.125)
smoothness.erratum(
    "E-150",
    printed="the smoothness constant $L$ tells how big the gradient could be",
    right="$L$ tells how fast the gradient changes",
    why=r"$R(\theta) = 10^6 \theta$ is smooth with $L = 0$ and has gradient $10^6$;"
    r" $\frac12 \theta^2$ has $L = 1$ and arbitrarily large gradients. The size of the gradient is"
    " the Lipschitz constant of $R$ itself",
    weight="hard",
    meaning="size",
)


def bound_by(criterion: str, h: Tensor) -> Tensor:
    """The least L that a criterion allows for Hessians: their norm, or their top eigenvalue."""
    values = torch.linalg.eigvalsh(h)
    return (values.abs() if criterion == "norm" else values).amax(-1)


def hessians(f: Function, x: Tensor) -> Tensor:
    """The Hessian at each row, by autograd."""
    return torch.func.vmap(torch.func.hessian(lambda v: f(v[None])[0]))(x)


@claim(
    by="sampling",
    sources=("C-078", "C-079", "E-150"),
    budget=0.5,
    full={"n": 50_000},
    short=r"f \in C^2 \text{ is } L\text{-smooth} \iff -L I \preceq \nabla^2 f(x) \preceq L I"
    r" \;\;\forall x",
)
def smoothness_hessian(criterion: Literal["norm", "top eigenvalue"] = "norm", n: int = 300):
    r"""The Hessian criterion for smoothness.

    A twice differentiable $f$ is $L$-smooth if and only if $-L I \preceq \nabla^2 f \preceq L I$
    everywhere, that is, $\|\nabla^2 f\|_2 \le L$ (in one dimension $|f''| \le L$). The one-sided
    bound $\lambda_{\max}(\nabla^2 f) \le L$ suffices only for convex $f$; in general it gives just
    the quadratic upper bound $f(x) \le f(y) + \nabla f(y) \cdot (x - y) + \frac L2 \|x - y\|^2$.

    Checked for quadratics with Hessians of all signs; for sums of cosines, where the gradient
    changes along a segment by no more than the largest norm of a Hessian on it, and where quotients
    of nearby points reach the norm.

    Knobs:
        criterion: What of the Hessian is said to bound the change of the gradient.
        n: How many pairs of points are drawn.
    """
    for name, factor in (
        ("change of the gradient of $-\\theta^2$ over the distance", -2.0),
        ("change of the slope of $-5 x^2$ from 0 to 1", -10.0),
    ):
        h = torch.tensor([[factor]])
        changed = quotients(quadratic(h), torch.ones(1, 1), torch.zeros(1, 1))
        yield at_most(name, changed, bound_by(criterion, h).clamp(min=1.0))
    for signs in ((-1.0, -1.0), (1.0, -1.0, -1.0), (1.0, 1.0, 1.0, 1.0)):
        d = len(signs)
        values = torch.tensor(signs) * (0.5 + torch.rand(d) + torch.arange(d))
        h = with_eigenvalues(values)
        f, L, at = quadratic(h), bound_by(criterion, h), {"d": d, "sign": signs[-1]}
        x, y = torch.randn(2, n, d)
        yield at_most("change of the gradient over the distance", quotients(f, x, y), L, **at)
        _, vectors = torch.linalg.eigh(h)
        along = quotients(f, vectors.T, 0 * vectors).max()
        yield equals("its largest, along an eigenvector", along, L, **at)
        top = bound_by("top eigenvalue", h) / 2 * (x - y).square().sum(1)
        yield at_most("gap to the tangent plane", tangent_gap(f, x, y), top, **at)
    for d in (1, 3):
        heights = torch.where(torch.arange(d) % 2 == 0, -1.0, 1.0) * (1 + torch.rand(d))
        f = ripples(heights, torch.linalg.qr(torch.randn(d, d)).Q)
        x, y = 2 * torch.randn(2, n // 10, d)
        t = torch.linspace(0, 1, 101)[:, None, None]
        norms = bound_by(criterion, hessians(f, (x + t * (y - x)).view(-1, d))).view(101, -1)
        # Between two of 101 points the norm rises by at most max |f'''| <= 2 sqrt d a half step.
        room = 4 * d**0.5 * (x - y).norm(dim=1) / 200
        most = norms.amax(0) + room
        yield at_most("change of the gradient along a segment", quotients(f, x, y), most, d=d)
        bends = hessians(f, x)
        values, vectors = torch.linalg.eigh(bends)
        steepest = vectors[torch.arange(len(x)), :, values.abs().argmax(1)]
        near = quotients(f, x + 1e-4 * steepest, x - 1e-4 * steepest)
        yield equals("change of the gradient nearby", near, bound_by(criterion, bends), tol=1e-6,
                     d=d)  # fmt: skip
        yield at_least("largest height", heights.abs().max(), bound_by("norm", bends), d=d)


smoothness_hessian.foil(
    "one side does not suffice for cosines, either",
    refuted_by="change of the gradient nearby",
    criterion="top eigenvalue",
)
for where, text, why in (
    (
        "C-078",
        r"$\lambda_{\max}(\nabla^2 h) \le L$, listed under $L$-smoothness for general $h$",
        "the sheet does not say in which direction it means the line. It follows from"
        r" $L$-smoothness, but as a criterion it is only half of the condition: $h = -\theta^2$ has"
        r" $\lambda_{\max} = -2 \le 1$, but its gradient $-2 \theta$ is not 1-Lipschitz. The"
        " spectral norm is needed (or convexity)",
    ),
    (
        "C-079",
        r"$\ell''(x) \le L$, listed under $L$-smoothness",
        "a consequence, not a criterion (the sheet leaves the direction open): the absolute value"
        r" is missing, $\ell = -5 x^2$ satisfies $\ell'' = -10 \le 1$ while"
        r" $|\ell'(1) - \ell'(0)| = 10$",
    ),
):
    smoothness_hessian.erratum(
        where,
        printed=text,
        right=r"$\|\nabla^2 f\|_2 \le L$; in one dimension $|f''| \le L$",
        why=why,
        weight="soft",
        refuted_by="change of the gradient of $-\\theta^2$ over the distance"
        if where == "C-078"
        else "change of the slope of $-5 x^2$ from 0 to 1",
        criterion="top eigenvalue",
    )
