"""Graphs and neighbours: matrices of graphs, numberings that must not matter, and messages."""

from itertools import combinations_with_replacement, pairwise, permutations, product
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum import geometry
from vademecum.claims import at_least, claim, equals, integers
from vademecum.geometry.claims._small_graphs import edges_of, path, random_graph
from vademecum.models import mlp

Walk = Literal["walks", "paths"]
Side = Literal["transpose", "itself"]


def walks_between(A: Tensor, start: int, stop: int, k: int, kind: Walk) -> int:
    """How many walks of length k there are, one by one; or only those that repeat no node."""
    between = product(range(len(A)), repeat=k - 1)
    ways = [(start, *nodes, stop) for nodes in between]
    joined = [w for w in ways if all(A[a, b] for a, b in pairwise(w))]
    return sum(kind == "walks" or len(set(w)) == k + 1 for w in joined)


def some_edge(n: int, p: float) -> Tensor:
    """A random graph in which nodes 0, 1 and 2 form a triangle and the last node is alone."""
    A = random_graph(n, p)
    for u, v in ((0, 1), (1, 2), (0, 2)):
        A[u, v] = A[v, u] = 1
    A[-1] = A[:, -1] = 0
    return A


@claim(
    by="identity", budget=0.6,
    sources=("A-195", "A-198", "C-176", "C-177", "D-336", "D-337", "D-338"),
    short=r"d_m = \sum_n A_{nm},\quad \sum_m d_m = 2 |E|,\quad"
    r" (A^k)_{nm} \text{ counts walks of length } k",
)  # fmt: skip
def graph_matrices(kind: Walk = "walks"):
    r"""Adjacency matrices: symmetric, with degrees as sums and walks as powers.

    An undirected simple graph on $M$ nodes has a symmetric 0/1 adjacency matrix $A$ with zero
    diagonal, $A_{nm} = 1$ if and only if $\{n, m\}$ is an edge. Degrees $d_m = \sum_n A_{nm}$ sum
    to twice the number of edges, $\mathcal N_i = \{j: A_{ij} \ne 0\}$, and $(A^k)_{nm}$ counts
    walks of length $k$. Renumbering nodes maps $(X, A)$ to $(P X, P A P^\top)$.

    *Proof of the powers.* $(A^k)_{nm}$ sums $A_{n i_1} A_{i_1 i_2} \cdots A_{i_{k-1} m}$ over all
    nodes between, and such a product is 1 for a walk and 0 otherwise. Checked in whole numbers,
    `Adjacency` against edges one by one, walks by enumeration up to length 4.

    Knobs:
        kind: What the powers are said to count; a path repeats no node.
    """
    for n, p in ((5, 0.4), (7, 0.3)):
        dense = some_edge(n, p)
        edges, _ = edges_of(dense)
        graph, x, at = geometry.Adjacency(edges, n), integers(n, 3), {"n": n}
        A = graph.dense()
        pairs = {frozenset(e) for e in edges.t().tolist()}
        entries = [[float({i, j} in pairs and i != j) for j in range(n)] for i in range(n)]
        yield equals("A, edge by edge", A, entries, tol=0.0, **at)
        yield equals("A, and its transpose", A, A.T, tol=0.0, **at)
        degrees = [sum(i in e for e in pairs) for i in range(n)]
        yield equals("degrees", graph.in_degrees(), torch.tensor(degrees).double(), tol=0.0, **at)
        yield equals("sum of degrees", int(graph.out_degrees().sum()), 2 * len(pairs), **at)
        summed = [[sum(x[j, c] for j in range(n) if {i, j} in pairs and i != j) for c in range(3)]
                  for i in range(n)]  # fmt: skip
        yield equals("sums over neighbours", graph @ x, torch.tensor(summed), tol=0.0, **at)
        power = torch.eye(n)
        for k in range(1, 5):
            power = graph @ power
            ends = [(0, 1), (0, 0), (2, n - 2)]
            counts = [walks_between(dense, i, j, k, kind) for i, j in ends]
            found = [int(power[i, j]) for i, j in ends]
            yield equals("walks in a power of A", found, counts, k=k, **at)
        order = torch.randperm(n)  # node i becomes order[i]
        P = torch.eye(n)[order.argsort()]
        renumbered = geometry.Adjacency(order[edges], n)
        yield equals("A of renumbered edges", renumbered.dense(), P @ A @ P.T, tol=0.0, **at)
        yield equals("sums, renumbered", renumbered @ (P @ x), P @ (A @ x), tol=0.0, **at)


