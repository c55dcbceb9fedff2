"""Small graphs as dense matrices, drawn at random, and what can be found by walking on them."""

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import torch
from torch import Tensor, nn

from vademecum import geometry
from vademecum.claims import Evidence, equals

__all__ = [
    "bipartite_components", "complete_bipartite", "components", "cycle", "edges_of", "from_pairs",
    "hops_from", "laplacian_of", "path", "random_graph", "renumbered", "torus",
]  # fmt: skip


def random_graph(n: int, p: float, *, most: int = 1, linked: bool = False) -> Tensor:
    """A symmetric matrix of whole weights up to `most`, without loops; connected if `linked`."""
    kept = torch.rand(n, n) < p
    A = (torch.randint(1, most + 1, (n, n)) * kept).triu(1).double()
    if linked:  # a path through all nodes in random order
        order = torch.randperm(n)
        for u, v in zip(order[:-1].tolist(), order[1:].tolist(), strict=True):
            A[min(u, v), max(u, v)] = float(torch.randint(1, most + 1, ()))
    return A + A.T


def edges_of(A: Tensor) -> tuple[Tensor, Tensor]:
    """Edges (2, E), source and target in random order, and their weights."""
    target, source = A.nonzero(as_tuple=True)
    order = torch.randperm(len(source))
    return torch.stack([source, target])[:, order], A[target, source][order]


def renumbered(layer: nn.Module) -> Iterator[Evidence]:
    """That a layer of 4 features moves along with the nodes of a random graph, in all 24 orders."""
    A, x = random_graph(4, 0.6), torch.randn(4, 4)
    edges, _ = edges_of(A)
    y = layer(x, edges).detach()
    for order in permutations(range(4)):
        new = torch.tensor(order)
        P = torch.eye(4)[new.argsort()]
        there = layer(P @ x, new[edges]).detach()
        yield equals("renumbered output", there, P @ y, tol=1e-12, permutation=order)


def laplacian_of(A: Tensor, **options: Any) -> geometry.GraphLaplacian:
    """The Laplacian of a graph, from its edges in random order."""
    edges, weight = edges_of(A)
    return geometry.graph_laplacian(edges, len(A), weight=weight, **options)


def from_pairs(n: int, pairs: list[tuple[int, int]]) -> Tensor:
    """The matrix of an undirected graph."""
    A = torch.zeros(n, n)
    for u, v in pairs:
        A[u, v] = A[v, u] = 1
    return A


def path(n: int) -> Tensor:
    """The path on n nodes."""
    return from_pairs(n, [(i, i + 1) for i in range(n - 1)])


def cycle(n: int) -> Tensor:
    """The cycle on n nodes."""
    return from_pairs(n, [(i, (i + 1) % n) for i in range(n)])


def complete_bipartite(a: int, b: int) -> Tensor:
    """All edges between a nodes and b others."""
    return from_pairs(a + b, [(i, a + j) for i in range(a) for j in range(b)])


def torus(side: int) -> Tensor:
    """A square grid whose opposite sides are joined; node (i, j) is number `side * i + j`."""
    pairs = list[tuple[int, int]]()
    for i in range(side):
        for j in range(side):
            pairs += [(side * i + j, side * ((i + 1) % side) + j)]
            pairs += [(side * i + j, side * i + (j + 1) % side)]
    return from_pairs(side * side, pairs)


def hops_from(A: Tensor, start: int) -> tuple[list[int], list[int]]:
    """The distance of each node, -1 where there is no way, and the number of shortest ways."""
    n = len(A)
    hops, ways = [-1] * n, [0] * n
    hops[start], ways[start], front = 0, 1, [start]
    while front:
        ahead = list[int]()
        for u in front:
            for v in range(n):
                if A[u, v] and hops[v] < 0:
                    hops[v] = hops[u] + 1
                    ahead.append(v)
                if A[u, v] and hops[v] == hops[u] + 1:
                    ways[v] += ways[u]
        front = ahead
    return hops, ways


def components(A: Tensor) -> list[list[int]]:
    """The connected components, a list of nodes each."""
    found, left = list[list[int]](), set(range(len(A)))
    while left:
        hops, _ = hops_from(A, min(left))
        found.append([v for v, hop in enumerate(hops) if hop >= 0])
        left -= set(found[-1])
    return found


def bipartite_components(A: Tensor) -> int:
    """How many components have an edge, and all edges between even and odd distances."""
    count = 0
    for nodes in components(A):
        hops, _ = hops_from(A, nodes[0])
        edges = [(u, v) for u in nodes for v in nodes if A[u, v]]
        count += bool(edges) and all((hops[u] - hops[v]) % 2 for u, v in edges)
    return count
