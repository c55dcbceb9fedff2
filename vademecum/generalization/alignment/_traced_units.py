"""The units of a network that may change places, with what they are in one run of its code."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.models import evaluation, map_tensors, recorded, run_with, tensor_places
from vademecum.regularization.unit_symmetries._rules import Graph

__all__ = ["Axis", "TracedUnits", "UnitGroup", "traced_units"]


class Axis(NamedTuple):
    """An axis of a parameter along which units lie."""

    place: str
    axis: int
    repeat: int
    """How many entries in a row belong to one unit."""


class UnitGroup(NamedTuple):
    """Units that have one order, and the axes of parameters where they are seen."""

    layers: tuple[str, ...]
    size: int
    axes: tuple[Axis, ...]


class TracedUnits(NamedTuple):
    """The groups of units that can be permuted, the layers of all others, and a run."""

    groups: list[UnitGroup]
    left: dict[str, str]
    """Why the units of other layers stay where they are."""
    calls: list[str]
    """The names of the calls, in order."""
    values: list[list[Tensor]]
    """For each group what its units are in the run: (units, everything else)."""


def traced_units(model: nn.Module, x: Any) -> TracedUnits:
    """The units of a network that can be permuted, found in the graph of one run.

    Args:
        model: Any module.
        x: An input, as the model takes it.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> found = traced_units(model, torch.ones(5, 2))
        >>> found.groups[0].axes[-1], found.values[0][0].shape
        (Axis(place='2.weight', axis=1, repeat=1), torch.Size([3, 5]))
    """
    buffers = {id(t): t.detach().clone() for _, t in tensor_places(model, "buffers")}
    instead = {place: buffers[id(t)] for place, t in tensor_places(model, "buffers")}
    names = {id(t): place for place, t in tensor_places(model, "parameters")}
    graph = Graph({*names, *(id(t) for t in instead.values())}, scaling=False)
    with evaluation(model), torch.no_grad():
        given = map_tensors(x, Tensor.clone)  # layers may work in place
        run = run_with(model, instead, lambda: recorded(model, given))
    for call in run.calls:
        graph.follow(call)
    for value in run.results:
        graph.fix(value, "they are outputs of the model")
    found = graph.found()
    free = {id(group): i for i, group in enumerate(g for g in found if not g.fixed)}
    groups = [
        UnitGroup(
            tuple(group.layers),
            group.size,
            tuple(
                Axis(names[id(m.tensor)], m.axis, m.repeat)
                for m in group.members.values()
                if id(m.tensor) in names
            ),
        )
        for group in found
        if not group.fixed
    ]
    values: list[list[Tensor]] = [[] for _ in groups]
    for call in run.calls:
        for value in call.outputs:
            units = None if value is None else graph.units.get(value.index)
            if value is None or units is None or id(units.group.root()) not in free:
                continue
            rows = value.tensor.movedim(units.axis, 0)
            rows = rows.reshape(units.group.root().size, -1)
            values[free[id(units.group.root())]].append(rows)
    left = {layer: group.fixed for group in found for layer in group.layers if group.fixed}
    return TracedUnits(groups, left, [call.name for call in run.calls], values)
