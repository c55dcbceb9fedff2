"""Units that must change together, and the places of parameters where they are seen.

A group is a set of units, one along an axis of some tensors of a network's graph. Groups that meet
in a sum become one. A group is fixed, with the reason in words, as soon as something is done to its
units that does not treat all of them alike.
"""

from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.results import one_line

__all__ = ["UnitGroup", "UnitMember", "Units", "reordered"]


class UnitMember(NamedTuple):
    """An axis of a parameter or buffer along which a group's units lie."""

    tensor: Tensor
    """The parameter or buffer."""
    axis: int
    """The axis."""
    repeat: int
    """How many entries in a row belong to one unit."""
    power: int
    """What the axis is multiplied by where a unit is by c: c (1), 1 / c (-1), or nothing (0)."""

    __repr__ = one_line


@dataclass(eq=False)
class UnitGroup:
    """Units that change together."""

    size: int
    _: KW_ONLY
    members: dict[tuple[int, int], UnitMember] = field(default_factory=dict)
    layers: list[str] = field(default_factory=list)
    """The layers that compute these units."""
    fixed: str = ""
    """Why they cannot change."""
    merged: "UnitGroup | None" = None

    def root(self) -> "UnitGroup":
        """The group that it has become part of."""
        group = self
        while group.merged is not None:
            group = group.merged
        return group

    def fix(self, reason: str) -> None:
        """Say that the units cannot change; the first reason counts."""
        group = self.root()
        group.fixed = group.fixed or reason

    def join(self, other: "UnitGroup", reason: str) -> None:
        """Become one with another group of as many units."""
        one, two = self.root(), other.root()
        if one is two:
            return
        if one.size != two.size:
            one.fix(reason)
            two.fix(reason)
            return
        two.merged = one
        one.fixed = one.fixed or two.fixed
        one.layers += two.layers
        for member in two.members.values():
            one.add(member)

    def add(self, member: UnitMember) -> None:
        """Note that a tensor has these units along an axis."""
        group, key = self.root(), (id(member.tensor), member.axis)
        before = group.members.setdefault(key, member)
        if before[2:] != member[2:]:
            group.fix("a tensor is used in two ways that do not agree")


class Units(NamedTuple):
    """Where a tensor of the graph has the units of a group."""

    group: UnitGroup
    axis: int
    """Counted from the front."""
    repeat: int = 1
    """How many entries in a row belong to one unit."""


def reordered(tensor: Tensor, axis: int, repeat: int, order: Tensor) -> Tensor:
    """A tensor with its units in another order: the new unit j is the old unit order[j].

    Example:
        >>> reordered(torch.arange(4), 0, 2, torch.tensor([1, 0]))
        tensor([2, 3, 0, 1])
    """
    if repeat > 1:
        order = (order[:, None] * repeat + torch.arange(repeat, device=order.device)).flatten()
    return tensor.index_select(axis, order)
