r"""The law of the next token, and the token that is taken.

Logits $z$ at temperature $\tau$ give $p \propto e^{z / \tau}$. Of these the $k$ largest may be kept
alone (`top_k`), and then the fewest most probable tokens whose probabilities add up to $p$ or more
(`top_p`); equals of the last that is kept are kept, too. Temperature 0 is the limit: the largest
logit, the first of several, as with `top_k` = 1.

A token is drawn by one number $u$, uniform between 0 and 1: the first at which the distribution
function exceeds it. So what is drawn depends on the row's own logits and its own number alone.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.randomness import categorical

__all__ = ["Choice", "restricted"]


class Choice(NamedTuple):
    """How a token is taken from logits."""

    temperature: float
    top_k: int | None
    top_p: float | None

    def checked(self) -> "Choice":
        """The same, if its numbers are in their ranges."""
        number("temperature", self.temperature, low=0)
        if self.top_k is not None:
            whole("top_k", self.top_k, low=1)
        if self.top_p is not None:
            number("top_p", self.top_p, above=0, high=1)
        return self

    @property
    def draws(self) -> bool:
        """Whether random numbers are needed."""
        return self.temperature > 0 and self.top_k != 1

    def taken(self, logits: Tensor, uniform: Tensor | None) -> Tensor:
        """The next token of each row, from logits (n, V) and a number for each row."""
        if uniform is None or not self.draws:
            return logits.argmax(1)
        return categorical(restricted(logits, self), uniform)


def restricted(logits: Tensor, choice: Choice) -> Tensor:
    """Logits (n, V) at a temperature above 0, minus infinity for what may not be drawn."""
    z = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if choice.temperature != 1:
        z = z - z.amax(1, keepdim=True)  # so that nothing overflows
        z = z / max(choice.temperature, torch.finfo(z.dtype).tiny)  # less would be 0 there
    if choice.top_k is not None and choice.top_k < z.shape[1]:
        last = z.topk(choice.top_k, dim=1).values[:, -1:]
        z = z.masked_fill(z < last, -torch.inf)
    if choice.top_p is not None and choice.top_p < 1:
        ranked = z.sort(dim=1, descending=True).values
        p = ranked.double().softmax(1)
        before = p.cumsum(1) - p  # what more probable ones add up to: 0 for the first
        last = ranked.masked_fill(before >= choice.top_p, torch.inf).amin(1, keepdim=True)
        z = z.masked_fill(z < last, -torch.inf)
    return z
