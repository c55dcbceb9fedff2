"""Representations: groups as matrices, and their action on signals and images."""

import math
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor

from vademecum.claims import claim, equals
from vademecum.geometry import Group, ImageAction, PointAction, Representation


def commuting(mine: Group) -> int:
    """How many pairs of elements commute."""
    return sum(mine.multiply(g, h) == mine.multiply(h, g) for g, h in product(mine, repeat=2))


def columns(points: list[int]) -> Tensor:
    """The matrix whose column j is the unit vector at the image of j."""
    found = torch.zeros(len(points), len(points), dtype=torch.long)
    for j, to in enumerate(points):
        found[to, j] = 1
    return found


def turn(angle: float) -> Tensor:
    """The matrix of a turn of the plane, counter-clockwise."""
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.tensor([[cos, -sin], [sin, cos]])


@claim(
    by="identity",
    sources=("A-186",),
    budget=0.5,
    short=r"\rho(gh) = \rho(g)\rho(h),\quad \rho(e) = I,\quad \rho(g^{-1}) = \rho(g)^{-1};"
    r"\quad \rho(g)e_j = e_{g(j)}",
)
def representation(convention: Literal["columns", "rows"] = "columns"):
    r"""A linear action is given by matrices, whose products are those of the group.

    A linear action on $\mathbb R^n$ is $g(x) = \rho(g) x$ with a homomorphism $\rho: \mathcal G \to
    GL(n)$: $\rho(gh) = \rho(g) \rho(h)$, $\rho(e) = I$, $\rho(g^{-1}) = \rho(g)^{-1}$. For
    permutations it is $\rho(g) e_j = e_{g(j)}$, that is $(\rho(g) x)_i = x_{g^{-1}(i)}$. The
    transposed matrices, with $\rho(g)_{i, g(i)} = 1$, turn products around, and are a homomorphism
    only if all elements commute. Traces (characters) add up in direct sums and are multiplied in
    tensor products, which are representations, too.

    All pairs of elements of $S_3$, $S_4$, $D_4$ and $\mathbb Z_5$, in integers; turns of the plane
    by random angles, and by the angles of $\mathbb Z_7$.

    Knobs:
        convention: Whether column $j$ of $\rho(g)$ has its 1 at $g(j)$, or row $j$.
    """
    for mine in (Group.symmetric(3), Group.symmetric(4), Group.dihedral(4), Group.cyclic(5)):
        at: dict[str, Any] = {"group": str(mine)}
        rho = mine.natural()
        images = [mine.permutation(g).tolist() for g in mine]
        yield equals("rho(g)", rho.matrices(), torch.stack(list(map(columns, images))), **at)
        used = rho.matrices() if convention == "columns" else rho.matrices().mT
        pairs = list(product(mine, repeat=2))
        apart = torch.stack([used[g] @ used[h] for g, h in pairs])
        joint = torch.stack([used[mine.multiply(g, h)] for g, h in pairs])
        yield equals("rho(g) rho(h)", apart, joint, **at)
        other = rho.matrices().mT
        kept = sum(int((other[g] @ other[h]).equal(other[mine.multiply(g, h)])) for g, h in pairs)
        yield equals("pairs whose product transposed matrices keep", kept, commuting(mine), **at)
        eye = torch.eye(mine.degree).long()
        yield equals("rho(e)", rho.matrix(mine.identity), eye, **at)
        both = rho.matrices() @ rho.matrices()[mine.inverses]
        yield equals("rho(g) rho(g^-1)", both, eye, **at)
        x = torch.randint(-99, 99, (mine.degree,))
        acted = torch.stack([rho(g, x) for g in mine])
        yield equals("rho(g) x", acted, rho.matrices() @ x, **at)
        fixed = [sum(i == to for i, to in enumerate(points)) for points in images]
        yield equals("characters", rho.characters(), torch.tensor(fixed), **at)
        chi = torch.tensor(fixed)
        for name, made, wanted in (("sum", rho + rho, 2 * chi), ("product", rho * rho, chi**2)):
            traces = torch.stack([made.matrix(g).trace() for g in mine])
            yield equals(f"characters of a {name}", traces, wanted, **at)
            Representation(mine, torch.stack([made.permutation(g) for g in mine]))
    a, b = 10 * torch.rand(2)
    yield equals("turns by two angles", turn(float(a)) @ turn(float(b)), turn(float(a + b)),
                 tol=1e-13)  # fmt: skip
    mine = Group.cyclic(7)
    plane = Representation(mine, torch.stack([turn(2 * math.pi * k / 7) for k in mine]))
    x = torch.randn(2)
    for g, h in product(mine, repeat=2):
        yield equals("turns of Z_7", plane(g, plane(h, x)), turn(2 * math.pi * (g + h) / 7) @ x,
                     tol=1e-13)  # fmt: skip


