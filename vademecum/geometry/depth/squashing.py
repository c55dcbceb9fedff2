r"""Over-squashing: how much of a far node's features is left at a node, hop by hop.

For a network of $r$ layers $h \mapsto \sigma(\hat A\, h\, W)$ with $|\sigma'| \|W\| \le c$ and a
propagation $\hat A \ge 0$,

$$\Big\| \frac{\partial h_v}{\partial x_u} \Big\|_2 \le c^r\, (\hat A^r)_{vu} :$$

what matters of a graph is how many walks lead from $u$ to $v$, and how thin they are spread. On a
tree with two children a node, means over neighbours leave a leaf at depth $r$ a share of
$\frac13 (\frac14)^{r-1}$ of the root.

The Jacobian is autograd's, its norm the largest singular value, and $c$ by default the least
constant for which the bound holds; all exact up to rounding. The claim is `oversquashing`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra
from torch import Tensor, nn

from vademecum.arguments import number, whole
from vademecum.geometry.depth._layer_outputs import watch_layers
from vademecum.geometry.graphs import Adjacency, GraphInput, inverse_roots, read_graph
from vademecum.models import (
    Output,
    call_arguments,
    chosen_output,
    differentiable_output,
    evaluation,
    unwrapped,
)
from vademecum.results import one_line

__all__ = ["LeafInfluence", "leaf_influence"]


class LeafInfluence(NamedTuple):
    """How much each node's features move the output at one node, beside the bound by walks.

    Example:
        >>> from vademecum.geometry import GCN
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> found = leaf_influence(GCN(1, 4, num_layers=1), (torch.ones(3, 1), path), node=0)
        >>> found.hops, float(found.influence[2]), found.depth
        (tensor([0, 1, 2]), 0.0, 1)
    """

    influence: Float[Tensor, " n"]
    r"""The norms $\|\partial h_v / \partial x_u\|_2$ for all nodes u."""
    walks: Float[Tensor, " n"]
    r"""The entries $(\hat A^r)_{vu}$."""
    hops: Int64[Tensor, " n"]
    """How many edges lead from each node to v; -1 where none do."""
    depth: int
    """The number of layers, r."""
    c: float
    """The constant of the bound: the one given, or the least for which it holds; infinite where
    features come by other ways than walks."""

    __repr__ = one_line

    @property
    def bound(self) -> Float[Tensor, " n"]:
        r"""The bound $c^r (\hat A^r)_{vu}$ for all nodes u."""
        factor = torch.tensor(self.c, dtype=torch.float64).pow(self.depth)
        return torch.where(self.walks > 0, (factor * self.walks.double()).to(self.walks), 0)

    @property
    def by_hop(self) -> Float[Tensor, " hops"]:
        """The mean influence of a node at each distance from v."""
        return _means(self.influence, self.hops)

    @property
    def bound_by_hop(self) -> Float[Tensor, " hops"]:
        """The mean bound of a node at each distance from v."""
        return _means(self.bound, self.hops)


def leaf_influence(
    model: nn.Module,
    x: Any,
    *,
    node: int,
    edges: Any = None,
    c: float | None = None,
    propagation: str = "gcn",
    layers: Sequence[str] | None = None,
    output: Output = None,
) -> LeafInfluence:
    r"""The influence $\|\partial h_v / \partial x_u\|$ of nodes on one, beside $c^r (A^r)_{vu}$.

    Costs a forward pass, one that counts layers, and as many backward passes as the node has
    outputs.

    Args:
        model: Any module, taken in evaluation mode.
        x: Its own input with the features of nodes and the graph: a tuple such as (x, edge_index),
            a dict, or an object with `edge_index`.
        node: The node v.
        edges: The graph, where the model keeps it and x does not hold it.
        c: The constant of the bound, by which a layer stretches features at most; by default the
            least one for which the bound holds.
        propagation: The matrix of the bound, with self-loops: "gcn" for $\tilde D^{-1/2} \tilde A
            \tilde D^{-1/2}$, "mean" for $\tilde D^{-1} \tilde A$, "sum" for $\tilde A$.
        layers: The names of the layers to count; by default all modules that are given the graph.
            Where the model's own code multiplies by a matrix, none is: all innermost modules that
            give a row for each node count then, activations too, so name them.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.

    Returns:
        A `LeafInfluence`; `draw_leaf_influence` draws it.

    Raises:
        ValueError: If there is no graph, no such node, or the output has no row for each node.

    References:
        Alon and Yahav, On the bottleneck of graph neural networks and its practical implications,
        ICLR, 2021. Topping, Di Giovanni, Chamberlain, Dong and Bronstein, Understanding
        over-squashing and bottlenecks on graphs via curvature, ICLR, 2022.

    Example:
        >>> from vademecum.geometry import PolynomialConv
        >>> model = PolynomialConv(1, 1, degree=1, normalization="gcn", bias=False)
        >>> _ = model.weight.data.copy_(torch.tensor([2.0, -2.0]).view(2, 1, 1))  # 2 A x
        >>> edge = torch.tensor([[0, 1], [1, 0]])
        >>> found = leaf_influence(model, (torch.ones(3, 1), edge), node=0)
        >>> found.influence.round(decimals=3), found.hops, round(found.c, 3)
        (tensor([1., 1., 0.]), tensor([ 0,  1, -1]), 2.0)
    """
    model, given = unwrapped(model), read_graph("x", x, edges=edges, any_form=True)
    graph, n = given.graph(), given.n
    node = whole("node", node, low=0, high=n - 1)
    influence = _influence(model, given, node, output)
    names = [name for name, _ in watch_layers(model, x, n, lambda t: None, layers)]
    depth = len([name for name in names if name]) or 1
    walks = _walks(graph, node, depth, propagation)
    least = _least_constant(influence.double(), walks, depth)
    c, walks = least if c is None else number("c", c, low=0), walks.to(influence.dtype)
    return LeafInfluence(influence, walks, _hops(graph, node), depth, c)


def _influence(model: nn.Module, given: GraphInput, node: int, output: Output) -> Tensor:
    """The spectral norms of the Jacobian's blocks."""
    features = given.features.detach().clone().requires_grad_()
    args, kwargs = call_arguments(given.with_features(features))
    n = len(features)
    with evaluation(model), torch.enable_grad():
        h = differentiable_output(chosen_output(model(*args, **kwargs), output))
        if h.shape[:1] != (n,):
            shape = tuple(h.shape)
            raise ValueError(f"model must give a row for each of {n} nodes, got shape {shape}")
        rows = [
            torch.autograd.grad(each, features, retain_graph=True, materialize_grads=True)[0]
            for each in h[node].reshape(-1)
        ]
    blocks = torch.stack([row.reshape(n, -1) for row in rows], 1)
    found = torch.zeros(n, dtype=features.dtype, device=features.device)
    reached = blocks.flatten(1).any(1)
    wide = torch.promote_types(blocks.dtype, torch.float32)  # there are no norms of halves
    found[reached] = torch.linalg.matrix_norm(blocks[reached].to(wide), 2).to(found.dtype)
    return found


