"""What a game refuses, by name: networks that do not fit, and losses that are no numbers."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["called", "insist_on_batch", "insist_on_finite", "insist_on_two"]


def called(name: str, network: nn.Module, x: Tensor, context: Tensor | None) -> Tensor:
    """What a network gives, if that is a row for each example.

    Example:
        >>> called("generator", nn.Flatten(0), torch.ones(2, 3), None)
        Traceback (most recent call last):
        ValueError: generator must give a tensor with 2 rows, got (6,)
    """
    if context is not None and len(context) != len(x):
        raise ValueError(f"context must have {len(x)} rows, got shape {tuple(context.shape)}")
    out = network(x) if context is None else network(x, context)
    if not isinstance(out, Tensor) or out.ndim == 0 or len(out) != len(x):
        given = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ValueError(f"{name} must give a tensor with {len(x)} rows, got {given}")
    return out


def insist_on_two(generator: nn.Module, discriminator: nn.Module) -> None:
    """Refuse players that share parameters, and probabilities in the place of logits."""
    theirs = {id(p) for p in discriminator.parameters()}
    for name, p in generator.named_parameters():
        if id(p) in theirs:
            raise ValueError(f"generator and discriminator must not share parameters, got {name!r}")
    last = discriminator
    while isinstance(last, nn.Sequential) and len(last):
        last = last[-1]
    if isinstance(last, nn.Sigmoid):
        raise ValueError("discriminator must give logits, got a Sigmoid as its last layer")


def insist_on_finite(terms: Mapping[Any, Tensor], batch: Tensor) -> None:
    """Say which term is not finite; one wait for the device, and none in what is recorded."""
    if torch.compiler.is_compiling():
        return
    if batch.is_cuda and torch.cuda.is_current_stream_capturing():
        return
    values = torch.stack([term.detach() for term in terms.values()]).tolist()
    for (player, name), value in zip(terms, values, strict=True):
        if not math.isfinite(value):
            place = "" if batch.isfinite().all() else "; the batch is not finite either"
            raise ValueError(f"the {player}'s loss must be finite, got {value} for {name}{place}")


def insist_on_batch(batch: Tensor, like: Tensor | None) -> None:
    """Refuse what is not a batch of examples on the players' device."""
    if not isinstance(batch, Tensor) or not batch.is_floating_point():
        given = batch.dtype if isinstance(batch, Tensor) else type(batch).__name__
        raise ValueError(f"batch must be a tensor of floating-point numbers, got {given}")
    if batch.ndim < 2 or not batch.numel():
        raise ValueError(f"batch must have shape (n, ...), got {tuple(batch.shape)}")
    if like is not None and batch.device != like.device:
        raise ValueError(f"batch must be on {like.device} as the players are, got {batch.device}")
