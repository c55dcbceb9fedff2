"""Graph convolutions: normalised neighbours, layers, and a classifier from two labels."""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum import geometry
from vademecum.claims import at_least, claim, equals
from vademecum.geometry.claims._small_graphs import edges_of, random_graph, renumbered

Degrees = Literal["with the loop", "without"]
Shape = Literal["features", "nodes"]


def drawn(n: int, p: float, most: int = 1) -> Tensor:
    """A random graph whose nodes 0 and 1 are joined, and whose last node is alone."""
    A = random_graph(n, p, most=most)
    A[0, 1] = A[1, 0] = most
    A[-1] = A[:, -1] = 0
    return A


@claim(
    by="identity", sources=("B-431", "B-432", "C-182", "C-183", "D-340", "D-341"), budget=0.5,
    short=r"\bar a_{ij} = (a_{ij} + \delta_{ij}) / \sqrt{\tilde d_i \tilde d_j},\quad"
    r" \tilde d_i = 1 + \sum_j a_{ij}",
)  # fmt: skip
def gcn_normalisation(degrees: Degrees = "with the loop"):
    r"""Neighbours are weighed by the degrees at both ends, self-loops counted.

    $\bar A = \tilde D^{-1/2} \tilde A \tilde D^{-1/2}$ with $\tilde A = A + I$ and
    $\tilde d_i = 1 + \sum_j a_{ij}$ has entries
    $\bar a_{ij} = (a_{ij} + \delta_{ij}) / \sqrt{\tilde d_i \tilde d_j}$, is symmetric for
    undirected graphs, and fixes the vector $\tilde D^{1/2} \mathbf 1$.

    *Proof of the last.* $\bar A \tilde D^{1/2} \mathbf 1 = \tilde D^{-1/2} \tilde A \mathbf 1$ and
    $\tilde A \mathbf 1 = \tilde D \mathbf 1$. Checked entry by entry against `gcn_norm`, with and
    without weights, and with a node that has no neighbours.

    Knobs:
        degrees: Whose roots the entries are divided by; those of $A$ leave the loop out.
    """
    for n, p, most in ((5, 0.5, 1), (8, 0.3, 1), (7, 0.6, 4)):
        A, at = drawn(n, p, most), {"n": n, "most": most}
        edges, weight = edges_of(A)
        bar = geometry.gcn_norm(edges, n, weight=weight if most > 1 else None).dense()
        loop = float(degrees == "with the loop")
        d = [loop + sum(A[i].tolist()) for i in range(n)]
        entries = [[(float(A[i, j]) + (i == j)) / math.sqrt(d[i] * d[j]) if d[i] * d[j] else 0.0
                    for j in range(n)] for i in range(n)]  # fmt: skip
        yield equals("entries", bar, entries, tol=1e-14, **at)
        yield equals("the matrix, and its transpose", bar, bar.T, tol=0.0, **at)
        yield equals("sums over rows of A + I", (A + torch.eye(n)).sum(1), d, tol=0.0, **at)
        root = torch.tensor(d).sqrt()
        yield equals("image of the roots of degrees", bar @ root, root, tol=1e-12, **at)


gcn_normalisation.foil("degrees without the self-loop", degrees="without",
                       refuted_by="image of the roots of degrees")  # fmt: skip


def by_neighbours(A: Tensor, x: Tensor, W: Tensor, own: bool = True) -> Tensor:
    """The layer before its nonlinearity, neighbour by neighbour."""
    n = len(A)
    d = [1 + sum(A[i].tolist()) for i in range(n)]
    rows = []
    for i in range(n):
        reached = [j for j in range(n) if A[i, j]] + ([i] if own else [])
        terms = [(float(A[i, j]) + (i == j)) / math.sqrt(d[i] * d[j]) * (x[j] @ W) for j in reached]
        rows.append(torch.stack([torch.zeros(W.shape[1]), *terms]).sum(0))
    return torch.stack(rows)


