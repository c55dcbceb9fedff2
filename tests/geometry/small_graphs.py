"""Graphs that several tests draw."""

import networkx as nx
import torch
from torch import Tensor

__all__ = ["both_ways", "of_networkx", "path_edges"]


def both_ways(*pairs: tuple[int, int]) -> Tensor:
    """Undirected edges, in both directions."""
    there = torch.tensor(pairs).reshape(-1, 2).T
    return torch.cat([there, there.flip(0)], 1)


def path_edges(n: int) -> Tensor:
    """The edges of a path."""
    there = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    return torch.cat([there, there.flip(0)], 1)


def of_networkx(graph: nx.Graph) -> tuple[Tensor, Tensor]:
    """Edges in both directions (loops once) and weights of a graph of networkx."""
    found = [(u, v, d.get("weight", 1.0)) for u, v, d in graph.edges(data=True)]
    found += [(v, u, w) for u, v, w in found if u != v]
    edges = torch.tensor([(u, v) for u, v, _ in found]).reshape(-1, 2).T
    return edges, torch.tensor([w for *_, w in found], dtype=torch.float64)
