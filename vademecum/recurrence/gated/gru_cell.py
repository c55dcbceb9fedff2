r"""The GRU as the sheets write it: the reset gate acts before the product.

$$\Gamma_u = \sigma(G [x^t; z^{t-1}]), \qquad \Gamma_r = \sigma(H [x^t; z^{t-1}]), \qquad
\tilde z^t = \tanh(V [x^t; \Gamma_r \odot z^{t-1}]),$$
$$z^t = (1 - \Gamma_u) \odot z^{t-1} + \Gamma_u \odot \tilde z^t, \qquad y^t = W z^t,$$

with a constant in each block unless `bias=False`. With `reset="after"` the candidate is
$\tanh(V_x x^t + b + \Gamma_r \odot (V_z z^{t-1} + b'))$ instead. That is `nn.GRU`, whose update
gate is what is *kept*, $1 - \Gamma_u = \sigma(-G [x^t; z^{t-1}])$: the weights change their signs.
The two forms are different functions unless $V_z$ is diagonal, and torch has only the second.

Exact, and made of plain operations: it can be differentiated any number of times, and mapped. The
claims are `recurrence.gru` and `recurrence.gru_convexity`.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import choice, whole
from vademecum.recurrence._one_state import OneState
from vademecum.recurrence._sequences import drawn_weight, started
from vademecum.recurrence.gated._torch_layers import simple_weights, torch_layer
from vademecum.results import one_line

__all__ = ["CourseGRU", "GRUTrace"]


class GRUTrace(NamedTuple):
    r"""What a layer of GRU cells did, over time: $h^t = (1 - z) n + z h^{t-1}$.

    Example:
        >>> from vademecum.recurrence import gates
        >>> gates(nn.GRU(2, 3), torch.zeros(5, 1, 2)).layers[0][0].z.shape
        torch.Size([5, 1, 3])
    """

    r: Float[Tensor, " *steps m"]
    """The reset gates: which share of the state the candidate sees."""
    z: Float[Tensor, " *steps m"]
    """The share of the state that is kept: torch's update gate, one minus that of the sheets."""
    n: Float[Tensor, " *steps m"]
    """The candidates."""
    h: Float[Tensor, " *steps m"]
    """The states after each step."""

    __repr__ = one_line


