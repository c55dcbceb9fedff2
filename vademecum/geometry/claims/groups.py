"""Groups and how they act: axioms, permutations, actions, representations."""

from itertools import permutations, product
from typing import Any, Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, claim, equals
from vademecum.geometry import (
    Group,
    NotAGroup,
    PointAction,
)
from vademecum.geometry import permutation_matrix as matrix_of

Table = list[list[int]]
AXIOMS = ("closed", "associative", "identity", "inverses")
LOOP = "12345 21453 35124 43512 54231"


def made(elements: list, times) -> Table:
    """The table of things that are multiplied by a function; -1 for what is none of them."""
    index = {thing: i for i, thing in enumerate(elements)}
    return [[index.get(times(a, b), -1) for b in elements] for a in elements]


def compose(g: tuple, h: tuple) -> tuple:
    """First h, then g."""
    return tuple(g[i] for i in h)


def symmetric(n: int) -> Table:
    """All orders of n points."""
    return made(list(permutations(range(n))), compose)


def dihedral(n: int) -> Table:
    """Turns of a polygon and then its reflections, as permutations of marked corners."""
    corners = [tuple((k + i) % n for i in range(n)) for k in range(n)]
    corners += [tuple((k - i) % n for i in range(n)) for k in range(n)]
    return made(corners, compose)


def relabelled(table: Table) -> Table:
    """The same group, its elements numbered backwards."""
    last = len(table) - 1
    return [[last - table[last - g][last - h] for h in range(last + 1)] for g in range(last + 1)]


def corrupted(table: Table) -> list[Table]:
    """All tables in which one product is the next element instead."""
    found = []
    for g, h in product(range(len(table)), repeat=2):
        other = [list(row) for row in table]
        other[g][h] = (other[g][h] + 1) % len(table)
        found.append(other)
    return found


def searched(table: Table) -> dict[str, int]:
    """How often each axiom is broken, by search; what depends on a broken one is not asked."""
    all_ = range(len(table))
    outside = sum(entry not in all_ for row in table for entry in row)
    if outside:
        return {"closed": outside}
    found = {"associative": 0}
    for g, h, f in product(all_, repeat=3):
        found["associative"] += table[table[g][h]][f] != table[g][table[h][f]]
    units = [e for e in all_ if all(table[e][g] == g == table[g][e] for g in all_)]
    found["identity"] = int(not units)
    for e in units:
        pairs = [[h for h in all_ if table[g][h] == e == table[h][g]] for g in all_]
        found["inverses"] = sum(not of for of in pairs)
    return found


def refused(table: Table) -> set[str]:
    """The axioms for which `Group.from_table` refuses a table."""
    try:
        Group.from_table(torch.tensor(table))
    except NotAGroup as error:
        return set(error.axioms)
    return set()


def powers(table: Table) -> list[int]:
    """The n-th power of each of n elements, multiplied from the left."""
    found = list(range(len(table)))
    for _ in range(len(table) - 1):
        found = [table[g][p] for g, p in enumerate(found)]
    return found


