"""Refusing what is no graph: each error names the first edge, weight or node that offends."""

from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import floats

__all__ = ["check_batch", "check_edges", "check_features", "check_weight", "is_edge_index"]


def is_edge_index(x: Any) -> bool:
    """Whether something looks like edges: integers of shape (2, E)."""
    dense = isinstance(x, Tensor) and x.layout == torch.strided
    return dense and x.ndim == 2 and len(x) == 2 and _is_integral(x)


def check_edges(edge_index: Any, num_nodes: int) -> Tensor:
    """Pairs of node numbers, (2, E), all in range, in integers that hold any node."""
    if not isinstance(edge_index, Tensor):
        raise ValueError(f"edge_index must be a tensor, got {type(edge_index).__name__}")
    if edge_index.ndim != 2 or len(edge_index) != 2:
        raise ValueError(f"edge_index must have shape (2, E), got {tuple(edge_index.shape)}")
    if not _is_integral(edge_index):
        raise ValueError(f"edge_index must hold integers, got {edge_index.dtype}")
    if edge_index.numel():
        low, high = torch.stack(torch.aminmax(edge_index)).tolist()
        if low < 0:
            raise ValueError(f"edge_index must be >= 0, got {_first(edge_index, edge_index < 0)}")
        if high >= num_nodes:
            where = _first(edge_index, edge_index >= num_nodes)
            raise ValueError(f"edge_index must be < num_nodes = {num_nodes}, got {where}")
    return edge_index if edge_index.dtype in (torch.int32, torch.int64) else edge_index.long()


def check_weight(weight: Any, edge_index: Tensor) -> Tensor:
    """A finite real weight for each edge, where the edges are."""
    weight = floats("weight", weight, empty=True)
    if weight.shape != edge_index.shape[1:]:
        wanted = f"shape ({edge_index.shape[1]},), one for each edge"
        raise ValueError(f"weight must have {wanted}, got {tuple(weight.shape)}")
    if weight.is_complex():
        raise ValueError(f"weight must be real, got {weight.dtype}")
    if weight.device != edge_index.device:
        raise ValueError(f"weight must be on {edge_index.device}, got {weight.device}")
    return weight


def check_batch(batch: Any, edge_index: Tensor, num_nodes: int) -> Tensor:
    """The graph of each node: 0, 0, ..., 1, ..., without gaps, and no edge between two graphs."""
    if not isinstance(batch, Tensor) or not _is_integral(batch):
        given = batch.dtype if isinstance(batch, Tensor) else type(batch).__name__
        raise ValueError(f"batch must be a tensor of integers, got {given}")
    if batch.shape != (num_nodes,):
        wanted = f"shape ({num_nodes},), one for each node"
        raise ValueError(f"batch must have {wanted}, got {tuple(batch.shape)}")
    if batch.device != edge_index.device:
        raise ValueError(f"batch must be on {edge_index.device}, got {batch.device}")
    batch = batch.long()
    if num_nodes and batch[0] != 0:
        raise ValueError(f"batch must begin with 0, got {int(batch[0])}")
    step = batch.diff()
    if ((step < 0) | (step > 1)).any():
        at = int(((step < 0) | (step > 1)).nonzero()[0])
        what = "have no gaps" if step[at] > 0 else "not decrease"
        raise ValueError(f"batch must {what}, got {batch[at : at + 2].tolist()} at {at}")
    source, target = batch[edge_index]
    if not source.equal(target):
        at = int((source != target).nonzero()[0])
        ends = edge_index[:, at].tolist()
        raise ValueError(f"edges must stay within a graph of batch, got edge {at} = {ends}")
    return batch


def check_features(name: str, x: Any, num_nodes: int, device: torch.device) -> Tensor:
    """Features in floating point with a row for each node, where the graph is.

    They are not searched for NaN, which would stay NaN.
    """
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {x.dtype}")
    if x.ndim == 0 or len(x) != num_nodes:
        shape = tuple(x.shape)
        raise ValueError(f"{name} must have {num_nodes} rows, one for each node, got shape {shape}")
    if x.device != device:
        raise ValueError(f"{name} must be on {device}, where the edges are, got {x.device}")
    return x


def _is_integral(x: Tensor) -> bool:
    return x.dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _first(x: Tensor, bad: Tensor) -> str:
    """The first offender in the order of the edges, and its place."""
    edge, end = bad.t().nonzero()[0].tolist()
    return f"{int(x[end, edge])} at {(end, edge)}"
