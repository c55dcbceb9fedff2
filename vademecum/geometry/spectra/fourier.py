r"""Signals on a graph in its own frequencies: the eigenvectors of the Laplacian.

With $L = U \Lambda U^\top$, $U$ orthogonal and $\lambda_1 \le \lambda_2 \le \dots$, the transform
of a signal is $\hat x = U^\top x$, its inverse $x = U \hat x$, and a filter of response $h$ gives

$$h(L)\, x = U\, h(\Lambda)\, U^\top x .$$

Small eigenvalues belong to smooth modes, as $u_i^\top L u_i = \lambda_i$ is the energy of one.
Which eigenvectors are chosen, signs and bases of eigenspaces, changes $\hat x$, but not $h(L)$.

Exact up to rounding for all modes; the lowest few of a large graph are exact to `tol`. The claims
are `graph_fourier`, `graph_convolution_theorem` and `spectral_filter`.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from vademecum.arguments import floats, whole
from vademecum.foundations import eigsh
from vademecum.geometry.graphs import Adjacency, adjacency_of
from vademecum.geometry.spectra.laplacians import check_normalization, graph_laplacian
from vademecum.results import one_line

__all__ = ["GraphFourier", "graph_fourier"]

DENSE, LOWEST = 5000, 32


class GraphFourier(NamedTuple):
    """The modes of a graph, smooth ones first.

    Example:
        >>> F = graph_fourier(torch.tensor([[0, 1], [1, 0]]))
        >>> F.eigenvalues
        tensor([0., 2.])
        >>> F.filter(torch.tensor([5.0, 1.0]), lambda z: (z == 0).float()).round()  # the mean
        tensor([3., 3.])
    """

    eigenvalues: Float[Tensor, " k"]
    r"""The frequencies $\lambda$, in ascending order."""
    modes: Float[Tensor, " n k"]
    """The modes as columns, an orthonormal system."""

    __repr__ = one_line

    def transform(self, x: Float[Tensor, " n *d"]) -> Float[Tensor, " k *d"]:
        r"""The transform $\hat x = U^\top x$.

        Args:
            x: A signal, or one in each column.
        """
        return torch.tensordot(self.modes.mT, _rows(x, len(self.modes), self.modes.dtype), 1)

    def inverse(self, x: Float[Tensor, " k *d"]) -> Float[Tensor, " n *d"]:
        r"""The signal $U \hat x$ from its transform; its part in the modes if not all are known.

        Args:
            x: A transform, or one in each column.
        """
        return torch.tensordot(self.modes, _rows(x, self.modes.shape[1], self.modes.dtype), 1)

    def filter(
        self, x: Float[Tensor, " n *d"], response: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, " n *d"]:
        r"""The filtered signal $h(L) x = U h(\Lambda) U^\top x$.

        Args:
            x: A signal, or one in each column.
            response: The function h of frequencies, (n,) to (n,); a module, too.

        Raises:
            ValueError: If not all modes are known.
        """
        n, k = self.modes.shape
        if k < n:
            raise ValueError(
                f"modes must be all {n} for a filter, got {k}: `polynomial_filter` needs none"
            )
        h = response(self.eigenvalues)
        if not isinstance(h, Tensor):
            raise ValueError(f"response must give a tensor of {n} numbers, got {h!r}")
        if h.shape != self.eigenvalues.shape:
            raise ValueError(f"response must give {n} numbers, got shape {tuple(h.shape)}")
        image = self.transform(x)
        return self.inverse(h.reshape(n, *[1] * (image.ndim - 1)) * image)


def graph_fourier(
    edges: Adjacency | Integer[Tensor, " 2 E"],
    num_nodes: int | None = None,
    *,
    weight: Float[Tensor, " E"] | None = None,
    normalization: str | None = None,
    k: int | None = None,
    tol: float | None = None,
    dtype: torch.dtype | None = None,
    generator: torch.Generator | None = None,
) -> GraphFourier:
    r"""The frequencies and modes of a graph: eigenvalues and eigenvectors of its Laplacian.

    Args:
        edges: The edges (2, E), each in both directions; or an `Adjacency`.
        num_nodes: How many nodes there are; by default one more than the largest index.
        weight: The weights of the edges, 1 by default.
        normalization: Of the Laplacian: None, "sym" or "gcn".
        k: How many modes, the lowest; by default all of a graph with at most 5,000 nodes, and 32
            beyond. More than 5,000 nodes are never made dense.
        tol: The tolerance of eigenpairs that are found by iteration, as `foundations.eigsh` has it.
        dtype: Of the modes, torch.float32 or torch.float64; that of the weights by default.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        A `GraphFourier`, with `transform`, `inverse` and `filter`.

    Raises:
        ValueError: If the graph is directed or not fit for the normalisation.

    References:
        Shuman, Narang, Frossard, Ortega and Vandergheynst, The emerging field of signal processing
        on graphs, IEEE Signal Processing Magazine 30, 2013.

    Example:
        >>> cycle = torch.stack([torch.arange(4), (torch.arange(4) + 1) % 4])
        >>> graph_fourier(torch.cat([cycle, cycle.flip(0)], 1)).eigenvalues.round(decimals=5)
        tensor([0., 2., 2., 4.])
    """
    check_normalization(normalization, symmetric=True)
    graph = adjacency_of(edges, num_nodes, weight=weight)
    made = graph_laplacian(graph, normalization=normalization, dtype=dtype)
    n, kind = graph.num_nodes, made.matrix.dtype
    if kind not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, got {kind}")
    k = (n if n <= DENSE else min(LOWEST, n)) if k is None else whole("k", k, low=1, high=n)
    if n <= DENSE:
        values, modes = torch.linalg.eigh(made.matrix.to_dense())
        values, modes = values[:k], modes[:, :k]
    else:
        found = eigsh(made.matrix.detach(), k, which="smallest", tol=tol, generator=generator)
        values, modes = found.values, found.vectors
    if graph.weight is None or not (graph.weight < 0).any():
        values = values.clamp(min=0)  # which they are, but for rounding
    return GraphFourier(values, modes)


def _rows(x: Tensor, n: int, dtype: torch.dtype) -> Tensor:
    x = floats("x", x, empty=True)
    if x.ndim == 0 or len(x) != n:
        raise ValueError(f"x must have {n} rows, got shape {tuple(x.shape)}")
    if x.dtype != dtype:
        raise ValueError(f"x must be of the modes' dtype {dtype}, got {x.dtype}")
    return x
