"""Thousands of small steps on a GPU as one: captured once, replayed from then on.

Unrolling a masked network takes some ten kernels a coordinate and layer, each too small to keep a
GPU busy for as long as it takes to start it. When a flow is asked for the same sizes again, its
steps are captured as a graph, which reads the parameters where they lie, so that training may go on
in between. A graph is kept for each flow, that of the latest sizes, as long as the flow lives; with
it the memory of its steps, about that of one call.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from vademecum.generative.flows._density import Transformed
from vademecum.models import Replay

__all__ = ["replayed"]


class _Graph(NamedTuple):
    """What a graph was made for, and where it reads and writes; no replay if it was not made."""

    key: tuple[Any, ...]
    replay: Replay | None = None
    inputs: tuple[Tensor | None, ...] = ()
    outputs: tuple[Tensor, ...] = ()


_GRAPHS: WeakKeyDictionary[nn.Module, _Graph] = WeakKeyDictionary()


@torch.no_grad()
def replayed(
    module: nn.Module,
    run: Callable[..., Transformed],
    x: Tensor,
    context: Tensor | None,
    given: tuple[Any, ...],
) -> Transformed:
    """What `run(x, context, *given)` gives, from a graph if it was asked for the same before.

    Args:
        module: Whose parameters `run` reads. The graph lives as long as it does, so that neither
            `run` nor `given` may hold it.
        run: What must not wait for the device.
        x: Where.
        context: What to condition on.
        given: What else `run` is given, all of it hashable: parts of the module, and numbers.
    """
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        return run(x, context, *given)
    key = _key(module, x, context, given)
    graph = _GRAPHS.get(module)
    if graph is None or graph.key != key:
        _GRAPHS[module] = _Graph(key)
        return run(x, context, *given)
    if graph.replay is None:
        graph = _GRAPHS[module] = _captured(key, run, x, context, given)
    assert graph.replay is not None
    for place, value in zip(graph.inputs, (x, context), strict=True):
        if place is not None and value is not None:
            place.copy_(value)
    graph.replay()
    return Transformed(*(made.clone() for made in graph.outputs))


def _key(
    module: nn.Module, x: Tensor, context: Tensor | None, given: tuple[Any, ...]
) -> tuple[Any, ...]:
    """All that a graph holds fixed; the module's parts count by identity."""
    places = tuple(t.data_ptr() for t in (*module.parameters(), *module.buffers()))
    parts = tuple(part for part in module.modules() if part is not module)
    cast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")
    precision = torch.backends.cuda.matmul.fp32_precision
    width = None if context is None else context.shape
    state = module.training, precision, cast
    return x.shape, x.dtype, x.device, width, state, given, parts, places


def _captured(
    key: tuple[Any, ...],
    run: Callable[..., Transformed],
    x: Tensor,
    context: Tensor | None,
    given: tuple[Any, ...],
) -> _Graph:
    with torch.inference_mode(mode=False), torch.no_grad():  # or later calls could not write there
        inputs = x.clone(), None if context is None else context.clone()
        outputs = torch.empty_like(x), x.new_empty(len(x))

        def step() -> None:
            for place, made in zip(outputs, run(*inputs, *given), strict=True):
                place.copy_(made)

        return _Graph(key, Replay(step, [*outputs]), inputs, outputs)
