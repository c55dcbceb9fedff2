"""A network run once, and its units followed through every call."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.models.inputs import map_tensors
from vademecum.models.modes import evaluation
from vademecum.models.tensors import run_with, tensor_places
from vademecum.models.tracing import Recording, recorded
from vademecum.models.units._groups import UnitGroup, Units
from vademecum.models.units._rules import Graph
from vademecum.results import one_line

__all__ = ["UnitGraph", "unit_graph"]


class UnitGraph(NamedTuple):
    """Groups of units, with the run in which they were found."""

    groups: list[UnitGroup]
    """All groups, those that cannot change with the reason."""
    names: dict[int, str]
    """The places of parameters, and of the copies of buffers, by the identities of tensors."""
    units: dict[int, Units]
    """Where the tensors of the run have units, by their indices."""
    run: Recording
    """The run."""

    __repr__ = one_line

    @property
    def left(self) -> dict[str, str]:
        """Why units of layers cannot change, by the names of the layers."""
        return {layer: g.fixed for g in self.groups for layer in g.layers if g.fixed}


def unit_graph(model: nn.Module, x: Any, *, scaling: bool) -> UnitGraph:
    """Run a network in evaluation mode, and find units that can be permuted, or scaled.

    Its code may write into buffers, so it gets copies of them.

    Args:
        model: Any module.
        x: An input, as the model takes it.
        scaling: Whether units are to be scaled rather than permuted.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> found = unit_graph(model, torch.ones(5, 2), scaling=False)
        >>> [(g.size, g.layers) for g in found.groups if not g.fixed], found.left
        ([(3, ['0'])], {'2': 'they are outputs of the model'})
    """
    buffers = {id(t): t.detach().clone() for _, t in tensor_places(model, "buffers")}
    instead = {place: buffers[id(t)] for place, t in tensor_places(model, "buffers")}
    places = [*tensor_places(model, "parameters"), *instead.items()]
    names = {id(tensor): place for place, tensor in places}
    graph = Graph(set(names), scaling=scaling)
    with evaluation(model), torch.no_grad():
        given = map_tensors(x, Tensor.clone)  # layers may work in place
        run = run_with(model, instead, lambda: recorded(model, given))
    for call in run.calls:
        graph.follow(call)
    for value in run.results:
        graph.fix(value, "they are outputs of the model")
    return UnitGraph(graph.found(), names, graph.units, run)
