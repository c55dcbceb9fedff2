"""Functions of which everything is known, and descent by a loop of our own."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from vademecum.claims import with_eigenvalues

__all__ = ["Problem", "by_hand", "huber", "logistic", "quadratic", "waves"]


class Problem(NamedTuple):
    """A function with what is known of it, and its gradient by hand."""

    name: str
    f: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor], Tensor]
    L: float
    mu: float
    optimum: Tensor
    minimum: float


def quadratic(eigenvalues: Tensor) -> Problem:
    r"""$\frac12 (x - x^*)^\top H (x - x^*) + b$ with a random optimum."""
    H, at, b = with_eigenvalues(eigenvalues), torch.randn(len(eigenvalues)), float(torch.randn(()))
    return Problem(
        "a quadratic", lambda x: (x - at) @ H @ (x - at) / 2 + b, lambda x: H @ (x - at),
        float(eigenvalues.max()), float(eigenvalues.min()), at, b,
    )  # fmt: skip


def logistic(n: int, d: int, ridge: float) -> Problem:
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


def huber(kink: float, L: float) -> Callable[[Tensor], Tensor]:
    """A parabola up to the kink, and straight beyond."""

    def f(x: Tensor) -> Tensor:
        r = x.abs().sum()
        return torch.where(r <= kink, L / 2 * r * r, L * kink * (r - kink / 2))

    return f
