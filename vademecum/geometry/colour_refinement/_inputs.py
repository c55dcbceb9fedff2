"""Graphs as they are given, with colours of nodes and edges as numbers from 0."""

from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vademecum.arguments import whole
from vademecum.geometry.colour_refinement._runs import Ints

__all__ = ["Graph", "ranked", "read_graph"]


class Graph(NamedTuple):
    """A graph's edges and its number of nodes; colours as they were given."""

    source: Ints
    target: Ints
    n: int
    colours: np.ndarray | None
    kinds: np.ndarray | None


def read_graph(name: str, graph: Any, colours: Any, edge_colours: Any, of: str = "") -> Graph:
    """A graph from a pair (edge_index, num_nodes), or from what has these as attributes.

    Args:
        name: What the graph is called in errors.
        graph: The pair or the object; its weights, if it has such, are colours of edges.
        colours: Colours of its nodes: one number or one row of numbers each.
        edge_colours: The same for its edges.
        of: What is said of colours in errors, to tell two graphs apart.
    """
    if hasattr(graph, "edge_index") and hasattr(graph, "num_nodes"):
        edges, n = graph.edge_index, graph.num_nodes
        if edge_colours is None:
            edge_colours = getattr(graph, "weight", None)
    elif isinstance(graph, tuple) and len(graph) == 2:
        edges, n = graph
    else:
        kind = type(graph).__name__
        raise ValueError(f"{name} must be an Adjacency or (edge_index, num_nodes), got {kind}")
    n = whole(f"num_nodes of {name}", n, low=0)
    pairs = _edges(name, edges, n)
    return Graph(
        pairs[0], pairs[1], n, _table(f"colours{of}", colours, n, "node"),
        _table(f"edge_colours{of}", edge_colours, pairs.shape[1], "edge"),
    )  # fmt: skip


def _edges(name: str, edges: Any, n: int) -> Ints:
    """The edges as two rows of integers, from 0 to n - 1."""
    if not isinstance(edges, Tensor) or edges.ndim != 2 or len(edges) != 2:
        given = tuple(edges.shape) if isinstance(edges, Tensor) else type(edges).__name__
        raise ValueError(f"edge_index of {name} must have the shape (2, E), got {given}")
    if edges.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"edge_index of {name} must be int64 or int32, got {edges.dtype}")
    pairs = edges.detach().cpu().numpy().astype(np.int64, copy=False)
    if pairs.size and (pairs.min() < 0 or pairs.max() >= n):
        side, place = np.argwhere((pairs < 0) | (pairs >= n))[0]
        raise ValueError(
            f"edge_index of {name} must be from 0 to {n - 1}, got {pairs[side, place]} at"
            f" ({side}, {place})"
        )
    return pairs


def _table(name: str, colours: Any, rows: int, what: str) -> np.ndarray | None:
    """Colours as rows of integers or of doubles."""
    if colours is None:
        return None
    if not isinstance(colours, Tensor) or colours.is_complex():
        given = colours.dtype if isinstance(colours, Tensor) else type(colours).__name__
        raise ValueError(f"{name} must be a real tensor, got {given}")
    if not colours.ndim or len(colours) != rows:
        shape = tuple(colours.shape)
        raise ValueError(f"{name} must have one row for each of {rows} {what}s, got shape {shape}")
    table = colours.detach().cpu().reshape(rows, prod(colours.shape[1:]))
    if table.is_floating_point():
        if not torch.isfinite(table).all():
            place = (~torch.isfinite(table)).nonzero()[0].tolist()
            raise ValueError(f"{name} must be finite, got {table[tuple(place)].item()} at {place}")
        return table.double().numpy() + 0.0  # no -0, whose bits are others
    return table.long().numpy()


def ranked(tables: list[np.ndarray | None], rows: list[int], name: str) -> tuple[Ints, np.ndarray]:
    """Numbers from 0 for the rows of all tables, equal for equal rows, and what they stand for."""
    given = [t for t in tables if t is not None]
    if not given:
        return np.zeros(sum(rows), np.int64), np.zeros((min(1, sum(rows)), 0))
    if len(given) < len(tables) or len({(t.dtype, t.shape[1:]) for t in given}) > 1:
        forms = [None if t is None else f"{t.shape[1]} of {t.dtype}" for t in tables]
        raise ValueError(f"{name} must be of one form for both graphs, got {forms}")
    joined = np.concatenate(given)
    if joined.shape[1] == 1:
        known, ranks = np.unique(joined[:, 0], return_inverse=True)
        return ranks.reshape(-1), known[:, None]
    if not joined.size:
        return np.zeros(len(joined), np.int64), joined[:1]
    known, ranks = np.unique(joined, axis=0, return_inverse=True)
    return ranks.reshape(-1), known
