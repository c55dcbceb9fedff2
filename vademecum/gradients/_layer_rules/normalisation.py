r"""Rules for normalising layers with scale and shift, $z = \gamma \odot \hat a + \beta$.

The gradients are $\sum_t b_t \odot \hat a_t$ and $\sum_t b_t$, where $\hat a$ comes from fixed
statistics (batch normalisation in evaluation) or from the example's own. Exact up to rounding.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.gradients._layer_rules.products import Out, put_total

__all__ = ["batch_norm", "group_norm", "layer_norm", "rms_norm"]


def batch_norm(layer: Any, a: Tensor, b: Tensor, out: Out, *, add: bool) -> None:
    """The gradients with fixed statistics."""

    def hat() -> Tensor:
        scale = torch.rsqrt(layer.running_var + layer.eps)
        of_channel = [-1, *[1] * (a.ndim - 2)]
        return (a - layer.running_mean.view(of_channel)) * scale.view(of_channel)

    _scale_and_shift(hat, b, out, list(range(3, b.ndim)), add=add)


def group_norm(layer: Any, a: Tensor, b: Tensor, out: Out, *, add: bool) -> None:
    """The gradients with statistics of groups of channels."""

    def hat() -> Tensor:
        return F.group_norm(a, layer.num_groups, eps=layer.eps)

    _scale_and_shift(hat, b, out, list(range(3, b.ndim)), add=add)


def layer_norm(layer: Any, a: Tensor, b: Tensor, out: Out, *, add: bool) -> None:
    """The gradients with statistics over the last axes."""

    def hat() -> Tensor:
        return F.layer_norm(a, layer.normalized_shape, eps=layer.eps)

    over = list(range(2, b.ndim - len(layer.normalized_shape)))
    _scale_and_shift(hat, b, out, over, add=add)


def rms_norm(layer: Any, a: Tensor, b: Tensor, out: Out, *, add: bool) -> None:
    """The gradients with root mean squares over the last axes."""

    def hat() -> Tensor:
        return F.rms_norm(a, layer.normalized_shape, eps=layer.eps)

    over = list(range(2, b.ndim - len(layer.normalized_shape)))
    _scale_and_shift(hat, b, out, over, add=add)


def _scale_and_shift(
    hat: Callable[[], Tensor], b: Tensor, out: Out, over: list[int], *, add: bool
) -> None:
    if "weight" in out:
        put_total(out["weight"], hat() * b, over, add=add)
    if "bias" in out:
        put_total(out["bias"], b, over, add=add)
