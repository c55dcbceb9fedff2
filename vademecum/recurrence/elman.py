r"""The simple recurrent network, after Elman: one map of state and input, applied at every step.

$$z^t = \phi(U z^{t-1} + V x^t + b), \qquad y^t = \psi(W z^t + c),$$

with $z^0 = 0$ unless another state is given. The parts $V x^t + b$ of all steps are one product, as
are the outputs; only $U z^{t-1}$ waits for the step before.

Exact, and made of plain operations: it can be differentiated any number of times, and mapped. The
claims are `recurrence.elman_rnn`, `recurrence.state_update` and `recurrence.causal_memory`.
"""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from vademecum.arguments import choice, whole
from vademecum.recurrence._one_state import OneState
from vademecum.recurrence._sequences import drawn_weight, started
from vademecum.results import one_line

__all__ = ["ElmanRNN", "RNNTrace"]

Activation = Literal["identity", "relu", "sigmoid", "softmax", "tanh"]


def _softmax(a: Tensor) -> Tensor:
    return a.softmax(-1)


def _identity(a: Tensor) -> Tensor:
    return a


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": _identity,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "softmax": _softmax,
    "tanh": torch.tanh,
}


class RNNTrace(NamedTuple):
    """What a layer of simple units did, over time.

    Example:
        >>> from vademecum.recurrence import gates
        >>> gates(nn.RNN(2, 3), torch.zeros(5, 1, 2)).layers[0][0].h.shape
        torch.Size([5, 1, 3])
    """

    a: Float[Tensor, " *steps m"]
    """The sums that the activation is applied to."""
    h: Float[Tensor, " *steps m"]
    """The states."""

    __repr__ = one_line


class ElmanRNN(OneState):
    r"""A simple recurrent network with an output at each step.

    Args:
        d: The number of inputs.
        m: The number of units.
        k: The number of outputs; by default there is no $W$, and $y^t = \psi(z^t)$.
        activation: The $\phi$ of the state.
        output_activation: The $\psi$ of the output.
        bias: Whether there are the constants $b$ and $c$.

    Raises:
        ValueError: If a size is below 1, or an activation is unknown.

    References:
        Elman, Finding structure in time, Cognitive Science, 1990.

    Example:
        >>> net = ElmanRNN(1, 1, activation="identity", bias=False)
        >>> net.U.data, net.V.data = torch.tensor([[0.5]]), torch.tensor([[1.0]])
        >>> y, state = net(torch.tensor([[[8.0], [0.0], [1.0]]]))
        >>> y.flatten().tolist(), state.tolist()
        ([8.0, 4.0, 3.0], [[3.0]])
        >>> net.step(torch.zeros(1, 1), state).output.item()
        1.5
    """

    def __init__(
        self,
        d: int,
        m: int,
        k: int | None = None,
        *,
        activation: Activation = "tanh",
        output_activation: Activation = "identity",
        bias: bool = True,
    ):
        super().__init__()
        self.d, self.m = whole("d", d, low=1), whole("m", m, low=1)
        self.k = None if k is None else whole("k", k, low=1)
        self.activation = choice("activation", activation, tuple(_ACTIVATIONS))
        self.output_activation = choice("output_activation", output_activation, tuple(_ACTIVATIONS))
        self.U, self.V = drawn_weight(m, m, m=m), drawn_weight(m, d, m=m)
        self.b = drawn_weight(m, m=m) if bias else None
        self.W = None if k is None else drawn_weight(k, m, m=m)
        self.c = drawn_weight(k, m=m) if bias and k is not None else None

    def _steps(self, x: Tensor, state: Tensor | None) -> Iterator[RNNTrace]:
        z = started("state", state, len(x), self.m, self.U)
        phi = _ACTIVATIONS[self.activation]
        for a in F.linear(x, self.V, self.b).unbind(1):
            a = a + F.linear(z, self.U)
            z = phi(a)
            yield RNNTrace(a, z)

    def _read(self, z: Tensor) -> Tensor:
        y = z if self.W is None else F.linear(z, self.W, self.c)
        return _ACTIVATIONS[self.output_activation](y)

    def extra_repr(self) -> str:
        """The sizes and activations, as the constructor takes them."""
        sizes = f"{self.d}, {self.m}" + ("" if self.k is None else f", {self.k}")
        sizes += f", activation={self.activation!r}"
        if self.output_activation != "identity":
            sizes += f", output_activation={self.output_activation!r}"
        return sizes + (", bias=False" if self.b is None else "")
