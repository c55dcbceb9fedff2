r"""A perceptron whose outputs for a coordinate see only the coordinates before it.

Coordinates have positions $0, \dots, d - 1$ in an order; hidden units have degrees. A unit of
degree $m$ sees inputs at positions below $m$, and units of degree at most $m$ in the layer before;
outputs for position $k$ see units of degree at most $k$. So outputs for position $k$ are functions
of inputs at positions below $k$, and of the context, which all units of the first layer see.

When coordinates become known one by one, a unit of degree $m$ can be computed as soon as those at
positions below $m$ are there, and never again: `Unrolled` evaluates units group by group, so that
all positions together cost about one pass. Units are sorted by their degrees, and examples are
columns, so that a group is a block of rows. Exact: the same sums as in one pass.

References:
    Germain, Gregor, Murray and Larochelle, MADE: masked autoencoder for distribution estimation,
    ICML 2015.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import whole

__all__ = ["MaskedLinear", "MaskedNetwork", "Unrolled", "positions_of"]


def positions_of(order: Sequence[int] | None, d: int) -> list[int]:
    """Which coordinate stands at each position; refuses what is no permutation.

    Example:
        >>> positions_of(None, 3)
        [0, 1, 2]
    """
    order = list(range(d)) if order is None else [int(i) for i in order]
    if sorted(order) != list(range(d)):
        raise ValueError(f"order must be a permutation of 0, ..., {d - 1}, got {order}")
    return order


class MaskedLinear(nn.Linear):
    """A dense layer some of whose weights are 0 for good.

    Args:
        mask: 1 where a weight counts, 0 elsewhere, (outputs, inputs).

    Example:
        >>> layer = MaskedLinear(torch.tensor([[1.0, 0.0]]))
        >>> layer(torch.tensor([[0.0, 5.0]])).equal(layer.bias[None])
        True
    """

    mask: Tensor

    def __init__(self, mask: Tensor):
        super().__init__(mask.shape[1], mask.shape[0])
        self.register_buffer("mask", mask, persistent=False)

    def masked(self) -> Tensor:
        """The weights that count."""
        return self.weight * self.mask

    def forward(self, input: Tensor) -> Tensor:
        """Apply them."""
        return F.linear(input, self.masked(), self.bias)


class MaskedNetwork(nn.Module):
    """A perceptron with masked weights.

    Args:
        d: How many coordinates there are.
        numbers: How many outputs each coordinate has.
        hidden: The widths of hidden layers.
        context: How wide the context is.
        inputs: How many inputs each coordinate has.
        order: Which coordinate stands at each position.
        activation: What makes an activation that acts entry by entry.
    """

    positions: Tensor

    def __init__(
        self,
        d: int,
        numbers: int,
        *,
        hidden: Sequence[int],
        context: int = 0,
        inputs: int = 1,
        order: Sequence[int] | None = None,
        activation: Callable[[], nn.Module] | None = None,
    ):
        super().__init__()
        self.d, self.numbers, self.inputs, self.context = d, numbers, inputs, context
        self.order = positions_of(order, d)
        sizes = [whole("hidden", m, low=1) for m in hidden]
        degrees = [_degrees(m, d, context) for m in sizes]
        self.layers = nn.ModuleList(map(MaskedLinear, self._masks(degrees)))
        ends = (torch.searchsorted(g, torch.arange(d), right=True).tolist() for g in degrees)
        self.ends = [[k * inputs for k in range(d)], *ends]  # what is known at each position
        self.register_buffer("positions", torch.tensor(self.order), persistent=False)
        self.activation = (activation or partial(nn.ReLU, inplace=True))()

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """All outputs at once, (n, numbers, d)."""
        h = x if context is None else torch.cat((context, x), 1)
        for i, layer in enumerate(self.layers):
            h = layer(h if i == 0 else self.activation(h))
        return h.view(len(x), self.numbers, self.d)

    def _masks(self, hidden: list[Tensor]) -> list[Tensor]:
        at = torch.tensor(self.order).argsort()
        inputs = (at + 1).repeat_interleave(self.inputs)
        seen = torch.cat((torch.full((self.context,), -1), inputs))  # at most the own degree
        masks = []
        for degrees in (*hidden, at.repeat(self.numbers)):
            masks.append((seen <= degrees[:, None]).to(torch.get_default_dtype()))
            seen = degrees
        return masks


def _degrees(m: int, d: int, context: int) -> Tensor:
    """Degrees of m units, as even as can be; degree 0 sees nothing but the context."""
    low = 0 if context or d == 1 else 1
    if m < d - low:  # the last degree sees most, the first one leaves the context to all
        return torch.linspace(low if m > 1 else d - 1, d - 1, m).round().long()
    return low + (torch.arange(m) % (d - low)).sort().values


class Unrolled:
    """A masked network for coordinates that become known one by one.

    Args:
        network: The network; its parameters must not change meanwhile.
        n: How many examples there are.
        context: Their context.
        buffers: Whether to write into buffers, through which no gradients flow.
    """

    def __init__(self, network: MaskedNetwork, n: int, context: Tensor | None, *, buffers: bool):
        self.network, self.done = network, [0] * len(network.ends)
        c, d, p, at = network.context, network.d, network.numbers, network.positions
        layers = [layer for layer in network.layers if isinstance(layer, MaskedLinear)]
        weights = [layer.masked() for layer in layers]
        biases = [layer.bias[:, None] for layer in layers]
        first = weights[0]
        weights[0] = first[:, c:].unflatten(1, (d, network.inputs))[:, at].flatten(1)
        if context is not None:
            biases[0] = torch.addmm(biases[0], first[:, :c], context.T)
        self.weights, self.biases = weights[:-1], biases[:-1]
        self.out = weights[-1].unflatten(0, (p, d))[:, at].transpose(0, 1).contiguous()
        self.last = biases[-1].unflatten(0, (p, d))[:, at].transpose(0, 1)
        widths = [weight.shape[1] for weight in weights]
        self.known = [_Rows(m, n, first, buffers=buffers) for m in widths]

    def numbers_at(self, k: int) -> Tensor:
        """The outputs for position k, (numbers, n); positions below must be known."""
        ends = self.network.ends
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True), 1):
            start, end = self.done[i], ends[i][k]
            if end > start:
                seen = ends[i - 1][k]
                group = torch.addmm(
                    bias[start:end], weight[start:end, :seen], self.known[i - 1].first(seen)
                )
                self.known[i].add(self.network.activation(group))
                self.done[i] = end
        seen = ends[-1][k]
        return torch.addmm(self.last[k], self.out[k, :, :seen], self.known[-1].first(seen))

    def learn(self, values: Tensor) -> None:
        """Say what the inputs of the coordinate at the next position are, (inputs, n)."""
        self.known[0].add(values)


class _Rows:
    """Rows that come one after the other, in a buffer or, where gradients flow, as a list."""

    def __init__(self, m: int, n: int, like: Tensor, *, buffers: bool):
        self.buffer = like.new_empty(m, n) if buffers else None
        self.rows, self.count = like.new_empty(0, n), 0

    def add(self, rows: Tensor) -> None:
        if self.buffer is None:
            self.rows = torch.cat((self.rows, rows))
        else:
            self.buffer[self.count : self.count + len(rows)] = rows
            self.count += len(rows)

    def first(self, m: int) -> Tensor:
        return self.rows[:m] if self.buffer is None else self.buffer[:m]
