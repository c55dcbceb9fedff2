r"""The largest eigenvalue of each graph's matrix $\mathrm{diag}(d) - A$, by Lanczos' method.

All graphs of a batch run side by side with inner products of their own, from vectors that depend
on a node's number in its graph only; each keeps its value once the residual
$\beta_k |s_k|$ of its Ritz vector is below the tolerance. So what a graph gets does not depend on
its batch mates. The matrix must be symmetric.
"""

import warnings

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.geometry.graphs._graph_totals import node_numbers, over_graphs
from vademecum.geometry.graphs.adjacencies import Adjacency

__all__ = ["largest_eigenvalues"]

_STEPS = 300  # products at most
_TOL = 1e-7  # of the residual, relative to the value
_ASK = 8  # products between two looks at the residuals


@torch.no_grad()
def largest_eigenvalues(graph: Adjacency, diagonal: Tensor, values: Tensor) -> Tensor:
    """The largest eigenvalues, (graphs,), of a diagonal minus the edges weighed by `values`."""
    matrix = graph.reweighted(values.double())
    d, number = diagonal.double(), node_numbers(graph).double()
    q = _unit(graph, (0.7 * (number + 1) ** 2).sin() + 0.1)[0]
    last, beta = torch.zeros_like(q), torch.zeros(graph.num_graphs, dtype=q.dtype, device=q.device)
    alphas: list[Tensor] = []
    betas: list[Tensor] = []
    found = torch.full_like(beta, torch.nan)
    for step in range(1, _STEPS + 1):
        w = d * q - matrix @ q
        alpha = over_graphs(graph, w * q, "sum")
        w = w - _at_nodes(graph, alpha) * q - _at_nodes(graph, beta) * last
        alphas.append(alpha)
        last, (q, beta) = q, _unit(graph, w)
        if step % _ASK == 0 or step == _STEPS or step >= graph.num_nodes:
            value, residual = _top(alphas, betas, beta)
            done = residual <= _TOL * value.abs()
            found = torch.where(found.isnan() & done, value, found)
            if not found.isnan().any():
                return found.to(diagonal.dtype)
        betas.append(beta)
    value, residual = _top(alphas, betas[:-1], beta)
    left = int(found.isnan().sum())
    warnings.warn(
        f"the largest eigenvalues of {left} graphs are off by up to {residual.max():.1g}"
        f" after {_STEPS} products", ConvergenceWarning, stacklevel=2,
    )  # fmt: skip
    return torch.where(found.isnan(), value, found).to(diagonal.dtype)


def _top(alphas: list[Tensor], betas: list[Tensor], beta: Tensor) -> tuple[Tensor, Tensor]:
    """The largest Ritz value of each graph and the norm of its residual."""
    T = torch.diag_embed(torch.stack(alphas, 1))
    if betas:
        off = torch.diag_embed(torch.stack(betas, 1), 1)
        T = T + off + off.mT
    value, vectors = torch.linalg.eigh(T)
    return value[:, -1], beta * vectors[:, -1, -1].abs()


def _unit(graph: Adjacency, v: Tensor) -> tuple[Tensor, Tensor]:
    """Each graph's vector at length 1, or 0 if it is next to nothing, and the lengths."""
    length = over_graphs(graph, v * v, "sum").sqrt()
    length = length * (length > 1e-13)
    return v / _at_nodes(graph, length.where(length > 0, torch.inf)), length


def _at_nodes(graph: Adjacency, v: Tensor) -> Tensor:
    return v if graph.batch is None else v.index_select(0, graph.batch)
