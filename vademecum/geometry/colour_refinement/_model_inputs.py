"""What a graph network is called with, as a coloured graph; and the same with nodes renumbered.

Edges are the first integers (2, E), or those of an object with `edge_index` (an `Adjacency`, PyG's
`Data`). Other tensors belong to the nodes or to the edges by their length; where the two are
equally many, names with "edge" or "weight" and floating-point tensors behind the edges are the
edges'.
"""

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["ModelInput", "read_model_input"]

_PARTS = ("x", "z", "pos", "batch", "edge_attr", "edge_weight", "weight")
_WHOLE = (torch.int64, torch.int32)


class ModelInput(NamedTuple):
    """A network's input, taken apart; tensors are known by their identity."""

    x: Any
    edge_index: Tensor
    n: int
    nodes: list[Tensor]
    edges: list[Tensor]

    @property
    def colours(self) -> Tensor | None:
        """All that is known of a node, in a row."""
        return _side_by_side(self.nodes)

    @property
    def edge_colours(self) -> Tensor | None:
        """All that is known of an edge."""
        return _side_by_side(self.edges)

    def wide(self) -> Any:
        """The input in double precision."""
        return _mapped(self.x, lambda t: t.double() if t.is_floating_point() else t)

    def renumbered(self, order: Tensor) -> Any:
        """The same graph in double precision, with node `order[i]` as the i-th."""
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order), device=order.device)

        def moved(t: Tensor) -> Tensor:
            if t is self.edge_index:
                return place[t.long()].to(t.dtype)
            t, given = (t.double() if t.is_floating_point() else t), t
            return t[order] if any(given is node for node in self.nodes) else t

        return _mapped(self.x, moved)


def read_model_input(name: str, x: Any) -> ModelInput:
    """Take an input apart.

    Raises:
        ValueError: If it holds no edges, or nothing that tells how many nodes there are.
    """
    leaves: list[tuple[str, Tensor]] = []
    _collect(name, x, leaves, counts := [])
    places = [
        i for i, (_, t) in enumerate(leaves) if t.ndim == 2 and len(t) == 2 and t.dtype in _WHOLE
    ]
    named = [i for i in places if leaves[i][0].endswith(("edge_index", "edge_index']"))]
    if not places:
        raise ValueError(f"{name} must hold edges, integers of shape (2, E), got {_forms(leaves)}")
    at = (named or places)[0]
    edge_index = leaves[at][1]
    rows = [len(t) for i, (_, t) in enumerate(leaves) if i != at and t.ndim]
    if not counts and not rows:
        raise ValueError(f"{name} must hold features of the nodes beside the edges")
    n, E = (counts or rows)[0], edge_index.shape[1]
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < n:
        raise ValueError(f"edges of {name} must be from 0 to {n - 1}, got {int(edge_index.max())}")
    nodes, edges = [], []
    for i, (place, t) in enumerate(leaves):
        if i != at and t.ndim and len(t) in (n, E):
            behind = t.is_floating_point() and i > at
            of_edges = len(t) != n or (
                len(t) == E and ("edge" in place or "weight" in place or behind)
            )
            (edges if of_edges else nodes).append(t)
    return ModelInput(x, edge_index, n, nodes, edges)


def _collect(name: str, x: Any, leaves: list[tuple[str, Tensor]], counts: list[int]) -> None:
    if isinstance(x, Tensor):
        leaves.append((name, x))
    elif isinstance(x, dict):
        for key, value in x.items():
            _collect(f"{name}[{key!r}]", value, leaves, counts)
    elif isinstance(x, tuple | list):
        for i, value in enumerate(x):
            _collect(f"{name}[{i}]", value, leaves, counts)
    elif isinstance(getattr(x, "edge_index", None), Tensor):
        if isinstance(getattr(x, "num_nodes", None), int):
            counts.append(x.num_nodes)
        for part in ("edge_index", *_PARTS):
            if isinstance(value := getattr(x, part, None), Tensor):
                leaves.append((f"{name}.{part}", value))


def _mapped(x: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The input with every tensor replaced, also those of objects with edges."""
    if isinstance(x, Tensor):
        return change(x)
    if isinstance(x, dict):
        return {key: _mapped(value, change) for key, value in x.items()}
    if isinstance(x, tuple | list):
        return type(x)(_mapped(value, change) for value in x)
    if not isinstance(getattr(x, "edge_index", None), Tensor):
        return x
    if hasattr(x, "num_edges") and hasattr(x, "num_graphs") and not hasattr(x, "keys"):
        keys = ("weight", "batch")
        parts = {k: change(t) for k in keys if (t := getattr(x, k)) is not None}
        return type(x)(change(x.edge_index), x.num_nodes, **parts)
    other = copy(x)
    for part in ("edge_index", *_PARTS):
        if isinstance(value := getattr(x, part, None), Tensor):
            setattr(other, part, change(value))
    return other


def _side_by_side(tensors: list[Tensor]) -> Tensor | None:
    """Rows of all tensors in double precision, one behind the other."""
    if not tensors:
        return None
    return torch.cat([t.detach().reshape(len(t), -1).double().cpu() for t in tensors], 1)


def _forms(leaves: list[tuple[str, Tensor]]) -> str:
    return ", ".join(f"{name} {tuple(t.shape)}" for name, t in leaves) or "no tensor"