@claim(
    by="exhaustion",
    sources=("A-180", "A-181", "A-182", "A-183", "D-067", "D-068", "D-069", "D-070"),
    budget=0.6,
    short=r"gh \in \mathcal G,\quad (gh)f = g(hf),\quad eg = ge = g,\quad g g^{-1} = g^{-1} g = e",
)
def group(axioms: Literal["all", "without associativity"] = "all"):
    r"""A group is a set with an operation that keeps four axioms.

    It is closed ($gh \in \mathcal G$), associative ($(gh)f = g(hf)$), has an identity $e$
    ($eg = ge = g$) and an inverse $g^{-1}$ for every $g$ ($g g^{-1} = g^{-1} g = e$). Identity and
    inverses are then unique: $e = e e' = e'$, and $h = h (g h') = (h g) h' = h'$. By Lagrange's
    theorem, each element of a group with $n$ elements has $g^n = e$.

    All of $\mathbb Z_5$, $S_3$, $S_4$, $D_3$, $D_4$, also with other numbers for their elements;
    all 36 tables in which one product of $S_3$ is the next element instead; subtraction modulo 5,
    products of 1, ..., 5 modulo 6, addition capped at 5, a table of order 5 with an identity and
    inverses that is not associative, and its pairs with $\mathbb Z_2$. What `Group` says of each
    axiom is compared with a search over all triples.

    Knobs:
        axioms: Which axioms a table must keep to be called a group.
    """
    groups = {"Z_5": made(list(range(5)), lambda a, b: (a + b) % 5)}
    groups |= {f"S_{n}": symmetric(n) for n in (3, 4)} | {f"D_{n}": dihedral(n) for n in (3, 4)}
    own = [Group.cyclic(5), *map(Group.symmetric, (3, 4)), *map(Group.dihedral, (3, 4))]
    for (name, table), mine in zip(groups.items(), own, strict=True):
        yield equals("the table of a group", mine.table, torch.tensor(table), group=name)
        e = mine.identity
        inverses = [[h for h in mine if table[g][h] == e == table[h][g]] for g in mine]
        yield equals("inverses of an element", [len(of) for of in inverses], 1, group=name)
        yield equals("the inverse", mine.inverses, torch.tensor(inverses)[:, 0], group=name)
        rho = mine.natural().matrices()
        yield equals("the matrix of the inverse", rho[mine.inverses], rho.mT, group=name)
    others = {"subtraction": made(list(range(5)), lambda a, b: (a - b) % 5)}
    others["products modulo 6"] = made([1, 2, 3, 4, 5], lambda a, b: a * b % 6)
    others["capped addition"] = made(list(range(6)), lambda a, b: min(a + b, 5))
    others["a loop"] = [[int(entry) - 1 for entry in row] for row in LOOP.split()]
    loop, two = others["a loop"], (0, 1)
    pairs = [(a, b) for a in range(5) for b in two]
    others["pairs"] = made(pairs, lambda g, h: (loop[g[0]][h[0]], (g[1] + h[1]) % 2))
    tables = [*groups.values(), *map(relabelled, groups.values()), *others.values()]
    tables += corrupted(groups["S_3"])
    said, true = [refused(table) for table in tables], [searched(table) for table in tables]
    for axiom in AXIOMS:
        yield equals("tables that break an axiom", [axiom in each for each in said],
                     [each.get(axiom, 0) > 0 for each in true], axiom=axiom)  # fmt: skip
    ignored = {"associative"} if axioms == "without associativity" else set()
    kept = [t for t, broken in zip(tables, said, strict=True) if broken <= ignored]
    for table in kept:
        e = next(e for e, row in enumerate(table) if row == list(range(len(table))))
        yield equals("g^n in what is called a group", powers(table), e, n=len(table))
    yield at_least("tables called groups", len(kept), 2 * len(groups))


group.foil("a loop of order 5 in which every element is its own inverse",
           axioms="without associativity", refuted_by="g^n in what is called a group")  # fmt: skip


@claim(
    by="exhaustion",
    sources=("D-326", "D-327", "D-328", "D-329", "D-330"),
    budget=0.5,
    short=r"P_{i,\pi(i)} = 1,\quad P^{-1} = P^\top,\quad P_\sigma P_\pi = P_{\pi \circ \sigma}",
)
def permutation_matrix(
    columns: Literal["X P^T", "X P"] = "X P^T",
    order: Literal["reversed", "the same"] = "reversed",
):
    r"""A permutation is a matrix of zeros and ones, and its inverse is the transpose.

    The permutation with $\pi(1), \dots, \pi(M)$ in the second line of the two-line notation is the
    matrix $P$ with $P_{i, \pi(i)} = 1$ and zeros elsewhere, one 1 in every row and column. $P$ is
    orthogonal, $P^{-1} = P^\top$; $P X$ permutes the rows of $X$ and $X P^\top$ its columns by the
    same permutation, row $i$ of $P X$ being row $\pi(i)$ of $X$. Products come in reversed order,
    $P_\sigma P_\pi = P_{\pi \circ \sigma}$.

    All permutations of 3 and 4 points and all pairs of them, in integers; $X$ has columns that
    span the space, which is enough, as all is linear in it.

    Knobs:
        columns: What is said to permute the columns.
        order: In which order permutations are composed, if matrices are multiplied.
    """
    for M in (3, 4):
        all_ = list(permutations(range(M)))
        matrix = {pi: matrix_of(torch.tensor(pi)) for pi in all_}
        P = torch.stack(list(matrix.values()))
        yield equals("sums of rows and columns", torch.stack([P.sum(1), P.sum(2)]), 1, M=M)
        back = [tuple(row.index(1) for row in m.tolist()) for m in matrix.values()]
        yield equals("the second line", back, all_, M=M)
        yield equals("P P^T", P @ P.mT, torch.eye(M).long(), M=M)
        X = torch.cat([torch.eye(M).long(), torch.arange(M)[:, None]], 1)  # columns span all
        rows = torch.stack([torch.stack([X[i] for i in pi]) for pi in all_])
        yield equals("P X", P @ X, rows, M=M)
        Y = X.T.contiguous()
        wide = torch.stack([torch.stack([Y[:, i] for i in pi], 1) for pi in all_])
        found = Y @ (P.mT if columns == "X P^T" else P)
        yield equals("permuted columns", found, wide, M=M)
        pairs = list(product(all_, repeat=2))
        made = torch.stack([matrix[s] @ matrix[p] for s, p in pairs])
        flip = order == "reversed"
        wanted = [matrix[compose(p, s) if flip else compose(s, p)] for s, p in pairs]
        yield equals("P_sigma P_pi", made, torch.stack(wanted), M=M)


