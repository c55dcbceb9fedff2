"""All states of a few binary units, and the law of two layers of them by its definition."""

import itertools

import torch
from torch import Tensor

__all__ = ["bits", "joint"]


def bits(k: int) -> Tensor:
    """All binary vectors of this length."""
    return torch.tensor(list(itertools.product((0.0, 1.0), repeat=k)))


def joint(W: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The probabilities of all pairs of visible and hidden states, from the definition."""
    v, h = bits(len(a)), bits(len(b))
    weights = torch.exp((v @ a)[:, None] + h @ b + v @ W.T @ h.T)
    return weights / weights.sum()
