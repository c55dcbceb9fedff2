r"""Binary units in two layers: their conditional laws, and the weight of a visible state.

For $p(v, h) \propto \exp(a^\top v + b^\top h + h^\top W v)$ on $\{0, 1\}^d \times \{0, 1\}^m$,

$$P(h_j = 1 \mid v) = \sigma(b_j + (W v)_j), \quad P(v_i = 1 \mid h) = \sigma(a_i + (W^\top h)_i),$$
$$\log \sum_h \exp(\dots) = a^\top v + \sum_j \log\big(1 + e^{b_j + (W v)_j}\big).$$

Exact. Checked by the claim `generative.restricted_boltzmann_machine`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

__all__ = ["Units", "bernoulli", "log_one_plus"]


def bernoulli(p: Tensor, generator: torch.Generator) -> Tensor:
    """Zeros and ones with these probabilities of a one, in their dtype."""
    drawn = torch.rand(p.shape, generator=generator, dtype=p.dtype, device=p.device)
    return drawn.lt_(p)  # a third of the time of torch.bernoulli on a CPU


def log_one_plus(u: Tensor) -> Tensor:
    """The log(1 + e^u) to all digits: beyond 20 torch's own default leaves out e^-u, 2e-9."""
    return softplus(u, threshold=40.0)


class Units(NamedTuple):
    """The numbers of a machine with d visible and m hidden units."""

    weights: Float[Tensor, " m d"]
    visible: Float[Tensor, " d"]
    hidden: Float[Tensor, " m"]

    def flipped(self) -> "Units":
        """The same machine with its layers exchanged."""
        return Units(self.weights.T, self.hidden, self.visible)

    def double(self) -> "Units":
        """The same numbers in double precision."""
        return Units(*(part.double() for part in self))

    def input(self, v: Float[Tensor, " n d"]) -> Float[Tensor, " n m"]:
        """What the hidden units receive."""
        return torch.addmm(self.hidden, v, self.weights.T)

    def hidden_given(self, v: Float[Tensor, " n d"]) -> Float[Tensor, " n m"]:
        """The probabilities of the hidden units."""
        return self.input(v).sigmoid_()

    def visible_given(self, h: Float[Tensor, " n m"]) -> Float[Tensor, " n d"]:
        """The probabilities of the visible units."""
        return torch.addmm(self.visible, h, self.weights).sigmoid_()

    def log_weight(self, v: Float[Tensor, " n d"]) -> Float[Tensor, " n"]:
        """The logarithm of a visible state's probability, up to the constant."""
        return v @ self.visible + log_one_plus(self.input(v)).sum(1)

    def sweep(
        self, h: Float[Tensor, " n m"], steps: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Some steps of Gibbs: visible states, probabilities of hidden ones given them, a draw."""
        v, p = h, h
        for _ in range(steps):
            v = bernoulli(self.visible_given(h), generator)
            p = self.hidden_given(v)
            h = bernoulli(p, generator)
        return v, p, h
