"""What depth does: features become alike, and far nodes are squeezed out."""

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum import geometry
from vademecum.claims import Evidence, at_most, claim, equals
from vademecum.geometry.claims._small_graphs import (
    complete_bipartite,
    components,
    cycle,
    edges_of,
    from_pairs,
    random_graph,
)


class Stack(nn.Module):
    """Layers that propagate, multiply by a matrix, and apply a function if there is one."""

    def __init__(self, mixing: str, depth: int, W: Tensor, sigma: Any = None):
        super().__init__()
        if mixing == "gcn":
            layer = geometry.GCNConv(*W.shape, bias=False)
            layer.lin.weight.data = W.T.clone()
        else:
            layer = geometry.PolynomialConv(*W.shape, degree=1, normalization=mixing, bias=False)
            layer.weight.data = torch.stack([W, -W])  # (I - L) X W
        self.layers, self.sigma = nn.ModuleList([layer] * depth), sigma
        self.requires_grad_(False)

    def forward(self, x: Tensor, edges: geometry.Adjacency | Tensor) -> Tensor:
        """The features after all layers."""
        for layer in self.layers:
            x = layer(x, edges)
            x = x if self.sigma is None else self.sigma(x)
        return x


def plain(A: Tensor) -> geometry.Adjacency:
    """The graph, prepared."""
    return geometry.Adjacency(edges_of(A)[0], len(A))


def looped(A: Tensor) -> geometry.Adjacency:
    """The graph with a self-loop at each node, prepared."""
    return plain(A + torch.eye(len(A)))


def with_tail(A: Tensor) -> Tensor:
    """The graph with one more node, so that it is not complete: then the rate is 0."""
    tail = torch.eye(len(A))[0]
    return torch.cat([torch.cat([A, tail[:, None]], 1), torch.cat([tail, torch.zeros(1)])[None]])


def slowest_mode(A: Tensor, P: Tensor, rho: float, power: int) -> Iterator[Evidence]:
    """What four layers leave of the eigenvector that belongs to the rate."""
    values, modes = torch.linalg.eigh(P)
    u = modes[:, (values.abs() - rho).abs().argmin()][:, None]
    watched = geometry.oversmoothing(Stack("gcn", 4, torch.eye(2)), (u.repeat(1, 2), plain(A)))
    left, at = watched.energy.sum(1), {"n": len(A)}
    stated = rho ** (power * torch.arange(5))
    yield equals("energy of the slowest mode", left / left[0], stated, tol=1e-11, **at)
    yield equals("bound of the slowest mode", watched.bound.sum(1), left, tol=1e-11, **at)


