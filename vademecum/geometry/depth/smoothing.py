r"""Oversmoothing: the energy that a graph network leaves, layer by layer, beside its spectral rate.

With $\bar A = \tilde D^{-1/2} \tilde A \tilde D^{-1/2}$, $\tilde A = A + I$, on a connected graph

$$E(\bar A X) \le \rho^2 E(X), \qquad E(X) = \operatorname{tr} X^\top (I - \bar A) X, \quad
\rho = \max_{\lambda \ne 1} |\lambda(\bar A)| < 1 ,$$

so that depth leaves nothing but the degree of a node: rows tend to multiples of $\sqrt{\tilde
d_v}$. A weight matrix multiplies the energy by at most $\|W\|^2$, and ReLU does not raise it.
Several components do so one by one, each at its own $\rho$. The means over neighbours,
$\tilde D^{-1} \tilde A$, do the same with the plain energy $\operatorname{tr} X^\top L X$ at the
same rate, as $\tilde D^{1/2}$ takes one into the other; rows become equal then.

Energies are exact up to rounding of their differences, $\varepsilon^2 \|X\|^2$; rates are, for
components of up to 1,000 nodes, and beyond that found by iteration. The claim is `oversmoothing`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn

from vademecum.foundations import eigsh
from vademecum.geometry.depth._layer_outputs import watch_layers
from vademecum.geometry.graphs import Adjacency, read_graph
from vademecum.geometry.spectra._undirected import insist_on_mirror_images
from vademecum.geometry.spectra.energies import edge_energies, one_way_edges
from vademecum.geometry.spectra.laplacians import graph_laplacian
from vademecum.models import untouched
from vademecum.results import one_line

__all__ = ["Oversmoothing", "oversmoothing"]

_DENSE = 1000  # nodes of a component: eigenvalues of the dense matrix take 0.1 s (EPYC, one core)


class Oversmoothing(NamedTuple):
    """Energies after each layer, component by component; the first row is that of the input.

    Example:
        >>> from vademecum.geometry import GCN
        >>> edge = torch.tensor([[0, 1], [1, 0]])
        >>> found = oversmoothing(GCN(1, 4, num_layers=2), (torch.tensor([[1.0], [3.0]]), edge))
        >>> found.names, round(float(found.energy[0]), 6), bool(found.energy[1] < 1e-9)
        (('input', 'convs.0', 'convs.1'), 2.0, True)
    """

    names: tuple[str, ...]
    """The names of the layers in the order of their calls, after "input"."""
    energy: Float[Tensor, " layers components"]
    """The Dirichlet energy of what each layer gives."""
    share: Float[Tensor, " layers components"]
    r"""The energy over $\|X\|^2$ of the component's rows, which no scaling of weights changes; 0
    where they are 0."""
    rate: Float[Tensor, " components"]
    r"""The largest modulus $\rho$ of an eigenvalue of the propagation but the one that stays."""
    component: Int64[Tensor, " n"]
    """The component that each node is in."""

    __repr__ = one_line

    @property
    def bound(self) -> Float[Tensor, " layers components"]:
        r"""What propagation alone leaves of the input's energy at most, $\rho^{2 r} E(X_0)$."""
        depth = torch.arange(len(self.energy), device=self.rate.device)[:, None]
        return self.energy[0] * self.rate ** (2 * depth)


