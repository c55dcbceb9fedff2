r"""A layer of polynomial filters, one for each pair of an input and an output feature.

$$X' = \sum_{k=0}^K L^k X\, W_k + b, \qquad
x'_j = \sum_i p_{ij}(L)\, x_i + b_j, \quad p_{ij}(L) = \sum_k (W_k)_{ij} L^k ,$$

with $(K + 1)\, c_{\mathrm{in}} c_{\mathrm{out}} + c_{\mathrm{out}}$ parameters. By Horner's rule or
by powers of $L$ on $X$, whichever has the narrower products: $K$ of them, with
$\min(c_{\mathrm{in}}, c_{\mathrm{out}})$ columns.

Exact up to rounding. The claim is `polynomial_graph_layer`.
"""

import math

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vademecum.arguments import floats, whole
from vademecum.geometry.graphs import Adjacency, adjacency_of
from vademecum.geometry.spectra.laplacians import (
    check_normalization,
    laplacian_parts,
    laplacian_product,
)

__all__ = ["PolynomialConv"]


class PolynomialConv(nn.Module):
    r"""The layer $X' = \sum_{k=0}^K L^k X W_k + b$ with the Laplacian of the graph.

    Args:
        in_channels: How many features a node comes with.
        out_channels: How many it leaves with.
        degree: The degree K of the polynomials, so that a node sees K hops far.
        normalization: Of the Laplacian: "sym" by default, "gcn", "rw" or None.
        directed: Whether edges may lack their mirror images; degrees are in-degrees then.
        bias: Whether to add a number to each feature.

    Example:
        >>> layer = PolynomialConv(1, 1, 1, normalization=None, bias=False)
        >>> _ = nn.init.ones_(layer.weight)
        >>> edge = torch.tensor([[0, 1], [1, 0]])
        >>> layer(torch.tensor([[3.0], [1.0]]), edge).tolist()  # x + L x
        [[5.0], [-1.0]]
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        degree: int,
        *,
        normalization: str | None = "sym",
        directed: bool = False,
        bias: bool = True,
    ):
        super().__init__()
        self.in_channels = whole("in_channels", in_channels, low=1)
        self.out_channels = whole("out_channels", out_channels, low=1)
        self.degree = whole("degree", degree, low=0)
        self.normalization = check_normalization(normalization)
        self.directed = directed
        self.weight = nn.Parameter(torch.empty(self.degree + 1, in_channels, out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew, by Glorot's rule for all degrees together."""
        bound = math.sqrt(6 / ((self.degree + 1) * self.in_channels + self.out_channels))
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self,
        x: Float[Tensor, " n c_in"],
        edges: Adjacency | Integer[Tensor, " 2 E"],
        weight: Float[Tensor, " E"] | None = None,
    ) -> Float[Tensor, " n c_out"]:
        """The features after one layer.

        Args:
            x: A row of features for each node.
            edges: The edges (2, E), each in both directions; or an `Adjacency`.
            weight: The weights of the edges, 1 by default.
        """
        x = floats("x", x, ndim=2, width=self.in_channels, empty=True)
        graph, directed = adjacency_of(edges, len(x), weight=weight), self.directed
        parts = laplacian_parts(graph, self.normalization, directed=directed, dtype=x.dtype)
        if self.out_channels <= self.in_channels:
            y = x @ self.weight[-1]
            for W in self.weight[:-1].flip(0):
                y = laplacian_product(parts, y) + x @ W
        else:
            y, power = x @ self.weight[0], x
            for W in self.weight[1:]:
                power = laplacian_product(parts, power)
                y = y + power @ W
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        """The sizes, as they print."""
        sizes = f"{self.in_channels}, {self.out_channels}, degree={self.degree}"
        return f"{sizes}, normalization={self.normalization!r}, bias={self.bias is not None}"
