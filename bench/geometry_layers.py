"""Rows of the room `geometry`: graph layers against PyG, forward and backward.

PyG multiplies by an edge list or, where a layer can, by torch's CSR matrix; both are peers. On the
GPU there is one graph more, with a million nodes and twenty million edges.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bench.harness import Row, Skipped
from vademecum.geometry import (
    Adjacency,
    ChebConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    batch_graphs,
)
from vademecum.geometry.graphs import quiet_sparse

__all__ = ["rows"]

SIZES = ((10_000, 100_000), (100_000, 1_000_000))
LARGE = (1_000_000, 20_000_000)  # on a GPU
WIDTH = 64
BANDWIDTH = 4.8e12  # bytes a second of an H200


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    try:
        from torch_geometric import nn as pyg  # type: ignore[import-not-found]
    except ModuleNotFoundError:
        yield Skipped("graph layers", "make bench ROOM=geometry  # installs torch-geometric")
        return
    for nodes, edges in (*SIZES, LARGE) if device.type == "cuda" else SIZES:
        yield from _layers(pyg, nodes, edges, device)
    yield from _small_graphs(pyg, device)


def _layers(pyg: Any, nodes: int, edges: int, device: torch.device) -> Iterator[Row]:
    edge_index = _graph(nodes, edges, device)
    ready = Adjacency(edge_index, nodes)
    x = torch.randn(nodes, WIDTH, device=device, requires_grad=True)
    size = f"{nodes // 1000}k nodes, {edges // 1000}k edges"
    gather = 1e3 * edges * WIDTH * x.itemsize / BANDWIDTH
    limit = f"{gather:.1f} ms a gather" if nodes == LARGE[0] else ""
    for name, layer, peer, cached in _pairs(pyg, device):
        plain: dict[str, Callable[[], Any]] = {"PyG": partial(_step, peer, x, edge_index)}
        if device.type == "cuda" and isinstance(layer, GCNConv | GINConv):
            plain["PyG, torch CSR"] = partial(_step, peer, x, _csr(edge_index, nodes))
        kept = plain
        if cached is not None:
            kept = {**plain, "PyG, cached": partial(_step, cached, x, edge_index)}
        for other in (peer, cached):
            if other is not None:
                other.load_state_dict(layer.state_dict())
        for form, graph, peers in (("prepared", ready, kept), ("not prepared", edge_index, plain)):
            ours = partial(_step, layer, x, graph)
            yield Row(f"{name}, {size}, {form}", ours, peers, _same, limit, rounds=5)


def _pairs(
    pyg: Any, device: torch.device
) -> list[tuple[str, nn.Module, nn.Module, nn.Module | None]]:
    d = WIDTH
    cached = pyg.GCNConv(d, d, cached=True).to(device)
    made = [
        ("GCN", GCNConv(d, d), pyg.GCNConv(d, d), cached),
        ("ChebNet, K = 3", ChebConv(d, d, 3), pyg.ChebConv(d, d, 3), None),
        ("GAT, 1 x 64", GATConv(d, d), pyg.GATConv(d, d), None),
        ("GAT, 4 x 16", GATConv(d, d // 4, 4), pyg.GATConv(d, d // 4, 4), None),
        ("GATv2, 4 x 16", GATv2Conv(d, d // 4, 4), pyg.GATv2Conv(d, d // 4, 4), None),
        ("GIN", GINConv(nn.Linear(d, d)), pyg.GINConv(nn.Linear(d, d)), None),
    ]
    return [(name, a.to(device), b.to(device), kept) for name, a, b, kept in made]


def _small_graphs(pyg: Any, device: torch.device) -> Iterator[Row]:
    """A thousand graphs of thirty nodes, batched beforehand."""
    many = [(torch.randn(30, WIDTH), _graph(30, 120, torch.device("cpu"))) for _ in range(1000)]
    batch = batch_graphs([x for x, _ in many], [e for _, e in many])
    x = batch.x.to(device).requires_grad_()
    edge_index = batch.edges.edge_index.to(device)
    for name, layer, peer, _ in _pairs(pyg, device):
        peer.load_state_dict(layer.state_dict())
        peers: dict[str, Callable[[], Any]] = {"PyG": partial(_step, peer, x, edge_index)}
        ours = partial(_step, layer, x, edge_index)
        yield Row(f"{name}, 1,000 graphs of 30 nodes, not prepared", ours, peers, _same)


def _graph(nodes: int, edges: int, device: torch.device) -> Tensor:
    """An undirected graph without self-loops and isolated nodes, edges in random order."""
    ring = torch.arange(nodes, device=device)
    one = torch.randint(nodes, (edges // 2 - nodes,), device=device)
    step = torch.randint(1, nodes, one.shape, device=device)
    pairs = torch.cat([torch.stack([ring, (ring + 1) % nodes]),
                       torch.stack([one, (one + step) % nodes])], 1)  # fmt: skip
    both = torch.cat([pairs, pairs.flip(0)], 1)
    return both[:, torch.randperm(both.shape[1], device=device)]


def _csr(edge_index: Tensor, nodes: int) -> Tensor:
    """What PyG takes instead of an edge list: the transposed matrix in compressed rows."""
    ones = torch.ones(edge_index.shape[1], device=edge_index.device)
    size = (nodes, nodes)
    with quiet_sparse():
        matrix = torch.sparse_coo_tensor(edge_index.flip(0), ones, size, check_invariants=False)
        return matrix.to_sparse_csr()


def _step(layer: nn.Module, x: Tensor, edges: Any) -> dict[str, Tensor]:
    """The output and all gradients."""
    y = layer(x, edges)
    wanted = {"x": x, **dict(layer.named_parameters())}
    found = torch.autograd.grad(y, list(wanted.values()), torch.ones_like(y))
    return {"y": y.detach(), **dict(zip(wanted, found, strict=True))}


def _same(mine: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    for name, theirs in other.items():
        gap = float((mine[name] - theirs).abs().max())
        assert gap < 1e-3 * (1e-3 + float(theirs.abs().max())), (name, gap)