graph_matrices.foil("powers count paths that repeat no node", kind="paths",
                    refuted_by="walks in a power of A")  # fmt: skip


def conv(x: Tensor, edges: Tensor) -> Tensor:
    """A graph-convolutional layer with weights of the input's width, the same in each call."""
    layer = geometry.GCNConv(x.shape[1], 3)
    nn.init.constant_(layer.lin.weight, 0.3)
    layer.lin.weight.data[0] *= -2
    return layer(x, edges).detach()


@claim(
    by="identity", sources=("A-196", "A-197", "C-178", "C-179"), budget=1.0,
    short=r"f(P X, P A P^\top) = P f(X, A) \iff f(X, A) = P^\top f(P X, P A P^\top)",
)  # fmt: skip
def graph_symmetry(side: Side = "transpose", numbers: bool = False):
    r"""Functions of graphs must not depend on the numbering of nodes.

    A graph-level function is invariant if $f(P X, P A P^\top) = f(X, A)$ and a node-level function
    equivariant if $f(P X, P A P^\top) = P f(X, A)$, equivalently
    $f(X, A) = P^\top f(P X, P A P^\top)$, for every permutation matrix $P$.

    Checked for all 24 permutations of random graphs on 4 nodes and of a path: the identity
    $f(X, A) = X$ and `GCNConv` are equivariant, the latter's sum over nodes is invariant.

    Knobs:
        side: Which matrix brings the renumbered output back.
        numbers: Whether the layer sees the nodes' numbers as a feature.
    """
    for A, d in ((random_graph(4, 0.5), 2), (random_graph(4, 0.9), 3), (path(4), 2)):
        edges, x = edges_of(A)[0], torch.randn(4, d)
        mark = torch.arange(4.0)[:, None]

        def layer(x: Tensor, edges: Tensor, mark: Tensor = mark) -> Tensor:
            return conv(torch.cat([x, mark], 1) if numbers else x, edges)

        for order in permutations(range(4)):
            new = torch.tensor(order)  # node i becomes new[i]
            P = torch.eye(4)[new.argsort()]
            back, at = P.T if side == "transpose" else P, {"permutation": order, "d": d}
            yield equals("the identity, brought back", back @ (P @ x), x, tol=0.0, **at)
            there = layer(P @ x, new[edges])
            yield equals("a layer, brought back", back @ there, layer(x, edges), **at)
            yield equals("sum over nodes", there.sum(0), layer(x, edges).sum(0), **at)


graph_symmetry.foil("a layer that sees the nodes' numbers is not equivariant", numbers=True,
                    refuted_by="a layer, brought back")  # fmt: skip
graph_symmetry.erratum(
    "C-179",
    printed=r"$f(X, A) = P f(P X, P A P^\top) \ \forall P$",
    right=r"$f(X, A) = P^\top f(P X, P A P^\top) \ \forall P$",
    why=r"The identity map $f(X, A) = X$ is equivariant, but the printed equation reads"
    r" $X = P^2 X$, which is true for transpositions and false for every cycle of three nodes.",
    weight="hard",
    refuted_by="the identity, brought back",
    side="itself",
)