def _walks(graph: Adjacency, node: int, depth: int, propagation: str) -> Tensor:
    """The row of the propagation's power that belongs to the node."""
    if propagation not in (known := ("gcn", "mean", "sum")):
        options = ", ".join(map(repr, known))
        raise ValueError(f"propagation must be one of {options}, got {propagation!r}")
    looped = graph.with_self_loops()
    d = looped.in_degrees(torch.float64)
    root, one = inverse_roots(d), torch.ones_like(d)
    left = {"gcn": root, "mean": root * root, "sum": one}[propagation]
    right = root if propagation == "gcn" else one
    row = torch.zeros_like(d)
    row[node] = 1
    for _ in range(depth):
        row = right * looped.product(left * row, transpose=True)
    return row


def _least_constant(influence: Tensor, walks: Tensor, depth: int) -> float:
    reached = influence > 0
    ratio = influence[reached] / walks[reached]
    return float(ratio.max() ** (1 / depth)) if len(ratio) else 0.0


def _hops(graph: Adjacency, node: int) -> Tensor:
    """How many edges lead from each node to this one, -1 where none do."""
    source, target = graph.edge_index.cpu().numpy()
    n = graph.num_nodes
    back = coo_array((np.ones(len(source)), (target, source)), shape=(n, n))
    far = torch.from_numpy(dijkstra(back, indices=node, unweighted=True))
    return far.where(far.isfinite(), -1).long().to(graph.device)


def _means(values: Tensor, hops: Tensor) -> Tensor:
    reached = hops >= 0
    totals = torch.bincount(hops[reached].cpu(), values[reached].cpu().double())
    return (totals / torch.bincount(hops[reached].cpu())).to(values)
