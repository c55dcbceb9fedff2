r"""Minus the logarithm of a prior over weights: Gaussian with one scale or many, or any function.

$-\log p(\theta) = \sum_i \theta_i^2 / 2 \sigma_i^2$ up to a constant.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import floats, number
from vademecum.bayes.steps._energy_calls import point

__all__ = ["Prior", "prior_of"]


class Prior:
    """Minus the log-density of rows of parameters, and its gradient."""

    def __init__(self, precision: float | Tensor, function: Any = None):
        self._precision, self._function = precision, function

    def __call__(self, theta: Tensor) -> Tensor:
        """The energies of rows."""
        if self._function is not None:
            return self._function(theta)
        return 0.5 * (theta.square() * self._precision).sum(-1)

    def with_gradient(self, theta: Tensor, value: bool) -> tuple[Tensor, Tensor]:
        """The energies, if they are wanted, and their gradients."""
        if self._function is not None:
            _, energy, slope = point(self._function, theta)
            return energy, slope
        slope = theta * self._precision
        return (0.5 * (theta * slope).sum(-1) if value else theta.new_zeros(()), slope)


def prior_of(prior: Any, shapes: Mapping[str, torch.Size], theta: Tensor) -> Prior:
    """A prior as an argument: a scale, one for each parameter, some by name, or a function."""
    if isinstance(prior, Mapping):
        return Prior(_by_name(prior, shapes, theta) ** -2)
    if isinstance(prior, Tensor) and prior.ndim:
        if prior.shape != theta.shape:
            raise ValueError(
                f"prior must be a number or have shape {tuple(theta.shape)}, got"
                f" {tuple(prior.shape)}"
            )
        if not bool((floats("prior", prior) > 0).all()):
            raise ValueError(f"entries of prior must be > 0, got {prior.min().item()}")
        return Prior(prior.to(theta) ** -2)
    if callable(prior) and not isinstance(prior, Tensor):
        return Prior(0.0, prior)
    value = prior.item() if isinstance(prior, Tensor) else prior
    return Prior(number("prior", value, above=0) ** -2)


def _by_name(prior: Mapping[str, float], shapes: Mapping[str, torch.Size], theta: Tensor) -> Tensor:
    if set(prior) != set(shapes):
        odd = sorted(set(prior) ^ set(shapes))
        raise ValueError(f"prior must have the names of the model's parameters, not so: {odd}")
    parts = [
        theta.new_full((shape.numel(),), number(f"prior[{name!r}]", prior[name], above=0))
        for name, shape in shapes.items()
    ]
    return torch.cat(parts)
