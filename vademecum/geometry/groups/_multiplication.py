r"""How elements are multiplied: elements are numbers from 0, whose products are computed.

Turns of a regular polygon with $n$ corners are $r^a f^s$, number $a + n s$, with
$(r^a f^s)(r^b f^t) = r^{a + (-1)^s b} f^{s + t}$; $r$ takes corner $i$ to $i + 1$, and $f$ takes it
to $-i$. Permutations have their place in lexicographic order as number, and products are
$(gh)(i) = g(h(i))$; pairs are multiplied factor by factor. So there may be as many as $50!$
elements. Of other groups there is the table. Exact, and on the CPU, whatever torch's default is.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vademecum.randomness import source

__all__ = ["Law", "Orders", "Pairs", "Tabled", "Turns", "cycles"]


@dataclass(frozen=True)
class Turns:
    """The turns of a regular polygon, and its reflections if it may be mirrored."""

    n: int
    mirrored: bool
    identity: int = 0

    @property
    def order(self) -> int:
        return self.n * (1 + self.mirrored)

    @property
    def degree(self) -> int:
        return self.n

    @property
    def generators(self) -> tuple[int, ...]:
        return ((1,) if self.n > 1 else ()) + ((self.n,) if self.mirrored else ())

    def product(self, g: Any, h: Any) -> Any:
        a, s, b, t = g % self.n, g // self.n, h % self.n, h // self.n
        return (a + (1 - 2 * s) * b) % self.n + self.n * ((s + t) % 2)

    def inverse(self, g: int) -> int:
        return g if g >= self.n else -g % self.n

    def points(self, g: int) -> Tensor:
        sign = -1 if g >= self.n else 1
        return (g % self.n + sign * torch.arange(self.n, device="cpu")) % self.n

    def table(self) -> Tensor:
        all_ = torch.arange(self.order, device="cpu")
        return self.product(all_[:, None], all_)

    def name(self, g: int) -> str:
        turn = g % self.n
        turned = "" if turn == 0 else "r" if turn == 1 else f"r^{turn}"
        return " ".join(filter(None, (turned, "f" if g >= self.n else ""))) or "e"

    def draw(self, generator: torch.Generator | None) -> int:
        return int(torch.randint(self.order, (), **source(generator, "cpu")))


@dataclass(frozen=True)
class Orders:
    """All orders of n points."""

    n: int
    identity: int = 0

    @property
    def order(self) -> int:
        return math.factorial(self.n)

    @property
    def degree(self) -> int:
        return self.n

    @property
    def generators(self) -> tuple[int, ...]:
        if self.n < 2:
            return ()
        swap = self.rank([1, 0, *range(2, self.n)])
        cycle = self.rank([*range(1, self.n), 0])
        return (swap,) if self.n == 2 else (swap, cycle)

    def rank(self, points: list[int]) -> int:
        """The place of a permutation in lexicographic order."""
        left, found = list(range(self.n)), 0
        for i, point in enumerate(points):
            place = left.index(point)
            found += place * math.factorial(self.n - 1 - i)
            left.pop(place)
        return found

    def unrank(self, g: int) -> list[int]:
        """The permutation at a place."""
        left, found = list(range(self.n)), []
        for i in reversed(range(self.n)):
            place, g = divmod(g, math.factorial(i))
            found.append(left.pop(place))
        return found

    def product(self, g: int, h: int) -> int:
        outer = self.unrank(g)
        return self.rank([outer[i] for i in self.unrank(h)])

    def inverse(self, g: int) -> int:
        return self.rank(self.points(g).argsort().tolist())

    def points(self, g: int) -> Tensor:
        return torch.tensor(self.unrank(g), dtype=torch.long, device="cpu")

    def table(self) -> Tensor:
        all_ = torch.stack([self.points(g) for g in range(self.order)])
        found = torch.zeros(self.order, self.order, dtype=torch.long, device="cpu")
        composed = all_[:, all_]  # (g, h, i)
        for i in range(self.n - 1):
            below = (composed[..., i + 1 :] < composed[..., i : i + 1]).sum(-1)
            found += below * math.factorial(self.n - 1 - i)
        return found

    def name(self, g: int) -> str:
        return cycles(self.unrank(g))

    def draw(self, generator: torch.Generator | None) -> int:
        return self.rank(torch.randperm(self.n, **source(generator, "cpu")).tolist())


@dataclass(frozen=True)
class Pairs:
    """Pairs of elements of two groups; points are those of one and, after them, of the other."""

    left: Any
    right: Any

    def split(self, g: int) -> tuple[int, int]:
        """The two elements of a pair."""
        return divmod(g, self.right.order)

    def join(self, a: int, b: int) -> int:
        """The pair of two elements."""
        return a * self.right.order + b

    @property
    def order(self) -> int:
        return self.left.order * self.right.order

    @property
    def degree(self) -> int:
        return self.left.degree + self.right.degree

    @property
    def identity(self) -> int:
        return self.join(self.left.identity, self.right.identity)

    @property
    def generators(self) -> tuple[int, ...]:
        first = [self.join(a, self.right.identity) for a in self.left.generators]
        return (*first, *(self.join(self.left.identity, b) for b in self.right.generators))

    def product(self, g: int, h: int) -> int:
        (a, b), (c, d) = self.split(g), self.split(h)
        return self.join(self.left.product(a, c), self.right.product(b, d))

    def inverse(self, g: int) -> int:
        a, b = self.split(g)
        return self.join(self.left.inverse(a), self.right.inverse(b))

    def points(self, g: int) -> Tensor:
        a, b = self.split(g)
        return torch.cat([self.left.points(a), self.left.degree + self.right.points(b)])

    def table(self) -> Tensor:
        first, second = self.left.table(), self.right.table()
        both = first[:, None, :, None] * self.right.order + second[:, None]
        return both.reshape(self.order, self.order)

    def name(self, g: int) -> str:
        a, b = self.split(g)
        return f"({self.left.name(a)}, {self.right.name(b)})"

    def draw(self, generator: torch.Generator | None) -> int:
        return self.join(self.left.draw(generator), self.right.draw(generator))


@dataclass(frozen=True, eq=False)
class Tabled:
    """A table that is known to be a group, with the permutation that belongs to each element."""

    products: Tensor
    inverses: Tensor
    identity: int
    generators: tuple[int, ...]
    permutations: Tensor
    names: tuple[str, ...]

    @property
    def order(self) -> int:
        return len(self.products)

    @property
    def degree(self) -> int:
        return self.permutations.shape[1]

    def product(self, g: int, h: int) -> int:
        return int(self.products[g, h])

    def inverse(self, g: int) -> int:
        return int(self.inverses[g])

    def points(self, g: int) -> Tensor:
        return self.permutations[g]

    def table(self) -> Tensor:
        return self.products

    def name(self, g: int) -> str:
        return self.names[g]

    def draw(self, generator: torch.Generator | None) -> int:
        return int(torch.randint(self.order, (), **source(generator, "cpu")))


Law = Turns | Orders | Pairs | Tabled
"""Products of elements that are numbers, and a set of points that they permute."""


def cycles(points: list[int]) -> str:
    """A permutation as its cycles, such as "(0 2 1)"; the identity is "e"."""
    seen, found = set[int](), ""
    for start in range(len(points)):
        cycle, i = [], start
        while i not in seen:
            seen.add(i)
            cycle.append(str(i))
            i = points[i]
        found += f"({' '.join(cycle)})" if len(cycle) > 1 else ""
    return found or "e"
