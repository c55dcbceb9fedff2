r"""Colours of graphs: what refinement tells apart, what it does not, and networks below it."""

from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import Evidence, at_most, claim, equals
from vademecum.geometry import weisfeiler_leman
from vademecum.geometry.claims._all_graphs import (
    all_graphs,
    edges_of,
    is_isomorphic,
    named_colours,
    pairs_apart,
)
from vademecum.geometry.claims._small_graphs import (
    complete_bipartite,
    cycle,
    from_pairs,
    path,
    random_graph,
)
from vademecum.geometry.colour_refinement import colours_by_round

Neighbours = Literal["multiset", "set"]
STAR = ((0, 1), (0, 2), (0, 3))


def beside(A: Tensor, B: Tensor) -> Tensor:
    """Two graphs as one."""
    return torch.block_diag(A, B)


def renumbered(A: Tensor) -> tuple[Tensor, Tensor]:
    """The same graph with its nodes in another order, and the order."""
    order = torch.randperm(len(A))
    return A[order][:, order], order


@claim(
    by="identity", sources=("A-204", "C-201", "D-357"), budget=1.0,
    short=r"c_{t+1}(v) = \mathrm{name}\big(c_t(v), \{c_t(u) : u \sim v\}_{\text{multiset}}\big)",
)  # fmt: skip
def wl_test(
    neighbours: Neighbours = "multiset", most: Callable[[int], int] = lambda n: n - 1
) -> Iterator[Evidence]:
    r"""Weisfeiler-Leman colour refinement.

    Start with equal (or feature) colours and replace each node's colour by an injective code of its
    colour and the multiset of its neighbours' colours until the partition is stable, which takes at
    most $n - 1$ effective rounds, since each parts a colour; different colour histograms prove two
    graphs non-isomorphic. A path on $n$ nodes takes $\lfloor (n - 1) / 2 \rfloor$.

    All 208 graphs with up to 6 nodes, of which 21,524 of 21,528 pairs are told apart, against names
    for nested tuples; for 30 pairs the round as well; directed graphs with colours. That the four
    other pairs are isomorphic in no case is known by trying all numberings.

    Knobs:
        neighbours: What a node's new colour is made of beside its own.
        most: The most effective rounds of a graph with so many nodes.
    """
    graphs = list(all_graphs())
    counts = torch.tensor([len(A) for A in graphs]).bincount()[1:]
    yield equals("graphs with 1 to 6 nodes", counts, [1, 2, 4, 11, 34, 156])
    found = [weisfeiler_leman(edges_of(A)) for A in graphs]
    named = named_colours(graphs, 6, kind=neighbours)
    apart, stated = pairs_apart([f.hash for f in found]), pairs_apart(named[-1])
    yield equals("pairs told apart", apart, stated)
    yield equals("number of pairs told apart", int(apart.triu(1).sum()), 21524)
    for i, j in (~apart).triu(1).nonzero().tolist():
        yield equals("whether a pair that is not is isomorphic",
                     int(is_isomorphic(graphs[i], graphs[j])), 0)  # fmt: skip
    for f, A in zip(found, graphs, strict=True):
        yield at_most("rounds", f.rounds, most(len(A)), n=len(A))
    for i, j in torch.randint(208, (30, 2)).tolist():
        pair = weisfeiler_leman(edges_of(graphs[i]), edges_of(graphs[j]))
        rounds = [t for t, names in enumerate(named) if sorted(names[i]) != sorted(names[j])]
        yield equals("round that tells", -1 if pair.different_at is None else pair.different_at,
                     min(rounds, default=-1), n1=len(graphs[i]), n2=len(graphs[j]))  # fmt: skip
    star = weisfeiler_leman(edges_of(from_pairs(4, list(STAR))), edges_of(path(4)))
    yield equals("round that tells a star from a path", star.different_at or -1, 1)
    for n in (8, 9, 15):
        chain = edges_of(path(n))
        rounds = weisfeiler_leman(chain).rounds
        yield equals("rounds of a path", rounds, (n - 1) // 2, n=n)
        yield at_most("rounds", rounds, most(n), n=n)
        history = colours_by_round(chain)
        for old, new in pairwise(history):
            pairs = len(torch.stack([old, new]).unique(dim=1).T)
            yield equals("colours of a round within those of before", pairs,
                         len(new.unique()), n=n)  # fmt: skip
    for _ in range(5):  # directed ones, with colours
        A = (torch.rand(9, 9) < 0.2).double()
        first = torch.randint(2, (9,))
        now = weisfeiler_leman(edges_of(A), colours=first)
        (names,) = named_colours([A], 9, kind=neighbours, first=[first.tolist()])[-1]
        same = torch.tensor(names)[:, None] == torch.tensor(names)
        yield equals("nodes of one colour", now.colours[:, None] == now.colours, same)


wl_test.foil("the set of neighbours' colours", neighbours="set")
wl_test.foil("one round fewer than a path takes", most=lambda n: max(0, (n - 1) // 2 - 1))


def rook() -> Tensor:
    """The 4 x 4 rook's graph: fields of one row or column are joined."""
    fields = [(i, j) for i in range(4) for j in range(4)]
    return torch.tensor([[float(a != b and (a[0] == b[0] or a[1] == b[1])) for b in fields]
                         for a in fields])  # fmt: skip


def shrikhande() -> Tensor:
    """Shrikhande's graph: a torus of 4 x 4 fields, joined along rows, columns and a diagonal."""
    steps = {(0, 1), (0, 3), (1, 0), (3, 0), (1, 1), (3, 3)}
    fields = [(i, j) for i in range(4) for j in range(4)]
    return torch.tensor([[float(((a[0] - b[0]) % 4, (a[1] - b[1]) % 4) in steps) for b in fields]
                         for a in fields])  # fmt: skip


def cliques(A: Tensor) -> int:
    """How many sets of four nodes are all joined."""
    joined = A.bool()
    return sum(bool(joined[a, b] and joined[a, c] and joined[a, d] and joined[b, c] and
                    joined[b, d] and joined[c, d])
               for a, b, c, d in combinations(range(len(A)), 4))  # fmt: skip


@claim(
    by="identity", sources=("A-205", "C-201", "D-358"), budget=0.9,
    short=r"G \cong H \Rightarrow \text{equal histograms, but not conversely: } C_6,\ 2 C_3",
)  # fmt: skip
def wl_incompleteness(
    converse: bool = False, start: Literal["equal colours", "node numbers"] = "equal colours"
) -> Iterator[Evidence]:
    r"""WL is sound but not complete.

    Isomorphic graphs always receive equal colour histograms, so equality is necessary for
    isomorphism; it is not sufficient: any two $d$-regular graphs with the same number of nodes look
    alike, e.g. the hexagon $C_6$ and two triangles, or $K_{3,3}$ and a prism. The reason: in a
    regular graph all nodes keep one colour.

    Random graphs and renumberings; all pairs of regular graphs with up to 6 nodes; Shrikhande's
    graph and the rook's graph with 16 nodes, of which only the second has four nodes that are all
    joined. Isomorphism of graphs with up to 6 nodes is decided by trying all numberings.

    Knobs:
        converse: Whether equal histograms are taken to prove isomorphism.
        start: The first colours.
    """
    for k in range(40):
        n = 5 + k % 9
        A = random_graph(n, 0.3)
        B, order = renumbered(A)
        colours = torch.arange(n) if start == "node numbers" else torch.zeros(n, dtype=torch.long)
        pair = weisfeiler_leman(edges_of(A), edges_of(B), colours=(colours, colours))
        told = -1 if pair.different_at is None else pair.different_at
        yield equals("round that tells isomorphic graphs apart", told, -1, n=n)
        if start == "equal colours":
            assert pair.other_colours is not None
            yield equals(
                "colours of renumbered nodes", pair.other_colours, pair.colours[order], n=n
            )
    regular = [A for A in all_graphs() if len(A.sum(1).unique()) == 1]
    for A, B in combinations(regular, 2):
        alike = len(A) == len(B) and bool(A.sum() == B.sum())
        told = weisfeiler_leman(edges_of(A), edges_of(B)).different_at
        yield equals("whether regular graphs look alike", int(told is None), int(alike), n=len(A))
    triangles = beside(cycle(3), cycle(3))
    prism, across = triangles + torch.eye(6).roll(3, 1), complete_bipartite(3, 3)
    for degree, A, B in ((2, cycle(6), triangles), (3, across, prism)):
        equal = int(weisfeiler_leman(edges_of(A), edges_of(B)).different_at is None)
        yield equals("equal histograms of regular graphs", equal, 1, d=degree)
        stated = equal if converse else 0
        yield equals("whether they are isomorphic", int(is_isomorphic(A, B)), stated, d=degree)
    large = weisfeiler_leman(edges_of(rook()), edges_of(shrikhande()))
    yield equals("equal histograms of two graphs with 16 nodes", int(large.different_at is None), 1)
    yield equals("four joined nodes in either", [cliques(rook()), cliques(shrikhande())], [8, 0])


wl_incompleteness.foil("equal histograms imply isomorphism", converse=True)
wl_incompleteness.foil("with numbered nodes it is not even sound", start="node numbers")