permutation_matrix.foil("columns by X P, which is the inverse permutation", columns="X P")
permutation_matrix.foil("products in the same order", order="the same")


def by_hand(points: list[int], x: Tensor) -> Tensor:
    """Coordinates go where a permutation takes them."""
    moved = torch.empty_like(x)
    for i, to in enumerate(points):
        moved[to] = x[i]
    return moved


@claim(
    by="identity",
    sources=("A-184", "A-185"),
    budget=0.5,
    short=r"e(x) = x,\quad g(h(x)) = (gh)(x);\quad (gx)_i = x_{g^{-1}(i)}",
)
def group_action(inverse: bool = True):
    r"""An action lets the elements of a group move points, one after the other as their product.

    A (left) action of $\mathcal G$ on $X$ is a map with $e(x) = x$ and $g(h(x)) = (gh)(x)$; it is
    linear if each $x \mapsto g(x)$ is linear on a vector space. On coordinates the left action of a
    permutation is $(gx)_i = x_{g^{-1}(i)}$: what stood at $i$ stands at $g(i)$. There are actions
    that are not linear, such as $x \mapsto 1 - x$ for the group with two elements.

    All pairs of elements of $S_3$, $S_4$ and $D_4$ on random integer vectors, exactly; the actions
    are those of `PointAction` and of a group's natural representation.

    Knobs:
        inverse: Whether the coordinates are those at $g^{-1}(i)$; without it they are at $g(i)$.
    """
    for mine in (Group.symmetric(3), Group.symmetric(4), Group.dihedral(4)):
        acts = {"points": PointAction(mine), "vectors": mine.natural()}
        x, y = torch.randint(-99, 99, (2, 1, mine.degree))
        hand = torch.stack([by_hand(mine.permutation(g).tolist(), x[0]) for g in mine])
        for name, act in acts.items():
            at: dict[str, Any] = {"group": str(mine), "on": name}

            def move(g: int, z: Tensor, act=act, mine=mine) -> Tensor:
                return act(g if inverse else mine.inverse(g), z)

            yield equals("e(x)", move(mine.identity, x), x, **at)
            once = torch.cat([move(g, x) for g in mine])
            twice = torch.stack([move(g, once) for g in mine])  # of g and h
            yield equals("g(h(x))", twice, once[mine.table], **at)
            moved = torch.cat([act(g, x) for g in mine])
            yield equals("g(x), coordinate by coordinate", moved, hand, **at)
            sums = torch.cat([move(g, 3 * x - 2 * y) for g in mine])
            apart = torch.cat([3 * move(g, x) - 2 * move(g, y) for g in mine])
            yield equals("g(3x - 2y)", sums, apart, **at)
    two = Group.cyclic(2)
    x = torch.randint(-99, 99, (5,))
    for g, h in product(two, repeat=2):
        once = x if two.multiply(g, h) == 0 else 1 - x
        inner = x if h == 0 else 1 - x
        yield equals("x and 1 - x, one after the other", inner if g == 0 else 1 - inner, once)
    yield equals("1 - 2x is not twice 1 - x, but less by", 2 * (1 - x) - (1 - 2 * x), 1)


group_action.foil("coordinates at g(i), which act from the right", inverse=False,
                  refuted_by="g(h(x))")  # fmt: skip
