r"""Coupling layers: half of the coordinates say how each of the other half is bent.

Coordinates of even number are $a$, those of odd number $b$. Layers take turns:

$$b \leftarrow \tau(b; \theta(a, c)), \qquad a \leftarrow \tau(a; \theta(b, c)), \qquad \dots$$

with a network $\theta$ for each layer and a function $\tau(\cdot; \theta)$ that increases. The
inverse undoes the layers from the last one, with the same networks, and log-determinants are sums
of $\log \tau'$. Halves are taken apart once and put together once, so that layers copy nothing.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import starmap
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.generative.flows._density import Flow, Transformed
from vademecum.models import mlp

__all__ = ["Bent", "Coupling", "Network", "perceptrons"]

Network = Callable[[int, int], nn.Module]
"""What makes a network from its numbers of inputs and outputs."""


class Bent(NamedTuple):
    """The values of an increasing function, and the logarithms of its slopes."""

    value: Tensor
    log_slope: Tensor


def perceptrons(
    hidden: Sequence[int], activation: Callable[[], nn.Module] | None = None
) -> Network:
    """What makes perceptrons with these hidden layers; rectifiers work in place by default.

    Example:
        >>> perceptrons([5])(2, 3)
        Sequential(
          (0): Linear(in_features=2, out_features=5, bias=True)
          (1): ReLU(inplace=True)
          (2): Linear(in_features=5, out_features=3, bias=True)
        )
    """
    sizes = [whole("hidden", m, low=1) for m in hidden]
    made = activation or partial(nn.ReLU, inplace=True)
    return lambda inputs, outputs: mlp([inputs, *sizes, outputs], made)


class Coupling(Flow):
    """Coupling layers with a function that increases, given by subclasses.

    Args:
        d: How many coordinates there are, at least 2.
        context: How wide the context is.
        transforms: How many layers there are.
        numbers: How many parameters the function has.
        network: What makes a layer's network.
    """

    def __init__(self, d: int, context: int, transforms: int, numbers: int, network: Network):
        super().__init__(whole("d", d, low=2), context)
        self.numbers = numbers
        halves = [(d + 1) // 2, d // 2]  # what is read, what is bent; then the other way round
        sizes = [
            (halves[i % 2] + context, numbers * halves[1 - i % 2])
            for i in range(whole("transforms", transforms, low=1))
        ]
        self.networks = nn.ModuleList(starmap(network, sizes))

    @abstractmethod
    def _bend(self, x: Tensor, numbers: Tensor) -> Bent:
        """Bend x, (n, m), with the parameters (n, numbers, m)."""

    @abstractmethod
    def _unbend(self, z: Tensor, numbers: Tensor) -> Bent:
        """Undo what `_bend` did; the slopes are those of the inverse."""

    def forward(self, x: Tensor, context: Tensor | None = None) -> Transformed:
        """Take data to noise, the first layer first."""
        return self._through(x, self._given(x, context), list(range(len(self.networks))))

    def inverse(self, z: Tensor, context: Tensor | None = None) -> Transformed:
        """Take noise to data, the last layer first."""
        context = self._given(z, context, "z")
        return self._through(z, context, list(reversed(range(len(self.networks)))), back=True)

    def _through(
        self, x: Tensor, context: Tensor | None, layers: list[int], *, back: bool = False
    ) -> Transformed:
        halves = [x[:, ::2].contiguous(), x[:, 1::2].contiguous()]
        bend = self._unbend if back else self._bend
        totals = []
        for i in layers:
            read, moved = halves[i % 2], halves[1 - i % 2]
            seen = read if context is None else torch.cat((read, context), 1)
            numbers = self.networks[i](seen)
            wanted = len(x), self.numbers * moved.shape[1]
            if numbers.shape != wanted:
                raise ValueError(
                    f"network must give shape {wanted} for shape {tuple(seen.shape)}, got"
                    f" {tuple(numbers.shape)}"
                )
            halves[1 - i % 2], log_slope = bend(moved, numbers.unflatten(1, (self.numbers, -1)))
            totals.append(log_slope.sum(1))
        total = torch.stack(totals).sum(0) if len(totals) > 1 else totals[0]
        return Transformed(interleaved(*halves), total)


def interleaved(even: Tensor, odd: Tensor) -> Tensor:
    """Columns of even and of odd number, put together.

    Example:
        >>> interleaved(torch.tensor([[0, 2, 4]]), torch.tensor([[1, 3]]))
        tensor([[0, 1, 2, 3, 4]])
    """
    m = odd.shape[1]
    pairs = torch.stack((even[:, :m], odd), 2).flatten(1)
    return pairs if even.shape[1] == m else torch.cat((pairs, even[:, m:]), 1)
