"""Graph networks of PyG: with the graph as an argument, and as a buffer."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.outside.cases import Case, Subject

__all__ = ["cases"]

N, D, K = 6, 4, 2  # nodes, features, classes
EDGES = torch.tensor([[0, 1, 1, 2, 3, 4, 4, 5, 0, 5], [1, 0, 2, 1, 4, 3, 5, 4, 5, 0]])
DOUBLE = torch.float64
SEEN = [0, 2, 5]


def _network(kind: str) -> nn.Module:
    models = importlib.import_module("torch_geometric.nn.models")
    return getattr(models, kind)(D, 5, num_layers=2, out_channels=K, dropout=0.5).to(DOUBLE)


def _over_nodes(z: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(z[SEEN], y[SEEN])


def _data() -> tuple[Tensor, Tensor]:
    return torch.randn(N, D, dtype=DOUBLE), torch.randint(0, K, (N,))


class OnGraph(nn.Module):
    """A network on one graph, which is a part of it."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network
        self.register_buffer("edges", EDGES.clone())

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x, self.edges)


def _argument(kind: str) -> Callable[[], Subject]:
    def make() -> Subject:
        x, y = _data()
        return Subject(_network(kind), (x, EDGES.clone()), y, _over_nodes, wrt="", graph=EDGES)

    return make


def _named(kind: str) -> Callable[[], Subject]:
    def make() -> Subject:
        x, y = _data()
        given = {"x": x, "edge_index": EDGES.clone()}
        return Subject(_network(kind), given, y, _over_nodes, wrt="x", graph=EDGES)

    return make


def _buffer(kind: str) -> Callable[[], Subject]:
    def make() -> Subject:
        x, y = _data()
        return Subject(OnGraph(_network(kind)), x, y, _over_nodes, graph=EDGES)

    return make


def _cases(kind: str) -> list[Case]:
    """Nodes are no examples: they hear of each other."""
    mixed: Any = {"refused": {"*": "example|does not take inputs"}, "separate": False,
                  "skip": {"tape": "PyG asks whether it is given tensors",
                           "wl_ceiling": "the graph is the model's own"}}  # fmt: skip
    return [
        Case(f"{kind} of (x, edges)", _argument(kind), separate=False),
        Case(f"{kind} of named inputs", _named(kind), separate=False),
        Case(f"{kind} with edges as a buffer", _buffer(kind), **mixed),
    ]


def cases() -> list[Case]:
    """Four kinds of layers."""
    importlib.import_module("torch_geometric")
    return [case for kind in ("GCN", "GraphSAGE", "GAT", "GIN") for case in _cases(kind)]
