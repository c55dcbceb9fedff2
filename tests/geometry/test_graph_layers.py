"""Graph layers against dense twins, alone and in a batch, twice differentiable, bit by bit."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vademecum.geometry import (
    GAT,
    GCN,
    GIN,
    Adjacency,
    ChebConv,
    ChebNet,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    batch_graphs,
)
from vademecum.geometry.graph_layers import _block_scores
from vademecum.testing import check_part

LAYERS = {
    "GCNConv": lambda: GCNConv(3, 4),
    "narrow": lambda: GCNConv(3, 2, improved=True, bias=False),
    "plain": lambda: GCNConv(3, 2, normalize=False),
    "ChebConv": lambda: ChebConv(3, 4, 4),
    "Laplacian": lambda: ChebConv(3, 4, 3, normalization=None),
    "largest": lambda: ChebConv(3, 4, 3, normalization=None, lambda_max="largest"),
    "largest, sym": lambda: ChebConv(3, 4, 3, lambda_max="largest"),
    "random walk": lambda: ChebConv(3, 4, 3, normalization="rw", lambda_max=1.5),
    "GATConv": lambda: GATConv(3, 2, 3),
    "mean of heads": lambda: GATConv(3, 2, 3, concat=False, add_self_loops=False),
    "GATv2Conv": lambda: GATv2Conv(3, 2, 3),
    "shared": lambda: GATv2Conv(3, 2, 3, share_weights=True, concat=False),
    "GINConv": lambda: GINConv(nn.Linear(3, 4), epsilon=0.3, train_eps=True),
    "GCN": lambda: GCN(3, 6, 3, 2),
    "ChebNet": lambda: ChebNet(3, 6, 2, 4, K=2, activation=nn.Tanh()),
    "GAT": lambda: GAT(3, 6, 2, 4, heads=2),
    "GIN": lambda: GIN(3, 6, 2),
}


def made(name: str) -> Any:
    layer = LAYERS[name]().double()
    for p in layer.parameters():
        nn.init.normal_(p)
    return layer


def graph(n: int = 9, p: float = 0.4) -> Tensor:
    """An undirected graph with parallel edges, a loop, and a last node that is alone."""
    pairs = torch.triu((torch.rand(n - 1, n - 1) < p).float(), 1).nonzero().t()
    pairs = torch.cat([pairs, torch.tensor([[0, 0, 1], [1, 1, 2]])], 1)
    edges = torch.cat([pairs, pairs.flip(0), torch.tensor([[2], [2]])], 1)
    return edges[:, torch.randperm(edges.shape[1])]


def matrix(edges: Tensor, n: int) -> Tensor:
    A = torch.zeros(n, n, dtype=torch.float64)
    A.index_put_((edges[1], edges[0]), torch.ones(edges.shape[1]).double(), accumulate=True)
    return A


def looped(A: Tensor) -> Tensor:
    return A + torch.diag((A.diagonal() == 0).double())


def of_convolution(layer: Any, x: Tensor, A: Tensor) -> Tensor:
    if layer.normalize:
        A = A + (1 + layer.improved) * torch.diag((A.diagonal() == 0).double())
        d = A.sum(1)
        A = A / (d[:, None] * d).sqrt()
    return A @ x @ layer.lin.weight.T + (0 if layer.bias is None else layer.bias)


def of_filter(layer: Any, x: Tensor, A: Tensor) -> Tensor:
    d = A.sum(1)
    some, root = d > 0, d.clamp(min=1e-300).rsqrt() * (d > 0)
    L = {
        "sym": some.double().diag() - root[:, None] * A * root,
        "rw": some.double().diag() - (root * root)[:, None] * A,
        None: d.diag() - A,
    }[layer.normalization]
    top = layer.lambda_max
    if top == "bound":
        top = 2.0 if layer.normalization else float(2 * d.max())
    elif top == "largest":
        top = float(torch.linalg.eigvalsh(L)[-1])
    assert isinstance(top, float)
    hat = 2 / (top or 1.0) * L - torch.eye(len(x)).double()
    terms = [torch.eye(len(x)).double(), hat]
    while len(terms) < len(layer.lins):
        terms.append(2 * hat @ terms[-1] - terms[-2])
    parts = zip(terms, layer.lins, strict=True)
    y = torch.stack([T @ x @ lin.weight.T for T, lin in parts]).sum(0)
    return y + layer.bias


def of_attention(layer: Any, x: Tensor, A: Tensor) -> Tensor:
    A = looped(A) if layer.add_self_loops else A
    H, d, slope = layer.heads, layer.out_channels, layer.negative_slope
    if isinstance(layer, GATConv):
        left = layer.lin(x).view(-1, H, d)
        s, t = (left * layer.att_src).sum(-1), (left * layer.att_dst).sum(-1)
        e = nn.functional.leaky_relu(t[:, None] + s[None], slope)
    else:
        left, right = layer.lin_l(x).view(-1, H, d), layer.lin_r(x).view(-1, H, d)
        e = (layer.att[0] * nn.functional.leaky_relu(right[:, None] + left[None], slope)).sum(-1)
    powers = A[..., None] * e.exp()
    total = powers.sum(1, keepdim=True)
    y = torch.einsum("ijh,jhd->ihd", powers / total.where(total > 0, 1), left)
    return (y.flatten(1) if layer.concat else y.mean(1)) + layer.bias  # pyright: ignore


def twin(layer: Any, x: Tensor, A: Tensor) -> Tensor:
    if isinstance(layer, GCNConv):
        return of_convolution(layer, x, A)
    if isinstance(layer, ChebConv):
        return of_filter(layer, x, A)
    if isinstance(layer, GINConv):
        return layer.nn(A @ x + (1 + layer.eps) * x)
    if isinstance(layer, GATConv | GATv2Conv):
        return of_attention(layer, x, A)
    for conv in layer.convs[:-1]:
        x = layer.act(twin(conv, x, A))
    return twin(layer.convs[-1], x, A)


@pytest.mark.parametrize("name", LAYERS)
def test_dense_twins_and_their_gradients(name, monkeypatch):
    monkeypatch.setattr(_block_scores, "_BYTES", {"cpu": 500})  # a few edges a block
    layer, edges = made(name), graph()
    x = torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    ours, dense = layer(x, edges), twin(layer, x, matrix(edges, 9))
    assert torch.allclose(ours, dense, atol=1e-6 if "largest" in name else 1e-12)
    wanted, g = [x, *layer.parameters()], torch.randn_like(ours)
    for a, b in zip(*(torch.autograd.grad(y, wanted, g) for y in (ours, dense)), strict=True):
        assert torch.allclose(a, b, atol=1e-5 if "largest" in name else 1e-10)
    assert layer(x, Adjacency(edges, 9)).equal(ours)
    other = edges[:, torch.randperm(edges.shape[1])]
    assert layer(x, other).equal(ours)


@pytest.mark.parametrize("name", ["GCNConv", "ChebConv", "GATConv", "GATv2Conv", "GINConv"])
def test_twice_differentiable(name, monkeypatch):
    monkeypatch.setattr(_block_scores, "_BYTES", {"cpu": 300})
    layer, edges = made(name), torch.tensor([[0, 1, 1, 2, 3], [1, 0, 2, 1, 3]])
    names, weights = zip(*layer.named_parameters(), strict=True)

    def f(x: Tensor, *weights: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), (x, edges))

    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    given = (x, *(w.detach().requires_grad_() for w in weights))
    assert torch.autograd.gradgradcheck(f, given)
    if name != "GATv2Conv":
        both = [way(f)(x.detach(), *weights) for way in (torch.func.jacrev, torch.func.jacfwd)]
        assert torch.allclose(*both)


def test_gradients_of_weights_of_edges():
    edges = graph()
    A = matrix(edges, 9)
    w = torch.ones(edges.shape[1], dtype=torch.float64, requires_grad=True)
    for name in ("GCNConv", "Laplacian", "ChebConv", "GINConv"):
        layer, x = made(name), torch.randn(9, 3, dtype=torch.float64)
        g = torch.randn_like(twin(layer, x, A))
        (ours,) = torch.autograd.grad(layer(x, edges, w), w, g)
        D = torch.zeros(9, 9, dtype=torch.float64).index_put(
            (edges[1], edges[0]), w, accumulate=True
        )
        if name != "Laplacian":  # whose bound of eigenvalues the twin takes as a number
            (dense,) = torch.autograd.grad(twin(layer, x, D), w, g)
            assert torch.allclose(ours, dense, atol=1e-10)


@pytest.mark.parametrize("name", LAYERS)
def test_batch_graphs_of_a_thousand_give_each_what_it_gets_alone(name):
    layer = made(name).requires_grad_(False)
    made_of = [(torch.randn(n, 3).double(), graph(n)) for n in (5, 9, 4)]
    xs, edges = zip(*(made_of[i % 3] for i in range(1000)), strict=True)
    batch = batch_graphs(xs, edges)
    together = layer(batch.x, batch.edges)
    for i in (0, 1, 2, 998, 999):
        start = sum(len(x) for x in xs[:i])
        alone = layer(xs[i], Adjacency(edges[i], len(xs[i])))
        assert torch.allclose(together[start : start + len(alone)], alone, atol=1e-9)


@pytest.mark.parametrize("name", LAYERS)
def test_graphs_without_edges_and_without_nodes(name):
    layer = made(name)
    none = torch.zeros(2, 0, dtype=torch.long)
    for n in (3, 0):
        x = torch.randn(n, 3, dtype=torch.float64, requires_grad=True)
        y = layer(x, none)
        assert torch.allclose(y, twin(layer, x, matrix(none, n)) if n else y)
        assert y.isfinite().all()
        y.sum().backward()
        assert x.grad is not None
        assert x.grad.isfinite().all()


@pytest.mark.parametrize("name", LAYERS)
def test_laws(name):
    layer, edges = made(name).float(), graph()

    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x, edges)

    skip = {"independence": "nodes look at their neighbours"}
    check_part(Fixed(), torch.randn(9, 3), devices=("cpu",), skip=skip)


def test_weights_of_attention_sum_to_one():
    layer, x = GATv2Conv(3, 2, 2, dropout=0.5).eval(), torch.randn(9, 3)
    found = layer(x, graph(), attention=True)
    assert not isinstance(found, Tensor)
    total = torch.zeros(9, 2).index_add_(0, found.edge_index[1], found.weights)
    assert torch.allclose(total, torch.ones(9, 2))
    assert layer.train()(x, graph()).shape == (9, 4)
    assert "dropout=0.5" in repr(layer)


@pytest.mark.parametrize("heads", [1, 3])
def test_gat_has_heads_side_by_side_and_their_mean_at_last(heads):
    net, x, edges = GAT(3, 6, 2, 4, heads=heads).double(), torch.randn(9, 3).double(), graph()
    first, last = net.convs
    assert net(x, edges).equal(last(first(x, edges).relu(), edges))
    assert (first.concat, last.concat) == (True, False)
    assert GAT(3, 6, 1, heads=heads).convs[0].concat


def test_cheb_net_reaches_as_far_as_its_filters():
    path = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7]])
    edges, x = torch.cat([path, path.flip(0)], 1), torch.randn(8, 3)
    net = ChebNet(3, 5, 2, 4, K=3, activation=nn.Tanh())
    moved = (net(x + torch.eye(8)[:, :1], edges) - net(x, edges)).abs().sum(1) > 0
    assert moved.tolist() == [True] * 5 + [False] * 3  # K - 1 steps in each of two layers


def test_words():
    assert "3, 4, directed=True" in repr(GCNConv(3, 4, directed=True))
    assert "K=3, lambda_max=2" in repr(ChebConv(3, 4, 3, lambda_max=2))
