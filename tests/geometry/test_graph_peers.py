"""Graph layers and networks against PyG, with weights that fit both ways."""

from typing import Any

import pytest
import torch
from torch import nn

from vademecum.geometry import (
    GAT,
    GCN,
    GIN,
    ChebConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
)

pyg = pytest.importorskip("torch_geometric.nn")


def two() -> nn.Module:
    return nn.Sequential(nn.Linear(7, 9), nn.ReLU(), nn.Linear(9, 6))


PAIRS = {
    "GCNConv": lambda: (pyg.GCNConv(7, 6), GCNConv(7, 6)),
    "wide": lambda: (pyg.GCNConv(7, 9, bias=False), GCNConv(7, 9, bias=False)),
    "improved": lambda: (pyg.GCNConv(7, 6, improved=True), GCNConv(7, 6, improved=True)),
    "plain": lambda: (pyg.GCNConv(7, 6, normalize=False), GCNConv(7, 6, normalize=False)),
    "no loops": lambda: (
        pyg.GCNConv(7, 6, add_self_loops=False), GCNConv(7, 6, add_self_loops=False),
    ),
    "ChebConv 1": lambda: (pyg.ChebConv(7, 6, 1), ChebConv(7, 6, 1)),
    "ChebConv 4": lambda: (pyg.ChebConv(7, 6, 4), ChebConv(7, 6, 4)),
    "Laplacian": lambda: (
        pyg.ChebConv(7, 6, 3, normalization=None), ChebConv(7, 6, 3, normalization=None),
    ),
    "GATConv": lambda: (pyg.GATConv(7, 5, 3), GATConv(7, 5, 3)),
    "means": lambda: (
        pyg.GATConv(7, 5, 2, concat=False, negative_slope=0.4, add_self_loops=False),
        GATConv(7, 5, 2, concat=False, negative_slope=0.4, add_self_loops=False),
    ),
    "GATv2Conv": lambda: (pyg.GATv2Conv(7, 5, 3), GATv2Conv(7, 5, 3)),
    "shared": lambda: (
        pyg.GATv2Conv(7, 5, 3, share_weights=True), GATv2Conv(7, 5, 3, share_weights=True),
    ),
    "GINConv": lambda: (
        pyg.GINConv(two(), eps=0.2, train_eps=True), GINConv(two(), train_eps=True),
    ),
    "fixed eps": lambda: (pyg.GINConv(two(), eps=0.2), GINConv(two())),
    "GCN": lambda: (pyg.GCN(7, 8, 3, 5), GCN(7, 8, 3, 5)),
    "GAT": lambda: (pyg.GAT(7, 8, 3, 5, heads=2), GAT(7, 8, 3, 5, heads=2)),
    "GAT v2": lambda: (pyg.GAT(7, 8, 2, v2=True, heads=4), GAT(7, 8, 2, v2=True, heads=4)),
    "GIN": lambda: (pyg.GIN(7, 8, 2, 5), GIN(7, 8, 2, 5)),
}  # fmt: skip
WEIGHTED = ("GCNConv", "wide", "improved", "plain", "no loops", "ChebConv 4", "Laplacian", "GCN")


@pytest.mark.parametrize("name", PAIRS)
def test_the_same_numbers_and_names(name):
    theirs, ours = (layer.double() for layer in PAIRS[name]())
    for p in theirs.parameters():
        nn.init.normal_(p)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    n = 40
    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    edges = torch.cat([torch.randint(n, (2, 90)), ring], 1)
    edges = edges[:, edges[0] != edges[1]]
    edges = torch.cat([edges, edges.flip(0)], 1).unique(dim=1)
    table = torch.rand(n, n, dtype=torch.float64)
    weight = (table + table.T)[edges[0], edges[1]]
    cases: list[Any] = [(weight,)] if name in WEIGHTED else [()]
    cases += [()] if name in WEIGHTED and name != "improved" else []  # PyG forgets it without
    for given in cases:
        x = torch.randn(n, 7, dtype=torch.float64, requires_grad=True)
        a, b = theirs(x, edges, *given), ours(x, edges, *given)
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-9)
        g = torch.randn_like(a)
        names = [name for name, _ in theirs.named_parameters()]
        found = [torch.autograd.grad(y, [x, *map(net.get_parameter, names)], g)
                 for net, y in ((theirs, a), (ours, b))]  # fmt: skip
        for one, other in zip(*found, strict=True):
            assert (one - other).abs().max() <= 1e-6 * (1 + one.abs().max())
