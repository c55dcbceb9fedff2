r"""Attention of a decoder: a mean of what the encoder has seen, weighted anew for each output.

For a state $h$ of the decoder and the states $e_1, \dots, e_S$ of the encoder,

$$a_s = h \cdot e_s \ \text{(dot)} \quad\text{or}\quad a_s = v \cdot \tanh(W h + U e_s + b)
\ \text{(additive)}, \qquad
c = \sum_s \frac{e^{a_s}}{\sum_r e^{a_r}}\, e_s , \qquad \tilde h = \tanh(C [c; h]) ,$$

and $\tilde h$ is read in place of $h$. Padding gets the weight 0, exactly.

References:
    Bahdanau, Cho and Bengio, Neural machine translation by jointly learning to align and translate,
    ICLR, 2015. Luong, Pham and Manning, Effective approaches to attention-based neural machine
    translation, EMNLP, 2015.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["Attention", "Seen"]


class Seen(NamedTuple):
    """What an encoder leaves to look at."""

    values: Tensor
    """Its states, (n, S, m)."""
    keys: Tensor
    """What states of the decoder are compared with."""
    mask: Tensor | None
    """Where there is no padding, (n, S)."""


class Attention(nn.Module):
    """Dot or additive attention over the states of an encoder."""

    def __init__(self, kind: str, width: int):
        super().__init__()
        self.kind = kind
        if kind == "additive":
            self.query = nn.Linear(width, width)
            self.key = nn.Linear(width, width, bias=False)
            self.score = nn.Linear(width, 1, bias=False)
        self.combine = nn.Linear(2 * width, width, bias=False)

    def remember(self, states: Tensor, mask: Tensor | None) -> Seen:
        """What is computed once for all steps."""
        return Seen(states, self.key(states) if self.kind == "additive" else states, mask)

    def forward(self, h: Tensor, seen: Seen) -> Tensor:
        """States (rows, T, m) of the decoder after a look; rows / n in turn belong to a source."""
        q = h.reshape(len(seen.values), -1, h.shape[-1])
        if self.kind == "additive":
            sums = self.query(q)[:, :, None] + seen.keys[:, None]
            scores = self.score(torch.tanh(sums))[..., 0]
        else:
            scores = q @ seen.keys.mT
        if seen.mask is not None:
            scores = scores.masked_fill(~seen.mask[:, None], -torch.inf)
        context = scores.softmax(-1) @ seen.values
        return torch.tanh(self.combine(torch.cat((context, q), -1))).view_as(h)
