"""Which axes of a tensor are positions, and which of a network's tensors are feature maps.

Examples lie along the first axis. Convolutions have channels along the second one, linear and
recurrent layers along the last; what keeps the form of a tensor keeps its channels where they are,
and a permutation takes them along, as an index does, which may also take one example or channel.
The other axes are positions. A tensor of two axes that is no table of channels has its positions
along the second one, the nodes of a graph lie along the first.
"""

from collections.abc import Iterator
from math import prod
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.convolution.receptive._moving_rules import axes_after, works_entrywise
from vademecum.convolution.receptive._part_rules import spelt_out
from vademecum.models import Call, Recording, Value, named_leaves

__all__ = ["FeatureMap", "has_edges", "last_feature_map", "source_axes"]

_FIRST = ("conv", "batch_norm", "max_pool", "avg_pool", "lp_pool", "adaptive", "group_norm",
          "instance_norm", "local_response", "interpolate", "upsample", "pad", "pixel")  # fmt: skip
_LAST = ("linear", "embedding", "lstm", "gru", "rnn_tanh", "rnn_relu", "multi_head", "layer_norm",
         "rms_norm", "one_hot")  # fmt: skip
_TURNS = ("permute", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis", "mT")
_PRODUCTS = ("matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "scaled_dot_product_attention")
_LOST = ("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "stack", "unfold",
         "fold", "diagonal", "einsum", "expand", "gather", "take")  # fmt: skip


class FeatureMap(NamedTuple):
    """A tensor that a network makes, and the axes along which its positions and examples lie."""

    value: Value
    axes: tuple[int, ...]
    call: Call | None
    examples: int | None = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(self.value.tensor.shape[a] for a in self.axes)


def has_edges(x: Any) -> bool:
    """Whether an input begins with the nodes of a graph, with pairs of their indices behind.

    These are a tensor, or what an object keeps as its `edge_index`.
    """
    nodes, *others = [leaf for _, leaf in named_leaves(x)] or [None]
    if not isinstance(nodes, Tensor) or nodes.ndim != 2 or not nodes.is_floating_point():
        return False
    edges = [leaf if isinstance(leaf, Tensor) else _edges_of(leaf) for leaf in others]
    return any(
        isinstance(t, Tensor) and t.dtype == torch.long and t.ndim == 2 and len(t) == 2
        for t in edges
    )


def _edges_of(thing: Any) -> Any:
    return getattr(thing, "edge_index", None)


def source_axes(run: Recording, *, graph: bool) -> tuple[int, ...]:
    """The axes of the input along which its positions lie."""
    source = run.sources[0]
    ndim = source.tensor.ndim
    if graph:
        return (0,)
    if not source.tensor.is_floating_point() or ndim == 2:
        return tuple(range(1, ndim))
    channels = _channels_of(run, source)
    return tuple(a for a in range(1, ndim) if a != channels)


def _channels_of(run: Recording, source: Value) -> int:
    """The axis of the input's channels, by the first layer that it comes to."""
    orders = {source.index: list(range(source.tensor.ndim))}
    for call in run.calls:
        order = orders.get(call.tensors[0].index) if call.tensors else None
        if order is None:
            continue
        for out in call.outputs:
            if out is not None and call.name in _TURNS:
                orders[out.index] = [order[a] for a in axes_after(call)]
            elif out is not None and works_entrywise(call.name) and out.tensor.ndim == len(order):
                orders[out.index] = order
        if call.name.startswith(_LAST) or call.name in _PRODUCTS:
            return order[-1]
        if call.name.startswith(_FIRST):
            return order[1]
    return 1


def last_feature_map(run: Recording, *, graph: bool) -> FeatureMap:
    """The last tensor on the way to the output that has more than one position.

    If there is none, the entries of the output are the units.
    """
    needed = {value.index for value in run.results}
    for call in reversed(run.calls):
        if any(out is not None and out.index in needed for out in call.outputs):
            needed.update(value.index for value in call.tensors)
    maps = [m for m in _feature_maps(run, graph) if m.value.index in needed and prod(m.sizes) > 1]
    if maps:
        return maps[-1]
    if not run.results:
        raise ValueError("model must give a tensor that depends on its input")
    value = run.results[0]
    call = next((c for c in run.calls if value in c.outputs), None)
    return FeatureMap(value, tuple(range(1, value.tensor.ndim)), call)


class _Kept(NamedTuple):
    """The axes of a tensor that are no positions; None for one that an index took away."""

    examples: int | None
    channels: int | None


def _feature_maps(run: Recording, graph: bool) -> Iterator[FeatureMap]:
    source, axes = run.sources[0], source_axes(run, graph=graph)
    ndim = source.tensor.ndim
    flat = ndim == 2 and source.tensor.is_floating_point()
    known: dict[int, _Kept | None] = {}
    if not flat and source.tensor.is_floating_point():
        (channels,) = set(range(1, ndim)) - set(axes)
        known[source.index] = _Kept(0, channels)
    for call in run.calls:
        states = call.name in ("lstm", "gru", "rnn_tanh", "rnn_relu")  # after the outputs
        for out in call.outputs[:1] if states else call.outputs:
            if out is None or not out.tensor.is_floating_point():
                continue
            size = out.tensor.ndim
            kept = known[out.index] = _kept_after(call, out, known)
            if graph:
                dense = out.tensor.layout == torch.strided
                if size == 2 and dense and len(out.tensor) == len(source.tensor):
                    yield FeatureMap(out, (0,), call)
            elif flat and size == 2:
                yield FeatureMap(out, (1,), call)
            elif kept is not None and (places := [a for a in range(size) if a not in kept]):
                yield FeatureMap(out, tuple(places), call, kept.examples)


def _kept_after(call: Call, out: Value, known: dict[int, _Kept | None]) -> _Kept | None:
    """The axes of what a call made that are no positions, if that can be told."""
    ndim, name = out.tensor.ndim, call.name
    before = known.get(call.tensors[0].index) if call.tensors else None
    same = call.tensors[0].tensor.ndim == ndim
    if name.startswith("conv"):
        return _Kept(0, 1)
    if name.startswith(_LAST):
        norm = same and name.endswith("norm") and before is not None
        return before if norm else _Kept(0, ndim - 1)
    if before is not None and name == "getitem":
        return _kept_of_part(call, before)
    if before is None or not same or name in _LOST:
        return None
    if name in _TURNS:
        order = axes_after(call)
        examples, channels = (None if a is None else order.index(a) for a in before)
        return _Kept(0 if before.examples == 0 else examples, channels)
    return before._replace(channels=ndim - 1) if name in _PRODUCTS else before


def _kept_of_part(call: Call, before: _Kept) -> _Kept | None:
    """The same of what an index takes; None if tensors are in it before the last of these axes."""
    index = spelt_out(call)
    if index is None:
        given = call.args[1] if isinstance(call.args[1], tuple) else call.args[1:2]
        last = max(0 if a is None else a for a in before)
        return before if all(isinstance(i, slice) for i in given[: last + 1]) else None
    left = [i for i in index if not isinstance(i, Integral)]  # the axes of the part
    places = iter([o for o, i in enumerate(left) if i is not None])
    after = [None if isinstance(i, Integral) else next(places) for i in index if i is not None]
    return _Kept(*(None if a is None else after[a] for a in before))
