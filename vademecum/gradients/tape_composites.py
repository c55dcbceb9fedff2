"""Functions of several operations, such as the cross-entropy, which a tape records one by one.

They are written in the syntax of tensors, and refuse the options of torch's functions of the same
name that they do not follow.
"""

import math
from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import choice

__all__ = ["COMPOSITES"]


def _mean(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    total = x.sum(dim, keepdim)
    return total * (total.value.numel() / x.value.numel())


def _log_softmax(x: Any, dim: int, *, _stacklevel: int = 3, dtype: None = None) -> Any:
    return x - x.logsumexp(dim, keepdim=True)


def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    return input @ weight.mT if bias is None else input @ weight.mT + bias


def _plain(name: str, **options: Any) -> None:
    """Refuse options that the tape does not know, unless they say nothing."""
    for option, value in options.items():
        if value is not None and value is not False and value != 0:
            raise ValueError(f"{name} on the tape must do without {option}, got {value!r}")


def _reduced(losses: Any, reduction: str) -> Any:
    means = choice("reduction", reduction, ("mean", "sum")) == "mean"
    return losses.mean() if means else losses.sum()


def _cross_entropy(
    input: Any, target: Tensor, *, ignore_index: int = -100, reduction: str = "mean", **options: Any
) -> Any:
    _plain("cross_entropy", **options)
    if input.ndim != 2 or target.is_floating_point() or (target == ignore_index).any():
        raise ValueError("cross_entropy on the tape must have rows of logits and a class for each")
    rows = torch.arange(len(target), device=target.device)
    return _reduced(input.logsumexp(1) - input[rows, target], reduction)


def _mse_loss(input: Any, target: Any, *, reduction: str = "mean", **options: Any) -> Any:
    _plain("mse_loss", **options)
    return _reduced((input - target) ** 2, reduction)


def _attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    **options: Any,
) -> Any:
    _plain("attention", **options)
    scores = (query @ key.mT) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        ahead = torch.full(scores.shape[-2:], -math.inf, dtype=scores.dtype, device=scores.device)
        scores = scores + ahead.triu(1)
    return torch.softmax(scores if attn_mask is None else scores + attn_mask, -1) @ value


def _dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    _plain("dropout", training=training)
    return input


COMPOSITES = {
    "mean": _mean, "log_softmax": _log_softmax, "linear": _linear, "dropout": _dropout,
    "cross_entropy": _cross_entropy, "mse_loss": _mse_loss,
    "scaled_dot_product_attention": _attention,
    "square": lambda x: x**2, "sqrt": lambda x: x**0.5,
}  # fmt: skip
"""The composite functions by the names that torch gives them."""
