"""Rows of the room `geometry`: Weisfeiler-Leman colours against networkx and PyG."""

import warnings
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from bench.harness import Row, Skipped, in_turn
from vademecum.geometry import weisfeiler_leman

__all__ = ["rows"]

SIZES = ((10_000, 100_000), (100_000, 1_000_000))


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from in_turn(_random(device), _grid(device))


def _ours(edges: Tensor, n: int, rounds: int) -> Counter[int]:
    """How often each size of a colour's class occurs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = weisfeiler_leman((edges, n), max_iter=rounds).colours
    return Counter(torch.bincount(found).tolist())


def _networkx(graph: Any, rounds: int) -> Counter[int]:
    import networkx as nx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of hashes that changed in 3.5
        names = nx.weisfeiler_lehman_subgraph_hashes(graph, iterations=rounds)
    return Counter(Counter(each[-1] for each in names.values()).values())


def _pyg(edges: Tensor, n: int, rounds: int) -> Counter[int]:
    from torch_geometric.nn import WLConv  # pyright: ignore[reportMissingImports]

    layer, colours = WLConv(), torch.zeros(n, dtype=torch.long)
    for _ in range(rounds):
        colours = layer(colours, edges)
    return Counter(torch.bincount(colours).tolist())


def _same(mine: Counter[int], other: Counter[int]) -> None:
    mine.pop(0, None)
    other.pop(0, None)  # numbers that stand for no colour
    assert mine == other, f"{len(mine)} and {len(other)} sizes"


def _row(name: str, graph: Any, n: int, rounds: int) -> Row:
    one = torch.tensor(list(graph.edges)).T
    edges = torch.cat([one, one.flip(0)], 1)
    peers = {
        "networkx": partial(_networkx, graph, rounds),
        "PyG's WLConv": partial(_pyg, edges, n, rounds),
    }
    return Row(name, partial(_ours, edges, n, rounds), peers, _same, rounds=3)


def _random(device: torch.device) -> Iterator[Row]:
    import networkx as nx

    if device.type != "cpu":
        return
    for n, m in SIZES:
        graph = nx.gnm_random_graph(n, m, seed=0)
        yield _row(f"Weisfeiler-Leman, {n:,} nodes, {m:,} edges, 3 rounds", graph, n, 3)


def _grid(device: torch.device) -> Iterator[Row]:
    """Where colours spread by a node a round, and most of the graph stays as it is."""
    import networkx as nx

    if device.type != "cpu":
        return
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(100, 100))
    yield _row("Weisfeiler-Leman, grid of 100 x 100, 10 rounds", graph, 10_000, 10)
