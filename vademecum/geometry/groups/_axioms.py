r"""Whether a table is that of a group, and which elements break which axiom if it is not.

A table of products $gh$ is a group if it is *closed*, *associative*, $(gh)f = g(hf)$, has an
*identity*, $eg = ge = g$, and *inverses*, $g g^{-1} = g^{-1} g = e$.

Associativity is decided by Light's test: those $a$ with $(xa)y = x(ay)$ for all $x, y$ are closed
under products, so that it is enough to try generators, of which a group of order $n$ has at most
$\log_2 n$. Exact.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Checked", "NotAGroup", "checked_table", "generating"]


class NotAGroup(ValueError):
    """A table of products that is no group.

    Args:
        axioms: What is wrong in words, by the axiom that it breaks.

    Attributes:
        axioms: The same.

    Example:
        >>> from vademecum.geometry import Group
        >>> try:
        ...     Group.from_operation(range(3), lambda a, b: min(a + b, 2))
        ... except NotAGroup as error:
        ...     print(error.axioms)
        {'inverses': '1 has no inverse'}
    """

    def __init__(self, axioms: dict[str, str]):
        self.axioms = axioms
        super().__init__(f"a group must have all axioms, and here {'; '.join(axioms.values())}")


class Checked(NamedTuple):
    """What a table that is a group was found to have."""

    identity: int
    inverses: Tensor
    generators: tuple[int, ...]


def checked_table(table: Tensor, name: Callable[[int], str] = str) -> Checked:
    """The identity, the inverses and generators of a group.

    Args:
        table: Products of elements 0, 1, ..., the left factor by rows; -1 or anything else that is
            no element where the product is none.
        name: What an element is called in errors.

    Raises:
        NotAGroup: If it is none; it names each axiom that is broken, and elements that break it.
    """
    n = len(table)
    if table.ndim != 2 or table.shape[1] != n or n == 0:
        raise ValueError(f"table must be square, got shape {tuple(table.shape)}")
    if table.is_floating_point() or table.is_complex() or table.dtype == torch.bool:
        raise ValueError(f"table must hold integers, got {table.dtype}")
    table = table.long()
    outside = ((table < 0) | (table >= n)).nonzero()
    if len(outside):
        g, h = outside[0].tolist()
        raise NotAGroup({"closed": f"{name(g)} times {name(h)} is no element"})
    broken: dict[str, str] = {}
    all_ = torch.arange(n, device="cpu")
    both = (table == all_) & (all_ == table.T)
    units = both.all(1).nonzero()[:, 0].tolist()
    if not units:
        broken["identity"] = "no element leaves all others as they are, from the left and the right"
    inverses = all_
    if units:
        both = (table == units[0]) & (units[0] == table.T)
        without = (~both.any(1)).nonzero()[:, 0].tolist()
        if without:
            broken["inverses"] = f"{name(without[0])} has no inverse"
        inverses = both.int().argmax(1)
    generators = generating(table, units[0] if units else None)
    witness = _not_associative(table, generators)
    if witness is not None:
        x, a, y = witness
        first, other = int(table[table[x, a], y]), int(table[x, table[a, y]])
        factors = f"({name(x)} {name(a)}) {name(y)} = {name(first)} and "
        factors += f"{name(x)} ({name(a)} {name(y)}) = {name(other)}"
        broken = {"associative": factors, **broken}
    if broken:
        raise NotAGroup(broken)
    return Checked(units[0], inverses, generators)


def generating(table: Tensor, identity: int | None) -> tuple[int, ...]:
    """Elements whose products, in any brackets, are all: greedily the first that is new."""
    reached = torch.zeros(len(table), dtype=torch.bool, device="cpu")
    if identity is not None:
        reached[identity] = True
    found: list[int] = []
    while not reached.all():
        found.append(int((~reached).int().argmax()))
        reached[found[-1]] = True
        new = torch.tensor(found[-1:], device="cpu")
        while len(new):  # products with what came last, until nothing comes
            have = reached.nonzero()[:, 0]
            products = torch.cat([table[new][:, have].flatten(), table[have][:, new].flatten()])
            fresh = torch.zeros_like(reached)
            fresh[products] = True
            new = (fresh & ~reached).nonzero()[:, 0]
            reached |= fresh
    return tuple(found)


def _not_associative(table: Tensor, generators: tuple[int, ...]) -> tuple[int, int, int] | None:
    for a in generators:
        wrong = (table[table[:, a]] != table[:, table[a]]).nonzero()
        if len(wrong):
            x, y = wrong[0].tolist()
            return x, a, y
    return None
