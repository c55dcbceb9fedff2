"""Which calls are affine steps, and how the run sums them: how many terms, in which kernels.

No number meets more roundings than a form says, whatever the order of a sum.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from vademecum.approximation.piecewise import AFFINE, Affine
from vademecum.models import Call, Rows, Value

__all__ = [
    "AFFINE_CALLS", "Form", "affine_steps", "cancelled", "convolution", "largest", "matrix",
]  # fmt: skip


class Form(NamedTuple):
    """How a step is summed, in the run and on the way back."""

    terms: int
    """The roundings that a number meets in the run, at most."""
    back: int
    """The terms of a sum of the transposed map."""
    product: str | None = None
    """Which of torch's settings rounds factors."""
    rising: bool = False
    """Whether no coefficient is negative."""

    @property
    def moves(self) -> bool:
        """Whether entries are only moved about, perhaps with constants between them."""
        return self.terms == 0 and self.rising


def affine_steps(call: Call, out: Value) -> list[tuple[Affine, Form]] | None:
    """The maps that a call consists of, and how they are summed; None if it is not affine."""
    form = _FORMS[call.name](call, out)
    constant = bool(call.args) and isinstance(call.args[0], Tensor | Rows)
    if form is None or out.tensor.dtype != call.tensors[0].tensor.dtype:
        return None
    if form.moves and constant:  # what is moved does not depend on the input
        return None
    maps = AFFINE[call.name](call, out, *call.args, **call.kwargs)
    return None if maps is None else [(each, form) for each in maps if isinstance(each, Affine)]


def _constants(a: Any) -> list[Tensor]:
    """The floating-point tensors among arguments that do not depend on the input."""
    if isinstance(a, Tensor):
        return [a] if a.is_floating_point() else []
    if isinstance(a, Rows):
        return _constants(a.row)
    values = a.values() if isinstance(a, dict) else a if isinstance(a, tuple | list) else ()
    return [c for each in values for c in _constants(each)]


def largest(a: Any) -> float:
    """The largest modulus among all numbers of the arguments, at least one."""
    if isinstance(a, Tensor):
        return (
            max(1.0, float(a.detach().abs().max())) if a.is_floating_point() and a.numel() else 1.0
        )
    if isinstance(a, int | float):
        return max(1.0, abs(a))
    if isinstance(a, Rows):
        return largest(a.row)
    values = a.values() if isinstance(a, dict) else a if isinstance(a, tuple | list) else ()
    return max([1.0, *map(largest, values)])


def convolution(call: Call) -> tuple[Tensor | None, tuple[Any, ...]]:
    """The kernel of a convolution with its stride, padding, dilation and groups, if it is one."""
    if call.name not in ("conv1d", "conv2d", "conv3d"):
        return None, ()
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    given = dict(zip(names, call.args, strict=False)) | call.kwargs
    if isinstance(given.get("padding", 0), str):
        return None, ()
    axes = int(call.name[-2])
    each = [_per_axis(given.get(k, d), axes) for k, d in zip(names[3:6], (1, 0, 1), strict=True)]
    return given["weight"].detach(), (*each, given.get("groups", 1))


def matrix(call: Call) -> Tensor | None:
    """The matrix of a dense layer, if it is one."""
    if call.name != "linear":
        return None
    return (call.args[1] if len(call.args) > 1 else call.kwargs["weight"]).detach()


def cancelled(call: Call) -> Tensor | None:
    """What a batch normalisation adds and subtracts: its shift may be small beside its parts."""
    if call.name != "batch_norm":
        return None
    names = ("input", "mean", "variance", "weight", "bias", "training", "momentum", "eps")
    given = dict(zip(names, call.args, strict=False))
    kwargs = {
        k.replace("running_", "").replace("var", "variance"): v for k, v in call.kwargs.items()
    }
    given |= kwargs
    scale = (given["variance"] + given.get("eps", 1e-5)).rsqrt()
    if given.get("weight") is not None:
        scale = scale * given["weight"]
    shape = (-1, *[1] * (call.tensors[0].tensor.ndim - 2))
    return 2 * (given["mean"] * scale).abs().detach().view(shape)


def _per_axis(value: Any, axes: int) -> list[int]:
    value = list(value) if isinstance(value, tuple | list) else [value]
    return value * axes if len(value) == 1 else value


def _exact(call: Call, out: Value) -> Form:
    """Entries are moved; one that is joined to itself meets again on the way back."""
    return Form(0, call.places if call.places > len(call.tensors) else 0, rising=True)


