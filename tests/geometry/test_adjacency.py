"""Sorted graphs against dense matrices: products, degrees, loops, symmetry, derivatives."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from vademecum.geometry import (
    GAT,
    GCN,
    GIN,
    Adjacency,
    ChebConv,
    ChebNet,
    batch_graphs,
    gcn_norm,
)
from vademecum.geometry.graphs import largest_eigenvalues


@st.composite
def graphs(draw):
    """Nodes, edges with repetitions and loops, and whether they have weights."""
    n = draw(st.integers(0, 7))
    pair = st.tuples(st.integers(0, max(0, n - 1)), st.integers(0, max(0, n - 1)))
    pairs = draw(st.lists(pair, max_size=14)) if n else []
    edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    weight = torch.arange(1.0, 1 + len(pairs)).double() if draw(st.booleans()) else None
    return n, edges, weight


def dense(n: int, edges: Tensor, weight: Tensor | None) -> Tensor:
    A = torch.zeros(n, n, dtype=torch.float64)
    for e, (source, target) in enumerate(edges.t().tolist()):
        A[target, source] += 1 if weight is None else weight[e]
    return A


@given(graphs())
def test_products_and_degrees(graph):
    n, edges, weight = graph
    A, D = Adjacency(edges, n, weight=weight), dense(*graph)
    for dtype, tol in ((torch.float64, 1e-13), (torch.float32, 1e-5)):
        x = torch.randn(n, 3, dtype=dtype)
        assert torch.allclose((A @ x).double(), D @ x.double(), atol=100 * tol)
        assert torch.allclose(
            A.product(x, transpose=True).double(), D.T @ x.double(), atol=100 * tol
        )
        assert torch.allclose((A @ x[:, 0]).double(), D @ x[:, 0].double(), atol=100 * tol)
    assert A.dense(torch.float64).equal(D)
    assert A.in_degrees(torch.float64).equal(D.sum(1))
    assert A.out_degrees(torch.float64).equal(D.sum(0))
    assert A.is_symmetric == D.equal(D.T)
    loops = D + torch.diag(1.0 * (D.diagonal() == 0)).double()
    assert A.with_self_loops().dense(torch.float64).equal(loops)


@given(graphs(), st.randoms())
def test_the_order_of_edges_does_not_matter(graph, random):
    n, edges, weight = graph
    order = list(range(edges.shape[1]))
    random.shuffle(order)
    other = None if weight is None else weight[order]
    x = torch.randn(n, 2)
    one, two = Adjacency(edges, n, weight=weight), Adjacency(edges[:, order], n, weight=other)
    assert torch.allclose(one @ x, two @ x)
    assert one.edges.rows.columns.equal(two.edges.rows.columns)


@given(graphs())
def test_normalisation_entry_by_entry(graph):
    n, edges, weight = graph
    D = dense(*graph)
    for improved in (False, True):
        loops = D + (1 + improved) * torch.diag(1.0 * (D.diagonal() == 0)).double()
        d = loops.sum(1)
        found = gcn_norm(edges, n, weight=weight, improved=improved, directed=True,
                         dtype=torch.float64)  # fmt: skip
        assert torch.allclose(found.dense(), loops / (d[:, None] * d).sqrt(), atol=1e-13)
    bare = gcn_norm(edges, n, weight=weight, add_self_loops=False, directed=True,
                    dtype=torch.float64)  # fmt: skip
    scale = D.sum(1).clamp(min=1e-300).rsqrt() * (D.sum(1) > 0)
    assert torch.allclose(bare.dense(), scale[:, None] * D * scale, atol=1e-13)


def test_weights_that_add_up_to_a_symmetric_matrix():
    edges = torch.tensor([[0, 0, 1], [1, 1, 0]])
    assert Adjacency(edges, 2, weight=torch.tensor([0.1, 0.2, 0.3])).is_symmetric
    assert not Adjacency(edges, 2, weight=torch.tensor([0.1, 0.2, 0.4])).is_symmetric
    assert not Adjacency(edges, 2).is_symmetric


def test_derivatives_in_both_directions():
    edges = torch.randint(6, (2, 15))
    x, w = torch.randn(6, 2).double().requires_grad_(), torch.rand(15).double().requires_grad_()

    def product(x: Tensor, w: Tensor) -> Tensor:
        return (Adjacency(edges, 6, weight=w) @ x).sin()

    assert torch.autograd.gradcheck(product, (x, w))
    assert torch.autograd.gradgradcheck(product, (x, w))
    backward = torch.func.jacrev(product, (0, 1))(x, w)
    forward = torch.func.jacfwd(product, (0, 1))(x, w)
    for a, b in zip(backward, forward, strict=True):
        assert torch.allclose(a, b)
    many = torch.randn(3, 6, 2).double()
    mapped = torch.func.vmap(lambda x: Adjacency(edges, 6) @ x)(many)
    assert torch.allclose(mapped, torch.stack([Adjacency(edges, 6) @ x for x in many]))


def test_what_is_kept_does_not_outlive_gradients():
    edges = torch.tensor([[0, 1], [1, 0]])
    w = torch.ones(2, requires_grad=True)
    graph = Adjacency(edges, 2, weight=w)
    x = torch.randn(2, 3)
    for _ in range(2):  # a graph kept from the first pass would fail in the second
        (gcn_norm(graph) @ x).sum().backward()
    with torch.no_grad():
        before = graph @ x
    for _ in range(2):
        (found,) = torch.autograd.grad((graph @ x).sum(), w)
        assert torch.allclose(found, x.sum(1))
    with torch.no_grad():
        w.mul_(2)  # as an optimiser does
    assert torch.allclose(graph @ x, 2 * before)
    assert graph.values is not None
    other = graph.reweighted(graph.values).weight
    assert other is not None
    assert torch.allclose(torch.autograd.grad(other.sum(), w)[0], torch.ones(2))
    plain = Adjacency(edges, 2)
    assert gcn_norm(plain) is gcn_norm(plain)
    assert plain.edges is plain.edges


@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.int32])
def test_integers_of_any_kind(kind):
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    x = torch.randn(3, 4)
    assert (Adjacency(edges.to(kind), 3) @ x).equal(Adjacency(edges, 3) @ x)
    looped = Adjacency(edges.to(kind), 300, batch=torch.zeros(300, dtype=kind)).with_self_loops()
    assert looped.edge_index[0, 3:].equal(torch.arange(300).to(looped.edge_index.dtype))


@pytest.mark.parametrize("weighted", [False, True])
def test_what_is_kept_in_inference_mode_serves_training(weighted):
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    weight = torch.ones(4) if weighted else None
    nets = [GCN(3, 4, 2), ChebNet(3, 4, 2), GIN(3, 4, 2)]
    nets += [] if weighted else [GAT(3, 4, 2), GAT(3, 4, 2, v2=True)]
    x = torch.randn(3, 3, requires_grad=True)
    for net in nets:
        graph = Adjacency(edges, 3, weight=weight)
        with torch.inference_mode():
            before = net(x, graph)
        y = net(x, graph)
        (g,) = torch.autograd.grad(y.sum(), x)
        assert y.equal(before)
        assert g.any()


@pytest.mark.parametrize("layer", ["gcn", "cheb"])
def test_degrees_beyond_half_precision(layer):
    n = 70_001  # a star, whose centre has a degree that float16 does not hold
    leaf, centre = torch.arange(1, n), torch.zeros(n - 1, dtype=torch.long)
    edges = torch.stack([torch.cat([leaf, centre]), torch.cat([centre, leaf])])
    x = torch.zeros(n, 1)
    x[0] = 1.0
    if layer == "gcn":
        half, full = (gcn_norm(edges, n, dtype=t) @ x.to(t) for t in (torch.half, torch.float))
    else:
        net = ChebConv(1, 1, 2)
        for p in net.lins.parameters():
            nn.init.ones_(p)
        full, half = net(x, edges), net.half()(x.half(), edges)
    assert torch.allclose(half[1:].float(), full[1:], rtol=2e-3)
    assert full[1:].all()


def test_half_precision():
    edges = torch.randint(9, (2, 30))
    w, x = torch.rand(30).bfloat16().requires_grad_(), torch.randn(9, 4).bfloat16()
    y = Adjacency(edges, 9, weight=w) @ x
    y.sum().backward()
    assert y.dtype == torch.bfloat16
    assert w.grad is not None
    assert torch.allclose(w.grad.float(), x.float().sum(1)[edges[0]], atol=0.1)


def test_eigenvalues_of_each_graph_alone_and_together():
    sizes, made = (3, 8, 1, 20, 5), []
    for n in sizes:
        pairs = torch.triu((torch.rand(n, n) < 0.5).float(), 1).nonzero().t()
        made.append(torch.cat([pairs, pairs.flip(0)], 1))
    batch = batch_graphs([torch.zeros(n, 1) for n in sizes], made).edges
    ones = torch.ones(batch.num_edges, dtype=torch.float64)
    together = largest_eigenvalues(batch, batch.in_degrees(torch.float64), ones)
    for n, edges, value in zip(sizes, made, together, strict=True):
        A = dense(n, edges, None)
        top = torch.linalg.eigvalsh(A.sum(1).diag() - A)[-1]
        assert torch.allclose(value, top, atol=1e-6)
        graph = Adjacency(edges, n)
        alone = largest_eigenvalues(graph, A.sum(1), torch.ones(edges.shape[1]).double())
        assert torch.allclose(value, alone[0], atol=1e-12)


def test_another_device_and_words():
    graph = Adjacency(torch.tensor([[0], [1]]), 2, weight=torch.ones(1), batch=torch.tensor([0, 0]))
    assert repr(graph.to("cpu")) == "Adjacency(nodes=2, edges=1, graphs=1, weighted)"
    assert graph.num_graphs == 1
    assert Adjacency(torch.zeros(2, 0).long(), 0).num_graphs == 1
