r"""How far tokens are from being all alike: $\|X - \mathbf 1 \bar x^\top\|_F / \|X\|_F$."""

from typing import Any

import torch
from torch import Tensor, nn

from vademecum.models import named_tensors

__all__ = ["rank_one_distance", "tokens_among"]


def tokens_among(given: Any, shape: tuple[int, int, int, int], module: nn.Module) -> Tensor | None:
    """The first tensor (n, T, d) in a structure, also one that lies as (T, n, d)."""
    n, _, T, _ = shape
    last = isinstance(module, nn.MultiheadAttention) and not module.batch_first
    for _, t in named_tensors(given):
        if not t.is_floating_point() or t.is_nested:
            continue
        if t.ndim == 2 and n == 1 and len(t) == T:
            return t[None]
        if t.ndim == 3 and t.shape[:2] == (n, T) and not (last and n == T):
            return t
        if t.ndim == 3 and t.shape[:2] == (T, n):
            return t.transpose(0, 1)
    return None


def rank_one_distance(x: Tensor) -> Tensor:
    """The distance of the tokens (n, T, d) of each example from n copies of their mean."""
    x = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    size = torch.linalg.vector_norm(x, dim=(1, 2))
    apart = torch.linalg.vector_norm(x - x.mean(1, keepdim=True), dim=(1, 2))
    return apart / size.clamp(min=torch.finfo(x.dtype).tiny)
