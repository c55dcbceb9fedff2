"""Calls that are affine in the tensors that depend on the input, as steps of a network.

A call only moves, sums or averages entries; or it adds up, with signs; or it multiplies by
constants. Each rule takes a call, the one of its outputs that is asked for, and the arguments as
torch's function takes them; it gives None for a form that is not affine. A step holds the model's
own parameters, so it is exact.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vademecum.approximation.piecewise._maps import Affine
from vademecum.models import Call, Rows, Size, Value

__all__ = ["AFFINE", "Rule", "constant", "same"]

Rule = Callable[..., Sequence[Any] | None]
SHAPES = (
    "flatten", "view", "reshape", "squeeze", "unsqueeze", "unflatten", "contiguous", "clone",
    "detach", "ravel", "view_as", "reshape_as", "positive", "data", "alias", "to", "type",
    "type_as", "float", "double", "half", "bfloat16", "cpu", "cuda", "requires_grad", "as_tensor",
)  # fmt: skip
MOVES = (
    "permute", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis", "t", "T", "mT",
    "adjoint", "getitem", "narrow", "select", "index_select", "gather", "take_along_dim", "take",
    "masked_select", "repeat", "repeat_interleave", "tile", "expand", "expand_as", "broadcast_to",
    "flip", "fliplr", "flipud", "roll", "rot90", "tril", "triu", "diagonal", "diag_embed",
    "split", "split_with_sizes", "chunk", "tensor_split", "hsplit", "vsplit", "dsplit", "unbind",
    "broadcast_tensors", "unfold", "fold", "mean", "sum", "cumsum", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "pixel_shuffle", "pixel_unshuffle", "channel_shuffle",
)  # fmt: skip
JOINS = ("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack")
PRODUCTS = ("matmul", "rmatmul", "mm", "bmm", "einsum", "tensordot", "mv", "inner", "outer", "kron")
DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout",
            "feature_dropout", "feature_alpha_dropout")  # fmt: skip


def same(*h: Tensor) -> Tensor:
    """The identity."""
    return h[0]


def constant(a: Any) -> Any:
    """A constant argument, one row of it where all are equal; None for what is none."""
    if isinstance(a, Size):
        raise ValueError("must be a function of one example at a time, not of their number")
    return a.row if isinstance(a, Rows) else None if isinstance(a, Value) else a


def _reshaped(call: Call, out: Value, *args: Any, **options: Any) -> list[Affine] | None:
    """What keeps the entries and their order."""
    if not out.tensor.is_floating_point():
        return None
    whole, shape = call.bind(), call.tensors[0].tensor.shape[1:]
    back = len(call.tensors) == 1 and out.tensor.dtype == call.tensors[0].tensor.dtype
    pull = (lambda rows: [rows.reshape(*rows.shape[:2], *shape)]) if back else None
    return [Affine(whole, None, whole, pull)]


def _moved(call: Call, out: Value, *args: Any, **options: Any) -> list[Affine]:
    """What moves, sums or averages entries: no coefficient is negative."""
    whole = call.bind()
    if call.several:
        at = call.outputs.index(out)
        return [Affine(lambda *h: whole(*h)[at], None, lambda *r: whole(*r)[at])]
    return [Affine(whole, None, whole)]


def _stacked(call: Call, out: Value, tensors: Any, *args: Any, **options: Any) -> list[Affine]:
    """Tensors side by side, some of them perhaps constant."""
    join = _moved if all(isinstance(t, Value) for t in tensors) else _joined
    return join(call, out)


def _joined(call: Call, out: Value, *args: Any, **options: Any) -> list[Affine]:
    """Entries of tensors and of constants side by side, each of them alone."""
    whole = call.bind()
    offset = whole(*(torch.zeros_like(v.tensor[:1]) for v in call.tensors))

    def linear(*h: Tensor) -> Tensor:
        return whole(*h) - offset

    return [Affine(linear, offset, linear)]


def _affine(call: Call, out: Value, *args: Any, **options: Any) -> list[Affine] | None:
    """What is affine in one tensor, with coefficients of any sign."""
    if call.places != 1:
        return None
    (step,) = _joined(call, out)
    return [Affine(step.linear, step.offset)]


def _between(call: Call, out: Value, input: Any, end: Any, weight: Any) -> list[Affine] | None:
    """A point on the way from one tensor to another."""
    if call.places == 1 and not isinstance(weight, Value):
        return _affine(call, out)
    if isinstance(weight, Value | Rows | Tensor):
        return None
    return _combined(call, out, [(1 - weight, input), (weight, end)])


def _negated(call: Call, out: Value, input: Any) -> list[Affine]:
    return _combined(call, out, [(-1, input)])


def _added(call: Call, out: Value, input: Any, other: Any, *, alpha: Any = 1) -> Any:
    return _combined(call, out, [(1, input), (alpha, other)])


def _subtracted(call: Call, out: Value, input: Any, other: Any, *, alpha: Any = 1) -> Any:
    return _combined(call, out, [(1, input), (-alpha, other)])


def _subtracted_from(call: Call, out: Value, input: Any, other: Any, *, alpha: Any = 1) -> Any:
    return _combined(call, out, [(-alpha, input), (1, other)])


def _combined(call: Call, out: Value, terms: list[tuple[Any, Any]]) -> list[Affine]:
    """Multiples of tensors, added up."""
    shape, factors, offset = tuple(out.tensor.shape[1:]), [0] * len(call.tensors), None
    for factor, term in terms:
        if isinstance(term, Value):
            factors[call.tensors.index(term)] += factor
        else:
            offset = out.tensor.new_tensor(1.0) * factor * constant(term)
    alike = all(tuple(v.tensor.shape[1:]) == shape for v in call.tensors)

    def total(h: Sequence[Tensor], factors: list[Any]) -> Tensor:
        result = h[0] * factors[0] if factors[0] != 1 else h[0] if h[1:] else h[0].clone()
        for each, factor in zip(h[1:], factors[1:], strict=True):
            result = torch.add(result, each, alpha=factor)
        return result if alike else result.expand(len(result), *shape).clone()

    return [
        Affine(
            lambda *h: total(h, factors),
            offset,
            lambda *r: total(r, [abs(f) for f in factors]),
            (lambda rows: [rows if f == 1 else rows * f for f in factors]) if alike else None,
        )
    ]


def _scaled(call: Call, out: Value, input: Any, other: Any) -> list[Affine] | None:
    """A product with a constant."""
    if call.places != 1:
        return None
    c = constant(other) if isinstance(input, Value) else constant(input)
    alike = out.tensor.shape == call.tensors[0].tensor.shape
    return [
        Affine(
            lambda h: h * c,
            None,
            lambda r: r * abs(c),
            (lambda rows: [rows * c]) if alike else None,
        )
    ]


def _divided(
    call: Call, out: Value, input: Any, other: Any, *, rounding_mode: str | None = None
) -> list[Affine] | None:
    if call.places != 1 or not isinstance(input, Value) or rounding_mode is not None:
        return None
    c = constant(other)
    return [Affine(lambda h: h / c, None, lambda r: r / abs(c))]


def _product(call: Call, out: Value, *args: Any, **options: Any) -> list[Affine] | None:
    """Sums of products with constants."""
    if call.places != 1:
        return None
    absolute = call.bind(lambda c: c.abs() if isinstance(c, Tensor) else c)
    return [Affine(call.bind(), None, absolute)]


def _dense(
    call: Call, out: Value, input: Any, weight: Any, bias: Any = None
) -> list[Affine] | None:
    if call.places != 1 or not isinstance(input, Value):
        return None
    return [
        Affine(
            lambda h: F.linear(h, weight),
            bias,
            lambda r: F.linear(r, weight.abs()),
            lambda rows: [rows @ weight],
            lambda h: F.linear(h, weight, bias),
        )
    ]


def _addmm(
    call: Call, out: Value, input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1
) -> list[Affine] | None:
    if call.places != 1 or not isinstance(mat1, Value):
        return None
    weight = alpha * constant(mat2)
    return [Affine(lambda h: h @ weight, beta * constant(input), lambda r: r @ weight.abs())]


def _convolution(
    call: Call, out: Value, input: Any, weight: Any, bias: Any = None, *args: Any, **options: Any
) -> list[Affine] | None:
    if call.places != 1 or not isinstance(input, Value):
        return None
    convolve = call.function
    return [
        Affine(
            lambda h: convolve(h, weight, None, *args, **options),
            None if bias is None else bias.view(-1, *[1] * (out.tensor.ndim - 2)),
            lambda r: convolve(r, weight.abs(), None, *args, **options),
            whole=lambda h: convolve(h, weight, bias, *args, **options),
        )
    ]


def _normalised(
    call: Call, out: Value, input: Any, running_mean: Any, running_var: Any, weight: Any = None,
    bias: Any = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> list[Affine] | None:  # fmt: skip
    if training or running_mean is None:
        raise ValueError("normalises by the statistics of its batch")
    if call.places != 1:
        return None
    scale = (running_var + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    shift = -running_mean * scale
    shape = (-1, *[1] * (out.tensor.ndim - 2))
    scale, shift = scale.view(shape), (shift if bias is None else shift + bias).view(shape)
    return [
        Affine(lambda h: h * scale, shift, lambda r: r * scale.abs(), lambda rows: [rows * scale])
    ]


def _padded(
    call: Call, out: Value, input: Any, pad: Any, mode: str = "constant", value: Any = None
) -> list[Affine]:
    def linear(h: Tensor) -> Tensor:
        return F.pad(h, pad, mode)

    return [Affine(linear, None, linear)] if not value else _joined(call, out)


def _resized(
    call: Call, out: Value, input: Any, size: Any = None, scale_factor: Any = None,
    mode: str = "nearest", *args: Any, **options: Any,
) -> list[Affine] | None:  # fmt: skip
    whole = call.bind()
    return [Affine(whole, None, None if mode == "bicubic" else whole)]


def _dropped(
    call: Call, out: Value, input: Any, p: float = 0.5, training: bool = True,
    inplace: bool = False, *, train: bool | None = None,
) -> list[Affine] | None:  # fmt: skip
    active = training if train is None else train
    return None if active else [Affine(same, None, same, lambda rows: [rows])]


AFFINE: dict[str, Rule] = {
    **dict.fromkeys(SHAPES, _reshaped),
    **dict.fromkeys(MOVES, _moved),
    **dict.fromkeys(JOINS, _stacked),
    **dict.fromkeys(PRODUCTS, _product),
    **dict.fromkeys(DROPOUTS, _dropped),
    **dict.fromkeys(("where", "masked_fill", "setitem"), _joined),
    **dict.fromkeys(("neg", "negative"), _negated),
    **dict.fromkeys(("sub", "subtract"), _subtracted),
    **dict.fromkeys(("mul", "multiply"), _scaled),
    **dict.fromkeys(("div", "divide", "true_divide"), _divided),
    **dict.fromkeys(("interpolate", "upsample"), _resized),
    **dict.fromkeys((f"conv{t}{i}d" for t in ("", "_transpose") for i in (1, 2, 3)), _convolution),
    **dict.fromkeys(("diff", "baddbmm", "addbmm", "addmv", "addcmul", "index_add"), _affine),
    **dict.fromkeys(("scatter", "scatter_add", "index_copy", "index_fill"), _joined),
    "lerp": _between,
    "add": _added,
    "rsub": _subtracted_from,
    "linear": _dense,
    "addmm": _addmm,
    "batch_norm": _normalised,
    "pad": _padded,
}
"""Rules by the names of calls."""
