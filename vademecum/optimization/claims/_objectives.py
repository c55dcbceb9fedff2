r"""Objectives whose constants are known beforehand, and the run of gradient descent on them.

A function takes rows of points and gives a number for each, so that many starts run at once.
Gradient descent is torch's `SGD` without momentum.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vademecum.claims import with_eigenvalues
from vademecum.foundations.claims.strong_convexity import quadratic

__all__ = [
    "Function", "Objective", "descend", "gradients_of", "logistic", "objectives", "quadratic",
    "race", "ripples", "softplus", "tangent_gap", "unit",
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