@claim(
    by="identity", sources=("D-343",), budget=0.8,
    short=r"\text{connected: } \bar A^k X \to \frac{\tilde D^{1/2} \mathbf"
    r" 1 \mathbf 1^\top \tilde D^{1/2}}{\sum \tilde d} X",
)  # fmt: skip
def oversmoothing(
    rows: Literal["by root of degree", "equal"] = "by root of degree", power: int = 2
):
    r"""Depth without weights leaves nothing but degrees: oversmoothing.

    Repeated linear propagation loses information. On a connected graph
    $\bar A^k X \to \frac{\tilde D^{1/2} \mathbf 1 \mathbf 1^\top \tilde D^{1/2}}{\sum \tilde d} X$,
    so that rows become proportional to $\sqrt{\tilde d_m}$ and nodes are distinguishable by degree
    only, component by component in general. Equal rows arise for regular graphs, or with the
    random-walk normalisation $\tilde D^{-1} \tilde A$. The Dirichlet energy falls by at least
    $\rho^2$ a layer, $\rho$ the second largest modulus of an eigenvalue, and by just that for its
    eigenvector.

    *Proof.* The eigenvalue 1 is simple with the eigenvector $\tilde D^{1/2} \mathbf 1$, all others
    are smaller in modulus. Layers are watched by `oversmoothing`; the depth is such that
    $\rho^k < 10^{-12}$, and energies are compared with $\operatorname{tr} X^\top (I - \bar A) X$.

    Knobs:
        rows: What rows become proportional to.
        power: Of $\rho$ in the energy of the eigenvector, after each layer.
    """
    given = from_pairs(4, [(0, 1), (0, 2), (0, 3), (2, 3)])
    several = torch.block_diag(given, cycle(5), complete_bipartite(3, 3), torch.zeros(1, 1))
    eye = torch.eye(2)
    for A in (given, with_tail(random_graph(6, 0.4, linked=True)), several):
        n, d, at = len(A), 1 + A.sum(1), {"n": len(A)}
        P = d.rsqrt()[:, None] * (A + torch.eye(n)) * d.rsqrt()
        pieces = components(A)
        rho = float(torch.linalg.eigvalsh(P).abs().sort().values[-len(pieces) - 1])
        k = math.ceil(math.log(1e-12) / math.log(rho))
        x, edges = 1 + torch.rand(n, 2), plain(A)
        model = Stack("gcn", k, eye)
        deep, means = model(x, edges), Stack("rw", k, eye)(x, looped(A))
        found = geometry.oversmoothing(model, (x, edges))
        for c, nodes in enumerate(pieces):
            own, root = d[nodes], d[nodes].sqrt()
            stated = root / root[0] if rows == "by root of degree" else torch.ones(len(nodes))
            yield equals("rows over the first one", deep[nodes] / deep[nodes[0]], stated[:, None],
                         tol=1e-9, **at)  # fmt: skip
            limit = torch.outer(root, root) @ x[nodes] / own.sum()
            yield equals("limit", deep[nodes], limit, tol=1e-10, **at)
            yield equals("rows of means", means[nodes], means[nodes[0]], tol=1e-10, **at)
            block = P[nodes][:, nodes]
            own_rate = torch.linalg.eigvalsh(block)[:-1].abs().amax() if len(nodes) > 1 else 0.0
            yield equals("rate", found.rate[c], own_rate, tol=1e-12, **at)
            now, size = x[nodes], x[nodes].square().sum()
            yield equals("share", size * found.share[0, c], found.energy[0, c], tol=1e-13, **at)
            for layer in range(6):
                energy = (now * (now - block @ now)).sum()
                yield equals("energy", found.energy[layer, c], energy, tol=1e-13, layer=layer, **at)
                now = block @ now
            top = 1e-13 * float(found.energy[0, c])
            yield at_most("energy, and the bound by the rate", found.energy[:, c],
                          found.bound[:, c], tol=top, **at)  # fmt: skip
        yield from slowest_mode(A, P, rho, power)


oversmoothing.erratum(
    "D-343",
    printed="repeated mixing causes all node embeddings to converge to the same value",
    right=r"to multiples of $\sqrt{d_m + 1}$ within each component",
    why=r"For the symmetric coupling matrix defined just above the limit is proportional to"
    r" $\sqrt{d_m + 1}$ within each component: on the graph with edges 01, 02, 03, 23 the rows are"
    r" in the ratio $2 : \sqrt 2 : \sqrt 3 : \sqrt 3$, not equal.",
    weight="hard",
    refuted_by="rows over the first one",
    rows="equal",
)
oversmoothing.foil("the energy falls like the signal, not like its square", power=1,
                   refuted_by="energy of the slowest mode")  # fmt: skip


