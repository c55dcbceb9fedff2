"""The units of a network that must change together, found in the graph of one run of its code."""

from vademecum.models.units._found import UnitGraph, unit_graph
from vademecum.models.units._groups import UnitGroup, UnitMember, reordered

__all__ = ["UnitGraph", "UnitGroup", "UnitMember", "reordered", "unit_graph"]