representation.foil("the transposed matrices", convention="rows", refuted_by="rho(g) rho(h)")


def places(mine: Group, g: int, height: int, width: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Where an element takes the pixels of an image, by doubled coordinates about its centre."""
    k, s = g % 4, g // 4
    found = {}
    for row, column in product(range(height), range(width)):
        right, up = 2 * column - (width - 1), (height - 1) - 2 * row
        up = -up if s else up
        h, w = height, width
        for _ in range(k):
            right, up, h, w = -up, right, w, h
        found[row, column] = ((h - 1 - up) // 2, (right + w - 1) // 2)
    return found


def carried(x: Tensor, goes: dict[tuple[int, int], tuple[int, int]]) -> Tensor:
    """The image whose pixels were carried somewhere."""
    height, width = (1 + max(ends) for ends in zip(*goes.values(), strict=True))
    moved = torch.empty(height, width, dtype=x.dtype)
    for start, end in goes.items():
        moved[end] = x[start]
    return moved


@claim(
    by="identity",
    sources=("A-187",),
    budget=0.5,
    short=r"(\rho(h)x)(s) = x(h^{-1}s),\quad \rho(g)\rho(h) = \rho(gh)",
)
def signal_action(inverse: bool = True):
    r"""A group that acts on a domain acts on the signals over it, through the inverse.

    A group acting on a domain $\Omega$ acts on signals $x: \Omega \to \mathbb R$ by
    $(\rho(h) x)(s) = x(h^{-1} s)$. The inverse makes $\rho$ a homomorphism, $\rho(g) \rho(h) =
    \rho(gh)$, a left action: the value at $s$ is carried to $h s$. Without it, the order of factors
    is reversed, which shows only where they do not commute.

    All pairs of elements, on random integer signals: $D_4$ on a $4 \times 4$ and a $3 \times 5$
    grid, compared pixel by pixel, and $\mathbb Z_n$ on cycles of 5 and 8 points.

    Knobs:
        inverse: Whether the signal is read at $h^{-1} s$; without it, at $h s$.
    """
    for mine, shape in ((Group.dihedral(4), (4, 4)), (Group.dihedral(4), (3, 5)),
                        (Group.cyclic(5), (5,)), (Group.cyclic(8), (8,))):  # fmt: skip
        at = {"group": str(mine), "points": math.prod(shape)}
        image = len(shape) == 2
        act = ImageAction(mine) if image else PointAction(mine, axis=1)
        x = torch.randint(-99, 99, (1, *shape))

        def rho(h: int, z: Tensor, act=act, mine=mine) -> Tensor:
            return act(h if inverse else mine.inverse(h), z)

        twice = [rho(g, rho(h, x)) for g, h in product(mine, repeat=2)]
        once = [rho(mine.multiply(g, h), x) for g, h in product(mine, repeat=2)]
        yield equals("rho(g) rho(h) x", _flat(twice), _flat(once), **at)
        n = shape[-1]
        for h in mine:
            if image:
                wanted = carried(x[0], places(mine, h, *shape))
            else:
                wanted = torch.stack([x[0, (s - h) % n] for s in range(n)])
            yield equals("rho(h) x, point by point", rho(h, x)[0], wanted, **at)


def _flat(signals: list[Tensor]) -> Tensor:
    """All numbers, after the shape of each."""
    return torch.cat([torch.cat([torch.tensor(z.shape), z.flatten()]) for z in signals])


signal_action.foil("signals read at hs, for a group that does not commute", inverse=False,
                   refuted_by="rho(g) rho(h) x")  # fmt: skip
