r"""A graph, sorted once: its adjacency matrix in compressed rows.

An edge $j \to i$ of weight $w$ adds $w$ to $A_{ij}$: rows are targets, parallel edges add up, and
$(A x)_i = \sum_{j \to i} w\, x_j$ is the sum over what points at $i$. All of it is exact up to
rounding, and a sum runs over a node's edges in a fixed order.

The edges are sorted when that is needed first; the transpose, degrees and what functions make of
them (normalisations, eigenvalues) are kept, unless weights have gradients: such weights are looked
at anew each time, and may change in place.
"""

from collections.abc import Callable, Hashable
from functools import cached_property, partial
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.autograd import forward_ad

from vademecum.arguments import whole
from vademecum.geometry.graphs._checks import (
    check_batch,
    check_edges,
    check_features,
    check_weight,
)
from vademecum.geometry.graphs._products import neighbour_sums
from vademecum.geometry.graphs._sorted_edges import SortedEdges, one_way_edge

__all__ = ["Adjacency", "adjacency_of"]

Made = TypeVar("Made")


class Adjacency:
    r"""The adjacency matrix of a graph, or of many graphs side by side.

    May stand wherever `edge_index` may, and saves what a call would otherwise do anew: checks,
    sorting, normalisation. Several graphs are one with blocks (`batch_graphs` makes it).

    Args:
        edge_index: Edges as pairs source, target.
        num_nodes: How many nodes there are, isolated ones among them.
        weight: The edges' weights; 1 by default.
        batch: Which graph each node belongs to: 0, ..., 0, 1, ...; one graph by default.

    Raises:
        ValueError: If a number of a node is out of range, an array does not fit, a weight is not
            finite, `batch` has gaps, or an edge joins two graphs.

    Example:
        >>> path = Adjacency(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), 3)
        >>> path @ torch.tensor([[1.0], [10.0], [100.0]])
        tensor([[ 10.],
                [101.],
                [ 10.]])
        >>> path.in_degrees(), path.is_symmetric
        (tensor([1., 2., 1.]), True)
        >>> path
        Adjacency(nodes=3, edges=4)
    """

    def __init__(
        self,
        edge_index: Integer[Tensor, " 2 E"],
        num_nodes: int,
        *,
        weight: Float[Tensor, " E"] | None = None,
        batch: Integer[Tensor, " N"] | None = None,
    ):
        self.num_nodes = whole("num_nodes", num_nodes, low=0)
        self.edge_index = check_edges(edge_index, self.num_nodes)
        edge_index = self.edge_index
        self.batch = None if batch is None else check_batch(batch, edge_index, self.num_nodes)
        self._weight = None if weight is None else check_weight(weight, edge_index)
        self._values: Tensor | None = None
        self._kept: dict[Hashable, Any] = {}

    @cached_property
    def edges(self) -> SortedEdges:
        """The edges in the order of rows, without their weights."""
        with torch.inference_mode(False):
            return SortedEdges(self.edge_index, self.num_nodes)

    @property
    def weight(self) -> Float[Tensor, " E"] | None:
        """The weights in the order of `edge_index`; None if all are 1."""
        values = self._values
        if self._weight is not None or values is None:
            return self._weight
        order = self.edges.order
        return self.kept("weight", lambda: torch.empty_like(values).index_copy(0, order, values))

    @property
    def values(self) -> Float[Tensor, " E"] | None:
        """The weights in the order of rows; None if all are 1."""
        if self._values is not None or self._weight is None:
            return self._values
        return self.kept("values", partial(self._weight.index_select, 0, self.edges.order))

    @property
    def is_weighted(self) -> bool:
        """Whether edges have weights of their own."""
        return self._weight is not None or self._values is not None

    @property
    def num_edges(self) -> int:
        """How many edges there are, parallel ones counted."""
        return self.edge_index.shape[1]

    @cached_property
    def num_graphs(self) -> int:
        """How many graphs there are side by side."""
        if self.batch is None:
            return 1
        return int(self.batch[-1]) + 1 if self.num_nodes else 0

    @property
    def device(self) -> torch.device:
        """Where the edges are."""
        return self.edge_index.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights; torch's default without them."""
        given = self._weight if self._values is None else self._values
        return torch.get_default_dtype() if given is None else given.dtype

    def __matmul__(self, x: Float[Tensor, " N *d"]) -> Float[Tensor, " N *d"]:
        """The sum of what points at each node, for vectors (N,) and features (N, ...)."""
        return self.product(x)

    def product(
        self, x: Float[Tensor, " N *d"], *, transpose: bool = False
    ) -> Float[Tensor, " N *d"]:
        """The product with the matrix or its transpose; numbers are those of x.

        Args:
            x: A number or features for each node.
            transpose: Whether edges are turned round.
        """
        x = check_features("x", x, self.num_nodes, self.device)
        flat = x[:, None] if x.ndim == 1 else x.flatten(1)
        values = self.values
        turned = None
        if values is not None and not _varies(values):
            values = self.kept(("values", x.dtype), partial(values.to, x.dtype))
            turned = partial(self._turned, values)
        way = {"transpose": transpose, "turned": turned}
        return neighbour_sums(self.edges, values, flat, **way).view(x.shape)

    def _turned(self, values: Tensor) -> Tensor:
        """Constant weights in the order of the transposed rows."""
        order = self.edges.transposed[1]
        return self.kept(("turned", values.dtype), partial(values.index_select, 0, order))

    def in_degrees(self, dtype: torch.dtype | None = None) -> Float[Tensor, " N"]:
        """The weights that point at each node, added up: the matrix' row sums."""
        return self._degrees(dtype, transpose=False)

    def out_degrees(self, dtype: torch.dtype | None = None) -> Float[Tensor, " N"]:
        """The weights that leave each node, added up: the matrix' column sums."""
        return self._degrees(dtype, transpose=True)

    def _degrees(self, dtype: torch.dtype | None, *, transpose: bool) -> Tensor:
        if dtype is None:
            dtype = self.dtype
        if not self.is_weighted:
            ptr = (self.edges.transposed[0] if transpose else self.edges.rows).ptr
            return ptr.diff().to(dtype)
        ones = torch.ones(self.num_nodes, dtype=dtype, device=self.device)
        return self.kept(
            ("degrees", dtype, transpose), lambda: self.product(ones, transpose=transpose)
        )

    @property
    def is_symmetric(self) -> bool:
        """Whether the matrix is its transpose, weights up to rounding: an undirected graph."""
        return self.one_way_edge is None

    @property
    def one_way_edge(self) -> tuple[int, int] | None:
        """The first edge whose mirror image weighs something else; None in an undirected graph."""
        values = self.values
        plain = None if values is None else values.detach()
        return self.kept("one way", partial(one_way_edge, self.edges, plain))

    def reweighted(self, values: Float[Tensor, " E"]) -> "Adjacency":
        """The same edges, sorted once, with other weights.

        Args:
            values: The new weights, in the order of `values`.
        """
        other = _unchecked(self.edge_index, self.num_nodes, None, self.batch)
        other.edges, other._values = self.edges, values
        return other

    def with_self_loops(self, loop_weight: float = 1.0) -> "Adjacency":
        """The same graph with a self-loop at each node that has none.

        Args:
            loop_weight: What a new self-loop weighs.
        """
        return self.kept(("loops", loop_weight), lambda: self._looped(loop_weight))

    def _looped(self, loop_weight: float) -> "Adjacency":
        source, target = self.edge_index
        bare = torch.ones(self.num_nodes, dtype=torch.bool, device=self.device)
        bare[source[source == target].long()] = False
        new = bare.nonzero()[:, 0].to(source.dtype)
        edge_index = torch.cat([self.edge_index, new.expand(2, -1)], 1)
        weight = self.weight
        if weight is None and loop_weight != 1:
            weight = torch.ones(self.num_edges, device=self.device)
        if weight is not None:
            weight = torch.cat([weight, weight.new_full((len(new),), loop_weight)])
        return _unchecked(edge_index, self.num_nodes, weight, self.batch)

    def kept(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What a function made of this graph before, or makes now; anew if weights have gradients.

        Args:
            key: What it is.
            make: How it is made.
        """
        if _varies(self._weight) or _varies(self._values):
            return make()
        if key not in self._kept:
            with torch.inference_mode(False):  # who comes later may want gradients
                self._kept[key] = make()
        return self._kept[key]

    def dense(self, dtype: torch.dtype | None = None) -> Float[Tensor, " N N"]:
        """The matrix with all its zeros."""
        if dtype is None:
            dtype = self.dtype
        return self.product(torch.eye(self.num_nodes, dtype=dtype, device=self.device))

    def to(self, device: torch.device | str) -> "Adjacency":
        """The same graph on another device."""
        parts = (self.edge_index, self.weight, self.batch)
        edge_index, weight, batch = (None if t is None else t.to(device) for t in parts)
        assert edge_index is not None
        return _unchecked(edge_index, self.num_nodes, weight, batch)

    def __repr__(self) -> str:
        graphs = "" if self.batch is None else f", graphs={self.num_graphs}"
        weighted = ", weighted" if self.is_weighted else ""
        return f"Adjacency(nodes={self.num_nodes}, edges={self.num_edges}{graphs}{weighted})"


def adjacency_of(
    edges: Adjacency | Tensor,
    num_nodes: int | None = None,
    *,
    weight: Tensor | None = None,
    batch: Tensor | None = None,
) -> Adjacency:
    """The graph that a function was given, in either form.

    Args:
        edges: An `edge_index`, or a graph that is prepared.
        num_nodes: How many nodes there are; by default those of the graph, or those that occur.
        weight: The edges' weights, for an `edge_index`.
        batch: Which graph each node belongs to, for an `edge_index`.
    """
    if not isinstance(edges, Adjacency):
        if num_nodes is None:
            given = isinstance(edges, Tensor) and edges.numel() and not edges.is_floating_point()
            num_nodes = max(0, int(edges.max()) + 1) if given else 0
        return Adjacency(edges, num_nodes, weight=weight, batch=batch)
    for name, other in (("weight", weight), ("batch", batch)):
        if other is not None:
            raise ValueError(f"{name} must be None with an Adjacency, which has its own")
    if num_nodes is not None and num_nodes != edges.num_nodes:
        raise ValueError(f"x must have {edges.num_nodes} rows, one for each node, got {num_nodes}")
    return edges


def _varies(weight: Tensor | None) -> bool:
    """Whether somebody differentiates by the weights, in either direction."""
    if weight is None:
        return False
    return weight.requires_grad or forward_ad.unpack_dual(weight).tangent is not None


def _unchecked(
    edge_index: Tensor, num_nodes: int, weight: Tensor | None, batch: Tensor | None
) -> Adjacency:
    graph = Adjacency.__new__(Adjacency)
    graph.num_nodes, graph.edge_index, graph.batch = num_nodes, edge_index, batch
    graph._weight, graph._values, graph._kept = weight, None, {}
    return graph
