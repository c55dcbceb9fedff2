r"""Objectives whose constants are known beforehand, and the run of gradient descent on them.

A function takes rows of points and gives a number for each, so that many starts run at once.
Gradient descent is torch's `SGD` without momentum. A `Problem` is a function of one point of which
everything is known, its optimum and its gradient by hand too; there descent is a loop of our own.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vademecum.claims import with_eigenvalues
from vademecum.foundations.claims.strong_convexity import quadratic

__all__ = [
    "Function", "Objective", "Problem", "by_hand", "descend", "gradients_of", "huber",
    "known_logistic", "known_quadratic", "logistic", "objectives", "quadratic", "race", "ripples",
    "softplus", "tangent_gap", "unit", "waves",
]  # fmt: skip

Function = Callable[[Tensor], Tensor]


class Objective(NamedTuple):
    """A function with its exact constant of smoothness."""

    name: str
    f: Function
    L: float
    steep: Tensor
    """A unit vector along which the gradient changes by L times the distance, near the origin."""
    convex: bool


def unit(*shape: int) -> Tensor:
    """Random vectors of length one, in the last axis."""
    return nn.functional.normalize(torch.randn(shape), dim=-1)


def softplus(z: Tensor) -> Tensor:
    """The softplus, bent beyond 20, too, where torch's own is straight and misses 2e-9."""
    return nn.functional.softplus(z, threshold=40.0)


def logistic(x: Tensor, y: Tensor, ridge: float = 0.0) -> Function:
    r"""The mean logistic loss of examples with labels $\pm 1$, with a ridge penalty."""
    signed = y[:, None] * x

    def f(w: Tensor) -> Tensor:
        loss = softplus(-(w @ signed.T)).mean(1)
        return loss + ridge / 2 * w.square().sum(1)

    return f


def ripples(heights: Tensor, axes: Tensor) -> Function:
    r"""$\sum_i a_i \cos(q_i \cdot x)$ with orthonormal columns $q_i$, so that $L = \max |a_i|$."""
    return lambda x: (x @ axes).cos() @ heights


def objectives(d: int, examples: int = 20) -> list[Objective]:
    """A quadratic of both signs, a convex one, a logistic loss, a sum of cosines."""
    values = 4 * torch.rand(d) + 0.5
    signs = torch.where(torch.arange(d) % 2 == 0, -1.0, 1.0)
    found = []
    for name, spectrum in (("indefinite quadratic", signs * values), ("bowl", values)):
        h = with_eigenvalues(spectrum)
        eigenvalues, vectors = torch.linalg.eigh(h)
        top = int(eigenvalues.abs().argmax())
        L = float(eigenvalues[top].abs())
        found.append(Objective(name, quadratic(h), L, vectors[:, top], name == "bowl"))
    x, y = torch.randn(examples, d), torch.where(torch.rand(examples) < 0.5, -1.0, 1.0)
    eigenvalues, vectors = torch.linalg.eigh(x.T @ x)
    L = float(eigenvalues[-1]) / (4 * examples)
    found.append(Objective("logistic loss", logistic(x, y), L, vectors[:, -1], convex=True))
    axes, heights = torch.linalg.qr(torch.randn(d, d)).Q, signs * values
    top = int(values.argmax())
    waves = ripples(heights, axes)
    found.append(Objective("cosines", waves, float(values[top]), axes[:, top], convex=False))
    return found


def gradients_of(f: Function, x: Tensor) -> Tensor:
    """The gradient at each row, by autograd."""
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(f(x).sum(), x)[0]


def tangent_gap(f: Function, x: Tensor, y: Tensor) -> Tensor:
    r"""$f(x) - f(y) - \nabla f(y) \cdot (x - y)$ for rows of points."""
    return f(x) - f(y) - (gradients_of(f, y) * (x - y)).sum(1)


