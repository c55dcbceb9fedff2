"""Games on finitely many outcomes whose expectations are exact: as many cards as the law says.

An outcome is a row with a single one. A batch that holds each outcome as often as its probability
says has the expectation for its mean, so what a `GAN` computes of it is no estimate.
"""

import torch
from torch import Tensor, nn

from vademecum.generative import GAN

__all__ = ["Dealt", "Table", "cards", "drawn_counts", "game"]


def cards(counts: Tensor) -> Tensor:
    """Each outcome as often as it is counted."""
    return torch.eye(len(counts)).repeat_interleave(counts, 0)


def drawn_counts(k: int, n: int) -> Tensor:
    """How often k outcomes come among n, at random, and each at least once."""
    return 1 + torch.bincount(torch.randint(k, (n - k,)), minlength=k)


class Dealt(nn.Module):
    """A generator that deals the same examples whatever the codes are."""

    def __init__(self, rows: Tensor):
        super().__init__()
        self.rows = rows

    def forward(self, z: Tensor) -> Tensor:
        """As many of the rows as there are codes."""
        return self.rows[: len(z)]


class Table(nn.Module):
    """A discriminator with a logit of its own for each outcome."""

    def __init__(self, logits: Tensor):
        super().__init__()
        self.logits = logits

    def forward(self, x: Tensor) -> Tensor:
        """The logits of outcomes."""
        return self.logits[x.argmax(1)]


def game(counts: Tensor, logits: Tensor) -> GAN:
    """The game with generated outcomes as counted and these logits, as it is written."""
    return GAN(Dealt(cards(counts)), Table(logits), latent_dim=1, objective="saturating")