def star(features: Tensor, how: str, drop: bool = False) -> Tensor:
    """What the centre of a star gets from neighbours with these features, in this order."""
    rows = [list(r) for r in dict.fromkeys(map(tuple, features.tolist()))] if drop else features
    leaves = torch.as_tensor(rows)
    n = len(leaves)
    x = torch.cat([torch.zeros(1, leaves.shape[1]), leaves])
    edges = torch.stack([torch.arange(1, n + 1), torch.zeros(n).long()])
    found = geometry.message_passing(x, edges, message=lambda x_i, x_j: x_j, aggregate=how)
    return found[0]


@claim(
    by="exhaustion", sources=("A-200", "C-181"), budget=0.8,
    short=r"\text{of one-hot codes the sum tells multisets, the mean proportions, }"
    r"\max \text{ sets}",
)  # fmt: skip
def neighbourhood_aggregation(ordered: bool = False, as_set: bool = False):
    r"""Neighbours form a multiset: what sums, means and maxima tell of it.

    The neighbourhood features $\{\{x_j : j \in \mathcal N_i\}\}$ form a multiset; the
    aggregation must be permutation invariant (sum, mean, max). With one-hot codes the sum
    distinguishes all multisets, the mean only their proportions and the maximum only the underlying
    sets; on raw numbers none of the three dominates: $\{\{1, 3\}\}$ and $\{\{2, 2\}\}$
    differ in the maximum only.

    *Proof.* The sum of one-hot codes is the vector of counts, the mean is it divided by its sum,
    the maximum is where it is positive. Checked for all 34 multisets of 1 to 4 of 3 symbols, all
    pairs of them, with `message_passing` on stars whose leaves come in every order.

    Knobs:
        ordered: Whether the sum weighs neighbours by their place in the list.
        as_set: Whether duplicates are dropped before anything is added up.
    """
    codes = torch.eye(3)
    symbols = [m for k in range(1, 5) for m in combinations_with_replacement(range(3), k)]
    found = dict[str, list[tuple]]()
    for how in ("sum", "mean", "max"):
        found[how] = [tuple(star(codes[list(m)], how, as_set).tolist()) for m in symbols]
    counts = [tuple(m.count(s) for s in range(3)) for m in symbols]
    cross = [[a[i] * b[j] == a[j] * b[i] for i in range(3) for j in range(3)]
             for a, b in product(counts, counts)]  # fmt: skip
    same = {
        "sum": [a == b for a, b in product(counts, counts)],
        "mean": [all(row) for row in cross],
        "max": [set(a) == set(b) for a, b in product(symbols, symbols)],
    }
    for how, values in found.items():
        equal = [max(abs(s - t) for s, t in zip(a, b, strict=True)) < 1e-12
                 for a, b in product(values, values)]  # fmt: skip
        name = "pairs of multisets that look alike"
        yield equals(name, equal, same[how], aggregation=how)
    x = torch.tensor([[1.0, 5.0], [2.0, 7.0], [2.0, 7.0], [11.0, 3.0]])
    for order in permutations(range(4)):
        weight = torch.arange(1.0, 5.0)[:, None] if ordered else 1.0
        for how in ("sum", "mean", "max"):
            shuffled, usual = star(weight * x[list(order)], how), star(weight * x, how)
            yield equals("neighbours in another order", shuffled, usual, tol=1e-15,
                         aggregation=how, order=order)  # fmt: skip
    one, other = torch.tensor([[1.0], [3.0]]), torch.tensor([[2.0], [2.0]])
    gaps = [float(star(one, how) - star(other, how)) for how in ("sum", "mean", "max")]
    yield equals("sum, mean and maximum of {1, 3}, less those of {2, 2}", gaps, [0.0, 0.0, 1.0])


neighbourhood_aggregation.foil("neighbours weighed by their place in the list", ordered=True,
                               refuted_by="neighbours in another order")  # fmt: skip
