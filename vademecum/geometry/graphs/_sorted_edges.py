r"""Edges in compressed rows: sorted by target, then by source, and the same transposed.

Row $i$ holds the edges into node $i$, numbers $p_i$ to $p_{i+1} - 1$. They are sorted by counting
(two stable sorts of small integers, one where the sources are in order already); parallel edges
keep the order in which they came.
"""

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.geometry.graphs._quiet_sparse import quiet_sparse

__all__ = ["Copies", "Rows", "SortedEdges", "one_way_edge", "starts_of_rows"]


class Rows(NamedTuple):
    """A square matrix' pattern, row by row."""

    ptr: Tensor
    """Where each row begins, and where the last one ends, (N + 1,)."""
    columns: Tensor
    """The columns, (E,), of the same integers."""


class Copies:
    """The pattern of several copies of a graph side by side, as a matrix of blocks."""

    def __init__(self, rows: Rows, count: int):
        self.count, self._one = count, rows
        nodes, edges = len(rows.ptr) - 1, rows.columns.numel()
        small = count * max(nodes, edges) + 1 < 2**31
        self._dtype = rows.ptr.dtype if small else torch.int64

    @cached_property
    def ptr(self) -> Tensor:
        """Where each row of each copy begins, and where the last one ends."""
        starts, total = self._shifted(self._one.ptr[:-1], self._one.columns.numel())
        return torch.cat([starts, total])

    @cached_property
    def columns(self) -> Tensor:
        """The columns, copy by copy."""
        return self._shifted(self._one.columns, len(self._one.ptr) - 1)[0]

    def _shifted(self, numbers: Tensor, step: int) -> tuple[Tensor, Tensor]:
        with torch.inference_mode(False):
            shifts = step * torch.arange(self.count + 1, dtype=self._dtype, device=numbers.device)
            return (numbers + shifts[:-1, None]).flatten(), shifts[-1:]


class SortedEdges:
    """The pattern of a graph's adjacency matrix and of its transpose, without weights."""

    def __init__(self, edge_index: Tensor, num_nodes: int):
        self.num_nodes = num_nodes
        self._copies: dict[bool, Copies] = {}
        source, target = edge_index
        small = max(num_nodes + 1, source.numel() + 1) < 2**31
        source, target = (e.to(torch.int32 if small else torch.int64) for e in (source, target))
        first = None
        if source.numel() and bool((source[1:] < source[:-1]).any()):
            source, first = source.sort(stable=True)
            target = target.index_select(0, first)
        self.targets, order = target.sort(stable=True)
        self.rows = Rows(starts_of_rows(self.targets, num_nodes), source.index_select(0, order))
        self.order = order if first is None else first.index_select(0, order)

    @cached_property
    def transposed(self) -> tuple[Rows, Tensor]:
        """The pattern of the transpose, and where in the rows its edges stand."""
        with torch.inference_mode(False):
            sources, order = self.rows.columns.sort(stable=True)
            columns = self.targets.index_select(0, order)
            return Rows(starts_of_rows(sources, self.num_nodes), columns), order

    def copies(self, count: int, *, transpose: bool = False) -> Rows | Copies:
        """The pattern, or its transpose, of so many copies of the graph; the latest are kept."""
        rows = self.transposed[0] if transpose else self.rows
        if count == 1:
            return rows
        found = self._copies.get(transpose)
        if found is None or found.count != count:
            found = self._copies[transpose] = Copies(rows, count)
        return found

    @property
    def num_edges(self) -> int:
        """How many edges there are."""
        return self.targets.numel()

    @property
    def sources(self) -> Tensor:
        """Where each edge comes from, in the order of the rows."""
        return self.rows.columns

    @cached_property
    def mirrored(self) -> bool:
        """Whether each edge has its mirror image, as often as it occurs itself."""
        rows, back = self.rows, self.transposed[0]
        return rows.ptr.equal(back.ptr) and rows.columns.equal(back.columns)


def one_way_edge(edges: SortedEdges, values: Tensor | None) -> tuple[int, int] | None:
    """The first source and target whose mirror image weighs less, beyond rounding; None if none."""
    if edges.mirrored and (values is None or values.equal(values[edges.transposed[1]])):
        return None
    if values is None:
        values = torch.ones(edges.num_edges, device=edges.targets.device)
    ends = torch.stack([edges.sources, edges.targets]).long()
    with quiet_sparse():
        gaps = torch.sparse_coo_tensor(
            torch.cat([ends, ends.flip(0)], 1), torch.cat([values, -values]).double(),
            (edges.num_nodes,) * 2, check_invariants=False,
        ).coalesce()  # fmt: skip
    allowed = 4 * torch.finfo(values.dtype).eps * values.abs().max()
    wrong = (gaps.values() > allowed).nonzero()
    if not len(wrong):
        return None
    source, target = gaps.indices()[:, int(wrong[0])].tolist()
    return source, target


def starts_of_rows(sorted_numbers: Tensor, num_nodes: int) -> Tensor:
    """Where the runs of each number begin in a sorted array, and where the last one ends."""
    counts = torch.bincount(sorted_numbers, minlength=num_nodes)
    ptr = sorted_numbers.new_zeros(num_nodes + 1)
    ptr[1:] = counts.cumsum(0)
    return ptr
