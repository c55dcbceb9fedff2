"""What graphs and their layers refuse, and in which words."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vademecum.geometry import (
    GAT,
    Adjacency,
    ChebConv,
    GATConv,
    GCNConv,
    GINConv,
    batch_graphs,
    gcn_norm,
    link_scores,
    message_passing,
)

PAIR = torch.tensor([[0, 1], [1, 0]])
X = torch.zeros(2, 3)
TABLE = torch.tensor([0, 0, 1])


def odd(thing) -> Any:
    return thing


def two(e: Tensor, **knobs) -> Adjacency:
    return Adjacency(e, 3, **knobs)


def joined(batch: Tensor) -> Adjacency:
    return two(torch.tensor([[0, 0, 1], [1, 2, 1]]), batch=batch)


def messages(**knobs) -> Tensor:
    return message_passing(X, PAIR, **{"message": lambda a, b: a, **knobs})


MISTAKES = [
    (lambda: two(torch.tensor([[0, 5], [7, 1]])),
     "edge_index must be < num_nodes = 3, got 7 at (1, 0)"),
    (lambda: two(torch.tensor([[0, 1], [1, -2]])), "edge_index must be >= 0, got -2 at (1, 1)"),
    (lambda: two(torch.zeros(2, 2)), "edge_index must hold integers, got torch.float32"),
    (lambda: two(torch.zeros(2, 2).bool()), "edge_index must hold integers, got torch.bool"),
    (lambda: two(torch.zeros(3, 2).long()), "edge_index must have shape (2, E), got (3, 2)"),
    (lambda: two(torch.zeros(4).long()), "edge_index must have shape (2, E), got (4,)"),
    (lambda: two(odd([[0], [1]])), "edge_index must be a tensor, got list"),
    (lambda: Adjacency(PAIR, -1), "num_nodes must be >= 0, got -1"),
    (lambda: Adjacency(PAIR, odd(2.0)), "num_nodes must be an integer, got 2.0"),
    (lambda: two(PAIR, weight=torch.ones(3)),
     "weight must have shape (2,), one for each edge, got (3,)"),
    (lambda: two(PAIR, weight=torch.ones(2).long()), "weight must be floating point, got torch.i"),
    (lambda: two(PAIR, weight=torch.tensor([1, float("nan")])),
     "weight must be finite, got nan at (1,)"),
    (lambda: two(PAIR, weight=torch.ones(2) + 0j), "weight must be real, got torch.complex64"),
    (lambda: two(PAIR, batch=torch.tensor([0, 1, 3])), "batch must have no gaps, got [1, 3] at 1"),
    (lambda: two(PAIR, batch=torch.tensor([0, 1, 0])), "batch must not decrease, got [1, 0] at 1"),
    (lambda: two(PAIR, batch=torch.tensor([1, 1, 1])), "batch must begin with 0, got 1"),
    (lambda: two(PAIR, batch=torch.tensor([0, 0])),
     "batch must have shape (3,), one for each node, got (2,)"),
    (lambda: two(PAIR, batch=torch.zeros(3)), "batch must be a tensor of integers, got torch.f"),
    (lambda: joined(torch.tensor([0, 0, 1])),
     "edges must stay within a graph of batch, got edge 1 = [0, 2]"),
    (lambda: two(PAIR) @ X, "x must have 3 rows, one for each node, got shape (2, 3)"),
    (lambda: two(PAIR) @ torch.zeros(3, 2).long(), "x must be floating point, got torch.int64"),
    (lambda: gcn_norm(torch.tensor([[0, 1, 1], [1, 0, 2]]), 3),
     "edges must be undirected unless directed=True, got 1 -> 2 without its mirror image"),
    (lambda: gcn_norm(PAIR, 2, weight=torch.tensor([-3.0, -3.0])),
     "weight must give no node a negative degree, got -2 at node 0"),
    (lambda: gcn_norm(two(PAIR), weight=torch.ones(2)), "weight must be None with an Adjacency"),
    (lambda: GCNConv(3, 2)(X, two(PAIR)), "x must have 3 rows, one for each node, got 2"),
    (lambda: GCNConv(3, 2)(X, torch.tensor([[0], [2]])),
     "edge_index must be < num_nodes = 2, got 2 at (1, 0)"),
    (lambda: GCNConv(3, 2)(X, torch.tensor([[0], [1]])), "got 0 -> 1 without its mirror image"),
    (lambda: ChebConv(3, 2, 2)(X, torch.tensor([[0], [1]])), "got 0 -> 1 without its mirror"),
    (lambda: GCNConv(0, 2), "in_channels must be >= 1, got 0"),
    (lambda: GCNConv(3, 2, normalize=False, add_self_loops=True),
     "add_self_loops must be False without normalize"),
    (lambda: ChebConv(3, 2, 0), "K must be >= 1, got 0"),
    (lambda: ChebConv(3, 2, 2, normalization="row"), "normalization must be 'sym', 'rw' or None"),
    (lambda: ChebConv(3, 2, 2, lambda_max="two"),
     "lambda_max must be a number, 'bound' or 'largest', got 'two'"),
    (lambda: ChebConv(3, 2, 2, lambda_max=0), "lambda_max must be > 0, got 0"),
    (lambda: ChebConv(3, 2, 2, normalization="rw", lambda_max="largest")(X, PAIR),
     "lambda_max must not be 'largest' with normalization='rw'"),
    (lambda: GATConv(3, 2)(X, Adjacency(PAIR, 2, weight=torch.ones(2))),
     "edges must have no weights: attention computes its own"),
    (lambda: GATConv(3, 2, 0), "heads must be >= 1, got 0"),
    (lambda: GAT(3, 5, 2, heads=2), "hidden_channels must be a multiple of heads = 2, got 5"),
    (lambda: GINConv(nn.Identity(), epsilon=float("nan")), "epsilon must be a number, got nan"),
    (lambda: messages(aggregate="median"), "aggregate must be one of 'sum', 'mean', 'max'"),
    (lambda: messages(message=lambda a, b: a[:1]),
     "message must give a row for each of 2 edges, got (1, 3)"),
    (lambda: messages(memory=0), "memory must be >= 1, got 0"),
    (lambda: batch_graphs([], []), "xs must not be empty"),
    (lambda: batch_graphs([X], [PAIR, PAIR]), "edges must have 1 entries, one for each graph, got"),
    (lambda: batch_graphs([X, X], [PAIR, PAIR + 1]),
     "graph 1: edge_index must be < num_nodes = 2, got 2 at (1, 0)"),
    (lambda: batch_graphs([X[:0]], [PAIR[:, :0]]), "xs[0] must have a row for each node, at least"),
    (lambda: link_scores(X, PAIR), "edges must leave a pair without one, got all 2 pairs"),
    (lambda: link_scores(X, PAIR[:, :0]), "edges must not be empty"),
    (lambda: link_scores(X, PAIR, score="l2"), "score must be one of 'dot', 'cosine', got 'l2'"),
    (lambda: link_scores(X, PAIR, negatives=0), "negatives must be >= 1, got 0"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
