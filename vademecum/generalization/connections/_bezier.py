r"""A curve between two minima whose bend is trained.

The quadratic Bezier curve from $\theta_a$ to $\theta_b$ with the bend $\theta$,

$$\phi(t) = (1 - t)^2 \theta_a + 2 t (1 - t)\, \theta + t^2 \theta_b,$$

is straight for $\theta = (\theta_a + \theta_b) / 2$, where the search begins. The mean loss over
$t$, uniform on $[0, 1]$, falls along $\mathbb E\, 2 t (1 - t) \nabla \ell(\phi(t))$, with a new $t$
and a new batch for each step of Adam.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.generalization._endless_batches import endless_batches
from vademecum.generalization.connections._walker import Walker
from vademecum.progress import ticking
from vademecum.randomness import source

__all__ = ["bezier", "trained_bend"]


def bezier(a: Tensor, bend: Tensor, b: Tensor, t: float) -> Tensor:
    """The point of the curve at t.

    Example:
        >>> bezier(torch.zeros(1), torch.ones(1), torch.zeros(1), 0.5)
        tensor([0.5000])
    """
    return (1 - t) ** 2 * a + 2 * t * (1 - t) * bend + t**2 * b


def trained_bend(
    walker: Walker,
    a: Float[Tensor, " P"],
    b: Float[Tensor, " P"],
    x: Any,
    y: Any,
    *,
    updates: int,
    eta: float,
    batch: int | None,
    generator: torch.Generator | None,
    progress: bool,
) -> Float[Tensor, " P"]:
    """The bend of the curve with a low mean loss, after some steps of Adam."""
    bend = ((a + b) / 2).requires_grad_()
    optimizer = torch.optim.Adam([bend], lr=eta)
    draws = endless_batches(x, y, batch, generator=generator, device=a.device)
    others = walker.buffers(walker.model)
    with ticking("updates of the curve", updates, progress=progress) as tick:
        for _ in range(updates):
            t = float(torch.rand((), **source(generator, a.device)))
            walker.move(bezier(a, bend.detach(), b, t), others)
            bend.grad = 2 * t * (1 - t) * walker.slope(*next(draws))
            optimizer.step()
            tick(1)
    return bend.detach()
