"""Dropout and normalisations as maps of moments, with the signatures of torch's functions."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vademecum.regularization.signal._maps import (
    Affine,
    LayerMap,
    Noise,
    Normalised,
    Standardised,
    squares,
)
from vademecum.regularization.signal._measured_moments import Measured

__all__ = [
    "alpha_dropout", "batch_norm", "dropout", "group_norm", "instance_norm", "layer_norm",
    "rms_norm",
]  # fmt: skip

Measure = Callable[[Tensor], Measured]
Rule = tuple[LayerMap, list[Tensor]]


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Rule:
    """Multiplicative noise while training, else nothing."""
    return (Noise(p) if training else Affine()), [input]


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Rule | None:
    """Nothing, but while training: dropped entries are not zero there, and theory knows nothing."""
    return None if training else (Affine(), [input])


def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Rule:
    """The last axes to mean 0 and variance 1, then scaled and shifted."""
    d = math.prod(normalized_shape)
    return Normalised(d, eps, _entrywise(weight, bias), centred=True), [input]


def rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Rule:
    """The last axes to second moment 1, then scaled."""
    d, eps = math.prod(normalized_shape), torch.finfo(input.dtype).eps if eps is None else eps
    return Normalised(d, eps, _entrywise(weight, None), centred=False), [input]


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    measure: Measure,
) -> Rule:
    """Each group of an example's channels to mean 0 and variance 1, then scaled and shifted."""
    d, shares = input[0].numel() // num_groups, _shares(input, num_groups, eps, measure)
    return Normalised(d, eps, _entrywise(weight, bias), centred=True, shares=shares), [input]


def instance_norm(
    input: Tensor,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *,
    measure: Measure,
) -> Rule | None:
    """Each channel of an example to mean 0 and variance 1, or by statistics of earlier ones."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, eps=eps)
    d, shares = input[0, 0].numel(), _shares(input, input.shape[1], eps, measure)
    return Normalised(d, eps, _entrywise(weight, bias), centred=True, shares=shares), [input]


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
) -> Rule | None:
    """By its statistics: as they were at first, a factor; later, what they say of the signal.

    None by those of the batch: there theory would have to know more of gradients than their sizes.
    """
    if training or running_mean is None or running_var is None:
        return None
    d = input.numel() // input.shape[1]
    square, spread = running_mean.double().square().mean(), running_var.double().mean()
    share = square / (square + spread)
    shares = torch.stack([share, share, torch.ones_like(share)])
    normalised = Normalised(d, eps, _entrywise(weight, bias), centred=True, shares=shares)
    a = (running_var + eps).rsqrt()
    a = a if weight is None else a * weight
    b = -a * running_mean
    b = b if bias is None else b + bias
    affine = Affine(squares(a), squares(b), squares(a * b)[1])
    fresh = ((running_mean == 0) & (running_var == 1)).all()
    return Standardised(affine, normalised, fresh, share), [input]


def _shares(x: Tensor, groups: int, eps: float, measure: Measure) -> Tensor:
    """What the means of groups have of the second moment, and how uneven their variances are."""
    wide = torch.promote_types(x.dtype, torch.float32)
    grouped = x.detach().reshape(len(x), groups, -1).to(wide)
    variances, means = torch.var_mean(grouped, -1, correction=0)
    variances = variances.double() + eps
    n, q, seen, aligned = measure(means).tensor()[[0, 1, 6, 7]]
    both = torch.where(seen > 1, aligned / seen, 1.0)
    whole = measure(x).tensor()
    share = q / n / (whole[1] / whole[0]).clamp(1e-300)
    return torch.stack([share, share * both, (1 / variances).mean() * variances.mean()])


def _entrywise(weight: Tensor | None, bias: Tensor | None) -> Affine:
    return Affine(*(None if t is None else squares(t) for t in (weight, bias)))
