"""Nodes that become alike with depth, at the rate of the graph's spectrum."""

from functools import lru_cache
from typing import Annotated, Literal

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from vademecum.canvas import GREY, panels
from vademecum.data import load
from vademecum.geometry import (
    Adjacency,
    GCNConv,
    Oversmoothing,
    draw_oversmoothing,
    gcn_norm,
    oversmoothing,
)
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness

__all__ = ["smoothing_by_depth"]

WIDTH, DEEPEST = 8, 24
Name = Literal["karate club", "ring of cliques", "grid", "tree and ring"]
Kind = Literal["propagation alone", "weights and ReLU", "with residuals"]


@picture(claims=("geometry.oversmoothing", "geometry.gcn_spectrum"), plays="layer")
def smoothing_by_depth(
    graph: Name = "karate club",
    network: Kind = "propagation alone",
    layer: Annotated[int, Range(0, DEEPEST, 1, unit="layers")] = 6,
) -> Figure:
    r"""Nodes become alike with depth, at the rate of the spectrum.

    On the left the energy along edges, over the size of the features, after each layer of a network
    with random features and weights; dashed lines fall by $\rho^2$ a layer, the slowest that
    propagation alone can be, component by component. On the right the nodes at one layer, by their
    two main features; the larger a dot, the higher its degree. Propagation pulls all nodes of a
    component onto a line through the origin, where only degrees tell them apart. A tree is slow,
    for its two halves meet in one node; random weights and ReLU are no cure, and residual
    connections buy some layers.

    Knobs:
        graph: The graph.
        network: What each layer does after it propagates.
        layer: The layer whose features are shown.
    """
    found, features = _measured(graph, network)
    figure, (left, right) = panels((9, 3.6), 1, 2, margins=(0.8, 0.2, 0.55, 0.35), gaps=(0.7, 0))
    draw_oversmoothing(found, left)
    left.axvline(layer, color=GREY, linewidth=0.8, linestyle=":")
    left.plot([layer], [float(found.share[layer].max())], "o", color=GREY, markersize=4)
    left.legend(loc="lower left")
    left.set(title="energy by depth", ylim=(1e-6, 3), xlim=(-0.5, DEEPEST + 0.5))
    x = features[layer]
    V = torch.linalg.svd(x, full_matrices=False).Vh[:2]
    place = x @ V.T / x.square().sum(1).mean().sqrt().clamp(min=1e-30)
    place = place * place.sum(0).sign()  # so that less flips from layer to layer
    degrees = _edges(graph).in_degrees()
    for c in range(len(found.rate)):
        own = found.component == c
        right.scatter(
            *place[own].T.numpy(), s=(8 * degrees[own]).clamp(10, 90).numpy(), color=f"C{c}",
            alpha=0.6, linewidths=0,
        )  # fmt: skip
    right.plot(0, 0, "+", color=GREY)
    right.set(title=f"nodes after {layer} layers", xlabel="first main feature", ylabel="second")
    right.set(xlim=(-2.2, 2.2), ylim=(-2.2, 2.2))
    return figure


class _Stack(nn.Module):
    """Layers of propagation, alone, with weights, or beside what comes in."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind
        self.layers = nn.ModuleList(_Layer(kind) for _ in range(DEEPEST))

    def forward(self, x: Tensor, edges: Adjacency) -> Tensor:
        for layer in self.layers:
            x = layer(x, edges)
        return x


class _Layer(nn.Module):
    def __init__(self, kind: str):
        super().__init__()
        self.kind, self.conv = kind, GCNConv(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, edges: Adjacency) -> Tensor:
        if self.kind == "propagation alone":
            return gcn_norm(edges, dtype=x.dtype) @ x
        out = self.conv(x, edges).relu()
        return (x + out) / 2**0.5 if self.kind == "with residuals" else out


@lru_cache(32)
def _measured(graph: str, kind: str) -> tuple[Oversmoothing, list[Tensor]]:
    with own_randomness(3), torch.no_grad():
        edges = _edges(graph)
        model, x = _Stack(kind).double(), torch.randn(edges.num_nodes, WIDTH, dtype=torch.float64)
        names = [f"layers.{i}" for i in range(DEEPEST)]
        found = oversmoothing(model, (x, edges), layers=names)
        features = [x]
        for layer in model.layers:
            features.append(layer(features[-1], edges))
    return found, features


@lru_cache(8)
def _edges(graph: str) -> Adjacency:
    """The graph, prepared."""
    if graph == "karate club":
        club = load("karate")
        return Adjacency(club.edge_index, club.n)
    if graph == "grid":
        pairs = [(6 * i + j, 6 * i + j + 1) for i in range(6) for j in range(5)]
        pairs += [(6 * i + j, 6 * i + j + 6) for i in range(5) for j in range(6)]
    elif graph == "ring of cliques":
        pairs = [(5 * c + i, 5 * c + j) for c in range(6) for i in range(5) for j in range(i)]
        pairs += [(5 * c, (5 * c + 9) % 30) for c in range(6)]
    else:
        pairs = [(v, (v - 1) // 2) for v in range(1, 31)]
        pairs += [(31 + i, 31 + (i + 1) % 9) for i in range(9)]
    edges = torch.tensor(pairs).T
    return Adjacency(torch.cat([edges, edges.flip(0)], 1), int(edges.max()) + 1)
