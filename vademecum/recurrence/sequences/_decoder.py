r"""The network that all models of sequences here share: outputs that are fed back.

Its input at step $t$ is $[x^t;\, E y^{t-1}]$, or one of the two, and what it knows of a source it
has in its first state, and by attention:

$$z^t = F(z^{t-1}, x^t, y^{t-1}), \qquad \mu^t = C z^t + c, \qquad
p(y^t = j \mid \dots) = \operatorname{softmax}(\mu^t)_j .$$

The symbol before the first output has a row of $E$ of its own, and no logit: it never comes out.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import choice, whole
from vademecum.recurrence.sequences._attention import Attention, Seen

__all__ = ["Cell", "Decoder", "Look", "Start", "recurrent"]

Cell = Literal["tanh", "gru", "lstm"]
Look = Literal["none", "dot", "additive"]
Hidden = tuple[Tensor, ...]
"""The state, or state and cell, each (n, layers, m)."""


class Start(NamedTuple):
    """What a decoder begins with."""

    hidden: Hidden
    """Its state before the first step."""
    inputs: Tensor | None = None
    """What enters at each step, (n, T, d)."""
    seen: Seen | None = None
    """What attention looks at."""
    inside: Tensor | None = None
    """Which steps of the inputs are not padding, (n, T)."""


class Decoded(NamedTuple):
    """What a decoder gives for some steps."""

    logits: Tensor
    states: Tensor
    hidden: Hidden


def recurrent(cell: str, inputs: int, width: int, layers: int) -> nn.RNNBase:
    """A recurrent network of torch's."""
    choice("cell", cell, ("tanh", "gru", "lstm"))
    width, layers = whole("width", width, low=1), whole("layers", layers, low=1)
    kind = {"tanh": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[cell]
    return kind(inputs, width, layers, batch_first=True)


class Decoder(nn.Module):
    """From the symbols fed back, and inputs, to the logits of the next ones."""

    def __init__(
        self,
        k: int,
        *,
        inputs: int = 0,
        dimension: int,
        width: int,
        layers: int,
        cell: str,
        attention: str = "none",
    ):
        super().__init__()
        choice("attention", attention, ("none", "dot", "additive"))
        self.embedding = nn.Embedding(k + 1, dimension) if dimension else None
        self.rnn = recurrent(cell, inputs + dimension, width, layers)
        self.attention = Attention(attention, width) if attention != "none" else None
        self.logits = nn.Linear(width, k)

    def zeros(self, n: int) -> Hidden:
        """The state of n sequences at the beginning, if nothing else is known."""
        rnn = self.rnn
        one = self.logits.weight.new_zeros(n, rnn.num_layers, rnn.hidden_size)
        return (one, one) if isinstance(rnn, nn.LSTM) else (one,)

    def forward(
        self, fed: Tensor, hidden: Hidden, inputs: Tensor | None, seen: Seen | None
    ) -> Decoded:
        """Some steps, given the symbols (rows, T) that are fed back."""
        parts = [] if inputs is None else [inputs]
        if self.embedding is not None:
            parts.append(self.embedding(fed))
        first = [x.transpose(0, 1).contiguous() for x in hidden]
        entering = parts[0] if len(parts) == 1 else torch.cat(parts, 2)
        states, last = self.rnn(entering, tuple(first) if len(first) > 1 else first[0])
        last = last if isinstance(last, tuple) else (last,)
        read = states
        if self.attention is not None and seen is not None:
            read = self.attention(states, seen)
        return Decoded(self.logits(read), states, tuple(x.transpose(0, 1) for x in last))
