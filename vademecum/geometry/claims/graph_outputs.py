"""Kinds of graph layers, and what they predict: nodes, links and graphs."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum import geometry
from vademecum.claims import at_least, at_most, claim, equals
from vademecum.geometry.claims._small_graphs import cycle, edges_of, random_graph

Which = Literal["own", "other"]


def attention_by_messages(x: Tensor, edges: Tensor, W: Tensor, a: Tensor, slope: float) -> Tensor:
    """Attention as plain message passing: numerators and denominators are added up together."""
    d = W.shape[0]

    def message(x_i: Tensor, x_j: Tensor) -> Tensor:
        z = (x_i @ W.T) @ a[0] + (x_j @ W.T) @ a[1]
        power = nn.functional.leaky_relu(z, slope).exp()[:, None]
        return torch.cat([power * (x_j @ W.T), power], 1)

    def update(x: Tensor, m: Tensor) -> Tensor:
        return m[:, :d] / m[:, d:]

    return geometry.message_passing(x, edges, message=message, update=update)


@claim(
    by="identity", sources=("A-201", "A-202", "A-203"), budget=0.6,
    short=r"\textstyle\sum_j c_{ij} \psi(x_j)\text{ or}\sum_j a(x_i, x_j) \psi(x_j)\text{, both "
    r"as messages}\sum_j \psi(x_i, x_j)",
)  # fmt: skip
def gnn_flavours(weights: Which = "own"):
    r"""Convolutional layers are attentional ones, and those are message passing.

    With sums as aggregation convolutional layers use weights fixed by the graph,
    $\sum_j c_{ij}(A)\, \psi(x_j)$; attentional layers weights computed from features,
    $\sum_j a(x_i, x_j)\, \psi(x_j)$; general layers messages $\psi(x_i, x_j)$. Each is a special
    case of the next: for a fixed graph with $c$ passed as an edge's feature, and a softmax over
    neighbours by adding up numerators and denominators together.

    `message_passing` with $c_{ij} W x_j$ is compared with `GCNConv`, with
    $e^{s_{ij}} [W x_j, 1]$ with `GATConv`, and on a complete graph with self-attention written as
    matrices. Attention is no convolution: the weights of one input do not serve another.

    Knobs:
        weights: Whose attention averages an input's features, its own or that of another input.
    """
    for n, p in ((6, 0.4), (8, 0.3)):
        A, x = random_graph(n, p, linked=True), torch.randn(n, 3)
        edges, _ = edges_of(A)
        conv = geometry.GCNConv(3, 4, bias=False)
        W = conv.lin.weight.detach()
        graph = geometry.gcn_norm(edges, n)
        h = x @ W.T  # which W x_j is, whoever asks
        y = geometry.message_passing(h, graph, message=lambda x_i, x_j, c: c[:, None] * x_j)
        yield equals("messages c_ij W x_j, and GCNConv", y, conv(x, edges).detach(), n=n)
        att = geometry.GATConv(3, 4, bias=False, add_self_loops=False)
        W = att.lin.weight.detach()
        a = torch.stack([att.att_dst.detach()[0, 0], att.att_src.detach()[0, 0]])
        found: Any = att(x, edges, attention=True)
        y = attention_by_messages(x, edges, W, a, 0.2)
        yield equals("messages with a softmax, and GATConv", y, found.output.detach(), n=n)
        other = 3 * torch.randn(n, 3)
        seen: Any = att(x if weights == "own" else other, edges, attention=True)
        Q = torch.zeros(n, n)
        Q[seen.edge_index[1], seen.edge_index[0]] = seen.weights[:, 0].detach()
        yield equals("averages with the weights of", Q @ x @ W.T, found.output.detach(), n=n)
        everybody, _ = edges_of(torch.ones(n, n))
        h = x @ W.T
        z = nn.functional.leaky_relu((h @ a[0])[:, None] + h @ a[1], 0.2)
        y = attention_by_messages(x, everybody, W, a, 0.2)
        yield equals("a complete graph, and self-attention", y, z.softmax(1) @ h, n=n)


gnn_flavours.foil("the attention of another input, as if it were fixed by the graph",
                  weights="other", refuted_by="averages with the weights of")  # fmt: skip


def scored(model: nn.Module, x: Tensor, A: Tensor) -> Tensor:
    """The scores of all pairs of nodes, from their embeddings."""
    h = model(x, edges_of(A)[0]).detach()
    return (h @ h.T).sigmoid()


def area(A: Tensor, negatives: int = 1) -> float:
    """How well rows of the squared normalised matrix rank a tenth of the edges, held out."""
    pairs = A.triu(1).nonzero()
    pairs = pairs[torch.randperm(len(pairs))]
    out, kept = pairs[: len(pairs) // 10], pairs[len(pairs) // 10 :]
    both = torch.cat([kept, kept.flip(1)]).t()
    bar = geometry.gcn_norm(both, len(A))
    h = bar @ (bar @ torch.eye(len(A)))
    known = torch.cat([both, out.flip(1).t()], 1)  # pairs in both directions are no non-edges
    scores = geometry.link_scores(h, out.t(), known=known, score="cosine", negatives=negatives)
    return scores.auc


@claim(
    by="sampling", sources=("B-427", "B-426"), budget=1.0,
    short=r"S(P X, P A P^\top) = P S P^\top,\quad"
    r" s_{uv} \text{ is constant on a cycle with equal features}",
)  # fmt: skip
def link_prediction(one_hot: bool = False, equal: bool = True, graphs: int = 12):
    r"""Nodes, links and graphs as outputs, and links that node embeddings cannot tell apart.

    Graph learning has three outputs: nodes ($H(P X, P A P^\top) = P H$), links
    ($S(P X, P A P^\top) = P S P^\top$, such as $s_{uv} = \sigma(h_u^\top h_v)$, symmetric) and
    whole graphs (invariant). A score of two node embeddings cannot separate pairs whose ends
    automorphisms exchange one by one: on a cycle with equal features every pair, edge or not, gets
    the same score, whatever the weights and the depth; marking one end removes the obstruction.

    *Proof.* On a cycle turning the nodes is an automorphism that takes any node to any other, so
    all embeddings are equal. Checked with random `GCN` and `GIN` on graphs of 6 to 9 nodes and on
    the cycle of 6, for 1 to 4 layers. On random graphs of two blocks of 30 nodes (edge
    probabilities 0.5 and 0.05) cosines of rows of $\bar A^2$ rank held-out edges above pairs
    without an edge (`link_scores`): the mean area under the curve is above one half by five
    standard errors.

    Knobs:
        one_hot: Whether features are the nodes' numbers, which renumbering does not move along.
        equal: Whether the nodes of the cycle have equal features.
        graphs: How many graphs of two blocks are drawn.
    """
    for n, kind in ((6, geometry.GCN), (7, geometry.GIN), (9, geometry.GCN)):
        model, A = kind(n if one_hot else 3, 8, 2, 4), random_graph(n, 0.5, linked=True)
        turn = torch.randperm(n)
        new = turn[(turn.argsort() + 1) % n]  # no node keeps its number
        P = torch.eye(n)[new.argsort()]
        x = torch.eye(n) if one_hot else torch.randn(n, 3)
        S = scored(model, x, A)
        there = scored(model, x if one_hot else P @ x, P @ A @ P.T)
        yield equals("scores, renumbered", there, P @ S @ P.T, tol=1e-10, n=n)
        yield equals("scores, and their transpose", S, S.T, tol=1e-12, n=n)
    pair = torch.triu_indices(6, 6, 1)
    marked = torch.ones(6, 2)
    marked[0, 1] = -1
    for depth, kind in ((1, geometry.GIN), (2, geometry.GCN), (3, geometry.GIN), (4, geometry.GCN)):
        gaps = []
        for _ in range(6):
            model = kind(2, 8, depth, 4)
            for p in model.parameters():
                nn.init.normal_(p, 0, 0.4)
            S = scored(model, torch.ones(6, 2) if equal else torch.randn(6, 2), cycle(6))[
                pair[0], pair[1]
            ]
            h = model(marked, edges_of(cycle(6))[0]).detach()
            ends = (h @ h.T)[0, [1, 3]]  # node 0's neighbour, and its opposite
            gaps.append(float(ends.diff().abs() / ends.abs().max()))
            yield equals("scores of pairs on a cycle", S, S[0].item(), tol=1e-12, depth=depth)
        yield at_least("best gap, one end marked", max(gaps), 1e-3, tol=0.0, depth=depth)
    block = torch.arange(60) // 30
    p = torch.where(block[:, None] == block, 0.5, 0.05)
    areas = []
    for _ in range(graphs):
        A = (torch.rand(60, 60) < p).triu(1).double()
        areas.append(area(A + A.T))
    found = torch.tensor(areas)
    error = float(found.std()) / graphs**0.5
    yield at_least("mean area under the curve", found.mean(), 0.5 + 5 * error, tol=0.0)
    yield at_most("largest area", found.max(), 1.0, tol=0.0)


link_prediction.foil("node numbers as features", one_hot=True, refuted_by="scores, renumbered")
link_prediction.foil("features on the cycle differ", equal=False,
                     refuted_by="scores of pairs on a cycle")  # fmt: skip
