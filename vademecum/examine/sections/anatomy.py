r"""Anatomy: parameters by tensor, multiply-adds, activations, shapes and what a unit sees.

A parameter counts once however many modules hold it. Multiply-adds are those of every operation
that torch executes for one example, attention's two products included; for linear layers and
convolutions they are held against the closed forms
$\prod(\text{positions}) \cdot d_{in} d_{out}$ and
$\prod(\text{output}) \cdot c_{in} \prod(\text{kernel}) / \text{groups}$. All of it is exact.
"""

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vademecum.convolution import CallRow, ReceptiveField, ShapeTrace, receptive_field, shape_trace
from vademecum.examine._clock import Clock
from vademecum.examine._section import Drawing, Item, Sentence
from vademecum.examine._study import Study
from vademecum.examine.dossier import Measurement
from vademecum.examine.sections._layers import label
from vademecum.models import call_arguments, evaluation, named_tensors, peak_bytes, tensor_places

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CLAIMS", "anatomy", "closed_form"]

CLAIMS = (
    "convolution.parameter_count", "convolution.shape_pyramid", "convolution.receptive_field",
)  # fmt: skip
"""Claims of the course that stand behind it."""
_LINES, _BARS = 200, 12
"""Lines of the tree and bars of the picture, at most."""
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def anatomy(study: Study, clock: Clock) -> Iterator[Item]:
    """What a network is made of, and what it costs for one example."""
    model = study.model
    yield from _parameters(model)
    one, _ = study.take(1)
    trace = shape_trace(model, one)
    n = 1 if study.n is not None else None
    each = "for one example" if n else "for the whole of the data, whose examples hang together"
    yield from _costs(trace, n, each)
    yield from _checked(model, trace)
    yield Measurement("input_shape", _shapes_of(one), method=each)
    yield Measurement("output_shape", _words(trace.calls[0].outputs), method=each)
    yield Measurement("tree", tuple(trace.table().splitlines()[:_LINES]), method="a line a call")
    yield Drawing(lambda: _drawn(trace))
    yield Sentence(_sentence(model, trace, each, None))
    with torch.no_grad(), evaluation(model, fused=True):
        args, kwargs = call_arguments(one)
        peak = peak_bytes(lambda: model(*args, **kwargs))
    yield Measurement("peak_bytes", peak, None, "bytes", n, f"most held at a time, {each}")
    clock.check()
    field = _field(study, one)
    if field is not None:
        yield from _seen(field)
        yield Sentence(_sentence(model, trace, each, field))


def _parameters(model: nn.Module) -> Iterator[Item]:
    """Parameters by identity: all, frozen, tied."""
    places: dict[int, list[str]] = {}
    tensors: dict[int, Tensor] = {}
    for name, p in tensor_places(model, "parameters"):
        places.setdefault(id(p), []).append(name)
        tensors[id(p)] = p
    frozen = sum(p.numel() for p in tensors.values() if not p.requires_grad)
    tied = [" = ".join(names) for names in places.values() if len(names) > 1]
    held = [*tensors.values(), *{id(b): b for b in model.buffers()}.values()]
    how = "each tensor once"
    yield Measurement("parameters", sum(p.numel() for p in tensors.values()), method=how)
    yield Measurement("frozen_parameters", frozen, method=f"without a gradient, {how}")
    yield Measurement("tied_parameters", tuple(tied), method="places of one tensor")
    yield Measurement("buffers", sum(b.numel() for b in model.buffers()), method=how)
    size = sum(t.numel() * t.element_size() for t in held)
    yield Measurement("model_bytes", size, None, "bytes", method="parameters and buffers")
    yield Measurement("modules", sum(1 for _ in model.modules()), method="each module once")


def _costs(trace: ShapeTrace, n: int | None, each: str) -> Iterator[Item]:
    yield Measurement("unused_parameters", trace.unused, method="no operation of a pass met them")
    named = trace.without_rule
    how = f"of every operation that torch executes, {each}"
    how += f"; not counted: {', '.join(named)}" if named else ""
    yield Measurement("multiply_adds", trace.multiply_adds, None, "", n, how)
    how = f"of what modules give and take, {each}"
    yield Measurement("activation_bytes", trace.activation_bytes, None, "bytes", n, how)
    yield Measurement("calls", len(trace.calls), method="of modules, in one pass")