def _indexed(call: Call, out: Value) -> Form | None:
    """Numbers, slices and axes pick entries once; a list or tensor of indices may repeat them."""
    index = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],)
    plain = all(i is None or i is ... or isinstance(i, int | slice) for i in index)
    return _exact(call, out) if plain else None


def _negated(call: Call, out: Value) -> Form:
    return Form(0, 0)


def _few(call: Call, out: Value) -> Form | None:
    """Sums of two and products; entries that are broadcast meet again on the way back.

    Of a tensor and a multiple of itself more is rounded than is left of them.
    """
    if call.places > len(call.tensors) and call.kwargs.get("alpha", 1) not in (-1, 1):
        return None
    alike = all(v.tensor.shape == out.tensor.shape for v in call.tensors)
    return Form(4, 1 if alike else out.tensor[0].numel())


def _padded(call: Call, out: Value) -> Form:
    """Zeros or constants around; other modes repeat entries, thrice along an axis at most."""
    mode = call.kwargs.get("mode", call.args[2] if len(call.args) > 2 else "constant")
    return Form(0, 0 if mode == "constant" else 3 ** (out.tensor.ndim - 2), rising=True)


def _dense(call: Call, out: Value) -> Form:
    width = max(max(w.shape[-2:]) for w in _constants((call.args, call.kwargs)) if w.ndim > 1)
    return Form(width + 1, width, "matmul")


def _convolved(call: Call, out: Value) -> Form:
    weight = next(w for w in _constants((call.args, call.kwargs)) if w.ndim > 2)
    taps = math.prod(weight.shape[2:])
    return Form(weight.shape[1] * taps + 1, weight.shape[0] * taps, "conv")


def _convolved_back(call: Call, out: Value) -> Form:
    weight = next(w for w in _constants((call.args, call.kwargs)) if w.ndim > 2)
    taps = math.prod(weight.shape[2:])
    return Form(weight.shape[0] * taps + 1, weight.shape[1] * taps, "conv")


def _summed(call: Call, out: Value) -> Form:
    """Sums and means over axes: an input goes into one output."""
    return Form(call.tensors[0].tensor[0].numel() + 2, 1, rising=True)


def _pooled(call: Call, out: Value) -> Form | None:
    """Means over windows, which may overlap; sums that are divided by a number above 0."""
    axes = int(call.name[-2])
    divisor = call.kwargs.get("divisor_override", call.args[6] if len(call.args) > 6 else None)
    if divisor is not None and divisor < 0:
        return None
    before, after = (v.tensor.shape[-axes:] for v in (call.tensors[0], out))
    if call.name.startswith("adaptive"):
        taps = math.prod(-(-n // m) + 1 for n, m in zip(before, after, strict=True))
    else:
        kernel = call.kwargs.get("kernel_size", call.args[1] if len(call.args) > 1 else None)
        taps = math.prod(_per_axis(kernel, axes))
    return Form(taps + 2, taps, rising=True)


def _normalised(call: Call, out: Value) -> Form:
    """Scale and shift are computed from four numbers, by formulas that differ among devices."""
    return Form(16, 8)


SAME = (
    "flatten", "view", "reshape", "squeeze", "unsqueeze", "unflatten", "contiguous", "clone",
    "detach", "ravel", "positive", "alias", "to", "type", "float", "double", "permute", "transpose",
    "swapaxes", "swapdims", "movedim", "moveaxis", "t", "T", "mT", "narrow", "select", "flip",
    "roll", "split", "split_with_sizes", "chunk", "tensor_split", "unbind", "pixel_shuffle",
    "pixel_unshuffle", "channel_shuffle", "cat", "concat", "concatenate", "stack", "hstack",
    "vstack", "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout",
    "feature_dropout", "feature_alpha_dropout",
)  # fmt: skip
_FORMS: dict[str, Callable[[Call, Value], Form | None]] = {
    **dict.fromkeys(SAME, _exact),
    **dict.fromkeys(("neg", "negative"), _negated),
    **dict.fromkeys(("add", "sub", "subtract", "rsub", "mul", "multiply", "div", "divide"), _few),
    **dict.fromkeys(("linear", "matmul", "rmatmul", "mm", "addmm"), _dense),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolved),
    **dict.fromkeys((f"conv_transpose{i}d" for i in (1, 2, 3)), _convolved_back),
    **dict.fromkeys(("sum", "mean"), _summed),
    **dict.fromkeys((f"{a}avg_pool{i}d" for a in ("", "adaptive_") for i in (1, 2, 3)), _pooled),
    "true_divide": _few,
    "getitem": _indexed,
    "pad": _padded,
    "batch_norm": _normalised,
}
AFFINE_CALLS = frozenset(_FORMS)
"""The names of calls that may be affine steps."""
