"""Graph attention: weights from features, what they rank, and what they average."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum import geometry
from vademecum.claims import at_least, claim, equals
from vademecum.geometry.claims._small_graphs import edges_of, random_graph, renumbered

Over = Literal["neighbours", "all nodes", "targets"]
Mean = Literal["D^-1 A", "D^-1/2 A D^-1/2"]


def with_neighbours(n: int, p: float) -> Tensor:
    """A random graph in which all nodes have neighbours, none all of them, degrees differ."""
    A = random_graph(n, p)
    for i in range(n - 1):
        A[i, i + 1] = A[i + 1, i] = 1
    A[0, n - 1] = A[n - 1, 0] = 0
    A[0, 2] = A[2, 0] = 0
    return A


def leaky(z: float, slope: float) -> float:
    """The LeakyReLU of a number."""
    return z if z > 0 else slope * z


def scores(layer: Any, x: Tensor, head: int) -> list[list[float]]:
    """The scores e_ij of all pairs, with the vector in one piece and both features concatenated."""
    d = layer.out_channels
    W = layer.lin.weight.detach()[head * d : (head + 1) * d]
    a = torch.cat([layer.att_dst.detach()[0, head], layer.att_src.detach()[0, head]])
    h = x @ W.T
    rows = range(len(x))
    return [[leaky(float(a @ torch.cat([h[i], h[j]])), layer.negative_slope) for j in rows]
            for i in rows]  # fmt: skip


def softmaxes(e: list[list[float]], A: Tensor, over: Over = "neighbours") -> Tensor:
    """The weights of edges by hand; wrong sums among them."""
    n, rows = len(e), range(len(e))
    seen = {
        "neighbours": lambda i, j: [e[i][k] for k in rows if A[i, k]],
        "all nodes": lambda i, j: e[i],
        "targets": lambda i, j: [e[k][j] for k in rows if A[k, j]],
    }[over]
    weights = [[math.exp(e[i][j]) / sum(map(math.exp, seen(i, j))) if A[i, j] else 0.0
                for j in range(n)] for i in rows]  # fmt: skip
    return torch.tensor(weights)


def attention_matrix(layer: Any, x: Tensor, edges: Tensor, head: int) -> Tensor:
    """The layer's weights as a matrix, zero off the graph."""
    found = layer(x, edges, attention=True)
    Q = torch.zeros(len(x), len(x))
    source, target = found.edge_index
    Q[target, source] = found.weights[:, head].detach()
    return Q


def normal(layer: Any) -> Any:
    """The layer with normally distributed parameters."""
    for p in layer.parameters():
        nn.init.normal_(p)
    return layer


@claim(
    by="identity", sources=("C-198", "C-199", "D-353", "D-354", "D-355"), budget=0.9,
    short=r"\alpha_{ij} = e^{e_{ij}} / \sum_{k \in \mathcal N_i} e^{e_{ik}},\ e_{ij}"
    r" = \mathrm{LeakyReLU}(a^\top [W x_i, W x_j])",
)  # fmt: skip
def gat_coefficients(over: Over = "neighbours"):
    r"""Graph attention weighs a node's neighbours by a softmax of scores of features.

    $e_{ij} = \mathrm{LeakyReLU}(a^\top [W x_i \,\|\, W x_j])$ and
    $\alpha_{ij} = e^{e_{ij}} / \sum_{k \in \mathcal N_i} e^{e_{ik}}$ over the neighbourhood of $i$,
    zero elsewhere: rows sum to 1, and the weights depend on the features, unlike those of a fixed
    adjacency matrix.

    `GATConv`, which never concatenates anything, is compared with the definition, pair by pair, for
    each of three heads, with the graph as it is and with self-loops, and for scores of some
    thousands, whose exponentials overflow.

    Knobs:
        over: What the softmax runs over, by hand.
    """
    for n, p, loops in ((6, 0.4, False), (7, 0.3, True)):
        A, x = with_neighbours(n, p), torch.randn(n, 4)
        edges, _ = edges_of(A)
        layer = normal(geometry.GATConv(4, 2, heads=3, negative_slope=0.3, add_self_loops=loops))
        seen = A + torch.eye(n) if loops else A
        for head in range(3):
            at: dict[str, Any] = {"n": n, "head": head}
            Q = attention_matrix(layer, x, edges, head)
            hand = softmaxes(scores(layer, x, head), seen, over)
            yield equals("weights, pair by pair", Q, hand, tol=1e-10, **at)
            yield equals("sums over neighbours", Q.sum(1), 1.0, tol=1e-12, **at)
            yield equals("weights off the graph", Q[seen == 0], 0.0, tol=0.0, **at)
            other = attention_matrix(layer, x.flip(1), edges, head)
            moved = (other - Q).abs().max()
            yield at_least("movement with other features", moved, 1e-9, tol=0.0, **at)
        wild = attention_matrix(layer, 1e4 * x, edges, 0)
        yield equals("sums for huge scores", wild.sum(1), 1.0, tol=1e-12, n=n)


