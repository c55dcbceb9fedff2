r"""How well a network fits noise: ascent from its weights, for several vectors of signs at once.

For signs $\sigma$ and the network's output $f_\theta$, bounded by the hyperbolic tangent, Adam
climbs $\frac1n \sum_i \sigma_i \tanh f_\theta(x_i)$ in $\theta$; the best value seen counts. It is
attained, hence at most the supremum, which for a network nobody can compute.
"""

from typing import Any

import torch
from torch import Tensor, nn

from vademecum.gradients import functional
from vademecum.models import Output, count_examples
from vademecum.progress import ticking
from vademecum.randomness import source

__all__ = ["fitted_noise"]

_MOMENTS = 0.9, 0.999  # Adam's


def fitted_noise(
    model: nn.Module,
    x: Any,
    *,
    draws: int,
    steps: int,
    lr: float,
    output: Output = None,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> Tensor:
    """The best fit of each vector of signs that ascent found, (draws,), in double precision."""
    f = functional(model, output=output)
    n = count_examples(x)
    start = f.theta.detach()
    drawn = torch.randint(2, (draws, n), **source(generator, start.device)).to(start)
    signs = 2 * drawn - 1

    def fit(theta: Tensor, s: Tensor) -> Tensor:
        return (s * torch.tanh(_scores(f(theta, x), n))).mean()

    climb = torch.func.vmap(torch.func.grad_and_value(fit))
    theta = start.expand(draws, -1).clone()
    mean, square = torch.zeros_like(theta), torch.zeros_like(theta)
    best = torch.full((draws,), -torch.inf, dtype=torch.float64, device=start.device)
    with ticking("steps of ascent", steps, progress=progress) as tick:
        for step in range(1, steps + 1):
            gradient, value = climb(theta, signs)
            best = torch.maximum(best, value.double())
            mean = mean.lerp(gradient, 1 - _MOMENTS[0])
            square = square.lerp(gradient.square(), 1 - _MOMENTS[1])
            scale = (square / (1 - _MOMENTS[1] ** step)).sqrt() + 1e-8
            theta = theta + lr * mean / (1 - _MOMENTS[0] ** step) / scale
            tick(1)
    return torch.maximum(best, torch.func.vmap(fit)(theta, signs).double())


def _scores(z: Tensor, n: int) -> Tensor:
    """One number for each example: the only output, or the difference of two."""
    if z.shape in ((n,), (n, 1)):
        return z.reshape(n)
    if z.shape == (n, 2):
        return z[:, 1] - z[:, 0]
    raise ValueError(
        "model must give one number or two scores for each example, got an output of shape"
        f" {tuple(z.shape)}"
    )
