r"""Finite groups: elements are numbers $0, 1, \dots$, with their products as exact integers.

Three families are computed with and need no table, whatever their size: turns of a polygon
(`Group.cyclic`), turns and reflections (`Group.dihedral`), all orders of $n$ points
(`Group.symmetric`), and products of groups, `G * H`. Any other group comes from its table, from an
operation, or from permutations or matrices that generate it; a table that is no group is refused,
with the axiom and the elements that break it. Exact. The claim is `group`.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Integer
from torch import Tensor

from vademecum.arguments import whole
from vademecum.geometry.groups._generated import (
    MOST,
    from_matrices,
    from_permutations,
    from_table,
)
from vademecum.geometry.groups._multiplication import Law, Orders, Pairs, Turns
from vademecum.geometry.groups.representations import Representation
from vademecum.results import one_line

__all__ = ["Group", "Turn"]


class Turn(NamedTuple):
    """A turn of the plane, after a reflection or not."""

    k: int
    """How many parts of a whole turn, counter-clockwise."""
    n: int
    """How many parts a whole turn has."""
    mirrored: bool
    """Whether up and down change places before."""

    __repr__ = one_line


class Group:
    """A finite group, made by one of the class methods.

    Attributes:
        order: How many elements there are; they are the numbers below.
        identity: The element that changes nothing.
        generators: Elements of which all are products.
        degree: How many points the elements permute: corners of a polygon, points in some order,
            for a table its own elements, for a product the points of both factors.

    Example:
        >>> group = Group.dihedral(4)
        >>> group, group.order, [group.name(g) for g in group.generators]
        (Group.dihedral(4), 8, ['r', 'f'])
        >>> group.name(group.multiply(4, 1)), group.name(group.multiply(1, 4))
        ('r^3 f', 'r f')
        >>> Group.symmetric(50).order > 10**64
        True
        >>> Group.from_operation([1, 2, 3, 4], lambda a, b: a * b % 5).is_abelian
        True
    """

    def __init__(self, law: Law, label: str, matrices: Tensor | None = None):
        self._law, self._label, self._matrices = law, label, matrices
        self.order, self.identity, self.degree = law.order, law.identity, law.degree
        self.generators = law.generators

    @classmethod
    def cyclic(cls, n: int) -> "Group":
        """The turns of a regular polygon with n corners; element k turns by k corners.

        Args:
            n: The number of corners.
        """
        return cls(Turns(whole("n", n, low=1), False), f"Group.cyclic({n})")

    @classmethod
    def dihedral(cls, n: int) -> "Group":
        """The turns and reflections of a regular polygon: element k + n s is r^k f^s.

        Args:
            n: The number of corners, half the order; with 1 or 2 of them, elements differ that
                move the corners alike.
        """
        return cls(Turns(whole("n", n, low=1), True), f"Group.dihedral({n})")

    @classmethod
    def symmetric(cls, n: int) -> "Group":
        """All orders of n points, numbered as in a dictionary.

        Args:
            n: The number of points.
        """
        return cls(Orders(whole("n", n, low=1)), f"Group.symmetric({n})")

    @classmethod
    def from_table(
        cls, table: Integer[Tensor, " order order"], *, names: Iterable[str] | None = None
    ) -> "Group":
        """The group of a multiplication table.

        Args:
            table: The products, left factors by rows, as numbers of elements.
            names: What the elements are called; their numbers by default.

        Raises:
            NotAGroup: If it is none.
        """
        if not isinstance(table, Tensor) or table.ndim != 2:
            raise ValueError("table must be a square tensor of integers")
        if len(table) > MOST:
            raise ValueError(f"table must have at most {MOST} rows, got {len(table)}")
        called = tuple(map(str, range(len(table)) if names is None else names))
        if len(called) != len(table):
            raise ValueError(f"names must be {len(table)}, one for each element, got {len(called)}")
        return cls(from_table(table, called), f"Group.from_table(order={len(table)})")

    @classmethod
    def from_operation(
        cls, elements: Iterable[Any], operation: Callable[[Any, Any], Any]
    ) -> "Group":
        """The group of things that are multiplied by a function.

        Args:
            elements: The elements, which can be hashed.
            operation: The product of two of them.

        Raises:
            NotAGroup: If it is none.
        """
        things = list(elements)
        index = {thing: g for g, thing in enumerate(things)}
        if len(index) < len(things) or not things:
            raise ValueError("elements must be different from each other, and at least one")
        rows = [[index.get(operation(a, b), -1) for b in things] for a in things]
        return cls.from_table(torch.tensor(rows, device="cpu"), names=map(str, things))

    @classmethod
    def from_permutations(cls, generators: Iterable[Tensor]) -> "Group":
        """The group that permutations of some points generate.

        Args:
            generators: Where each takes the points 0, 1, ...
        """
        law = from_permutations(list(generators))
        return cls(law, f"Group.from_permutations(order={law.order}, degree={law.degree})")

    @classmethod
    def from_matrices(cls, generators: Iterable[Tensor]) -> "Group":
        """The finite group that matrices generate: exact for integers, else up to their rounding.

        Args:
            generators: Square matrices of one size. Elements count as one if no entries differ by
                more than 1e-6, or than what rounding of the generators may have made of them.
        """
        law, matrices = from_matrices(list(generators))
        return cls(law, f"Group.from_matrices(order={law.order})", matrices)

    def __mul__(self, other: "Group") -> "Group":
        """The pairs of elements; of (a, b) the number is a times the other order, plus b."""
        return Group(Pairs(self._law, other._law), f"{self._label} * {other._label}")

    def multiply(self, g: int, h: int) -> int:
        """The product: what h does, and g after it.

        Args:
            g: The left factor.
            h: The right factor.
        """
        return self._law.product(self._known(g), self._known(h))

    def inverse(self, g: int) -> int:
        """The element that undoes another.

        Args:
            g: The element.
        """
        return self._law.inverse(self._known(g))

    def permutation(self, g: int) -> Integer[Tensor, " degree"]:
        """Where an element takes the points.

        Args:
            g: The element.
        """
        return self._law.points(self._known(g))

    def name(self, g: int) -> str:
        """What an element is called.

        Args:
            g: The element.
        """
        return self._law.name(self._known(g))

    def sample(self, n: int, *, generator: torch.Generator | None = None) -> list[int]:
        """Elements, each as likely as any other.

        Args:
            n: How many.
            generator: Where random numbers come from; torch's global generator by default.
        """
        return [self._law.draw(generator) for _ in range(whole("n", n, low=0))]

    @cached_property
    def table(self) -> Integer[Tensor, " order order"]:
        """All products, left factors by rows."""
        if self.order > MOST:
            raise ValueError(f"a group must have at most {MOST} elements for a table, got {self}")
        return self._law.table()

    @cached_property
    def inverses(self) -> Integer[Tensor, " order"]:
        """The inverses of all elements."""
        return (self.table == self.identity).int().argmax(1)

    @cached_property
    def is_abelian(self) -> bool:
        """Whether products do not depend on their order."""
        pairs = [(a, b) for a in self.generators for b in self.generators]
        return all(self.multiply(a, b) == self.multiply(b, a) for a, b in pairs)

    @cached_property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """The elements that are turned into each other by h g h^-1, for which characters agree."""
        turned = self.table[self.table, self.inverses[:, None]]  # (h, g)
        found = {tuple(sorted(set(turned[:, g].tolist()))) for g in self}
        return tuple(sorted(found))

    def natural(self) -> Representation:
        """The permutations of the points; of a group from matrices, these."""
        if self._matrices is not None:
            all_ = self._matrices.double()
            return Representation.by(self, all_.shape[1], all_.__getitem__, exact=False)
        return Representation.by(self, self.degree, self.permutation, exact=True)

    def regular(self) -> Representation:
        """Each element permutes all elements, as their left factor."""
        table = self.table
        return Representation.by(self, self.order, table.__getitem__, exact=True)

    def trivial(self, d: int = 1) -> Representation:
        """Nothing moves.

        Args:
            d: The dimension.
        """
        points = torch.arange(whole("d", d, low=1), device="cpu")
        return Representation.by(self, d, lambda _: points, exact=True)

    def turn(self, g: int) -> Turn | None:
        """Which turn of the plane an element is; None unless the group is cyclic or dihedral.

        Args:
            g: The element.
        """
        if not isinstance(self._law, Turns):
            return None
        n = self._law.n
        return Turn(self._known(g) % n, n, g >= n)

    def _known(self, g: int) -> int:
        return whole("g", g, low=0, high=self.order - 1)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.order))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Group) or self.order != other.order:
            return False
        same = self is other or self._law == other._law
        return same or (self.order <= MOST and self.table.equal(other.table))

    def __hash__(self) -> int:
        return hash(self.order)

    def __repr__(self) -> str:
        return self._label
