"""What each call of torch in a network's code means for its limit."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vademecum.kernels.wide._layouts import CHANNEL, Layout, moved, permutation, reshaped
from vademecum.kernels.wide._program import Register
from vademecum.kernels.wide._reader import Entry, Reader
from vademecum.kernels.wide._refusals import refused, why_not
from vademecum.kernels.wide._steps import Average, Norm, Scale, Sum
from vademecum.kernels.wide._unary import IDENTITY, acts_on_entries, composed, constants
from vademecum.kernels.wide._weights import read_convolution, read_linear
from vademecum.models import Call

__all__ = ["read_call"]

_SAME = {"contiguous", "clone", "to", "float", "double", "half", "bfloat16", "type", "type_as",
         "cuda", "cpu", "identity", "positive", "pos"}  # fmt: skip
_DROPOUT = {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout",
            "feature_alpha_dropout", "feature_dropout"}  # fmt: skip
_SHAPES = {"flatten", "view", "reshape", "unflatten", "squeeze", "unsqueeze", "view_as",
           "reshape_as", "ravel"}  # fmt: skip
_ORDERS = {"permute", "transpose", "movedim", "moveaxis", "swapaxes", "swapdims"}
_SUMS = {"add": 1.0, "radd": 1.0, "iadd": 1.0, "sub": -1.0, "isub": -1.0, "subtract": -1.0}
_FACTORS = {"mul", "rmul", "imul", "multiply", "div", "truediv", "divide", "neg", "negative",
            "itruediv", "idiv"}  # fmt: skip
_POOLS = {f"{kind}avg_pool{d}d" for kind in ("", "adaptive_") for d in (1, 2, 3)}


def read_call(reader: Reader, call: Call) -> None:
    """Read one call; its output becomes an entry of the reader.

    Raises:
        ValueError: If no limit of it is known; it names the layer and the reason.
    """
    entries = [reader.entry(value) for value in call.tensors]
    reason = why_not(call, before=all(e.raw is not None for e in entries))
    if reason:
        raise refused(call, reason)
    if call.several or len(call.outputs) != 1 or call.outputs[0] is None:
        raise refused(call, "it gives several signals at once")
    if _cut_off(call):
        reader.no_tangent(call, "no gradient passes it, so that the tangent kernel is not that of"
                          " its layers")  # fmt: skip
    layer = _LAYERS.get(call.name)
    if layer is not None and not (call.name in _NORMS and entries[0].raw is not None):
        found = layer(reader, call)
    elif all(e.raw is not None for e in entries):
        found = _computed(reader, call)
    elif len(entries) == 1 and call.name in _READERS:
        found = _READERS[call.name](reader, call, entries[0])
    else:
        found = _pointwise(reader, call, entries)
    reader.entries[call.outputs[0].index] = found


def _cut_off(call: Call) -> bool:
    """Whether gradients come to a call and do not pass it, as in `torch.no_grad`."""
    given = [*(v.tensor for v in call.tensors), *constants(call)]
    made = call.outputs[0].tensor if call.outputs[0] else None
    passes = made is None or not made.is_floating_point() or made.requires_grad
    return not passes and any(t.requires_grad for t in given)


def _computed(reader: Reader, call: Call) -> Entry:
    """What depends on no weight yet is computed as it is."""
    if reader.trained(constants(call)):
        raise refused(call, "it has parameters that meet the inputs otherwise than in a layer")
    made = call.outputs[0]
    assert made is not None

    def here(*tensors: Tensor) -> Tensor:
        return call.bind(lambda c: _like(c, tensors[0]))(*(t.clone() for t in tensors))

    reader.program.before.append((made.index, here, [v.index for v in call.tensors]))
    return Entry(made.index, -1, (), IDENTITY)


def _like(a: Any, x: Tensor) -> Any:
    if not isinstance(a, Tensor):
        return x.dtype if isinstance(a, torch.dtype) and a.is_floating_point else a
    return a.detach().to(x.device, x.dtype if a.is_floating_point() else None)


def _pointwise(reader: Reader, call: Call, entries: list[Entry]) -> Entry:
    """A function of each entry of one signal, or the sum of two."""
    first = entries[0]
    alike = all(e.raw is None and e[1:3] == first[1:3] for e in entries)
    if call.name in _SUMS and not alike and len(entries) == 2:
        return _sum(reader, call, entries)
    if not alike:
        raise refused(call, "it combines different signals otherwise than by adding them")
    register = reader.register_of(first)
    if not acts_on_entries(call):
        raise refused(call, "it is no layer that is known, and no function of each entry alone")
    function = composed(call, [e.function for e in entries])
    if reader.trained(constants(call)):
        reader.no_tangent(call, "a trainable number is shared by all units, so that its part of the"
                          " tangent kernel stays random; freeze it")  # fmt: skip
    if not register.gaussian:
        if function.linear is None:
            raise refused(
                call, "its argument is no Gaussian signal at infinite width, as only what comes"
                " from layers with weights is"
            )  # fmt: skip
        number = reader.program.add(Scale(function.linear), (first.register,), register)
        return first._replace(register=number)
    return first._replace(function=function)


def _sum(reader: Reader, call: Call, entries: list[Entry]) -> Entry:
    shape = call.outputs[0].tensor.shape if call.outputs[0] else torch.Size()
    if any(v.tensor.shape != shape for v in call.tensors) or call.places != 2:
        raise refused(call, "it adds signals of different shapes")
    layout = next(e.layout for e in entries if e.raw is None)
    channel = next((i for i, part in enumerate(layout, 1) if part == (CHANNEL,)), None)
    if channel is None:
        raise refused(call, "it adds signals whose channels and positions are joined in one axis")
    a, b = (reader.lifted(call, e, channel, shape) for e in entries)
    alpha = float(call.kwargs.get("alpha", 1)) * _SUMS[call.name]
    if alpha != 1:
        number = reader.program.add(Scale(alpha), (b.register,), reader.register_of(b))
        b = b._replace(register=number)
    one, other = reader.register_of(a), reader.register_of(b)
    if a.layout != b.layout or one.axes != other.axes:
        raise refused(call, "it adds signals whose axes come in different orders")
    if one.layers & other.layers:
        raise refused(call, "it adds signals that depend on each other, beyond x + f(x)")
    if not (one.centred or other.centred):
        raise refused(
            call, "it adds two signals whose means are not zero, so that they go together"
        )
    register = Register(
        one.axes, one.gaussian and other.gaussian, one.layers | other.layers,
        one.centred and other.centred, one.uneven or other.uneven,
    )  # fmt: skip
    return a._replace(register=reader.program.add(Sum(), (a.register, b.register), register))


def _same(reader: Reader, call: Call, entry: Entry) -> Entry:
    return entry


def _dropout(reader: Reader, call: Call, entry: Entry) -> Entry:
    training = call.kwargs.get("training", call.args[2] if len(call.args) > 2 else True)
    if training:
        raise refused(call, "it drops units at random in evaluation, too")
    return entry


def _shape(reader: Reader, call: Call, entry: Entry) -> Entry:
    made, given = call.outputs[0], call.tensors[0].tensor
    assert made is not None
    sizes = reader.register_of(entry).axes
    total = given[0].numel() // max(1, math.prod(sizes))
    layout = reshaped(entry.layout, sizes, total, made.tensor.shape[1:])
    if layout is None:
        raise refused(call, "it cuts an axis of channels or positions into pieces")
    return entry.like(layout)


def _indexed(reader: Reader, call: Call, entry: Entry) -> Entry:
    index = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],)
    if any(i is not None and i is not ... and i != slice(None) for i in index):
        raise refused(call, "it takes a part of the signal")
    return _shape(reader, call, entry)


def _order(reader: Reader, call: Call, entry: Entry) -> Entry:
    order = permutation(call.bind(), call.tensors[0].tensor.shape)
    if order is None or order[0] != 0:
        raise refused(call, "it is no permutation of axes beyond the first")
    return entry.like(moved(entry.layout, order))


def _only_positions(call: Call, layout: Layout) -> tuple[int, ...]:
    """The axes of positions in the tensor's order, each an axis of its own after the channels."""
    if not layout or layout[0] != (CHANNEL,) or any(len(part) != 1 for part in layout):
        raise refused(call, "it needs channels along the second axis and positions after it")
    return tuple(part[0] for part in layout[1:])