gat_coefficients.foil("a softmax over all nodes", over="all nodes",
                      refuted_by="weights, pair by pair")  # fmt: skip
gat_coefficients.foil("a softmax over those who look", over="targets",
                      refuted_by="weights, pair by pair")  # fmt: skip


@claim(
    by="identity", sources=("D-354",), budget=0.9,
    short=r"e_{ij} \le e_{ik} \iff a_2^\top W x_j \le a_2^\top W x_k,\ \text{ for every } i",
)  # fmt: skip
def gat_static_attention(inside: bool = False, cases: int = 20):
    r"""In graph attention all nodes rank their neighbours alike.

    Because the LeakyReLU is increasing and its argument splits as
    $a_1^\top W x_i + a_2^\top W x_j$, the ranking of the scores over $j$ is the same for every node
    $i$ that looks: *static* attention. With the nonlinearity before $a$ (GATv2) rankings depend on
    $i$.

    Checked on complete graphs with self-loops, on weights that `GATConv` gives: softmax is
    increasing, too, so that scores and weights rank alike. The ranking of node 0 orders the weights
    of every node.

    Knobs:
        inside: Whether the nonlinearity stands before $a$, as in `GATv2Conv`.
        cases: How many random layers and features are drawn.
    """
    n = 6
    edges, _ = edges_of(torch.ones(n, n))
    for case in range(cases):
        kind = geometry.GATv2Conv if inside else geometry.GATConv
        layer = normal(kind(3, 4, heads=2, bias=False))
        x = torch.randn(n, 3)
        for head in range(2):
            Q = attention_matrix(layer, 0.3 * x, edges, head).log()
            ranked = Q[:, Q[0].argsort()]
            steps = ranked.diff(dim=1)
            yield at_least("rise of log-weights along node 0's ranking", steps, 0.0, tol=1e-11,
                           case=case, head=head)  # fmt: skip


gat_static_attention.foil("the nonlinearity stands before a", inside=True)


@claim(
    by="identity", sources=("C-200", "D-356", "A-202"), budget=0.8,
    short=r"x_i' = \sigma\Big(\sum_{j \in \mathcal N_i} \alpha_{ij} W x_j\Big),\quad"
    r" \alpha = D^{-1} A \text{ for constant scores}",
)  # fmt: skip
def gat_layer(mean: Mean = "D^-1 A"):
    r"""A graph attention layer averages neighbours with weights of its own.

    $x_i' = \sigma(\sum_{j \in \mathcal N_i} \alpha_{ij} W x_j)$, in matrix form with features as
    rows $X' = \sigma(Q X W^\top)$ with $Q = (\alpha_{ij})$ in place of the normalised adjacency
    matrix. Without isolated nodes constant scores give $Q = D^{-1} A$, the mean over neighbours.
    The layer is permutation equivariant.

    `GATConv` is compared with weights and averages by hand, for three heads side by side and for
    their mean; with $a = 0$ against the mean.

    Knobs:
        mean: What constant scores are said to give.
    """
    for n, p in ((5, 0.4), (8, 0.3)):
        A, x = with_neighbours(n, p), torch.randn(n, 4)
        edges, _ = edges_of(A)
        for concat in (True, False):
            layer = normal(geometry.GATConv(4, 2, heads=3, concat=concat, add_self_loops=False))
            at: dict[str, Any] = {"n": n, "side by side": concat}
            W, b = layer.lin.weight.detach().view(3, 2, 4), layer.bias.detach()
            Q = [softmaxes(scores(layer, x, head), A) for head in range(3)]
            heads = torch.stack([q @ x @ w.T for q, w in zip(Q, W, strict=True)], 1)
            hand = (heads.flatten(1) if concat else heads.mean(1)) + b
            y = layer(x, edges).detach()
            yield equals("averages by hand", y.relu(), hand.relu(), tol=1e-10, **at)
            nn.init.zeros_(layer.att_src)
            nn.init.zeros_(layer.att_dst)
            d = A.sum(1)
            scale = {"D^-1 A": d[:, None], "D^-1/2 A D^-1/2": (d[:, None] * d).sqrt()}[mean]
            flat = torch.stack([A / scale @ x @ w.T for w in W], 1)
            flat = (flat.flatten(1) if concat else flat.mean(1)) + b
            y = layer(x, edges).detach()
            yield equals("averages with constant scores", y, flat, tol=1e-12, **at)
    layer = normal(geometry.GATConv(4, 3, heads=2))
    yield from renumbered(layer)


gat_layer.foil("constant scores give the symmetric normalisation", mean="D^-1/2 A D^-1/2",
               refuted_by="averages with constant scores")  # fmt: skip
