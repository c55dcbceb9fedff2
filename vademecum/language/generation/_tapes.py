"""What is written while rows grow, in memory that is given once.

All of a step happens in place and nothing waits for the device, so that a step can be captured as a
CUDA graph: the number of the step is a tensor, too.
"""

import torch
from torch import Tensor

from vademecum.language.generation._choices import Choice

__all__ = ["Tape"]


class Tape:
    """The tokens that are taken, row by row, and which rows have come to a stop.

    Args:
        n: How many rows there are.
        room: How many tokens a row gets at most.
        choice: How a token is taken from logits.
        stop: The tokens that end a row.
        device: Where logits are.
    """

    def __init__(
        self, n: int, room: int, choice: Choice, stop: tuple[int, ...], device: torch.device
    ):
        self._choice = choice
        self._stop = torch.tensor(stop, device=device) if stop else None
        self.uniform = torch.zeros(n, room, dtype=torch.float64, device=device)
        self.tokens = torch.zeros(n, room, dtype=torch.long, device=device)
        self.last = torch.zeros(n, dtype=torch.long, device=device)
        self.lengths = torch.zeros(n, dtype=torch.long, device=device)
        self.log_probs = torch.zeros(n, dtype=torch.float64, device=device)
        self.ended = torch.zeros(n, dtype=torch.bool, device=device)
        self.time = torch.zeros(1, dtype=torch.long, device=device)

    @property
    def state(self) -> list[Tensor]:
        """What a step changes."""
        return [self.tokens, self.last, self.lengths, self.log_probs, self.ended, self.time]

    def begin(self, uniform: Tensor | None) -> None:
        """Forget what was written, and take new random numbers (n, T)."""
        for tensor in self.state:
            tensor.zero_()
        if uniform is not None:
            self.uniform[:, : uniform.shape[1]] = uniform

    def take(self, logits: Tensor) -> None:
        """Take the next token of each row that has not ended."""
        u = self.uniform.index_select(1, self.time)[:, 0] if self._choice.draws else None
        new = self._choice.taken(logits, u)
        if self._stop is not None:
            new = torch.where(self.ended, self.last, new)
        logs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(1)
        found = logs.gather(1, new[:, None])[:, 0].double()
        self.tokens.index_copy_(1, self.time, new[:, None])
        self.last.copy_(new)
        self.time.add_(1)
        if self._stop is None:
            self.log_probs.add_(found)
            self.lengths.add_(1)
            return
        self.log_probs.add_(torch.where(self.ended, 0, found))
        self.lengths.add_((~self.ended).long())
        self.ended.logical_or_((new[:, None] == self._stop).any(1))
