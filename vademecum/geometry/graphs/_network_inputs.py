"""What a graph network is called with, taken apart: the graph, and what belongs to nodes or edges.

The graph is integers (2, E), an `Adjacency`, or an object with `edge_index`, as PyG's `Data`; some
also take sparse square matrices, with targets as rows. Other tensors belong to the nodes or to the
edges by their length. Where the two are equally many, names tell, then the place: what comes before
the edges is the nodes', floating point behind them is the edges', integers behind them are refused.
"""

import re
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.geometry.graphs._checks import check_edges, is_edge_index
from vademecum.geometry.graphs._quiet_sparse import quiet_sparse
from vademecum.geometry.graphs.adjacencies import Adjacency, adjacency_of
from vademecum.models import map_leaves, named_leaves, refuse_nan

__all__ = ["GraphInput", "holds_graph", "map_graph", "read_graph"]

_OF_NODES = ("x", "z", "pos", "batch")
_OF_EDGES = ("edge_attr", "edge_weight", "weight")
Leaves = list[tuple[str, Any]]


class GraphInput(NamedTuple):
    """A network's input, taken apart; tensors are known by their identity."""

    x: Any
    edges: Any
    weight: Tensor | None
    n: int
    nodes: list[Tensor]
    of_edges: list[Tensor]

    @property
    def edge_index(self) -> Tensor:
        """The pairs of nodes, where the graph is no sparse matrix."""
        return self.edges.edge_index if isinstance(self.edges, Adjacency) else self.edges

    @property
    def features(self) -> Tensor:
        """The first floating-point tensor of the nodes with two axes or more."""
        return next(t for t in self.nodes if t.is_floating_point() and t.ndim > 1)

    def graph(self) -> Adjacency:
        """The graph with its weights, sorted once."""
        edges, weight = self.edges, self.weight
        if hasattr(edges, "sparse_sizes"):  # of torch_sparse, with targets as rows
            edges = edges.to_torch_sparse_coo_tensor()
        if isinstance(edges, Tensor) and edges.layout != torch.strided:
            with quiet_sparse():
                entries = edges.to_sparse_coo().coalesce()
            edges, weight = entries.indices().flip(0), entries.values()
        return adjacency_of(edges, self.n, weight=weight)

    def with_features(self, features: Tensor) -> Any:
        """The input with other features of nodes."""
        old = self.features
        return map_graph(self.x, lambda t: features if t is old else t)

    def renumbered(self, order: Tensor) -> Any:
        """The input with node `order[i]` as the i-th; edges stay in their order."""
        place = order.argsort()

        def moved(t: Tensor) -> Tensor:
            if t is self.edge_index:
                return place.to(t.device)[t.long()].to(t.dtype)
            return t[order.to(t.device)] if any(t is node for node in self.nodes) else t

        return map_graph(self.x, moved)


def holds_graph(args: Any) -> bool:
    """Whether there is a graph among the arguments."""
    return any(_is_graph(leaf) for _, leaf in named_leaves(args))


