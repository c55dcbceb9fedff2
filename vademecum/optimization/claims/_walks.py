"""Optimisers at work on functions of a vector, and what their iterates are by hand."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.optimization import Nesterov

__all__ = ["ROSENBROCK", "companion", "powers", "rosenbrock", "rosenbrock_gradient", "walk"]

Make = Callable[[list[Tensor]], Any]
ROSENBROCK = (-1.2, 1.0)
"""Where one starts on Rosenbrock's function, by custom."""


def walk(
    make: Make, f: Callable[[Tensor], Tensor], start: Tensor, steps: int | list[float]
) -> Tensor:
    """The iterates of an optimiser, the start first.

    Args:
        make: Makes the optimiser of a list of parameters.
        f: What is to fall.
        start: Where to start.
        steps: How many steps, or the step size of each.
    """
    x = nn.Parameter(start.detach().clone())
    optimizer = make([x])
    path = [start.detach().clone()]
    for eta in steps if isinstance(steps, list) else [None] * steps:
        if eta is not None:
            optimizer.param_groups[0]["lr"] = eta
        x.grad = None
        f(x).backward()
        optimizer.step()
        if isinstance(optimizer, Nesterov):
            with optimizer.iterates():
                path.append(x.detach().clone())
        else:
            path.append(x.detach().clone())
    return torch.stack(path)


def rosenbrock(x: Tensor) -> Tensor:
    """A curved valley."""
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


def rosenbrock_gradient(x: Tensor) -> Tensor:
    """Its gradient, by hand."""
    inner = x[1] - x[0] ** 2
    return torch.stack([-2 * (1 - x[0]) - 400 * x[0] * inner, 200 * inner])


def companion(now: Tensor, before: Tensor) -> Tensor:
    r"""The matrix of $x_{t + 1} = A x_t + B x_{t - 1}$ for the pair $(x_{t + 1}, x_t)$."""
    eye = torch.eye(len(now))
    return torch.cat([torch.cat([now, before], 1), torch.cat([eye, torch.zeros_like(eye)], 1)])


def powers(matrix: Tensor, start: Tensor, steps: int) -> Tensor:
    """The iterates of a companion matrix from rest, each by its own power."""
    pair, d = torch.cat([start, start]), len(start)
    return torch.stack(
        [(torch.linalg.matrix_power(matrix, t) @ pair)[:d] for t in range(steps + 1)]
    )
