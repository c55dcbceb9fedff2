"""Messages in blocks against loops; links against enumeration; many graphs as one; CUDA."""

from collections import Counter

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from vademecum.geometry import (
    Adjacency,
    ChebConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    batch_graphs,
    link_scores,
    message_passing,
)

EDGES = torch.tensor([[0, 1, 2, 2, 2, 4, 3, 3], [1, 0, 1, 1, 3, 0, 2, 2]])


@pytest.mark.parametrize("how", ["sum", "mean", "max"])
def test_messages_edge_by_edge_and_in_blocks(how):
    psi = nn.Linear(5, 4).double()
    weight = torch.rand(8, dtype=torch.float64)
    x = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)

    def message(x_i: Tensor, x_j: Tensor, w: Tensor) -> Tensor:
        return psi(torch.cat([x_i, x_j, w[:, None]], 1)).tanh()

    rows = []
    for node in range(6):
        into = [e for e in range(8) if EDGES[1, e] == node]
        said = [message(x[[node]], x[EDGES[0, [e]]], weight[[e]])[0] for e in into]
        empty = torch.zeros(4, dtype=torch.float64)
        reduce = {
            "sum": lambda m: m.sum(0),
            "mean": lambda m: m.mean(0),
            "max": lambda m: m.amax(0),
        }
        rows.append(reduce[how](torch.stack(said)) if said else empty)
    wanted = [x, psi.weight]
    hand = torch.stack(rows)
    g = torch.randn_like(hand)
    by_hand = torch.autograd.grad(hand, wanted, g)
    graph = Adjacency(EDGES, 6, weight=weight)
    for memory in (None, 1, 200):
        y = message_passing(x, graph, message=message, aggregate=how, memory=memory)
        assert torch.allclose(y, hand)
        for a, b in zip(torch.autograd.grad(y, wanted, g), by_hand, strict=True):
            assert torch.allclose(a, b)


def test_messages_are_twice_differentiable():
    x = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    for how in ("sum", "max"):
        for memory in (None, 100):
            assert torch.autograd.gradgradcheck(
                lambda x, how=how, memory=memory: message_passing(
                    x, EDGES, message=lambda a, b: (a * b).sin(), aggregate=how, memory=memory
                ),
                x,
            )


def test_pairs_without_an_edge_are_drawn_uniformly():
    h = torch.randn(6, 3)
    known = torch.tensor([[5, 0], [0, 5]])
    taken = {tuple(e) for e in torch.cat([EDGES, known], 1).t().tolist()}
    free = [(u, v) for u in range(6) for v in range(6) if u != v and (u, v) not in taken]
    found = link_scores(h, EDGES, known=known, negatives=500)
    counts = Counter(map(tuple, found.negative_index.t().tolist()))
    assert set(counts) == set(free)
    assert stats.chisquare([counts[pair] for pair in free]).pvalue > 1e-4


def test_scores_loss_and_area():
    h = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    for score in ("dot", "cosine"):
        found = link_scores(h, EDGES, score=score, negatives=2)
        unit = h / h.norm(dim=1, keepdim=True) if score == "cosine" else h
        S = unit @ unit.T
        assert torch.allclose(found.positive, S[EDGES[0], EDGES[1]])
        u, v = found.negative_index
        assert torch.allclose(found.negative, S[u, v])
        loss = -found.positive.sigmoid().log().mean() - (-found.negative).sigmoid().log().mean()
        assert torch.allclose(found.loss, loss)
        (g,) = torch.autograd.grad(found.loss, h)
        assert g.isfinite().all()
        assert g.any()
        gaps = found.positive[:, None] - found.negative
        area = ((gaps > 0).double() + 0.5 * (gaps == 0)).mean()
        assert found.auc == pytest.approx(float(area))


def test_many_graphs_as_one_keep_their_weights():
    xs, weights = [torch.randn(2, 3), torch.randn(4, 3)], [torch.rand(2), torch.rand(1)]
    edges = [torch.tensor([[0, 1], [1, 0]]), torch.tensor([[3], [1]])]
    both = batch_graphs(xs, edges, weights=weights)
    alone = [Adjacency(e, len(x), weight=w) @ x for x, e, w in zip(xs, edges, weights, strict=True)]
    assert torch.allclose(both.edges @ both.x, torch.cat(alone))


CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@CUDA
@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["GCN", "Cheb", "GAT", "GATv2", "GIN", "messages"])
def test_cuda_gives_the_same_bits_twice_and_the_numbers_of_the_cpu(kind):
    layers = {
        "GCN": GCNConv(32, 16), "Cheb": ChebConv(32, 16, 3), "GAT": GATConv(32, 8, 4),
        "GATv2": GATv2Conv(32, 8, 4), "GIN": GINConv(nn.Linear(32, 16)),
    }  # fmt: skip
    layer = layers.get(kind, nn.Identity())
    pairs = torch.randint(2000, (2, 40_000))
    edges, x = torch.cat([pairs, pairs.flip(0)], 1), torch.randn(2000, 32)
    cotangent = torch.randn(2000, 32)  # ones would make gradients vanish, all but rounding errors

    def step(device: str, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        net, e = layer.to(device, dtype), edges.to(device)
        z = x.to(device, dtype, copy=True).requires_grad_()
        if kind == "messages":
            y = message_passing(z, e, message=lambda a, b: (a - b).tanh(), memory=10**6)
        else:
            y = net(z, e)
        g = cotangent[:, : y.shape[1]].to(y)
        found = torch.autograd.grad(y, [z, *net.parameters()], g)
        return [t.cpu() for t in (y.detach(), *found)]

    one, two, fine = step("cuda"), step("cuda"), step("cpu", torch.float64)
    # Sums have m = 2000 terms at most, of random signs: their size is sqrt(m) terms, their error in
    # any order at most m eps sqrt(m) sizes, and near sqrt(m) eps of them; m eps lies between.
    bar = 2000 * torch.finfo(torch.float32).eps
    for a, b, c in zip(one, two, fine, strict=True):
        assert a.equal(b)
        assert (a - c).abs().max() <= bar * c.abs().max()
