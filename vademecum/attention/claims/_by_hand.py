"""Attention by hand: query by query, with exponentials of Python's decimal numbers."""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import TypeVar

import torch
from torch import Tensor, nn

from vademecum.attention import MultiHeadAttention

__all__ = ["attend", "head_maps", "many_heads", "moved", "softmax", "with_normal_weights"]

Net = TypeVar("Net", bound=nn.Module)


def softmax(scores: list[float]) -> list[float]:
    """Exponentials over their sum, with 28 digits."""
    powers = [Decimal(score).exp() for score in scores]
    total = sum(powers)
    return [float(power / total) for power in powers]


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Outputs and weights, one query after the other."""
    weights = []
    for query in q.tolist():
        products = [math.fsum(map(float.__mul__, query, key)) for key in k.tolist()]
        weights.append(softmax([scale * product for product in products]))
    columns = v.T.tolist()
    output = [[math.fsum(map(float.__mul__, row, col)) for col in columns] for row in weights]
    return torch.tensor(output), torch.tensor(weights)


def head_maps(layer: MultiHeadAttention) -> list[list[Tensor]]:
    """The matrices of queries, keys and values, a list of heads each, as right factors."""
    assert layer.in_proj_weight is not None
    maps = layer.in_proj_weight.detach().split(layer.rows)
    return [list(weight.T.chunk(layer.heads, 1)) for weight in maps]


def many_heads(layer: MultiHeadAttention, x: Tensor, y: Tensor, z: Tensor) -> list[Tensor]:
    """What each head of a layer gives, for queries from x, keys from y and values from z."""
    return [
        attend(x @ a, y @ b, z @ c, layer.d_k**-0.5)[0]
        for a, b, c in zip(*head_maps(layer), strict=True)
    ]


def with_normal_weights(net: Net, scale: float = 0.5) -> Net:
    """The module with all parameters drawn anew, in evaluation mode, without gradients."""
    for p in net.parameters():
        nn.init.normal_(p, 0, scale)
    return net.eval().requires_grad_(False)


def moved(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Which outputs t change at all when the token s of (1, T, d) does: a matrix over s and t."""
    before, rows = f(x), []
    for s in range(x.shape[1]):
        other = x.clone()
        other[0, s] += torch.randn(x.shape[2])
        rows.append((f(other) != before).any(-1)[0])
    return torch.stack(rows)