class CourseGRU(OneState):
    r"""A GRU whose reset gate acts before the product, or after it as in torch.

    Args:
        d: The number of inputs.
        m: The number of units.
        k: The number of outputs; by default there is no $W$, and $y^t = z^t$.
        reset: Whether the reset gate multiplies the state before the product with $V$, or what
            comes out of it.
        bias: Whether each of the three blocks has a constant; with `reset="after"` the candidate
            has a second one, which the gate multiplies.

    Raises:
        ValueError: If a size is below 1.

    References:
        Cho et al., Learning phrase representations using RNN encoder-decoder for statistical
        machine translation, EMNLP 2014.

    Example:
        >>> net = CourseGRU(3, 4, reset="after")
        >>> x = torch.randn(2, 7, 3)
        >>> torch.allclose(net(x).output, net.to_torch()(x)[0], atol=1e-6)
        True
    """

    def __init__(
        self,
        d: int,
        m: int,
        k: int | None = None,
        *,
        reset: Literal["before", "after"] = "before",
        bias: bool = True,
    ):
        super().__init__()
        self.d, self.m = whole("d", d, low=1), whole("m", m, low=1)
        self.k = None if k is None else whole("k", k, low=1)
        self.reset = choice("reset", reset, ("before", "after"))
        self.G, self.H, self.V = (drawn_weight(m, d + m, m=m) for _ in range(3))
        self.W = None if k is None else drawn_weight(k, m, m=m)
        self.bias = drawn_weight(3, m, m=m) if bias else None
        """The constants of G, H and V."""
        self.reset_bias = drawn_weight(m, m=m) if bias and reset == "after" else None
        """The constant that the reset gate multiplies."""

    def _steps(self, x: Tensor, state: Tensor | None) -> Iterator[GRUTrace]:
        z, m = started("state", state, len(x), self.m, self.V), self.m
        blocks = torch.cat((self.G, self.H, self.V))
        of_x, of_gates = blocks[:, : self.d], blocks[: 2 * m, self.d :]
        of_state = self.V[:, self.d :]
        bias = None if self.bias is None else self.bias.flatten()
        for a in F.linear(x, of_x, bias).unbind(1):
            u, r = torch.sigmoid(a[:, : 2 * m] + F.linear(z, of_gates)).chunk(2, 1)
            if self.reset == "before":
                seen = F.linear(r * z, of_state)
            else:
                seen = r * F.linear(z, of_state, self.reset_bias)
            candidate = torch.tanh(a[:, 2 * m :] + seen)
            z = (1 - u) * z + u * candidate
            yield GRUTrace(r, 1 - u, candidate, z)

    def _read(self, z: Tensor) -> Tensor:
        return z if self.W is None else F.linear(z, self.W)

    def to_torch(self) -> nn.GRU:
        """The `nn.GRU` with `batch_first=True` that gives the same, with weights of its own.

        Raises:
            ValueError: If there is none: for an output matrix, or a reset before the product.
        """
        if self.W is not None:
            raise ValueError(
                "the model must have no output matrix W to be an nn.GRU, which has none: make it"
                f" with k=None, got k={self.k}"
            )
        if self.reset != "after":
            raise ValueError(
                "reset must be 'after' for the model to be an nn.GRU, whose reset gate acts after"
                " the product, got 'before'"
            )
        rows = torch.cat((self.H, -self.G, self.V))  # as torch's r, z, n
        weights = {"weight_ih": rows[:, : self.d], "weight_hh": rows[:, self.d :]}
        if self.bias is not None and self.reset_bias is not None:
            u, r, n = self.bias
            weights["bias_ih"] = torch.cat((r, -u, n))
            weights["bias_hh"] = torch.cat((0 * r, 0 * u, self.reset_bias))
        return torch_layer("GRU", [weights], batch_first=True)

    @classmethod
    def from_torch(cls, layer: nn.GRU | nn.GRUCell) -> "CourseGRU":
        """The same network as a layer of torch, without $W$, with weights of its own.

        Args:
            layer: An `nn.GRUCell`, or an `nn.GRU` of one layer in one direction.

        Raises:
            ValueError: If it is another one.

        Example:
            >>> layer = nn.GRU(3, 4, batch_first=True)
            >>> x = torch.randn(2, 7, 3)
            >>> torch.allclose(CourseGRU.from_torch(layer)(x).output, layer(x)[0], atol=1e-6)
            True
        """
        weights = simple_weights(layer, nn.GRU, nn.GRUCell)
        of_x, of_h = weights["weight_ih"], weights["weight_hh"]
        with torch.device("meta"):  # where nothing is drawn
            net = cls(of_x.shape[1], of_h.shape[1], reset="after", bias="bias_ih" in weights)
        net = net.to_empty(device=of_x.device).to(of_x.dtype)
        with torch.no_grad():
            r, z, n = torch.cat((of_x, of_h), 1).chunk(3)
            for mine, theirs in ((net.G, -z), (net.H, r), (net.V, n)):
                mine.copy_(theirs)
            if net.bias is not None and net.reset_bias is not None:
                r, z, n = weights["bias_ih"].chunk(3)
                r_h, z_h, n_h = weights["bias_hh"].chunk(3)
                net.bias.copy_(torch.stack((-z - z_h, r + r_h, n)))
                net.reset_bias.copy_(n_h)
        return net

    def extra_repr(self) -> str:
        """The sizes, as the constructor takes them."""
        sizes = f"{self.d}, {self.m}" + ("" if self.k is None else f", {self.k}")
        return f"{sizes}, reset={self.reset!r}" + (", bias=False" if self.bias is None else "")
