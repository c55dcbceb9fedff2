"""Runs of torch's optimisers with all that they saw: iterates and gradients."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["recorded", "rosenbrock_gradient", "valley_gradient"]


def recorded(
    make: Callable[[list[Any]], Any],
    start: Tensor,
    gradient: Callable[[Tensor], Tensor],
    steps: int,
    prepare: Callable[[Any, int], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """The iterates, the start first, and the gradients of a run.

    Args:
        make: Makes an optimiser of a list of tensors.
        start: Where it starts.
        gradient: The gradient at a point.
        steps: How many steps.
        prepare: Changes the optimiser before step t = 1, 2, ...
    """
    x = nn.Parameter(start.clone())
    optimizer, path, grads = make([x]), [start.clone()], []
    for t in range(1, steps + 1):
        x.grad = gradient(x.detach())
        grads.append(x.grad.clone())
        if prepare is not None:
            prepare(optimizer, t)
        optimizer.step()
        path.append(x.detach().clone())
    return torch.stack(path), torch.stack(grads)


def rosenbrock_gradient(x: Tensor) -> Tensor:
    r"""Of $\sum_i 100 (x_{i + 1} - x_i^2)^2 + (1 - x_i)^2$, by hand."""
    g = torch.zeros_like(x)
    rise = x[1:] - x[:-1] ** 2
    g[:-1] += -400 * x[:-1] * rise - 2 * (1 - x[:-1])
    g[1:] += 200 * rise
    return g


def valley_gradient(x: Tensor) -> Tensor:
    r"""Of $\frac12 (x_1^2 + 100 x_2^2)$."""
    return x * torch.tensor([1.0, 100.0])
