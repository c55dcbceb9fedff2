"""The units of a network that may change places, with what they are in one run of its code."""

from typing import Any, NamedTuple

from torch import Tensor, nn

from vademecum.models import tensor_places, unit_graph

__all__ = ["Axis", "TracedUnits", "FreeGroup", "traced_units"]


class Axis(NamedTuple):
    """An axis of a parameter along which units lie."""

    place: str
    axis: int
    repeat: int
    """How many entries in a row belong to one unit."""


class FreeGroup(NamedTuple):
    """Units that have one order, and the axes of parameters where they are seen."""

    layers: tuple[str, ...]
    size: int
    axes: tuple[Axis, ...]


class TracedUnits(NamedTuple):
    """The groups of units that can be permuted, the layers of all others, and a run."""

    groups: list[FreeGroup]
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
    found = unit_graph(model, x, scaling=False)
    names = {id(t): place for place, t in tensor_places(model, "parameters")}
    free = {id(group): i for i, group in enumerate(g for g in found.groups if not g.fixed)}
    groups = [
        FreeGroup(
            tuple(group.layers),
            group.size,
            tuple(
                Axis(names[id(m.tensor)], m.axis, m.repeat)
                for m in group.members.values()
                if id(m.tensor) in names
            ),
        )
        for group in found.groups
        if not group.fixed
    ]
    values: list[list[Tensor]] = [[] for _ in groups]
    for call in found.run.calls:
        for value in call.outputs:
            units = None if value is None else found.units.get(value.index)
            if value is None or units is None or id(units.group.root()) not in free:
                continue
            rows = value.tensor.movedim(units.axis, 0)
            rows = rows.reshape(units.group.root().size, -1)
            values[free[id(units.group.root())]].append(rows)
    return TracedUnits(groups, found.left, [call.name for call in found.run.calls], values)