@claim(
    by="identity", budget=0.9,
    sources=("A-215", "B-428", "B-430", "B-433", "C-184", "C-185", "D-342"),
    short=r"X' = \sigma(\bar A X W),\ x_i' = \sigma(\sum_{j \in \mathcal N_i"
    r" \cup \{i\}} x_j W / \sqrt{\tilde d_i \tilde d_j})",
)  # fmt: skip
def gcn_layer(own: bool = True, rows: Shape = "features"):
    r"""A graph-convolutional layer mixes nodes by $\bar A$ and features by $W$.

    $X' = \sigma(\bar A X W)$ (Kipf and Welling, 2017): row $i$ is
    $\sigma(\sum_{j \in \mathcal N_i \cup \{i\}} x_j W / \sqrt{\tilde d_i \tilde d_j})$.
    $W \in \mathbb R^{F_{\mathrm{in}} \times F_{\mathrm{out}}}$ does not depend on the number of
    nodes: one layer serves graphs of any size. With features as columns it reads
    $\sigma(W^\top X \bar A)$, and renumbering nodes renumbers rows.

    `GCNConv` is compared with a loop over neighbours, for widths that grow and shrink.

    Knobs:
        own: Whether a node's own features enter by hand.
        rows: What $W$ has a row for.
    """
    for wide, out in ((2, 3), (4, 2)):
        layer = geometry.GCNConv(wide, out, bias=False)
        W = layer.lin.weight.detach().T
        for n, p in ((5, 0.5), (9, 0.3)):
            A, x = drawn(n, p), torch.randn(n, wide)
            edges, _ = edges_of(A)
            at: dict[str, Any] = {"n": n, "widths": (wide, out)}
            need = {"features": wide, "nodes": n}[rows]
            yield equals("rows of W, and columns of X", need, x.shape[1], **at)
            y = layer(x, edges).relu().detach()
            hand = by_neighbours(A, x, W, own).relu()
            yield equals("rows, neighbour by neighbour", y, hand, tol=1e-12, **at)
            bar = geometry.gcn_norm(edges, n).dense()
            columns = (W.T @ x.T @ bar).relu()
            yield equals("with features as columns", columns, y.T, tol=1e-12, **at)
    yield from renumbered(layer)


gcn_layer.foil("neighbours without the node itself", own=False,
               refuted_by="rows, neighbour by neighbour")  # fmt: skip
gcn_layer.erratum(
    "C-185",
    printed=r"$W \in \mathbb R^{M \times N}$ (with $M$ the number of nodes)",
    right=r"$W \in \mathbb R^{F_{\mathrm{in}} \times F_{\mathrm{out}}}$",
    why=r"$X$ has a row for each node, so for 5 nodes with 2 features $\bar A X$ is"
    r" $5 \times 2$ and cannot be multiplied by a matrix with 5 rows; $W$ would also fit one size"
    r" of graphs only.",
    weight="hard",
    refuted_by="rows of W, and columns of X",
    rows="nodes",
)


@claim(
    by="training", sources=("C-186", "B-426", "B-427"), budget=1.0,
    short=r"Y = \mathrm{softmax}\big(\bar A\, \sigma(\bar A X W^{(0)}) W^{(1)}\big)",
)  # fmt: skip
def gcn_classifier(joined: bool = True, steps: int = 60):
    r"""Two graph-convolutional layers classify all nodes from a label in each block.

    $Y = \mathrm{softmax}(\bar A\, \sigma(\bar A X W^{(0)})\, W^{(1)})$ with a softmax in each row
    gives class probabilities for each node and is trained on few labelled nodes.

    Checked: `GCN` with two layers is this formula, and rows sum to 1. Trained on a random graph of
    two blocks of 20 nodes (edge probabilities 0.5 within and 0.02 between), identity features and
    one label a block, it finds the blocks of at least 0.9 of the 40 nodes (observed, not proven).

    Knobs:
        joined: Whether the network sees the edges; without them it sees features only.
        steps: How many steps of Adam are taken.
    """
    block = torch.arange(40) // 20
    p = torch.where(block[:, None] == block, 0.5, 0.02)
    A = (torch.rand(40, 40) < p).triu(1).double()
    A = A + A.T
    edges, _ = edges_of(A)
    graph = geometry.Adjacency(edges if joined else edges[:, :0], 40)
    model, x = geometry.GCN(40, 8, 2, 2), torch.eye(40)
    bar = geometry.gcn_norm(edges, 40).dense()
    W = [conv.lin.weight.detach().T for conv in model.convs]  # pyright: ignore
    Y = model(x, geometry.Adjacency(edges, 40)).detach().softmax(1)
    hand = (bar @ (bar @ x @ W[0]).relu() @ W[1]).softmax(1)
    yield equals("probabilities, by matrices", Y, hand, tol=1e-12)
    yield equals("sums of probabilities", Y.sum(1), 1.0, tol=1e-12)
    labelled = torch.tensor([0, 20])
    step = torch.optim.Adam(model.parameters(), 0.05, weight_decay=5e-4)
    for _ in range(steps):
        step.zero_grad()
        nn.functional.cross_entropy(model(x, graph)[labelled], block[labelled]).backward()
        step.step()
    right = (model(x, graph).argmax(1) == block).double().mean()
    yield at_least("share of nodes in their block", right, 0.9, tol=0.0)


gcn_classifier.foil("without the edges", joined=False, refuted_by="share of nodes in their block")
