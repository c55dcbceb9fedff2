"""Hyperparameters of a kernel and the noise, as one vector of logarithms and back."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vademecum.kernels._kernel import Kernel

__all__ = ["NOISE", "Hyperparameters", "replaced"]

NOISE = "noise"
"""The name of the standard deviation of the noise."""


class Hyperparameters(NamedTuple):
    """What is learnt: the names with their sizes, `None` for a number, at the kernel they are of.

    Example:
        >>> from vademecum.kernels import RBFKernel
        >>> learnt = Hyperparameters.of(2.0 * RBFKernel(lengthscale=1.0), 0.5)
        >>> learnt.names
        ['scale', 'lengthscale', 'noise']
        >>> kernel, noise = learnt.at(np.log([3.0, 2.0, 0.1]))
        >>> kernel, round(noise, 6)
        (3.0... * RBFKernel(lengthscale=2.0), 0.1)
    """

    kernel: Any
    sizes: dict[str, int | None]
    start: np.ndarray
    noise: float
    """The noise where it is not learnt."""
    like: Tensor | None
    """A tensor with the dtype and device of the inputs."""

    @classmethod
    def of(
        cls,
        kernel: Any,
        noise: float,
        *,
        noisy: bool = True,
        kernels: bool = True,
        like: Any = None,
    ) -> "Hyperparameters":
        """Those of a kernel (unless it is a function, or `kernels` is false) and the noise."""
        known = kernel.hyperparameters() if kernels and isinstance(kernel, Kernel) else {}
        values = {name: _double(value) for name, value in known.items()}
        sizes = {name: len(v) if v.ndim else None for name, v in values.items()}
        logs = [v.reshape(-1).numpy() for v in values.values()]
        if noisy:
            sizes[NOISE] = None
            logs.append(np.array([noise]))
        start = np.log(np.concatenate(logs)) if logs else np.empty(0)
        return cls(kernel, sizes, start, noise, like)

    @property
    def names(self) -> list[str]:
        """The names, in the order of the vector."""
        return list(self.sizes)

    def at(self, theta: np.ndarray) -> tuple[Any, float]:
        """The kernel and the noise for a vector of logarithms."""
        values, place = {}, 0
        for name, size in self.sizes.items():
            part = np.exp(theta[place : place + (size or 1)])
            place += len(part)
            if size is None:
                values[name] = float(part[0])
            else:
                made = torch.from_numpy(part)
                values[name] = made if self.like is None else made.to(self.like)
        noise = values.pop(NOISE, self.noise)
        return (self.kernel.replaced(values) if values else self.kernel), noise

    def vector(self, gradients: Mapping[str, Any]) -> np.ndarray:
        """Derivatives by name as one vector."""
        parts = [_double(gradients[name]).reshape(-1).numpy() for name in self.sizes]
        return np.concatenate(parts) if parts else np.empty(0)

    def bounds(self, width: float, *, least_noise: float) -> list[tuple[float, float]]:
        """For each entry the range of a factor e^width about its start; the noise has a floor."""
        ranges = [(v - width, v + width) for v in self.start]
        if NOISE in self.sizes:
            low, high = ranges[-1]
            ranges[-1] = (max(low, math.log(least_noise)), high)
        return ranges


def replaced(kernel: Any, values: Mapping[str, Any]) -> Any:
    """The kernel at other values of its hyperparameters.

    Raises:
        ValueError: If it has none of these names; a function has no hyperparameters.
    """
    if values and not isinstance(kernel, Kernel):
        raise ValueError(
            f"hyperparameters must be those of a Kernel, got {next(iter(values))!r} for a function"
        )
    return kernel.replaced(values) if values else kernel


def _double(value: Any) -> Tensor:
    """A number or tensor in double precision, on the CPU."""
    return (
        torch.as_tensor(value).detach().cpu().double()
        if isinstance(value, Tensor)
        else (torch.tensor(value, dtype=torch.float64))
    )