def map_graph(x: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The input with every tensor replaced, also those of objects with edges."""

    def leaf(old: Any) -> Any:
        if isinstance(old, Tensor):
            return change(old)
        new = {k: change(t) for k, t in _parts(old)}
        if all(new[k] is t for k, t in _parts(old)):
            return old
        if isinstance(old, Adjacency):
            return Adjacency(new.pop("edge_index"), old.num_nodes, **new)
        other = copy(old)
        for k, t in new.items():
            setattr(other, k, t)
        return other

    return map_leaves(x, leaf)


def read_graph(name: str, x: Any, *, edges: Any = None, any_form: bool = False) -> GraphInput:
    """Take an input apart.

    Args:
        name: What the caller calls it.
        x: What the network is called with.
        edges: The graph, if it is not there.
        any_form: Whether the graph may be a sparse matrix as well, beside floating-point features.

    Raises:
        ValueError: If it holds no graph, nothing that tells how many nodes there are, or integers
            that may belong to either.
    """
    if any_form:
        refuse_nan(x)
    leaves = list(_leaves(name, x))
    at = len(leaves) if edges is not None else _place_of_edges(name, leaves, any_form)
    edges = leaves.pop(at)[1] if edges is None else edges
    n = _count_nodes(name, leaves, any_form)
    pairs = edges if is_edge_index(edges) else getattr(edges, "edge_index", None)
    E = -1 if pairs is None else check_edges(pairs, n).shape[1]
    nodes, rest, weight = [], [], None
    for i, (place, t) in enumerate(leaves):
        if _has_rows(t) and len(t) in (n, E):
            of_nodes = len(t) == n and (n != E or _of_nodes(place, t, i < at))
            (nodes if of_nodes else rest).append(t)
            numbers = not of_nodes and t.is_floating_point() and t.numel() == E
            if numbers and (t.ndim == 1 or "weight" in place) and weight is None:
                weight = t.reshape(-1)
    return GraphInput(x, edges, weight if pairs is edges else None, n, nodes, rest)


def _parts(leaf: Any) -> list[tuple[str, Tensor]]:
    """The tensors of an object with edges, by their names."""
    if isinstance(leaf, Tensor) or not isinstance(getattr(leaf, "edge_index", None), Tensor):
        return []
    parts = [(k, getattr(leaf, k, None)) for k in ("edge_index", *_OF_NODES, *_OF_EDGES)]
    return [(k, t) for k, t in parts if isinstance(t, Tensor)]


def _leaves(name: str, x: Any) -> Iterator[tuple[str, Any]]:
    """Tensors and graphs with their places, and how many nodes an object says it has."""
    for place, leaf in named_leaves(x, name):
        known, parts = isinstance(leaf, Adjacency), _parts(leaf)
        if known or not parts:
            yield place, leaf
        if parts:
            yield f"{place}.num_nodes", getattr(leaf, "num_nodes", None)
        yield from ((f"{place}.{k}", t) for k, t in parts[known:])


def _is_graph(leaf: Any) -> bool:
    """Whether this looks like the edges of a graph, in any form."""
    if isinstance(leaf, Tensor) and leaf.layout != torch.strided:
        return leaf.ndim == 2 and leaf.shape[0] == leaf.shape[1]
    return is_edge_index(leaf) or bool(_parts(leaf)) or hasattr(leaf, "sparse_sizes")


def _place_of_edges(name: str, leaves: Leaves, any_form: bool) -> int:
    kind = _is_graph if any_form else lambda t: is_edge_index(t) or isinstance(t, Adjacency)
    places = [i for i, (_, leaf) in enumerate(leaves) if kind(leaf)]
    usual = [
        i for i in places if leaves[i][0] == f"{name}[1]" or _key(leaves[i][0]) == "edge_index"
    ]
    if not places:
        forms = [f"{place} {tuple(t.shape)}" for place, t in leaves if isinstance(t, Tensor)]
        hint = "; if the model keeps it, give edges=" if any_form else ""
        raise ValueError(
            f"{name} must hold the graph, integers of shape (2, E) or an Adjacency, got"
            f" {', '.join(forms) or 'no tensor'}{hint}"
        )
    return (usual or places)[0]


def _count_nodes(name: str, leaves: Leaves, any_form: bool) -> int:
    """By the features, or by what an object says."""
    others = [(_key(place), t) for place, t in leaves if _has_rows(t)]
    others = [(key, t) for key, t in others if "edge" not in key and "weight" not in key]
    blocks = [t for _, t in others if t.is_floating_point() and t.ndim > 1]
    if any_form and not blocks:
        raise ValueError(
            f"{name} must hold a floating-point row of features for each node, got none"
        )
    found = blocks if any_form else [t for key, t in others if key in _OF_NODES] or blocks
    rows = [len(t) for t in found or [t for _, t in others]]
    said = [n for place, n in leaves if _key(place) == "num_nodes" and isinstance(n, int)]
    if not said and not rows:
        raise ValueError(f"{name} must hold features of the nodes beside the edges")
    if said and rows and said[0] != rows[0]:
        raise ValueError(
            f"{name} must have {said[0]} rows of features, one for each node, got {rows[0]}"
        )
    return (said or rows)[0]


def _has_rows(t: Any) -> bool:
    dense = isinstance(t, Tensor) and t.layout == torch.strided and not t.is_nested
    return dense and t.ndim > 0


def _of_nodes(place: str, t: Tensor, before: bool) -> bool:
    """Whether a tensor belongs to the nodes, where these are as many as the edges."""
    key = _key(place)
    if key in _OF_NODES or "edge" in key or "weight" in key:
        return key in _OF_NODES
    if not before and not t.is_floating_point():
        raise ValueError(
            f"{place} must not be {len(t)} integers where there are as many nodes as edges: say"
            " what they belong to, by a name such as batch or edge_type"
        )
    return before


def _key(place: str) -> str:
    """The last name or number of a place."""
    return re.findall(r"\w+", place)[-1]
