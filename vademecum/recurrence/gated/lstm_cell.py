r"""The LSTM as the sheets write it: blocks on $\tilde x^t = [x^t; h^{t-1}]$, and a matrix $U$.

$$f = \sigma(F \tilde x^t), \quad i = \sigma(G \tilde x^t), \quad \tilde C = \tanh(V \tilde x^t),
\quad o = \sigma(H \tilde x^t),$$
$$C^t = f \odot C^{t-1} + i \odot \tilde C, \qquad h^t = o \odot \tanh(U C^t), \qquad y^t = W h^t,$$

with a constant in each block unless `bias=False`. For $U = I$ that is the standard cell, `nn.LSTM`;
no weights of `nn.LSTM` do what another $U$ does, since torch's cell exposes its own entries alone.

Exact, and made of plain operations: it can be differentiated any number of times, and mapped. The
claims are `recurrence.lstm` and `recurrence.constant_error_carousel`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.arguments import whole
from vademecum.recurrence._sequences import (
    drawn_weight,
    insist_on_sequence,
    insist_on_step,
    started,
)
from vademecum.recurrence.gated._torch_layers import simple_weights, torch_layer
from vademecum.recurrence.recurrent_outputs import RecurrentOutput
from vademecum.results import one_line

__all__ = ["CourseLSTM", "LSTMState", "LSTMTrace"]


class LSTMState(NamedTuple):
    """What an LSTM hands from step to step.

    Example:
        >>> CourseLSTM(2, 3)(torch.zeros(1, 5, 2)).state.c.shape
        torch.Size([1, 3])
    """

    h: Float[Tensor, " n m"]
    """What it exposes."""
    c: Float[Tensor, " n m"]
    """Its cells."""

    __repr__ = one_line


class LSTMTrace(NamedTuple):
    r"""What a layer of LSTM cells did, over time: $c^t = f c^{t-1} + i g$, $h^t = o \tanh c^t$.

    Example:
        >>> from vademecum.recurrence import gates
        >>> gates(nn.LSTM(2, 3), torch.zeros(5, 1, 2)).layers[0][0].f.shape
        torch.Size([5, 1, 3])
    """

    i: Float[Tensor, " *steps m"]
    """The input gates: which share of the candidate is written."""
    f: Float[Tensor, " *steps m"]
    """The forget gates: which share of the cell is kept."""
    o: Float[Tensor, " *steps m"]
    """The output gates: which share of the cell is shown."""
    g: Float[Tensor, " *steps m"]
    """The candidates."""
    c: Float[Tensor, " *steps m"]
    """The cells after each step."""
    h: Float[Tensor, " *steps p"]
    """The exposed states after each step, projected where the layer projects."""

    __repr__ = one_line


class CourseLSTM(nn.Module):
    r"""An LSTM with a matrix between cell and exposed state, and one for the output.

    Args:
        d: The number of inputs.
        m: The number of cells.
        k: The number of outputs; by default there is no $W$, and $y^t = h^t$.
        mixing: Whether there is a matrix $U$; without it the cell is the standard one.
        bias: Whether each of the four blocks has a constant.

    Raises:
        ValueError: If a size is below 1.

    References:
        Hochreiter and Schmidhuber, Long short-term memory, Neural Computation, 1997. Gers,
        Schmidhuber and Cummins, Learning to forget, Neural Computation, 2000.

    Example:
        >>> net = CourseLSTM(3, 4, mixing=False)
        >>> x = torch.randn(2, 7, 3)
        >>> y, (h, c) = net(x)
        >>> peer, _ = net.to_torch()(x)
        >>> torch.allclose(y, peer, atol=1e-6)
        True
    """

    def __init__(
        self, d: int, m: int, k: int | None = None, *, mixing: bool = True, bias: bool = True
    ):
        super().__init__()
        self.d, self.m = whole("d", d, low=1), whole("m", m, low=1)
        self.k = None if k is None else whole("k", k, low=1)
        self.F, self.G, self.V, self.H = (drawn_weight(m, d + m, m=m) for _ in range(4))
        self.U = drawn_weight(m, m, m=m) if mixing else None
        self.W = None if k is None else drawn_weight(k, m, m=m)
        self.bias = drawn_weight(4, m, m=m) if bias else None
        """The constants of F, G, V and H."""

    def forward(
        self,
        x: Float[Tensor, " n T d"],
        state: tuple[Float[Tensor, " n m"], Float[Tensor, " n m"]] | None = None,
    ) -> RecurrentOutput:
        """The outputs at all steps, and the last state.

        Args:
            x: The sequences.
            state: The exposed states and the cells before the first step; zeros by default.
        """
        insist_on_sequence(x, self.d, self.F)
        steps = list(self._steps(x, state))
        h = torch.stack([trace.h for trace in steps], 1)
        return RecurrentOutput(self._read(h), LSTMState(steps[-1].h, steps[-1].c))

    def step(
        self,
        x: Float[Tensor, " n d"],
        state: tuple[Float[Tensor, " n m"], Float[Tensor, " n m"]] | None = None,
    ) -> RecurrentOutput:
        """The outputs of one step, and the state after it.

        Args:
            x: The inputs of this step, one for each sequence.
            state: The exposed states and the cells after the step before; zeros by default.
        """
        insist_on_step(x, self.d, self.F)
        (trace,) = self._steps(x[:, None], state)
        return RecurrentOutput(self._read(trace.h), LSTMState(trace.h, trace.c))

    def _steps(self, x: Tensor, state: Any) -> Iterator[LSTMTrace]:
        if state is not None and (not isinstance(state, tuple | list) or len(state) != 2):
            raise ValueError(f"state must be the pair (h, c), got {type(state).__name__}")
        h, c = (None, None) if state is None else state
        h = started("h of state", h, len(x), self.m, self.F)
        c = started("c of state", c, len(x), self.m, self.F)
        blocks = torch.cat((self.F, self.G, self.H, self.V))
        of_x, of_h = blocks[:, : self.d], blocks[:, self.d :]
        bias = None if self.bias is None else self.bias[[0, 1, 3, 2]].flatten()
        for a in F.linear(x, of_x, bias).unbind(1):
            a = a + F.linear(h, of_h)
            f, i, o = torch.sigmoid(a[:, : 3 * self.m]).chunk(3, 1)
            g = torch.tanh(a[:, 3 * self.m :])
            c = f * c + i * g
            h = o * torch.tanh(c if self.U is None else F.linear(c, self.U))
            yield LSTMTrace(i, f, o, g, c, h)

    def _read(self, h: Tensor) -> Tensor:
        return h if self.W is None else F.linear(h, self.W)

    def to_torch(self) -> nn.LSTM:
        """The `nn.LSTM` with `batch_first=True` that gives the same, with weights of its own.

        Raises:
            ValueError: If there is none: for an output matrix, or a $U$ that is not the identity.
        """
        if self.W is not None:
            raise ValueError(
                "the model must have no output matrix W to be an nn.LSTM, which has none: make it"
                f" with k=None, got k={self.k}"
            )
        if self.U is not None and not torch.equal(self.U, torch.eye(self.m).to(self.U)):
            raise ValueError(
                "U must be the identity for the model to be an nn.LSTM, which shows"
                " h = o * tanh(c); make it with mixing=False"
            )
        rows = torch.cat((self.G, self.F, self.V, self.H))  # as torch's i, f, g, o
        weights = {"weight_ih": rows[:, : self.d], "weight_hh": rows[:, self.d :]}
        if self.bias is not None:
            weights["bias_ih"] = self.bias[[1, 0, 2, 3]].flatten()
            weights["bias_hh"] = torch.zeros_like(weights["bias_ih"])
        return torch_layer("LSTM", [weights], batch_first=True)

    @classmethod
    def from_torch(cls, layer: nn.LSTM | nn.LSTMCell) -> "CourseLSTM":
        """The same network as a layer of torch, without $U$ and $W$, with weights of its own.

        Args:
            layer: An `nn.LSTMCell`, or an `nn.LSTM` of one layer in one direction that does not
                project.

        Raises:
            ValueError: If it is another one.

        Example:
            >>> layer = nn.LSTM(3, 4, batch_first=True)
            >>> x = torch.randn(2, 7, 3)
            >>> torch.allclose(CourseLSTM.from_torch(layer)(x).output, layer(x)[0], atol=1e-6)
            True
        """
        weights = simple_weights(layer, nn.LSTM, nn.LSTMCell)
        of_x, of_h = weights["weight_ih"], weights["weight_hh"]
        with torch.device("meta"):  # where nothing is drawn
            net = cls(of_x.shape[1], of_h.shape[1], mixing=False, bias="bias_ih" in weights)
        net = net.to_empty(device=of_x.device).to(of_x.dtype)
        with torch.no_grad():
            rows = torch.cat((of_x, of_h), 1).chunk(4)
            for mine, theirs in zip((net.G, net.F, net.V, net.H), rows, strict=True):
                mine.copy_(theirs)
            if net.bias is not None:
                both = weights["bias_ih"] + weights["bias_hh"]
                net.bias.copy_(both.view(4, -1)[[1, 0, 2, 3]])
        return net

    def extra_repr(self) -> str:
        """The sizes, as the constructor takes them."""
        sizes = f"{self.d}, {self.m}" + ("" if self.k is None else f", {self.k}")
        sizes += ", mixing=False" if self.U is None else ""
        return sizes + (", bias=False" if self.bias is None else "")