def oversmoothing(
    model: nn.Module,
    x: Any,
    *,
    edges: Any = None,
    normalization: str | None = "gcn",
    layers: Sequence[str] | None = None,
    memory: int | None = None,
) -> Oversmoothing:
    r"""The Dirichlet energy after every layer of a graph network, beside the spectral rate.

    A layer is a module that is given the graph, and within which no other one is: those of PyG are.
    If the model's own code multiplies by a matrix, the innermost modules that give a row for each
    node stand for layers.

    Args:
        model: Any module, taken in evaluation mode.
        x: Its own input with the features of nodes and the graph: a tuple such as (x, edge_index),
            a dict, or an object with `edge_index`.
        edges: The graph, where the model keeps it and x does not hold it.
        normalization: Of the Laplacian in the energy: "gcn" for $I - \bar A$, "sym" for the one
            without self-loops, None for the plain one, beside the rate of means over neighbours.
        layers: The names of the modules to look at; by default all layers.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. For the
            differences along edges; what the model's own pass takes is its business.

    Returns:
        An `Oversmoothing`; `draw_oversmoothing` draws it.

    Raises:
        ValueError: If there is no graph or no layer, or an edge has no mirror image.

    References:
        Oono and Suzuki, Graph neural networks exponentially lose expressive power for node
        classification, ICLR, 2020. Cai and Wang, A note on over-smoothing for graph neural
        networks, 2020.

    Example:
        >>> from vademecum.geometry import PolynomialConv
        >>> model = PolynomialConv(1, 1, degree=1, normalization="gcn", bias=False)
        >>> _ = model.weight.data.copy_(torch.tensor([1.0, -1.0]).view(2, 1, 1))  # x - (I - A) x
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> found = oversmoothing(model, (torch.tensor([[1.0], [0.0], [-1.0]]), path))
        >>> found.rate, found.energy.T  # the eigenvector of 1/2
        (tensor([0.5000], dtype=torch.float64), tensor([[1.0000, 0.2500]], dtype=torch.float64))
    """
    given = read_graph("x", x, edges=edges, any_form=True)
    graph, n = given.graph(), given.n
    insist_on_mirror_images(graph, "a spectral rate")
    count, label = _components(graph)

    @torch.no_grad()
    def measured(t: Tensor) -> tuple[Tensor, Tensor]:
        t = t.detach().double()
        t = t.flatten(1) if t.ndim > 1 else t[:, None]
        along = edge_energies(t, graph, normalization, memory=memory)
        energy = _added(along, label[one_way_edges(graph).u.long()], count)
        return energy, _added(t.square().sum(1), label, count)

    seen = [("input", measured(given.features))]
    seen += watch_layers(model, x, n, measured, layers)
    names, values = tuple(name or "model" for name, _ in seen), [value for _, value in seen]
    energy, size = (torch.stack(each) for each in zip(*values, strict=True))
    share = torch.where(size == 0, 0, energy / size)
    with untouched([]):
        rate = _rates(graph, label, count, normalization)
    return Oversmoothing(names, energy, share, rate.to(energy.device), label)


def _links(graph: Adjacency) -> tuple[Tensor, Tensor]:
    """The edges that weigh something, and how much."""
    if graph.weight is None:
        return graph.edge_index, torch.ones(graph.num_edges, device=graph.device)
    some = graph.weight != 0
    return graph.edge_index[:, some], graph.weight[some]


def _components(graph: Adjacency) -> tuple[int, Tensor]:
    u, v = _links(graph)[0].cpu().numpy()
    links = coo_array((np.ones(len(u)), (u, v)), shape=(graph.num_nodes, graph.num_nodes))
    count, label = connected_components(links, directed=False)
    return count, torch.as_tensor(label, device=graph.device).long()


def _added(values: Tensor, label: Tensor, count: int) -> Tensor:
    """Sums by label, in a fixed order."""
    found = torch.bincount(label.cpu(), values.cpu(), minlength=count)
    return found.to(values)  # as sums of nothing are whole numbers to torch


def _rates(graph: Adjacency, label: Tensor, count: int, normalization: str | None) -> Tensor:
    """The second largest modulus of the propagation's eigenvalues, for each component."""
    kind = "sym" if normalization == "sym" else "gcn"
    edges, a = _links(graph)
    (u, v), a, label = edges.cpu().long(), a.detach().cpu().double(), label.cpu()
    order = label.argsort(stable=True)
    place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
    sizes = label.bincount(minlength=count)
    first = sizes.cumsum(0) - sizes
    by_edge = label[u].argsort(stable=True)
    ends = label[u].bincount(minlength=count).cumsum(0).tolist()
    rates, start = [], 0
    for c in range(count):
        some, start = by_edge[start : ends[c]], ends[c]
        edges = torch.stack([place[u[some]], place[v[some]]]) - first[c]
        rates.append(_rate(edges, int(sizes[c]), a[some], kind))
    return torch.tensor(rates, dtype=torch.float64)


def _rate(edges: Tensor, n: int, weight: Tensor, kind: Any) -> float:
    """The largest |1 - lambda| over the eigenvalues of a component's Laplacian but the least."""
    if n == 1:
        return 0.0
    L = graph_laplacian(edges, n, weight=weight, normalization=kind)
    if n <= _DENSE:
        values = torch.linalg.eigvalsh(L.matrix.to_dense())
        return float((1 - values[1:]).abs().max())
    low = eigsh(L.matrix, 2, which="smallest").values[1]  # which a matrix is factorised for
    high = eigsh(L.matrix, 1, degenerate=False).values[0]
    return max(float(1 - low), float(high - 1))