def descend(f: Function, start: Tensor, eta: float | list[float], steps: int = 0) -> Tensor:
    """The iterates of torch's SGD from rows of starts, the starts first.

    Args:
        f: A function of rows.
        start: The starts.
        eta: The step size, or that of each step.
        steps: How many steps, if the step size is one number.
    """
    sizes = eta if isinstance(eta, list) else [eta] * steps
    return race(f, start, [[size] for size in sizes])[:, 0]


def race(f: Function, start: Tensor, sizes: list[list[float]]) -> Tensor:
    """The iterates of several runs of torch's SGD side by side: step, run, start, coordinate.

    Args:
        f: A function of rows.
        start: The starts, the same for each run.
        sizes: For each step the step sizes of the runs.
    """
    runs: list[Tensor] = [nn.Parameter(start.detach().clone()) for _ in sizes[0]]
    optimizer = torch.optim.SGD([{"params": [x]} for x in runs], lr=1.0)
    path = [torch.stack(runs).detach()]
    for etas in sizes:
        for group, eta in zip(optimizer.param_groups, etas, strict=True):
            group["lr"] = eta
        for x, g in zip(runs, torch.autograd.grad(f(torch.cat(runs)).sum(), runs), strict=True):
            x.grad = g
        optimizer.step()
        path.append(torch.stack(runs).detach())
    return torch.stack(path)


class Problem(NamedTuple):
    """A function with what is known of it, and its gradient by hand."""

    name: str
    f: Function
    gradient: Function
    L: float
    mu: float
    optimum: Tensor
    minimum: float


def known_quadratic(eigenvalues: Tensor) -> Problem:
    r"""$\frac12 (x - x^*)^\top H (x - x^*) + b$ with a random optimum."""
    H, at, b = with_eigenvalues(eigenvalues), torch.randn(len(eigenvalues)), float(torch.randn(()))
    return Problem(
        "a quadratic", lambda x: (x - at) @ H @ (x - at) / 2 + b, lambda x: H @ (x - at),
        float(eigenvalues.max()), float(eigenvalues.min()), at, b,
    )  # fmt: skip


def known_logistic(n: int, d: int, ridge: float) -> Problem:
    """Logistic loss with soft labels for which the optimum is known, and a ridge around it."""
    X, at = torch.randn(n, d), torch.randn(d)
    p = torch.sigmoid(X @ at)
    L = float(torch.linalg.eigvalsh(X.T @ X)[-1]) / (4 * n) + ridge

    def f(x: Tensor) -> Tensor:
        z = X @ x
        return (softplus(z) - p * z).mean() + ridge / 2 * (x - at).square().sum()

    def gradient(x: Tensor) -> Tensor:
        return X.T @ (torch.sigmoid(X @ x) - p) / n + ridge * (x - at)

    return Problem("a logistic loss", f, gradient, L, ridge, at, float(f(at)))


def by_hand(problem: Problem, x: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """The gaps and the squared gradients of descent with steps 1/L, by a loop of our own."""
    gaps, squares = [], []
    for _ in range(steps + 1):
        g = problem.gradient(x)
        gaps.append(problem.f(x) - problem.minimum)
        squares.append(g.square().sum())
        x = x - g / problem.L
    return torch.stack(gaps), torch.stack(squares)


def waves(d: int, count: int) -> Problem:
    """A sum of cosines and a flat parabola: not convex, and nowhere below minus the amplitudes."""
    a, w, phase, flat = torch.randn(count), torch.randn(count, d), 6 * torch.rand(count), 0.1
    L = float((a.abs() * w.square().sum(1)).sum()) + flat
    return Problem(
        "waves",
        lambda x: (a * (w @ x + phase).cos()).sum() + flat / 2 * (x @ x),
        lambda x: flat * x - (a * (w @ x + phase).sin()) @ w,
        L, 0.0, torch.zeros(d), -float(a.abs().sum()),
    )  # fmt: skip


def huber(kink: float, L: float) -> Function:
    """A parabola up to the kink, and straight beyond."""

    def f(x: Tensor) -> Tensor:
        r = x.abs().sum()
        return torch.where(r <= kink, L / 2 * r * r, L * kink * (r - kink / 2))

    return f