def _pooled(reader: Reader, call: Call, entry: Entry, selects: bool = False) -> Entry:
    """Average pooling, or padding."""
    entry, made = reader.settled(call, entry), call.outputs[0]
    assert made is not None
    order, bound, sizes = _only_positions(call, entry.layout), call.bind(), made.tensor.shape[2:]

    def linear(t: Tensor) -> Tensor:
        return bound(t.permute(0, *(1 + i for i in order))[:, None])[:, 0]

    step = Average(linear, selects, _windows(call, sizes, order))
    return _averaged(reader, entry, step, tuple(sizes))


def _windows(call: Call, sizes: torch.Size, order: tuple[int, ...]) -> tuple[int, ...] | None:
    """Windows that lie side by side, of the same size in each axis, if these are pooled."""
    before = call.tensors[0].tensor.shape[2:]
    windows = tuple(n // m for n, m in zip(before, sizes, strict=True))
    probe = torch.rand(1, 1, *before, dtype=torch.float64, generator=torch.Generator())
    if "avg_pool" not in call.name or order != tuple(range(len(order))):
        return None
    wanted = probe[0]
    for i, (w, m) in enumerate(zip(windows, sizes, strict=True), 1):
        wanted = wanted.narrow(i, 0, w * m).unflatten(i, (m, w)).mean(i + 1)
    return windows if torch.allclose(call.bind()(probe)[0], wanted, rtol=1e-12) else None


def _averaged(reader: Reader, entry: Entry, step: Average, sizes: tuple[int, ...]) -> Entry:
    register = reader.register_of(entry)._replace(axes=sizes)
    number = reader.program.add(step, (entry.register,), register)
    return Entry(None, number, ((CHANNEL,), *((i,) for i in range(len(sizes)))), IDENTITY)


def _padded(reader: Reader, call: Call, entry: Entry) -> Entry:
    names = dict(zip(("input", "pad", "mode", "value"), call.args, strict=False)) | call.kwargs
    if names.get("value") not in (None, 0, 0.0):
        raise refused(call, "it pads with numbers other than zero")
    axes = len(reader.register_of(entry).axes)
    if len(names["pad"]) > 2 * axes:
        raise refused(call, "it pads channels")
    return _pooled(reader, call, entry, selects=True)


def _mean(reader: Reader, call: Call, entry: Entry) -> Entry:
    names = dict(zip(("input", "dim", "keepdim"), call.args, strict=False)) | call.kwargs
    dims, given = names.get("dim", names.get("axis")), call.tensors[0].tensor
    places = sorted(d % given.ndim for d in ([dims] if isinstance(dims, int) else dims or ()))
    if not places or places[0] == 0:
        raise refused(call, "it averages over examples")
    parts = [entry.layout[i - 1] for i in places]
    if any(CHANNEL in part for part in parts):
        raise refused(call, "it averages over channels, which leaves nothing at infinite width")
    entry = reader.settled(call, entry)
    axes, gone = reader.register_of(entry).axes, sorted(a for part in parts for a in part)
    total = float(call.name == "sum") * math.prod(axes[i] for i in gone) or 1.0

    def linear(t: Tensor) -> Tensor:
        return t.mean([1 + i for i in gone]) * total if gone else t * total

    left = {a: i for i, a in enumerate(a for a in range(len(axes)) if a not in gone)}
    found = _averaged(reader, entry, Average(linear, False), tuple(axes[a] for a in left))
    keep = bool(names.get("keepdim", False))
    layout = [
        tuple(a if a == CHANNEL else left[a] for a in part) if i not in places else ()
        for i, part in enumerate(entry.layout, 1)
        if keep or i not in places
    ]
    return found.like(tuple(layout))


def _norm(reader: Reader, call: Call) -> Entry:
    centred = call.name == "layer_norm"
    names = ("input", "normalized_shape", "weight", *(("bias",) if centred else ()), "eps")
    given = dict(zip(names, call.args, strict=False)) | call.kwargs
    entry, x = reader.settled(call, reader.entry(call.tensors[0])), call.tensors[0].tensor
    parts = [a for part in entry.layout[-len(given["normalized_shape"]) :] for a in part]
    if CHANNEL not in parts:
        raise refused(call, "it normalises positions without their channels")
    eps = given.get("eps", 1e-5 if centred else None)
    eps = torch.finfo(x.dtype).eps if eps is None else float(eps)
    base = reader.register_of(entry)
    if base.uneven:
        reader.no_tangent(call, base.uneven)
    step = Norm(tuple(sorted(a for a in parts if a != CHANNEL)), eps, centred)
    scale, shift = given.get("weight"), given.get("bias")
    step.weight_trains = scale is not None and reader.trained([scale])
    step.bias_trains = shift is not None and reader.trained([shift])
    uneven = base.uneven
    if step.weight_trains or step.bias_trains:
        uneven = (
            f"the scale or shift of {call} trains, and before an activation its part of the"
            " tangent kernel has no known limit; freeze both or set elementwise_affine=False"
        )
        if step.chosen:
            reader.no_tangent(call, "its scale or shift trains for each position; freeze both")
    register = base._replace(uneven=uneven, centred=base.centred or (centred and not step.chosen))
    return entry._replace(register=reader.program.add(step, (entry.register,), register))


_NORMS = {"layer_norm", "rms_norm"}
_LAYERS: dict[str, Callable[[Reader, Call], Entry]] = {
    "linear": read_linear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), read_convolution),
    **dict.fromkeys(_NORMS, _norm),
}
_READERS: dict[str, Callable[[Reader, Call, Entry], Entry]] = {
    **dict.fromkeys(_SAME, _same),
    **dict.fromkeys(_DROPOUT, _dropout),
    **dict.fromkeys(_SHAPES, _shape),
    **dict.fromkeys(_ORDERS, _order),
    **dict.fromkeys(_POOLS, _pooled),
    **dict.fromkeys(("mean", "sum"), _mean),
    "pad": _padded,
    "getitem": _indexed,
}
