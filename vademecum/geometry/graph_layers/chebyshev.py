r"""Chebyshev filters: polynomials of a graph's Laplacian, by their recursion.

$$Y = \sum_{k=0}^{K-1} T_k(\hat L)\, X W_k + b, \qquad
\hat L = \frac{2}{\lambda}\, L - I, \qquad T_k = 2 \hat L\, T_{k-1} - T_{k-2} ,$$

so that the $K - 1$ products with $\hat L$ reach nodes at most $K - 1$ steps away. $\lambda$ is the
largest eigenvalue of $L$ or a bound of it, and is each graph's own in a batch: what a graph gets
never depends on its batch mates.

$L = I - D^{-1/2} A D^{-1/2}$ (with 0 for a node without edges), $I - D^{-1} A$ or $D - A$. Exact up
to rounding; the largest eigenvalue is found by Lanczos' method. Checked by the claim `chebnet`.
"""

from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vademecum.arguments import number, whole
from vademecum.geometry.graphs import (
    Adjacency,
    adjacency_of,
    insist_on_symmetry,
    inverse_roots,
    largest_eigenvalues,
    over_graphs,
)

__all__ = ["ChebConv"]


class ChebConv(nn.Module):
    r"""A Chebyshev filter of K terms, over the Laplacian of a graph.

    Its parameters have PyG's names and initial law, so that state dicts fit both ways. On graphs
    with neither self-loops nor isolated nodes outputs are PyG's, too; there, self-loops are dropped
    and an isolated node has 1 on the Laplacian's diagonal. With `"rw"` PyG weighs an edge by the
    degree of its source and passes on $A D^{-1}$; here it is $D^{-1} A$, by that of the target.

    Args:
        in_channels: How wide features are.
        out_channels: How wide outputs are.
        K: How many terms there are.
        normalization: `"sym"`, `"rw"` (random walk) or None for $D - A$.
        lambda_max: The number $\lambda$; `"bound"` is 2 with a normalisation and twice the largest
            degree of a graph without, `"largest"` its largest eigenvalue.
        bias: Whether there is a constant.
        directed: Whether graphs may be directed; degrees are then those of incoming edges.

    Raises:
        ValueError: If a size is below 1 or an option is unknown.

    References:
        Defferrard, Bresson and Vandergheynst, Convolutional neural networks on graphs with fast
        localized spectral filtering, NeurIPS, 2016.

    Example:
        >>> layer = ChebConv(1, 1, 2, bias=False)
        >>> _ = [nn.init.ones_(lin.weight) for lin in layer.lins]
        >>> pair = torch.tensor([[0, 1], [1, 0]])
        >>> layer(torch.tensor([[1.0], [3.0]]), pair).tolist()  # x + (L - I) x = x - A x
        [[-2.0], [2.0]]
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        K: int,
        *,
        normalization: str | None = "sym",
        lambda_max: float | str = "bound",
        bias: bool = True,
        directed: bool = False,
    ):
        super().__init__()
        self.in_channels = whole("in_channels", in_channels, low=1)
        self.out_channels = whole("out_channels", out_channels, low=1)
        if normalization not in ("sym", "rw", None):
            raise ValueError(f"normalization must be 'sym', 'rw' or None, got {normalization!r}")
        if isinstance(lambda_max, str) and lambda_max not in ("bound", "largest"):
            options = "a number, 'bound' or 'largest'"
            raise ValueError(f"lambda_max must be {options}, got {lambda_max!r}")
        if not isinstance(lambda_max, str):
            lambda_max = number("lambda_max", lambda_max, above=0)
        self.normalization, self.lambda_max, self.directed = normalization, lambda_max, directed
        terms = range(whole("K", K, low=1))
        lins = [nn.Linear(in_channels, out_channels, bias=False) for _ in terms]
        for lin in lins:
            nn.init.xavier_uniform_(lin.weight)
        self.lins = nn.ModuleList(lins)
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None

    def forward(
        self,
        x: Float[Tensor, " N in"],
        edges: Adjacency | Integer[Tensor, " 2 E"],
        weight: Float[Tensor, " E"] | None = None,
    ) -> Float[Tensor, " N out"]:
        """Filter features over a graph.

        Args:
            x: The nodes' features.
            edges: The graph; the Laplacian of an `Adjacency` is scaled once.
            weight: The edges' weights, for an `edge_index`.
        """
        graph = adjacency_of(edges, len(x), weight=weight)
        options = (self.normalization, self.lambda_max, self.directed, x.dtype)
        scaled = graph.kept(("chebyshev", *options), partial(_scaled, graph, *options))
        y = self.lins[0](x)
        before, now = x, x
        for k, lin in enumerate(list(self.lins)[1:]):
            before, now = now, scaled.times(now) if k == 0 else 2 * scaled.times(now) - before
            y = y + lin(now)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        """The sizes, and what is not as usual."""
        usual = {"normalization": "sym", "lambda_max": "bound", "directed": False}
        own = [f"{k}={getattr(self, k)!r}" for k, v in usual.items() if getattr(self, k) != v]
        sizes = [f"{self.in_channels}", f"{self.out_channels}", f"K={len(self.lins)}"]
        return ", ".join([*sizes, *own])


class _Scaled(NamedTuple):
    r"""The matrix $\hat L$: a diagonal, and what is left of the edges."""

    diagonal: Tensor | None
    rest: Adjacency

    def times(self, x: Tensor) -> Tensor:
        y = self.rest @ x
        return y if self.diagonal is None else torch.addcmul(y, self.diagonal, x)


def _scaled(
    graph: Adjacency,
    normalization: str | None,
    lambda_max: float | str,
    directed: bool,
    dtype: torch.dtype,
) -> _Scaled:
    if normalization != "rw" and not directed:
        insist_on_symmetry(graph)
    fine = torch.promote_types(dtype, torch.float32)  # float16 holds no degree above 65504
    degrees = graph.in_degrees(fine)
    roots = inverse_roots(degrees)  # also refuses negative degrees
    ones = torch.ones_like(degrees)
    left, right, diagonal = {
        "sym": (roots, roots, (degrees > 0).to(fine)),
        "rw": (roots * roots, ones, (degrees > 0).to(fine)),
        None: (ones, ones, degrees),
    }[normalization]
    edges = graph.edges
    values = left.index_select(0, edges.targets) * right.index_select(0, edges.sources)
    values = values if graph.values is None else values * graph.values.to(fine)
    twice = 2 / _eigenvalues(graph, diagonal, values, normalization, lambda_max)
    diagonal = (twice * diagonal - 1).to(dtype)
    rest = graph.reweighted((-twice.index_select(0, edges.targets) * values).to(dtype))
    plain = not diagonal.requires_grad and not bool(diagonal.any())
    return _Scaled(None if plain else diagonal[:, None], rest)


def _eigenvalues(
    graph: Adjacency,
    diagonal: Tensor,
    values: Tensor,
    normalization: str | None,
    lambda_max: float | str,
) -> Tensor:
    r"""The number $\lambda$ of each node's graph."""
    if not isinstance(lambda_max, str):
        return torch.full_like(diagonal, lambda_max)
    if lambda_max == "bound" and normalization is not None:
        return torch.full_like(diagonal, 2.0)
    if lambda_max == "bound":
        largest = 2 * over_graphs(graph, diagonal, "max")
    else:
        if normalization == "rw":  # the same eigenvalues as those of the symmetric one
            raise ValueError("lambda_max must not be 'largest' with normalization='rw'")
        largest = largest_eigenvalues(graph, diagonal.detach(), values.detach())
    largest = largest.where(largest > 0, 2.0)  # graphs without edges
    batch = graph.batch
    return largest.expand_as(diagonal) if batch is None else largest.index_select(0, batch)
