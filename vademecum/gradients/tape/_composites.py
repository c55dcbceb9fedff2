"""Functions that consist of operations, such as the cross-entropy, which a tape records one by one.

They are written in the syntax of tensors, and refuse the options of torch's functions of the same
name that they do not follow.
"""

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.arguments import choice

__all__ = ["COMPOSITES", "added", "linear", "plain"]


def _mean(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    total = x.sum(dim, keepdim)
    return total * (total.value.numel() / x.value.numel())


def _softmax(x: Any, dim: int, *, _stacklevel: int = 3, **options: Any) -> Any:
    plain("softmax", **options)
    return x.recording.apply("softmax", x, dim=dim)


def _log_softmax(x: Any, dim: int, *, _stacklevel: int = 3, **options: Any) -> Any:
    plain("log_softmax", **options)
    return x - x.logsumexp(dim, keepdim=True)


def _flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    return x.reshape(x.value.flatten(start_dim, end_dim).shape)


def _transpose(x: Any, dim0: int, dim1: int) -> Any:
    dims = list(range(x.ndim))
    dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return x.permute(dims)


def _unflatten(x: Any, dim: int, sizes: Any) -> Any:
    return x.reshape(x.value.unflatten(dim, sizes).shape)


def _split(x: Any, split_size_or_sections: Any, dim: int = 0) -> tuple[Any, ...]:
    return _parts(x, x.value.split(split_size_or_sections, dim), dim)


def _chunk(x: Any, chunks: int, dim: int = 0) -> tuple[Any, ...]:
    return _parts(x, x.value.chunk(chunks, dim), dim)


def _parts(x: Any, parts: Sequence[Tensor], dim: int) -> tuple[Any, ...]:
    """The node as parts, one after the other along an axis, of the sizes of these."""
    before = (slice(None),) * (dim % x.ndim)
    ends = list(accumulate((part.shape[dim] for part in parts), initial=0))
    return tuple(x[*before, slice(*pair)] for pair in pairwise(ends))


def _unbind(x: Any, dim: int = 0) -> tuple[Any, ...]:
    return tuple(x[*(slice(None),) * (dim % x.ndim), i] for i in range(x.shape[dim]))


def _clone(x: Any) -> Any:
    return type(x)(x.recording, x.index, x.value)  # which may be changed in place, and x is not


def _stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    return torch.cat([x.unsqueeze(dim) for x in tensors], dim)


class _Extremes(NamedTuple):
    values: Any
    indices: Tensor


def _max(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Along an axis one of several maxima has all of the slope, the one that torch points at."""
    if dim is None:
        return x.amax()
    if not isinstance(dim, int):
        return _maximum(x, dim)
    indices = x.value.max(dim, keepdim).indices
    places = torch.arange(x.numel(), device=x.device).reshape(x.shape)
    places = places.take_along_dim(indices if keepdim else indices.unsqueeze(dim), dim)
    return _Extremes(x.flatten()[places.reshape(indices.shape)], indices)


def _min(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    least = _max(-x, dim if dim is None or isinstance(dim, int) else -dim, keepdim)
    return least._replace(values=-least.values) if isinstance(least, _Extremes) else -least


def _maximum(x: Any, y: Any) -> Any:
    shape = torch.broadcast_shapes(x.shape, y.shape)
    return torch.stack([x.expand(shape), y.expand(shape)]).amax(0)


def _gelu(input: Any, approximate: str = "none") -> Any:
    if choice("approximate", approximate, ("none", "tanh")) == "none":
        return 0.5 * input * (1 + torch.erf(input * 2**-0.5))
    cubic = (2 / math.pi) ** 0.5 * (input + 0.044715 * input**3)
    return 0.5 * input * (1 + cubic.tanh())


def _t(x: Any) -> Any:
    if x.ndim > 2:
        raise ValueError(f"t on the tape must be of at most 2 axes, got {x.ndim}")
    return _transpose(x, 0, 1) if x.ndim == 2 else x


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """A product with the transpose of the weight, and the bias."""
    return input @ weight.mT if bias is None else input @ weight.mT + bias


def plain(name: str, **options: Any) -> None:
    """Refuse options that the tape does not know, unless they say nothing."""
    for option, value in options.items():
        if hasattr(value, "shape") or value not in (None, False, 0):
            raise ValueError(f"{name} on the tape must do without {option}, got {value!r}")


def _reduced(losses: Any, reduction: str) -> Any:
    means = choice("reduction", reduction, ("mean", "sum")) == "mean"
    return losses.mean() if means else losses.sum()


def _cross_entropy(
    input: Any, target: Tensor, *, ignore_index: int = -100, reduction: str = "mean", **options: Any
) -> Any:
    plain("cross_entropy", **options)
    rows_of_logits = input.ndim == 2 and target.shape == input.shape[:1]
    if not rows_of_logits or target.is_floating_point() or (target == ignore_index).any():
        raise ValueError("cross_entropy on the tape must have rows of logits and a class for each")
    if target.min() < 0 or target.max() >= input.shape[1]:
        raise ValueError(f"target must be from 0 to {input.shape[1] - 1}, got {target.tolist()}")
    rows = torch.arange(len(target), device=target.device)
    return _reduced(input.logsumexp(1) - input[rows, target], reduction)


def _mse_loss(input: Any, target: Any, *, reduction: str = "mean", **options: Any) -> Any:
    plain("mse_loss", **options)
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
    plain("attention", dropout_p=dropout_p, **options)
    if is_causal and attn_mask is not None:
        raise ValueError("attention on the tape must have attn_mask or is_causal, got both")
    scores = (query @ key.mT) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        ahead = torch.full(scores.shape[-2:], -math.inf, dtype=scores.dtype, device=scores.device)
        scores = scores + ahead.triu(1)
    if attn_mask is not None:
        scores = scores + added(attn_mask, scores, hidden=False)
    return torch.softmax(scores, -1) @ value


def added(mask: Any, scores: Any, *, hidden: bool) -> Any:
    """What a mask adds to scores: where it says `hidden`, if it is one of truth values, -inf."""
    if mask.dtype != torch.bool:
        return mask
    zeros = torch.zeros(mask.shape, dtype=scores.dtype, device=scores.device)
    return zeros.masked_fill(mask == hidden, -math.inf)


def _dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    plain("dropout", training=training)
    return input


COMPOSITES = {
    "mean": _mean, "softmax": _softmax, "log_softmax": _log_softmax, "linear": linear,
    "dropout": _dropout, "cross_entropy": _cross_entropy, "mse_loss": _mse_loss,
    "scaled_dot_product_attention": _attention,
    "square": lambda x: x**2, "sqrt": lambda x: x**0.5,
    "rsqrt": lambda x: x**-0.5, "reciprocal": lambda x: 1 / x,
    "gelu": _gelu, "silu": lambda input, inplace=False: input * input.sigmoid(),
    "max": _max, "min": _min, "maximum": _maximum, "minimum": lambda x, y: -_maximum(-x, -y),
    "amin": lambda x, dim=None, keepdim=False: -(-x).amax(dim, keepdim),
    "flatten": _flatten, "unflatten": _unflatten, "transpose": _transpose, "t": _t,
    "split": _split, "chunk": _chunk, "unbind": _unbind, "stack": _stack,
    "contiguous": lambda x: x, "clone": _clone,
    "unsqueeze": lambda x, dim: x.reshape(x.value.unsqueeze(dim).shape),
    "squeeze": lambda x, *dim: x.reshape(x.value.squeeze(*dim).shape),
}  # fmt: skip
"""The composite functions by the names that torch gives them."""
