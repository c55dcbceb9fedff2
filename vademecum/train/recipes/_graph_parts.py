"""Graphs and clouds of points to train on, and networks of one graph."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.data import load
from vademecum.geometry import GAT, GCN, GIN
from vademecum.train.recipes._objective import place_of

__all__ = ["SHAPES", "OnGraph", "blocks", "clouds", "karate", "node_loss", "other_nodes"]

SHAPES = ("sphere", "cube", "cylinder", "cone", "torus")
"""The surfaces that clouds are drawn from."""

Nodes = tuple[Tensor, Tensor, Tensor]
"""Features, edges and classes."""


def karate() -> Nodes:
    """Zachary's club: nodes known by their number alone."""
    graph = load("karate")
    return torch.eye(graph.n), graph.edge_index, graph.y


def blocks(n: int = 300, classes: int = 4, inside: float = 0.08, outside: float = 0.01) -> Nodes:
    """A graph whose nodes know more of their own class, with features that hardly tell it."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % classes
    chance = torch.where(y[:, None] == y, inside, outside).triu(1)
    upper = torch.rand(n, n, generator=generator) < chance
    x = torch.randn(n, 8, generator=generator)
    x[:, :classes] += 0.5 * F.one_hot(y)
    return x, (upper | upper.T).nonzero().T.contiguous(), y


class OnGraph(nn.Module):
    """A graph network together with its graph.

    Args:
        name: "gcn", "gat" or "gin".
        nodes: Features, edges and classes.
        width: How wide the hidden layers are.
        layers: How many layers there are.
    """

    def __init__(self, name: str, nodes: Nodes, *, width: int, layers: int):
        super().__init__()
        x, edges, y = nodes
        classes = int(y.max()) + 1
        options: dict[str, Any] = {"heads": 4} if name == "gat" else {}
        if name == "gin":  # whose sums are large: units that die stay dead
            options["activation"] = nn.ELU()
        made = {"gcn": GCN, "gat": GAT, "gin": GIN}[name]
        self.network = made(x.shape[1], width, layers, classes, dropout=0.3, **options)
        for key, tensor in (("x", x), ("edges", edges), ("y", y)):
            self.register_buffer(key, tensor)

    def forward(self) -> Tensor:
        """The logits of all nodes."""
        return self.network(self.x, self.edges)


def node_loss(model: Any, nodes: Tensor) -> Tensor:
    """The cross-entropy of some nodes, by a pass over all."""
    return F.cross_entropy(model()[nodes], model.y[nodes])


def other_nodes(known: Tensor) -> Callable[[Any], dict[str, float]]:
    """The share of all other nodes that are told right."""

    @torch.no_grad()
    def evaluate(objective: Any) -> dict[str, float]:
        right = objective.model().argmax(1) == objective.model.y
        right[known.to(place_of(objective.model))] = False
        return {"accuracy": float(right.sum()) / (len(right) - len(known))}

    return evaluate


def clouds(n: int, points: int, *, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Points on surfaces, turned, stretched and blurred, and which surface each cloud is of."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % len(SHAPES)
    u, v, w = torch.rand(3, n, points, generator=generator)
    made = torch.stack([_surface(name, u, v, w) for name in SHAPES])
    x = made[y, torch.arange(n)]
    x = x * (0.8 + 0.4 * torch.rand(n, 1, 3, generator=generator))
    turns, _ = torch.linalg.qr(torch.randn(n, 3, 3, generator=generator))
    x = x @ turns + noise * torch.randn(x.shape, generator=generator)
    return x, y


def _surface(name: str, u: Tensor, v: Tensor, w: Tensor) -> Tensor:
    angle, height = 2 * math.pi * u, 2 * v - 1
    if name == "cube":
        flat = torch.stack((2 * u - 1, height, (2 * (w > 0.5) - 1).to(u)), -1)
        turn = (3 * (2 * w % 1)).long().clamp(max=2)
        place = (torch.arange(3) + turn[..., None]) % 3
        return flat.gather(-1, place)
    if name == "torus":
        ring = 1 + 0.4 * torch.cos(2 * math.pi * v)
        return torch.stack((ring * angle.cos(), ring * angle.sin(),
                            0.4 * torch.sin(2 * math.pi * v)), -1)  # fmt: skip
    radius = {"sphere": (1 - height**2).clamp_min(0).sqrt(), "cylinder": torch.ones_like(u),
              "cone": (1 - height) / 2}[name]  # fmt: skip
    return torch.stack((radius * angle.cos(), radius * angle.sin(), height), -1)
