"""The graph and the features of nodes among what a network is called with, in any spelling.

A graph is an `Adjacency`, integers (2, E), a sparse square tensor with targets as rows, or an
object with `edge_index`, as PyG's `Data`. Features are the first floating-point tensor beside it
with two axes or more, or the object's `x`.
"""

from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.geometry.graphs import Adjacency, adjacency_of, is_edge_index, quiet_sparse
from vademecum.models import map_tensors, named_leaves, refuse_nan

__all__ = ["GraphInput", "holds_graph", "read_input"]


class GraphInput(NamedTuple):
    """A network's input, taken apart."""

    x: Any
    features: Tensor
    graph: Adjacency

    def with_features(self, features: Tensor) -> Any:
        """The input with other features of nodes."""
        old = self.features

        def other(t: Tensor) -> Tensor:
            return features if t is old else t

        return _through_objects(map_tensors(self.x, other), old, features)


def _through_objects(x: Any, old: Tensor, new: Tensor) -> Any:
    """The same where an object holds the features."""
    if isinstance(x, tuple) and type(x) is tuple:
        return tuple(_through_objects(each, old, new) for each in x)
    if isinstance(x, dict):
        return {key: _through_objects(each, old, new) for key, each in x.items()}
    if _is_data(x) and getattr(x, "x", None) is old:
        x = copy(x)
        x.x = new
    return x


def _is_data(leaf: Any) -> bool:
    known = isinstance(leaf, Tensor | Adjacency)
    return not known and isinstance(getattr(leaf, "edge_index", None), Tensor)


def is_graph(leaf: Any) -> bool:
    """Whether this looks like the edges of a graph."""
    if isinstance(leaf, Tensor):
        if leaf.layout != torch.strided:
            return leaf.ndim == 2 and leaf.shape[0] == leaf.shape[1]
        return is_edge_index(leaf)
    return isinstance(leaf, Adjacency) or _is_data(leaf) or hasattr(leaf, "sparse_sizes")


def holds_graph(args: Any) -> bool:
    """Whether there is a graph among the arguments."""
    return any(is_graph(leaf) for _, leaf in named_leaves(args))


def read_input(x: Any, edges: Any = None, weight: Tensor | None = None) -> GraphInput:
    """Find the graph and the features of its nodes.

    Args:
        x: What the network is called with.
        edges: The graph, if it is not there.
        weight: The weights of its edges.

    Raises:
        ValueError: If there is none.
    """
    refuse_nan(x)
    leaves = list(_leaves(x))
    features = [t for _, t in leaves if _is_block(t)]
    if not features:
        raise ValueError("x must hold a floating-point row of features for each node, got none")
    n = len(features[0])
    if edges is None:
        edges, weight = _found(leaves, weight)
    return GraphInput(x, features[0], _edges(edges, n, weight))


def _leaves(x: Any) -> Iterator[tuple[str, Any]]:
    for name, leaf in named_leaves(x):
        if _is_data(leaf):
            yield f"{name}.x", getattr(leaf, "x", None)
            yield f"{name}.edge_index", leaf.edge_index
            yield f"{name}.edge_weight", getattr(leaf, "edge_weight", None)
        else:
            yield name, leaf


def _is_block(t: Any) -> bool:
    dense = isinstance(t, Tensor) and t.layout == torch.strided and not t.is_nested
    return dense and t.is_floating_point() and t.ndim >= 2


def _found(leaves: list[tuple[str, Any]], weight: Tensor | None) -> tuple[Any, Tensor | None]:
    """The graph among the leaves, and the weights of its edges."""
    for _, leaf in leaves:
        if is_graph(leaf):
            if isinstance(leaf, Tensor) and leaf.layout == torch.strided:
                for other, t in leaves:
                    if weight is None and _is_weight(other, t, leaf.shape[1]):
                        weight = t.reshape(-1)
            return leaf, weight
    raise ValueError(
        "x must hold the graph: edges (2, E) of integers or an Adjacency beside the features, got"
        f" {', '.join(name for name, _ in leaves)}; if the model keeps it, give edges="
    )


def _is_weight(name: str, t: Any, E: int) -> bool:
    numbers = isinstance(t, Tensor) and t.is_floating_point() and t.numel() == E
    return numbers and (t.ndim == 1 or "weight" in name)


def _edges(edges: Any, n: int, weight: Tensor | None) -> Adjacency:
    if hasattr(edges, "sparse_sizes"):  # of torch_sparse, with targets as rows
        edges = edges.to_torch_sparse_coo_tensor()
    if isinstance(edges, Tensor) and edges.layout != torch.strided:
        with quiet_sparse():
            entries = edges.to_sparse_coo().coalesce()
        edges, weight = entries.indices().flip(0), entries.values()
    return adjacency_of(edges, n, weight=weight)