neighbourhood_aggregation.foil("duplicates are dropped before the sum", as_set=True,
                               refuted_by="pairs of multisets that look alike")  # fmt: skip


def in_order(m: Tensor, ptr: Tensor) -> Tensor:
    """The sums of messages, each times its place in the list."""
    parts = [m[a:b] for a, b in pairwise(ptr.tolist())]
    return torch.stack([(torch.arange(1.0, len(q) + 1)[:, None] * q).sum(0) for q in parts])


def heard(message: Any, x: Tensor, A: Tensor, i: int, how: str) -> Tensor:
    """What the neighbours of node i say, one after another; zeros without any."""
    said = [message(x[i : i + 1], x[j : j + 1]) for j in range(len(A)) if A[i, j]]
    if not said:
        return torch.zeros(5)
    all_said = torch.cat(said)
    return (
        all_said.amax(0) if how == "max" else all_said.sum(0) / (len(said) if how == "mean" else 1)
    )


@claim(
    by="identity", sources=("A-199", "A-203", "C-180"), budget=0.9,
    short=r"x_i' = \phi\Big(x_i, \bigoplus_{j \in \mathcal N_i} \psi(x_i, x_j)\Big)",
)  # fmt: skip
def message_passing(ordered: bool = False):
    r"""Message passing: a node's features, and what its neighbours say.

    A permutation-equivariant graph layer has rows
    $\phi(x_i, \bigoplus_{j \in \mathcal N_i} \psi(x_i, x_j))$ with shared $\phi$ and $\psi$ and an
    invariant aggregation $\bigoplus$. Altering a node that is neither i nor a neighbour of i leaves
    row i as it was, bit by bit.

    Checked with random networks for all 24 permutations of graphs on 4 nodes and sum, mean and
    maximum, against a loop over neighbours, and in blocks of edges of any size.

    Knobs:
        ordered: Whether the aggregation depends on the order of neighbours.
    """
    psi, phi = mlp([6, 8, 5], nn.Tanh), mlp([8, 7, 2], nn.Tanh)

    def message(x_i: Tensor, x_j: Tensor) -> Tensor:
        return psi(torch.cat([x_i, x_j], 1))

    def update(x: Tensor, m: Tensor) -> Tensor:
        return phi(torch.cat([x, m], 1))

    for how in ("sum", "mean", "max"):
        A, x = random_graph(4, 0.7), torch.randn(4, 3)
        at: dict[str, Any] = {"aggregation": how}
        A[0, 1] = A[1, 0] = A[0, 2] = A[2, 0] = 1  # node 0 has an order to get wrong
        A[0, 3] = A[3, 0] = 0
        edges, _ = edges_of(A)
        options = {"message": message, "update": update, "aggregate": in_order if ordered else how}

        def layer(x: Tensor, edges: Tensor, memory=None, options: Any = options) -> Tensor:
            return geometry.message_passing(x, edges, memory=memory, **options).detach()

        y = layer(x, edges)
        said = torch.stack([heard(message, x, A, i, how) for i in range(4)])
        yield equals("rows, neighbour by neighbour", y, update(x, said).detach(), **at)
        yield equals("in small blocks", layer(x, edges, memory=200), y, tol=1e-12, **at)
        for order in permutations(range(4)):
            new = torch.tensor(order)
            P = torch.eye(4)[new.argsort()]
            there = layer(P @ x, new[edges])
            yield equals("renumbered output", there, P @ y, permutation=order, **at)
        altered = x.clone()
        altered[3] += 10
        yield equals("row 0, a stranger altered", layer(altered, edges)[0], y[0], tol=0.0, **at)
        altered[1] += 10
        moved = (layer(altered, edges)[0] - y[0]).norm()
        yield at_least("movement of row 0, a neighbour altered", moved, 1e-6, **at)


message_passing.foil("neighbours weighed by their place in the list", ordered=True,
                     refuted_by="renumbered output")  # fmt: skip
