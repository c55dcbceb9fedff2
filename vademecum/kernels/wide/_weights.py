"""Layers with weights: linear layers and convolutions, as steps on covariances."""

from typing import Any

from vademecum.kernels.wide._layouts import CHANNEL
from vademecum.kernels.wide._positions import Taps
from vademecum.kernels.wide._program import Register
from vademecum.kernels.wide._reader import Entry, Reader
from vademecum.kernels.wide._refusals import refused
from vademecum.kernels.wide._steps import Layer
from vademecum.kernels.wide._unary import IDENTITY
from vademecum.models import Call, Value

__all__ = ["read_convolution", "read_linear"]


def read_linear(reader: Reader, call: Call) -> Entry:
    """A linear layer: along channels, and positions that are joined with them."""
    given = dict(zip(("input", "weight", "bias"), call.args, strict=False)) | call.kwargs
    entry, x = _signal(reader, call, given, -1)
    parts = entry.layout[-1] if entry.layout else ()
    if CHANNEL not in parts:
        raise refused(call, "it acts along positions, or on channels one by one")
    chosen = tuple(sorted(a for a in parts if a != CHANNEL))
    axes = reader.register_of(entry).axes
    left = {a: i for i, a in enumerate(a for a in range(len(axes)) if a not in chosen)}
    layout = [tuple(left[a] for a in part) for part in entry.layout[:-1]]
    step = Layer(chosen, (), ())
    return _added(reader, call, entry, step, given, tuple(axes[a] for a in left), layout, x)


def read_convolution(reader: Reader, call: Call) -> Entry:
    """A convolution over all axes of positions."""
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    given = dict(zip(names, call.args, strict=False)) | call.kwargs
    if given.get("groups", 1) != 1:
        raise refused(
            call,
            f"groups={given['groups']}: outputs that see a group of the channels alone have a"
            " limit only if each group grows, and then their inputs are not exchangeable",
        )
    entry, x = _signal(reader, call, given, 1)
    order = tuple(part[0] for part in entry.layout[1:] if len(part) == 1)
    d = len(given["weight"].shape) - 2
    if entry.layout[:1] != ((CHANNEL,),) or len(order) != d or len(entry.layout) != d + 1:
        raise refused(call, "it needs channels along the second axis and positions after it")
    taps = tuple(_taps(given, i, d) for i in range(d))
    axes = reader.register_of(entry).axes
    sizes = tuple(t.length(axes[a]) for t, a in zip(taps, order, strict=True))
    layout = [(CHANNEL,), *((i,) for i in range(d))]
    return _added(reader, call, entry, Layer((), taps, order), given, sizes, layout, x)


def _signal(reader: Reader, call: Call, given: dict[str, Any], channel: int) -> tuple[Entry, Value]:
    value = given["input"]
    if not isinstance(value, Value) or len(call.tensors) != 1:
        raise refused(call, "its weights depend on the input")
    return reader.lifted(call, reader.entry(value), channel, value.tensor.shape), value


def _added(
    reader: Reader,
    call: Call,
    entry: Entry,
    step: Layer,
    given: dict[str, Any],
    sizes: tuple[int, ...],
    layout: list[tuple[int, ...]],
    x: Value,
) -> Entry:
    bias = given.get("bias")
    step.weight_trains, step.bias_trains = reader.fresh(call, given["weight"], bias)
    step.has_bias = bias is not None
    number = len(reader.program.registers)
    register = Register(sizes, True, frozenset((number,)), True)
    number = reader.program.add(step, (entry.register,), register)
    if not step.taps:
        layout = [*layout, (CHANNEL,)]
    return Entry(None, number, tuple(layout), IDENTITY)


def _taps(given: dict[str, Any], i: int, d: int) -> Taps:
    size = given["weight"].shape[2 + i]
    stride, dilation = (_each(given.get(name, 1), i, d) for name in ("stride", "dilation"))
    padding = given.get("padding", 0)
    if padding == "valid":
        return Taps(size, stride, (0, 0), dilation)
    if padding == "same":
        total = dilation * (size - 1)
        return Taps(size, stride, (total // 2, total - total // 2), dilation)
    one = _each(padding, i, d)
    return Taps(size, stride, (one, one), dilation)


def _each(value: Any, i: int, d: int) -> int:
    if isinstance(value, int):
        return value
    return int(value[i]) if len(value) == d else int(value[0])
