"""Functions that consist of operations, such as the cross-entropy, which a tape records one by one.

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


def _softmax(x: Any, dim: int, *, _stacklevel: int = 3, **options: Any) -> Any:
    _plain("softmax", **options)
    return x.recording.apply("softmax", x, dim=dim)


def _log_softmax(x: Any, dim: int, *, _stacklevel: int = 3, **options: Any) -> Any:
    _plain("log_softmax", **options)
    return x - x.logsumexp(dim, keepdim=True)


def _flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    return x.reshape(x.value.flatten(start_dim, end_dim).shape)


def _transpose(x: Any, dim0: int, dim1: int) -> Any:
    dims = list(range(x.ndim))
    dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return x.permute(dims)


def _t(x: Any) -> Any:
    if x.ndim > 2:
        raise ValueError(f"t on the tape must be of at most 2 axes, got {x.ndim}")
    return _transpose(x, 0, 1) if x.ndim == 2 else x


def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    return input @ weight.mT if bias is None else input @ weight.mT + bias


def _plain(name: str, **options: Any) -> None:
    """Refuse options that the tape does not know, unless they say nothing."""
    for option, value in options.items():
        if isinstance(value, Tensor) or value not in (None, False, 0):
            raise ValueError(f"{name} on the tape must do without {option}, got {value!r}")


def _reduced(losses: Any, reduction: str) -> Any:
    means = choice("reduction", reduction, ("mean", "sum")) == "mean"
    return losses.mean() if means else losses.sum()


def _cross_entropy(
    input: Any, target: Tensor, *, ignore_index: int = -100, reduction: str = "mean", **options: Any
) -> Any:
    _plain("cross_entropy", **options)
    rows_of_logits = input.ndim == 2 and target.shape == input.shape[:1]
    if not rows_of_logits or target.is_floating_point() or (target == ignore_index).any():
        raise ValueError("cross_entropy on the tape must have rows of logits and a class for each")
    if target.min() < 0 or target.max() >= input.shape[1]:
        raise ValueError(f"target must be from 0 to {input.shape[1] - 1}, got {target.tolist()}")
    rows = torch.arange(len(target), device=target.device)
    return _reduced(input.logsumexp(1) - input[rows, target], reduction)


def _mse_loss(input: Any, target: Any, *, reduction: str = "mean", **options: Any) -> Any:
    _plain("mse_loss", **options)
    return _reduced((input - target) ** 2, reduction)


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    **options: Any,
) -> Any:
    _plain("attention", dropout_p=dropout_p, **options)
    if is_causal and attn_mask is not None:
        raise ValueError("attention on the tape must have attn_mask or is_causal, got both")
    scores = (query @ key.mT) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        ahead = torch.full(scores.shape[-2:], -math.inf, dtype=scores.dtype, device=scores.device)
        scores = scores + ahead.triu(1)
    return torch.softmax(scores if attn_mask is None else scores + attn_mask, -1) @ value


def _dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    _plain("dropout", training=training)
    return input


COMPOSITES = {
    "mean": _mean, "softmax": _softmax, "log_softmax": _log_softmax, "linear": _linear,
    "dropout": _dropout, "cross_entropy": _cross_entropy, "mse_loss": _mse_loss,
    "scaled_dot_product_attention": _attention,
    "square": lambda x: x**2, "sqrt": lambda x: x**0.5,
    "flatten": _flatten, "transpose": _transpose, "t": _t,
    "unsqueeze": lambda x, dim: x.reshape(x.value.unsqueeze(dim).shape),
    "squeeze": lambda x, *dim: x.reshape(x.value.squeeze(*dim).shape),
}  # fmt: skip
"""The composite functions by the names that torch gives them."""