def tree(depth: int) -> Tensor:
    """The balanced binary tree; the children of node v are 2 v + 1 and 2 v + 2."""
    n = 2 ** (depth + 1) - 1
    return from_pairs(n, [(v, (v - 1) // 2) for v in range(1, n)])


@claim(
    by="identity", sources=("D-344",), budget=0.8,
    short=r"|\sigma'| \|W\| \le c: \|\partial h_v / \partial x_u\| \le c^r (\hat"
    r" A^r)_{vu}; \tfrac13 4^{1-r} \text{ in binary trees}",
)  # fmt: skip
def oversquashing(
    share: Literal["by degrees", "by leaves"] = "by degrees", constant: Literal["c^r", "c"] = "c^r"
):
    r"""Far nodes are squeezed out: over-squashing.

    The number of nodes within $r$ hops can grow exponentially while messages have a fixed size. On
    a balanced binary tree with mean aggregation (self-loops) the influence of one leaf at depth $r$
    on the root after $r$ layers is $\frac13 (\frac14)^{r-1}$, among $2^r$ leaves. For layers
    $h \mapsto \sigma(\hat A h W)$ with $|\sigma'| \|W\| \le c$ the Jacobian is at most
    $c^r (\hat A^r)_{\mathrm{root},\mathrm{leaf}}$, with equality for $W = c Q$, $Q$ orthogonal, and
    no $\sigma$.

    *Proof.* One walk of length $r$ leads to a leaf; the root has three terms in its mean, each
    other node on the way four. The bound is the chain rule. Checked for `leaf_influence` with $r$
    from 1 to 6, against finite differences, and on random graphs with means and the normalisation
    of a GCN, for $c = 1$ and $1.5$.

    Knobs:
        share: What dilutes a leaf: the degrees on its way, or the number of leaves.
        constant: What the powers of $\hat A$ are multiplied by.
    """
    one = torch.ones(1, 1)
    for r in range(1, 7):
        A = tree(r)
        found = geometry.leaf_influence(
            Stack("rw", r, one), (torch.randn(len(A), 1), looped(A)), node=0, c=1.0,
            propagation="mean",
        )  # fmt: skip
        stated = (1 / 3) * 0.25 ** (r - 1) if share == "by degrees" else 0.5**r
        leaves = found.hops == r
        yield equals("influence of a leaf", found.influence[leaves], stated, tol=1e-15, r=r)
        yield equals("leaves", int(leaves.sum()), 2**r, r=r)
        yield equals("bound by walks", found.bound, found.influence, tol=1e-15, r=r)
        yield equals("mean by hop", found.by_hop[r], found.influence[-1], tol=1e-15, r=r)
    for n, c, mixing in ((6, 1.0, "rw"), (7, 1.5, "gcn"), (8, 1.5, "rw")):
        A, r, node = random_graph(n, 0.2, linked=True), 3, n - 2
        Q = c * torch.linalg.qr(torch.randn(2, 2)).Q
        edges = looped(A) if mixing == "rw" else plain(A)
        kind, x = "mean" if mixing == "rw" else "gcn", torch.randn(n, 2)
        d, at = 1 + A.sum(1), {"n": n, "c": c}
        P = (A + torch.eye(n)) / (d[:, None] if mixing == "rw" else torch.outer(d, d).sqrt())
        walks = torch.linalg.matrix_power(P, r)[node]
        given = {"node": node, "propagation": kind}
        linear = geometry.leaf_influence(Stack(mixing, r, Q), (x, edges), **given)
        factor = c**r if constant == "c^r" else c
        yield equals("influence without a function", linear.influence, factor * walks, tol=1e-13,
                     **at)  # fmt: skip
        yield equals("least constant", linear.c, c, tol=1e-12, **at)
        model = Stack(mixing, r, Q, torch.tanh)
        bent = geometry.leaf_influence(model, (x, edges), c=c, **given)
        yield at_most("influence with tanh", bent.influence, c**r * walks, tol=1e-13, **at)
        yield equals("bound", bent.bound, factor * walks, tol=1e-13, **at)
        blocks = torch.zeros(n, 2, 2)
        for u in range(n):
            for i in range(2):
                step = torch.zeros(n, 2)
                step[u, i] = 1e-5
                gap = model(x + step, edges) - model(x - step, edges)
                blocks[u, :, i] = gap[node] / 2e-5
        norms = torch.linalg.matrix_norm(blocks, 2)
        yield equals("influence, by differences", bent.influence, norms, tol=1e-8, **at)


oversquashing.foil("dilution by the number of leaves alone", share="by leaves",
                   refuted_by="influence of a leaf")  # fmt: skip
oversquashing.foil("the constant once, not for each layer", constant="c",
                   refuted_by="influence without a function")  # fmt: skip