def _checked(model: nn.Module, trace: ShapeTrace) -> Iterator[Item]:
    """Multiply-adds of layers against their closed forms."""
    modules = dict(model.named_modules())
    rows = [(row, closed_form(modules[row.name], row)) for row in trace.calls]
    known = [(row, count) for row, count in rows if count is not None]
    off = max((abs(row.multiply_adds - count) for row, count in known), default=0)
    total = sum(count for _, count in known)
    how = "of linear layers and convolutions; the error is the largest difference in a layer"
    yield Measurement("multiply_adds_by_formula", total, float(off), "", len(known), how,
                      error_of="arithmetic")  # fmt: skip


def closed_form(module: nn.Module, row: CallRow) -> int | None:
    """The multiply-adds of a call by the formula of its layer, or None if it has none here."""
    if type(module) is nn.Linear:
        return prod(row.outputs[0]) * module.in_features
    if type(module) in _CONVOLUTIONS:
        return prod(row.outputs[0]) * prod(module.weight.shape[1:])  # pyright: ignore
    return None


def _field(study: Study, one: Any) -> ReceptiveField | None:
    """The receptive field of a unit in the middle, or None where there is none to tell."""
    single = isinstance(one, Tensor) and one.is_floating_point()
    if (isinstance(one, Tensor) and one.ndim < 3) or study.n is None:
        return None
    try:
        given = tuple(one.shape[1:]) if single else one
        draw = study.generator("receptive field")
        return receptive_field(study.model, given, generator=draw)
    except ValueError:  # which names the operation that has no rule
        return None


def _seen(field: ReceptiveField) -> Iterator[Item]:
    how = f"of the unit {field.unit} of {field.layer}, derived from the layers"
    yield Measurement("receptive_field", tuple(field.size), None, "positions", None, how)
    yield Measurement("receptive_stride", tuple(map(float, field.stride)), None, "positions")
    share = float(field.mask.double().mean())
    yield Measurement("receptive_share", share, None, "", None, "of the input that the unit sees")


def _sentence(model: nn.Module, trace: ShapeTrace, each: str, field: ReceptiveField | None) -> str:
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    words = f"It has {trace.parameters:,} parameters"
    words += f", {frozen:,} of them frozen," if frozen else ""
    words += f" and takes {trace.multiply_adds:,} multiply-adds {each}"
    top = _shares(trace)
    if top and trace.multiply_adds:
        name, count = top[0]
        words += f", {count / trace.multiply_adds:.0%} of them in {name}"
    if trace.unused:
        words += f"; {len(trace.unused)} of its tensors are never used, {trace.unused[0]} first"
    if field is not None:
        words += f"; a unit of {field.layer} sees {' x '.join(map(str, field.size))} positions"
    return words + "."


def _shares(trace: ShapeTrace) -> list[tuple[str, int]]:
    """The multiply-adds of the model's own modules, the largest first."""
    found = Counter[str]()
    for row in trace.calls:
        name = row.name.split(".")[0]
        found[f"'{name}'" if name else "its own code"] += row.multiply_adds
    return [(name, count) for name, count in found.most_common() if count]


def _shapes_of(x: Any) -> str:
    return _words(tuple(tuple(t.shape) for _, t in named_tensors(x)))


def _words(shapes: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join(map(str, shapes))


def _drawn(trace: ShapeTrace) -> "Figure":
    """Where parameters, multiply-adds and activations are, call by call."""
    from vademecum.canvas import panels

    rows = [row for row in trace.calls if row.parameters or row.multiply_adds]
    rows = sorted(rows, key=lambda row: -row.multiply_adds)[:_BARS] or list(trace.calls[:1])
    order = {id(row): i for i, row in enumerate(trace.calls)}
    rows = sorted(rows, key=lambda row: order[id(row)])
    names = [label(f"{row.name or '(the network)'} {row.kind}", 28) for row in rows]
    height = 0.8 + 0.25 * len(rows)
    figure, axes = panels((7.5, height), 1, 3, margins=(2.3, 0.2, 0.5, 0.3), sharey=True)
    counts = (("parameters", 5), ("multiply-adds", 6), ("bytes of activations", 7))
    for axis, (title, place) in zip(axes, counts, strict=True):
        axis.barh(range(len(rows)), [row[place] for row in rows])
        axis.set_title(title)
        axis.ticklabel_format(axis="x", style="sci", scilimits=(0, 4))
    axes[0].set_yticks(range(len(rows)), names)
    axes[0].invert_yaxis()
    return figure
