"""Energies of some chains at a time, so that they keep to a memory limit."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import whole
from vademecum.arrays import portions
from vademecum.bayes.steps._energy_calls import Energy, estimated, gradient, point, values
from vademecum.models import bytes_each

__all__ = ["limited"]

_STATES = {
    "nuts": 30, "hmc": 13, "chees": 16, "mala": 13, "mh": 9, "ula": 11, "sgld": 11, "sghmc": 14,
}  # fmt: skip
"""Arrays as large as the points of all chains that a step holds at its peak, energies apart
(measured, with dual averaging and a diagonal mass); "nuts" has two more for each doubling."""


class _Portioned:
    """An energy that is asked for some chains at a time."""

    def __init__(self, energy: Energy, size: int):
        self._energy, self._size = energy, size

    def __call__(self, theta: Tensor) -> Tensor:
        return self._joined(lambda rows: (values(self._energy, rows),), theta)[0]

    def with_gradient(self, theta: Tensor) -> tuple[Tensor, ...]:
        """The energies of rows, and their gradients."""
        return self._joined(lambda rows: point(self._energy, rows)[1:], theta)

    def gradient(self, theta: Tensor) -> Tensor:
        """The gradients alone."""
        return self._joined(lambda rows: (gradient(self._energy, rows),), theta)[0]

    def estimate(
        self, theta: Tensor, *, generator: torch.Generator | None = None
    ) -> tuple[Tensor, ...]:
        """Both from a random part of the data, another one for each portion."""
        return self._joined(lambda rows: estimated(self._energy, rows, generator)[1:], theta)

    def _joined(self, ask: Callable[[Tensor], tuple], theta: Tensor) -> tuple[Tensor, ...]:
        found: list[Tensor] = []
        for rows in portions(len(theta), each=1, memory=self._size):
            for i, part in enumerate(ask(theta[rows])):
                if not rows.start:
                    found.append(part.new_empty(len(theta), *part.shape[1:]))
                found[i][rows] = part
        return tuple(found)


def limited(
    energy: Energy, theta: Tensor, memory: int | None, kernel: str, max_depth: int, metric: str
) -> Any:
    """The energy, asked for as many chains at a time as there is room for.

    Raises:
        ValueError: If there is no room for one.
    """
    if memory is None:
        return energy
    copies = _STATES[kernel] + (2 * max_depth if kernel == "nuts" else 0)
    fixed = copies * theta.nbytes
    if metric == "dense":
        fixed += 6 * theta[0].nbytes * theta.shape[1]
    rest, each = bytes_each(lambda rows: point(energy, rows), theta)
    least = fixed + rest + each
    if whole("memory", memory, low=1) < least:
        raise ValueError(
            f"memory must be >= {least} bytes for the state of {len(theta)} chains and the energy"
            f" of one, got {memory}"
        )
    size = (memory - fixed - rest) // each
    return energy if size >= len(theta) else _Portioned(energy, size)
