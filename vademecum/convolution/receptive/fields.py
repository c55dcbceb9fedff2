r"""Receptive fields of any network: what its layers say, and what gradients see.

The field of a unit is the set of input positions that it depends on. It is found backwards, from
the unit through every call of torch that led to it, each of which says which entries of its inputs
the needed entries of its outputs are made of. So branches join by union, dilation leaves holes, and
the rim of the image cuts. Positions beyond the rim belong to `size` and `start` all the same: for
layers with kernels $k_l$, strides $s_l$ and dilations $d_l$ these follow

$$r_l = r_{l-1} + d_l (k_l - 1)\, j_{l-1}, \qquad j_l = s_l\, j_{l-1}, \qquad r_0 = j_0 = 1 .$$

The mask is exact as far as shapes tell: what a weight that happens to be zero, or a value, hides
is not known to it. Given an input, gradients are measured as well, and must lie within. Checked by
the claims `convolution.receptive_field` and `convolution.receptive_field_recursion`.

References:
    Araujo, Norris and Sim, Computing receptive fields of convolutional neural networks, Distill,
    2019. Luo, Li, Urtasun and Zemel, Understanding the effective receptive field in deep
    convolutional neural networks, NeurIPS, 2016.
"""

from fractions import Fraction
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.arguments import whole
from vademecum.arrays import one_torch_thread
from vademecum.convolution._weightless import drawn_input, is_shape, run_for_shapes
from vademecum.convolution.receptive._adjoint import NoValues
from vademecum.convolution.receptive._layouts import (
    FeatureMap,
    has_edges,
    last_feature_map,
    source_axes,
)
from vademecum.convolution.receptive._mixing_rules import MIXES
from vademecum.convolution.receptive._moving_rules import MOVES, entrywise, works_entrywise
from vademecum.convolution.receptive._needs import Need, Span, joined, span_of
from vademecum.convolution.receptive._neighbour_rules import NEIGHBOURS
from vademecum.convolution.receptive._part_rules import PARTS
from vademecum.convolution.receptive._probe import Seen, probe
from vademecum.convolution.receptive._sequence_rules import SEQUENCES
from vademecum.convolution.receptive._window_rules import WINDOWS
from vademecum.models import (
    Call,
    Recording,
    Value,
    named_tensors,
    recorded,
    refuse_nan,
    warn_of_slow_path,
)
from vademecum.results import one_line

__all__ = ["ReceptiveField", "receptive_field"]

_RULES = {**WINDOWS, **MOVES, **PARTS, **MIXES, **SEQUENCES, **NEIGHBOURS}


class ReceptiveField(NamedTuple):
    """What one unit of a network sees of the input.

    Example:
        >>> model = nn.Sequential(nn.Conv1d(1, 1, 3), nn.Conv1d(1, 1, 3, dilation=4))
        >>> field = receptive_field(model, (1, 16))
        >>> field.size, field.mask.int().tolist()
        ((11,), [0, 0, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 0])
    """

    size: tuple[int, ...]
    """The extent along each axis, holes and padding included; the number of nodes of a graph."""
    stride: tuple[float, ...]
    """By how much the field moves when the unit moves by one; 0 if it sees everything before it
    anyway, or there are operations on the way that do not tell."""
    start: tuple[int, ...]
    """The first position, negative in the padding."""
    mask: Tensor
    """The positions of the input that the unit depends on."""
    effective: Tensor | None
    """The root mean square of the gradient at each position, summing to one; None without input."""
    measured: Tensor | None
    """The positions with a gradient that is not zero in some draw; None without input."""
    draws: int
    """How many inputs were drawn for that, the given one included."""
    unit: tuple[int, ...]
    """The position of the unit in its feature map."""
    layer: str
    """What made the feature map."""

    __repr__ = one_line

    @property
    def left(self) -> int | None:
        """How many positions of the mask no draw has shown; None without input."""
        return None if self.measured is None else int((self.mask & ~self.measured).sum())


class _Derived(NamedTuple):
    """What the layers say: the field, or the first call that has no rule."""

    at: FeatureMap
    unit: tuple[int, ...]
    axes: tuple[int, ...]
    need: Need | None
    shape: tuple[int, ...]
    unknown: Call | None


def receptive_field(
    model: nn.Module,
    x: Any,
    *,
    unit: int | tuple[int, ...] | None = None,
    generator: torch.Generator | None = None,
) -> ReceptiveField:
    """What a unit depends on, derived from the layers, and measured if there is an input.

    Args:
        model: Any module, taken in evaluation mode.
        x: An input, or the shape of one example without the batch. With a shape nothing is
            computed or measured, and the model may be on the meta device. Of several tensors the
            first is looked at; if edges come after it (pairs of indices, or an object with such as
            `edge_index`), its rows are nodes.
        unit: The position of the unit in the last feature map with more than one position; by
            default the one in the middle. All its channels count.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If an operation has no rule, which is named, with what was measured instead; if
            the model cannot take such an input, or there is no such unit.

    Example:
        >>> stem = nn.Sequential(nn.Conv2d(3, 8, 7, stride=2, padding=3), nn.MaxPool2d(3, 2, 1))
        >>> field = receptive_field(stem, (3, 224, 224))
        >>> field.size, field.stride, field.start, int(field.mask.sum())
        ((11, 11), (4, 4), (107, 107), 121)
    """
    shape = is_shape(x)
    tensors = [] if shape else [t for _, t in named_tensors(x)]
    meta = any(t.is_meta for t in tensors)
    if not shape and not meta:
        refuse_nan(x)
    graph = not shape and has_edges(x)
    try:
        run = run_for_shapes(model, x, recorded, values=graph)
        derived = _derive(run, unit, graph)
    except NoValues as reason:
        run = run_for_shapes(model, x, recorded, values=True)
        derived = _derive(run, unit, graph)
        warn_of_slow_path("the model ran on real tensors, not on shapes alone", str(reason))
    if derived.unknown is not None:
        raise _without_rule(model, x, derived, generator)
    size, stride, start, mask = _summary(derived)
    seen = None
    if not shape and not meta:
        seen = probe(
            model, x, derived.unit, derived.at, derived.axes, wanted=mask, generator=generator
        )
        _insist_on_inside(seen, mask, derived)
    found = (None, None, 0) if seen is None else seen
    return ReceptiveField(
        size, stride, start, mask, *found, derived.unit, str(derived.at.call or "the input")
    )


