"""Encoders and decoders of any kind, called with examples or codes, and a context where given."""

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["called", "insist_on_examples", "repeated"]

_HALF = (torch.float16, torch.bfloat16)


def called(net: nn.Module, x: Tensor, context: Tensor | None) -> Any:
    """What a module returns; codes, which are never of half precision, in its own if it is."""
    if x.dtype == torch.float32:
        own = next((p.dtype for p in net.parameters() if p.is_floating_point()), x.dtype)
        x = x.to(own) if own in _HALF else x
    return net(x) if context is None else net(x, context)


def repeated(x: Any, k: int) -> Any:
    """The rows k times over.

    Example:
        >>> repeated(torch.tensor([1, 2]), 2)
        tensor([1, 2, 1, 2])
    """
    return x if x is None or k == 1 else x.expand(k, *x.shape).flatten(0, 1)


def insist_on_examples(likelihood: str, x: Any, context: Any) -> None:
    """Refuse what are no examples for a likelihood, or a context that is not one for each."""
    if not isinstance(x, Tensor) or x.ndim < 1 or not x.numel():
        given = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x must be a tensor of one or more examples, got {given}")
    labels = likelihood == "categorical"
    if x.is_floating_point() == labels or x.is_complex() or x.dtype == torch.bool:
        kind = "integers" if labels else "floating point"
        raise ValueError(f"x must be {kind} for a {likelihood} likelihood, got {x.dtype}")
    if context is not None and len(context) != len(x):
        raise ValueError(
            f"context must have {len(x)} rows, one for each example, got {len(context)}"
        )
