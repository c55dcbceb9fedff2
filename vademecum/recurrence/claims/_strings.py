"""All strings over a few symbols, and random models of them."""

import itertools
from typing import TypeVar

import torch
from torch import Tensor, nn

__all__ = ["all_strings", "ended_strings", "scattered"]

Model = TypeVar("Model", bound=nn.Module)


def all_strings(k: int, T: int) -> Tensor:
    """All strings of T symbols out of k, a row each, the last symbol changing fastest."""
    return torch.tensor(list(itertools.product(range(k), repeat=T)))


def ended_strings(k: int, T: int, end: int = 0) -> Tensor:
    """All strings of at most T symbols that end with the end symbol, and those without it."""
    y = all_strings(k, T)
    return y[~((y[:, :-1] == end) & (y[:, 1:] != end)).any(1)]


def scattered(model: Model, scale: float = 1.0) -> Model:
    """A model with normal parameters, so that its laws are far from uniform."""
    for p in model.parameters():
        nn.init.normal_(p, std=scale)
    return model