def _derive(run: Recording, unit: int | tuple[int, ...] | None, graph: bool) -> _Derived:
    source, axes = run.sources[0], source_axes(run, graph=graph)
    at = last_feature_map(run, graph=graph)
    place = _place(unit, at)
    with one_torch_thread():
        need, unknown = _dependence(run, at, place, source)
    return _Derived(at, place, axes, need, tuple(source.tensor.shape), unknown)


def _place(unit: int | tuple[int, ...] | None, at: FeatureMap) -> tuple[int, ...]:
    """The position of the unit, checked."""
    if unit is None:
        return tuple(n // 2 for n in at.sizes)
    unit = unit if isinstance(unit, tuple) else (unit,)
    if len(unit) != len(at.sizes):
        raise ValueError(
            f"unit must have {len(at.sizes)} entries, as the positions of a feature map of shape"
            f" {tuple(at.value.tensor.shape)} have, got {unit}"
        )
    return tuple(whole("unit", u, low=0, high=n - 1) for u, n in zip(unit, at.sizes, strict=True))


def _dependence(
    run: Recording, at: FeatureMap, unit: tuple[int, ...], source: Value
) -> tuple[Need | None, Call | None]:
    """What the unit needs of a tensor of the input, or the call that does not say it."""
    shape = at.value.tensor.shape
    mask = torch.zeros(
        [n if a in {at.examples, *at.axes} else 1 for a, n in enumerate(shape)], dtype=torch.bool
    )
    place: list[Any] = [0] * len(shape)
    for axis, i in zip(at.axes, unit, strict=True):
        place[axis] = i
    mask[tuple(place)] = True
    spans = {a: Span(i, i, Fraction(1)) for a, i in zip(at.axes, unit, strict=True)}
    needs = {at.value.index: Need(mask, spans)}
    for call in reversed(_calls_after(run, source)):
        wanted = [needs.pop(out.index, None) if out is not None else None for out in call.outputs]
        if not any(need is not None for need in wanted):
            continue
        rule = _RULES.get(call.name) or (entrywise if works_entrywise(call.name) else None)
        if rule is None:
            return None, call
        for value, need in rule(call, wanted):
            kept = any(w is not None and w.mask is need.mask for w in wanted)
            if not kept and not bool(need.mask.any()):
                continue
            before = needs.get(value.index)
            shape = value.tensor.shape
            needs[value.index] = need if before is None else joined(before, need, shape)
    return needs.get(source.index), None


def _calls_after(run: Recording, source: Value) -> list[Call]:
    """The calls that meet what depends on a tensor of the input; others may sort edges."""
    known, found = {source.index}, []
    for call in run.calls:
        if any(value.index in known for value in call.tensors):
            known.update(out.index for out in call.outputs if out is not None)
            found.append(call)
    return found


def _summary(derived: _Derived) -> tuple[Any, Any, Any, Tensor]:
    """Extent, stride, start and mask along the axes that are positions."""
    axes, shape, need = derived.axes, derived.shape, derived.need
    sizes = [shape[a] for a in axes]
    if need is None or not bool(need.mask.any()):
        nothing = (0,) * len(axes)
        return nothing, nothing, nothing, torch.zeros(sizes, dtype=torch.bool)
    others = [a for a in range(len(shape)) if a not in axes]
    mask = (need.mask.any(others) if others else need.mask).expand(sizes).clone()
    if axes == (0,):
        first = int(mask.nonzero()[0])
        return (int(mask.sum()),), (0,), (first,), mask
    spans = [span_of(need, a, shape[a]) for a in axes]
    size = tuple(s.high - s.low + 1 for s in spans)
    stride = tuple(int(s.jump) if s.jump.denominator == 1 else float(s.jump) for s in spans)
    return size, stride, tuple(s.low for s in spans), mask


def _insist_on_inside(seen: Seen, mask: Tensor, derived: _Derived) -> None:
    outside = (seen.mask & ~mask).nonzero()
    if len(outside):
        raise RuntimeError(
            "the field that was derived does not hold what was measured: the unit"
            f" {derived.unit} of {derived.at.call} depends on {tuple(outside[0].tolist())};"
            " please report the model"
        )


def _without_rule(
    model: nn.Module, x: Any, derived: _Derived, generator: torch.Generator | None
) -> ValueError:
    """Which call has no rule, and what gradients say of the field."""
    assert derived.unknown is not None
    text = f"model must be made of operations with a rule, got {derived.unknown.place}"
    given = drawn_input(model, x) if is_shape(x) else x
    if any(t.is_meta for _, t in named_tensors(given)):
        return ValueError(text)
    seen = probe(
        model, given, derived.unit, derived.at, derived.axes, wanted=None, generator=generator
    )
    places = seen.mask.nonzero()
    extent = "nothing"
    if len(places):
        low, high = (tuple(f(0).values.tolist()) for f in (places.min, places.max))
        extent = f"{len(places)} positions from {low} to {high}"
    return ValueError(
        f"{text}; measured in {seen.draws} draws, the unit {derived.unit} sees {extent}"
    )
