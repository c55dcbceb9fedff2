"""Networks with given weights, for claims to be checked on."""

import torch
from torch import Tensor, nn

__all__ = ["dense", "rectified"]


def dense(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A dense layer with given weights, and given biases or none."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
        if bias is not None:
            layer.bias.copy_(bias)
    return layer


def rectified(weight: Tensor, bias: Tensor | None = None) -> nn.Sequential:
    """One layer of ReLUs with given weights."""
    return nn.Sequential(dense(weight, bias), nn.ReLU())
