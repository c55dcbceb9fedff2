"""Numbers of layers and heads as one table."""

import torch
from torch import Tensor

__all__ = ["by_head"]


def by_head(layers: tuple[Tensor, ...]) -> Tensor:
    """Means over examples of tensors (n, heads), as (layers, heads), with NaN where heads lack."""
    widest = max(each.shape[1] for each in layers)
    table = layers[0].new_full((len(layers), widest), torch.nan)
    for row, each in zip(table, layers, strict=True):
        row[: each.shape[1]] = each.mean(0)
    return table
