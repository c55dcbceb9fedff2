"""Laplacians of graphs: differences along edges, energies, and the Laplace operator."""

import math
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor

from vademecum import geometry
from vademecum.arrays import rational_rank
from vademecum.claims import at_least, at_most, claim, equals, integers
from vademecum.geometry.claims._small_graphs import (
    bipartite_components,
    complete_bipartite,
    components,
    cycle,
    edges_of,
    from_pairs,
    laplacian_of,
    path,
    random_graph,
)


def dense(A: Tensor, **options: Any) -> Tensor:
    """The Laplacian of a graph with all its zeros."""
    return laplacian_of(A, **options).matrix.to_dense()


@claim(
    by="identity", sources=("D-339",), budget=0.3,
    short=r"b_{ei} = -1,\ b_{ej} = +1 \text{ for } e = (i, j):\quad B^\top B = D - A",
)  # fmt: skip
def incidence_matrix(tail: int = -1):
    r"""The incidence matrix is a root of the Laplacian.

    The $|\mathcal E| \times |V|$ incidence matrix of an undirected graph has, for an edge
    $e = (i, j)$ with an arbitrary orientation, $b_{ei} = -1$, $b_{ej} = +1$ and zeros elsewhere.
    Then $B^\top B = D - A$ for every orientation.

    *Proof.* $(B^\top B)_{ij} = \sum_e b_{ei} b_{ej}$ counts the edges at $i$ if $i = j$, and is
    $-1$ for an edge between $i$ and $j$, whatever its orientation. Checked in whole numbers against
    `graph_laplacian` for random graphs and orientations, with isolated nodes among them, and for
    all 16 orientations of a triangle with a tail.

    Knobs:
        tail: The entry where an edge begins; with 1 the matrix is unsigned.
    """

    def measured(A: Tensor, turned: list[bool]) -> Tensor:
        pairs = A.triu(1).nonzero().tolist()
        B = torch.zeros(len(pairs), len(A))
        for e, ((i, j), turn) in enumerate(zip(pairs, turned, strict=True)):
            B[e, j if turn else i], B[e, i if turn else j] = tail, 1
        return B

    triangle = from_pairs(4, [(0, 1), (0, 2), (1, 2), (2, 3)])
    cases = [(triangle, list(turned)) for turned in product((False, True), repeat=4)]
    for n, p in ((5, 0.6), (9, 0.4), (12, 0.2)):
        A = random_graph(n, p)
        A[0, 1] = A[1, 0] = 1
        cases.append((A, (torch.rand(int(A.sum()) // 2) < 0.5).tolist()))
    for A, turned in cases:
        B, n = measured(A, turned), len(A)
        at = {"n": n, "edges": len(B)}
        yield equals("B^T B, and the Laplacian", B.T @ B, dense(A), tol=0.0, **at)
        yield equals("degrees less neighbours", dense(A), A.sum(1).diag() - A, tol=0.0, **at)
        yield equals("sums of rows of B", B.sum(1), 0.0, tol=0.0, **at)


incidence_matrix.foil("the unsigned matrix gives D + A", tail=1,
                      refuted_by="B^T B, and the Laplacian")  # fmt: skip


@claim(
    by="identity", sources=("A-206", "C-188", "C-189", "D-346"), budget=0.5,
    short=r"L = D - A,\quad (L x)_n = \sum_m a_{nm} (x_n - x_m),\quad L \mathbf 1 = 0",
)  # fmt: skip
def graph_laplacian(loop: int = 0):
    r"""The graph Laplacian takes differences along edges.

    $L = D - A = \sum_{i<j} a_{ij} (e_i - e_j)(e_i - e_j)^\top$ with the plain degrees
    $d_n = \sum_m a_{nm}$, so that $(L x)_n = \sum_m a_{nm} (x_n - x_m)$. For non-negative weights
    $L$ is symmetric and positive semidefinite, $L \mathbf 1 = 0$, and its kernel is spanned by the
    indicators of the connected components.

    *Proof of the last.* $x^\top L x = \sum_{i<j} a_{ij} (x_i - x_j)^2$ is 0 if and only if $x$ is
    constant along edges. Checked in whole numbers, matrix and operator, on graphs with and without
    weights, in one piece and in several; the rank is exact.

    Knobs:
        loop: What a self-loop adds to the degrees, and not to $A$.
    """
    for n, p, most in ((6, 0.5, 1), (9, 0.25, 7), (11, 0.1, 3), (4, 1.0, 2)):
        A = random_graph(n, p, most=most)
        edges, weight = edges_of(A)
        made = geometry.graph_laplacian(edges, n, weight=weight if most > 1 else None)
        shift, at = loop * torch.eye(n), {"n": n, "most": most}
        L, x = made.matrix.to_dense() + shift, integers(n, 3)
        summed, differences = torch.zeros(n, n), torch.zeros(n, 3)
        for i, j in product(range(n), repeat=2):
            gap = torch.eye(n)[i] - torch.eye(n)[j]
            summed += A[i, j] * torch.outer(gap, gap) if i < j else 0
            differences[i] += A[i, j] * (x[i] - x[j])
        yield equals("sum of L over a row", L.sum(1), 0.0, tol=0.0, **at)
        yield equals("L, edge by edge", L, summed, tol=0.0, **at)
        image = made.operator @ x + shift @ x
        yield equals("L x as differences", image, differences, tol=0.0, **at)
        yield equals("degrees", made.degrees + loop, A.sum(0), tol=0.0, **at)
        yield equals("L, and its transpose", L, L.T, tol=0.0, **at)
        pieces = components(A)
        yield equals("dimension of the kernel", n - rational_rank(L.long().tolist()), len(pieces),
                     **at)  # fmt: skip
        for nodes in pieces:
            indicator = torch.zeros(n)
            indicator[nodes] = 1
            yield equals("L of a component's indicator", L @ indicator, 0.0, tol=0.0, **at)
        size = float(A.sum(1).max())
        rounding = 1e-14 * n * (1 + size)
        yield at_least("eigenvalues", torch.linalg.eigvalsh(L), 0.0, tol=rounding, **at)


graph_laplacian.erratum(
    "C-188",
    printed=r"$L = D - A$ (the only $D$ defined on the sheet is $d_m = 1 + \sum_n a_{nm}$)",
    right=r"$L = D - A$ with $d_m = \sum_n a_{nm}$",
    why=r"With the only degree matrix that the chapter defines, which counts the self-loop,"
    r" $(D - A) \mathbf 1 = \mathbf 1 \ne 0$, against the formula of differences next to it.",
    weight="soft",
    refuted_by="sum of L over a row",
    loop=1,
)


@claim(
    by="identity", sources=("A-207", "A-208", "C-189", "D-346"), budget=0.6,
    short=r"x^\top L x = \tfrac12 \sum_{u,v} A_{uv} (x_u - x_v)^2,\quad"
    r" \nabla^2 (x^\top L x) = 2 L",
)  # fmt: skip
def dirichlet_energy(hessian: float = 2.0, half: float = 0.5):
    r"""The energy of a signal is the quadratic form of the Laplacian.

    $x^\top L x = \sum_{i<j} a_{ij} (x_i - x_j)^2 = \tfrac12 \sum_{u,v} A_{uv} (x_u - x_v)^2 \ge 0$
    for non-negative weights; of several features the energies add up. Its gradient is $2 L x$ and
    its Hessian $2 L$; equivalently $L = \nabla^2 \big(\tfrac12 x^\top L x\big)$.

    Checked in whole numbers: second differences with step 1 are exact for a quadratic form. The
    energy is that of the part, in one block of edges and in blocks of one.

    Knobs:
        hessian: How many times $L$ the Hessian is.
        half: What the sum over all ordered pairs is multiplied by.
    """
    edge = from_pairs(2, [(0, 1)])
    for A in (edge, random_graph(5, 0.7, most=5), random_graph(7, 0.3)):
        n, L = len(A), A.sum(1).diag() - A
        edges, weight = edges_of(A)
        graph = geometry.Adjacency(edges, n, weight=weight)

        def energy(x: Tensor, graph: geometry.Adjacency = graph, memory: int | None = None):
            return geometry.dirichlet_energy(x, graph, memory=memory)

        x, at = integers(n, 3), {"n": n}
        form = (x * (L @ x)).sum()
        pairs = sum(A[u, v] * (x[u] - x[v]).square().sum() for u in range(n) for v in range(n))
        yield equals("energy, and x^T L x", energy(x), form, tol=0.0, **at)
        yield equals("energy in blocks of edges", energy(x, memory=1), form, tol=0.0, **at)
        yield equals("energy, and the sum over pairs", energy(x), half * pairs, tol=0.0, **at)
        yield at_least("energy", energy(x), 0.0, tol=0.0, **at)
        e, y = torch.eye(n), integers(n)
        second = torch.zeros(n, n)
        for i, j in product(range(n), repeat=2):
            second[i, j] = energy(y + e[i] + e[j]) - energy(y + e[i]) - energy(y + e[j]) + energy(y)
        yield equals("Hessian, by differences", second, hessian * L, tol=0.0, **at)
        y.requires_grad_()
        for memory in (None, 1):
            slope = torch.autograd.grad(energy(y, memory=memory), y)[0]
            yield equals("gradient", slope, hessian * L @ y, tol=0.0, **at)


dirichlet_energy.erratum(
    "A-208",
    printed=r"$L=\nabla^2x^\top Lx=\nabla^2\tfrac12\sum_{u,v}A_{u,v}(x_u-x_v)^2$",
    right=r"$2 L = \nabla^2 x^\top L x$",
    why=r"For symmetric $L$ the Hessian of $x^\top L x$ is $2 L$, so a factor $\tfrac12$ is"
    r" missing: one edge has energy $(x_1 - x_2)^2$ with the Hessian 2, -2, -2, 2, twice its $L$.",
    weight="hard",
    refuted_by="Hessian, by differences",
    hessian=1.0,
)
dirichlet_energy.foil("all ordered pairs without the half count each edge twice", half=1.0,
                      refuted_by="energy, and the sum over pairs")  # fmt: skip


@claim(
    by="identity", sources=("A-209", "C-190", "D-347"), budget=0.5,
    short=r"\mathcal L = D^{-1/2} L D^{-1/2} = I - D^{-1/2} A D^{-1/2},\quad"
    r" 0 \le \lambda \le 2",
)  # fmt: skip
def normalised_laplacian(degrees: Literal["plain", "with the self-loop"] = "plain"):
    r"""The normalised Laplacian has its spectrum between 0 and 2.

    $\mathcal L = I - D^{-1/2} A D^{-1/2} = D^{-1/2} L D^{-1/2}$ with plain degrees, for
    non-negative weights and no isolated nodes: eigenvalues lie in $[0, 2]$, $D^{1/2} \mathbf 1$ is
    in the kernel, and 2 is attained if and only if some component is bipartite, once for each.

    *Proof.* With $y = D^{-1/2} x$ the forms of $\mathcal L$ and $2 I - \mathcal L$ are
    $\sum_{i<j} a_{ij} (y_i \mp y_j)^2$; the latter is 0 where $y$ changes its sign along each edge.
    Checked for $K_2$, odd and even cycles, bipartite and random graphs with weights.

    Knobs:
        degrees: Those that normalise; with the self-loop they are $1 + d$, and $A$ has none.
    """
    several = torch.block_diag(complete_bipartite(2, 3), cycle(5), path(3))
    drawn = [random_graph(n, p, most=most, linked=True) for n, p, most in
             ((6, 0.5, 1), (9, 0.2, 4), (8, 0.0, 3))]  # fmt: skip
    for A in (complete_bipartite(1, 1), cycle(9), cycle(8), several, *drawn):
        n, d = len(A), A.sum(1)
        L, at = dense(A, normalization="sym"), {"n": n}
        if degrees == "with the self-loop":
            root = (d * (1 + d)).sqrt() / (1 + d)  # undo one normalisation, do the other
            L = torch.eye(n) - root[:, None] * (torch.eye(n) - L) * root
        values = torch.linalg.eigvalsh(L)
        yield equals("least eigenvalue", values[0], 0.0, tol=1e-13 * n, **at)
        entries = [[float(i == j) - float(A[i, j]) / math.sqrt(d[i] * d[j]) for j in range(n)]
                   for i in range(n)]  # fmt: skip
        yield equals("entries", L, torch.tensor(entries), tol=1e-14, **at)
        form = d.rsqrt()[:, None] * (d.diag() - A) * d.rsqrt()
        yield equals("the second form", L, form, tol=1e-14, **at)
        yield equals("image of the roots of degrees", L @ d.sqrt(), 0.0, tol=1e-13 * n, **at)
        yield at_least("eigenvalues", values, 0.0, tol=1e-13 * n, **at)
        yield at_most("eigenvalues", values, 2.0, tol=1e-13 * n, **at)
        top = int((values > 2 - 1e-9).sum())
        yield equals("how often 2 is one", top, bipartite_components(A), **at)


normalised_laplacian.erratum(
    "D-347",
    printed=r"$\tilde L=I-\tilde D^{-1/2}A\tilde D^{-1/2}$ with $\tilde D=D+I$ as defined in 16.2",
    right=r"$I - D^{-1/2} A D^{-1/2}$, or $I - \tilde D^{-1/2} (A + I) \tilde D^{-1/2}$",
    why=r"Degrees with self-loops beside the loop-free $A$ give no Laplacian: on $K_2$ the"
    " eigenvalues are 0.5 and 1.5, with no zero. As scanned: the sheet's accents are not always"
    " read reliably, so that a slip in the tildes cannot be excluded.",
    weight="scan",
    refuted_by="least eigenvalue",
    degrees="with the self-loop",
)
