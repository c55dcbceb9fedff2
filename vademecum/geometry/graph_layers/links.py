r"""Link prediction: a score for each pair of nodes, and pairs that are no edges to compare with.

$s_{uv} = h_u^\top h_v$, or the cosine of the two. Pairs without an edge are drawn uniformly from
all of them: if $k_0 < k_1 < \dots$ are the numbers $u N + v$ of the pairs to avoid (edges and a
node with itself), then the r-th number that is left is $r + \#\{i: k_i - i \le r\}$, so that each
draw takes one search and none is rejected.

The loss is the logistic one, mean over both kinds; the area under the curve is the share of (edge,
other pair) in which the edge has the higher score, ties counting half. Both exact. Checked by the
claim `link_prediction`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn import functional as F

from vademecum.arguments import choice, whole
from vademecum.geometry.graphs import Adjacency, adjacency_of, check_features
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["LinkScores", "link_scores"]


class LinkScores(NamedTuple):
    """Scores of edges and of pairs that are none.

    Example:
        >>> link_scores(torch.eye(3), torch.tensor([[0], [1]])).positive
        tensor([0.])
    """

    positive: Tensor
    """The scores of the edges, (E,)."""
    negative: Tensor
    """The scores of as many other pairs as were asked for."""
    negative_index: Tensor
    """These pairs, (2, pairs)."""
    loss: Tensor
    """The mean logistic loss of edges plus that of other pairs; can be differentiated."""
    auc: float
    """The area under the curve: how often an edge scores higher than another pair."""

    __repr__ = one_line


def link_scores(
    h: Float[Tensor, " N d"],
    edges: Adjacency | Integer[Tensor, " 2 E"],
    *,
    known: Adjacency | Integer[Tensor, " 2 F"] | None = None,
    score: str = "dot",
    negatives: int = 1,
    generator: torch.Generator | None = None,
) -> LinkScores:
    r"""Score edges, and pairs drawn from those that are none.

    Args:
        h: The nodes' embeddings, such as a graph network gives them.
        edges: The edges to score, for training or held out.
        known: Other edges that must not be drawn as pairs without one; those of training, where
            `edges` are held out.
        score: `"dot"` for $h_u^\top h_v$, `"cosine"` for the cosine.
        negatives: How many pairs without an edge are drawn for each edge.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If there are no edges, or no pairs without one.

    Example:
        >>> h = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
        >>> scores = link_scores(h, torch.tensor([[0, 1], [1, 0]]))
        >>> scores.positive, scores.negative, scores.auc
        (tensor([4., 4.]), tensor([0., 0.]), 1.0)
    """
    graph = adjacency_of(edges, len(h))
    check_features("h", h, graph.num_nodes, graph.device)
    choice("score", score, ("dot", "cosine"))
    negatives = whole("negatives", negatives, low=1)
    if not graph.num_edges:
        raise ValueError("edges must not be empty")
    taken = [graph.edge_index]
    if known is not None:
        taken.append(adjacency_of(known, len(h)).edge_index)
    drawn = _other_pairs(torch.cat(taken, 1), len(h), negatives * graph.num_edges, generator)
    h = F.normalize(h, dim=1) if score == "cosine" else h
    positive, negative = (_scores(h, pairs) for pairs in (graph.edge_index, drawn))
    loss = F.softplus(-positive).mean() + F.softplus(negative).mean()
    return LinkScores(positive, negative, drawn, loss, _auc(positive.detach(), negative.detach()))


def _scores(h: Tensor, pairs: Tensor) -> Tensor:
    u, v = (h.index_select(0, end.long()) for end in pairs)
    return (u * v).sum(1)


def _other_pairs(taken: Tensor, N: int, count: int, generator: torch.Generator | None) -> Tensor:
    device = taken.device
    own = torch.arange(N, device=device) * (N + 1)
    keys = torch.cat([taken[0].long() * N + taken[1].long(), own]).unique()
    left = N * N - len(keys)
    if not left:
        raise ValueError(f"edges must leave a pair without one, got all {N * N - N} pairs")
    draws = torch.randint(left, (count,), **source(generator, device)).to(device)
    below = keys - torch.arange(len(keys), device=device)
    numbers = draws + torch.searchsorted(below, draws, right=True)
    return torch.stack([numbers // N, numbers % N])


def _auc(positive: Tensor, negative: Tensor) -> float:
    ordered = negative.sort()[0]
    below = torch.searchsorted(ordered, positive)
    up_to = torch.searchsorted(ordered, positive, right=True)
    return float((below + up_to).double().mean() / (2 * len(negative)))
