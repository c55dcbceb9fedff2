"""Outputs of a network as logarithms of probabilities, by the link that its loss assumes."""

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.arguments import choice

__all__ = ["LINKS", "link_for", "log_probabilities"]

LINKS = ("softmax", "sigmoid", "identity")
"""What outputs may be taken for: scores of classes, logits, or values."""


def link_for(link: str | None, z: Tensor) -> str:
    """The link that was asked for; else softmax over a last axis of two or more, or the identity.

    Example:
        >>> link_for(None, torch.zeros(5, 3)), link_for(None, torch.zeros(5, 1))
        ('softmax', 'identity')
    """
    several = z.ndim > 1 and z.shape[-1] > 1
    if link is None:
        return "softmax" if several else "identity"
    if choice("link", link, LINKS) == "softmax" and not several:
        shape = tuple(z.shape)
        raise ValueError(f"link must not be 'softmax' for outputs of one number, got shape {shape}")
    return link


def log_probabilities(link: str, z: Tensor) -> Tensor:
    """The logarithms along the last axis, which a sigmoid gets anew: of the answers no and yes.

    Example:
        >>> log_probabilities("sigmoid", torch.tensor([0.0])).exp()
        tensor([[0.5000, 0.5000]])
    """
    if link == "softmax":
        return z.log_softmax(-1)
    return torch.stack([F.logsigmoid(-z), F.logsigmoid(z)], -1)
