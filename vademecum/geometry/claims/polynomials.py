"""Polynomials of graph matrices: all filters that commute with a shift, and Chebyshev's."""

from typing import Literal

import torch
from torch import Tensor

from vademecum import geometry
from vademecum.arrays import rational_rank
from vademecum.claims import at_most, claim, equals, integers
from vademecum.geometry.claims._small_graphs import (
    complete_bipartite,
    cycle,
    edges_of,
    laplacian_of,
    random_graph,
)


def commutant(A: Tensor) -> int:
    """The dimension of all H with H A = A H, from exact elimination."""
    n, eye = len(A), torch.eye(len(A))
    system = torch.kron(eye, A) - torch.kron(A.T.contiguous(), eye)
    return n * n - rational_rank(system.long().tolist())


def polynomials(A: Tensor) -> int:
    """The dimension of all polynomials in A, from exact elimination."""
    powers = [torch.linalg.matrix_power(A, k).flatten().long().tolist() for k in range(len(A) + 1)]
    return rational_rank(powers)


@claim(
    by="identity", sources=("B-435", "B-436"), budget=0.8,
    short=r"H A = A H \iff H = \sum_{k < n} \theta_k A^k \quad"
    r"\text{if all eigenvalues of } A = A^\top \text{ differ}",
)  # fmt: skip
def shift_invariant_filter(
    condition: Literal["distinct eigenvalues", "none"] = "distinct eigenvalues",
):
    r"""Shift-invariant filters are polynomials of the adjacency matrix, if its eigenvalues differ.

    A linear map $H$ on graph signals is shift-invariant with respect to $A$ if $H A = A H$. Every
    polynomial $\sum_k \theta_k A^k$ is. Conversely every shift-invariant $H$ is a polynomial in
    $A$, of degree at most $n - 1$, if the minimal and the characteristic polynomial of $A$
    coincide; for symmetric $A$ that is if and only if all eigenvalues are distinct. With
    multiplicities $m_i$ the shift-invariant maps of a symmetric $A$ have $\sum_i m_i^2$ dimensions,
    and polynomials as many as there are different eigenvalues.

    *Proof.* Shift-invariant maps keep eigenspaces and do there what they like. Dimensions are ranks
    by exact elimination: for random graphs with weights and distinct eigenvalues, for the triangle,
    the square, the star and $K_{2,3}$, whose multiplicities are known, and for a directed path,
    whose eigenvalues are all 0 and whose minimal polynomial is $z^n$ all the same.

    Knobs:
        condition: When every shift-invariant map is a polynomial.
    """
    for n in (4, 5):
        A = random_graph(n, 0.6, most=9, linked=True)
        while torch.linalg.eigvalsh(A).diff().min() < 1e-6:
            A = random_graph(n, 0.6, most=9, linked=True)
        yield equals("dimension of shift-invariant maps", commutant(A), n, n=n)
        yield equals("dimension of polynomials", polynomials(A), n, n=n)
        edges, weight = edges_of(A)
        matrix = geometry.Adjacency(edges, n, weight=weight).dense()
        H = geometry.polynomial_filter(matrix, torch.eye(n), integers(n + 2, most=3))
        yield equals("a polynomial times A, both ways", H @ A, A @ H, tol=0.0, n=n)
    known = {
        "triangle": (cycle(3), (1, 2)),
        "square": (cycle(4), (1, 2, 1)),
        "star": (complete_bipartite(1, 4), (1, 3, 1)),
        "K_2,3": (complete_bipartite(2, 3), (1, 3, 1)),
    }
    for name, (A, times) in known.items():
        stated = sum(m * m for m in times) if condition != "none" else polynomials(A)
        yield equals("dimension of shift-invariant maps, and of polynomials if all are such",
                     commutant(A), stated, graph=name)  # fmt: skip
        yield equals("dimension of polynomials", polynomials(A), len(times), graph=name)
    chain = torch.diag(torch.ones(3), 1)
    yield equals("shift-invariant maps of a directed path", commutant(chain), 4)
    yield equals("polynomials of a directed path", polynomials(chain), 4)


shift_invariant_filter.erratum(
    "B-436",
    printed=r"$H$ is $A$-shift invariant iff: $H = \theta_0 I + \theta_1 A + \dots + \theta_n A^n$",
    right=r"iff, if the minimal and the characteristic polynomial of $A$ coincide",
    why=r"The only-if part fails for repeated eigenvalues: for the triangle $A = J - I$ the cyclic"
    r" permutation commutes with $A$, but polynomials in $A$ have the form $a I + b J$"
    r" (5 dimensions against 2). Powers up to $n - 1$ suffice.",
    weight="hard",
    refuted_by="dimension of shift-invariant maps, and of polynomials if all are such",
    condition="none",
)


@claim(
    by="identity", sources=("D-350", "D-351"), budget=0.6,
    short=r"g_\theta(L) = \sum_{k=0}^K \theta_k T_k(\hat L),\quad"
    r" \hat L = \tfrac{2}{\lambda_{\max}} L - I",
)  # fmt: skip
def chebnet(argument: Literal["rescaled", "normalised Laplacian"] = "rescaled"):
    r"""ChebNet filters in Chebyshev polynomials of the rescaled Laplacian.

    $g_\theta(L) = \sum_{k=0}^K \theta_k T_k(\hat L)$ with Chebyshev polynomials of
    $\hat L = \frac{2}{\lambda_{\max}} L - I$, whose spectrum lies in $[-1, 1]$, computed by
    $T_0 = I$, $T_1 = \hat L$, $T_k = 2 \hat L T_{k-1} - T_{k-2}$. There $\|T_k\| \le 1$, and $T_k$
    is $\cos(k \arccos z)$; outside they explode, $T_{10}(2) = 262087$.

    Checked for $k \le 10$ on $K_2$ and on random graphs, with plain and normalised Laplacians,
    for `polynomial_filter` and for the layer `ChebConv`.

    Knobs:
        argument: What the recursion is applied to.
    """
    for A, kind in ((complete_bipartite(1, 1), "sym"), (random_graph(7, 0.4, linked=True), None),
                    (random_graph(9, 0.3, most=4, linked=True), "sym")):  # fmt: skip
        n = len(A)
        L = laplacian_of(A, **({"normalization": kind} if kind else {}))
        dense = A.sum(1).diag() - A
        if kind:
            dense = A.sum(1).rsqrt()[:, None] * dense * A.sum(1).rsqrt()
        edges, weight = edges_of(A)
        graph = geometry.Adjacency(edges, n, weight=weight)
        values, U = torch.linalg.eigh(dense)
        top, op = float(values[-1]), L.operator
        if argument == "normalised Laplacian":  # the rescaling of L + I by 2 leaves L itself
            sym = laplacian_of(A, normalization="sym").operator
            top, op = 2.0, sym + torch.eye(n)
        for k in range(11):
            unit, at = torch.eye(11)[k, : k + 1], {"k": k, "n": n}
            T = geometry.polynomial_filter(op, torch.eye(n), unit, basis="chebyshev",
                                           lambda_max=top)  # fmt: skip
            yield at_most(f"norm of T_{k}", torch.linalg.matrix_norm(T, 2), 1.0, tol=1e-11, **at)
            angles = (2 / float(values[-1]) * values - 1).clamp(-1, 1).arccos()
            waves = (U * (k * angles).cos()) @ U.T
            yield equals("T_k, and its spectral form", T, waves, tol=1e-11, **at)
            layer = geometry.ChebConv(n, n, k + 1, normalization=kind, lambda_max="largest")
            for j, lin in enumerate(layer.lins):
                lin.weight.data = torch.eye(n) * (j == k)  # pyright: ignore
            image = layer.requires_grad_(False)(torch.eye(n), graph)
            yield equals("T_k by the layer", image, waves, tol=1e-9, **at)
        theta = torch.randn(5)
        found = geometry.polynomial_filter(op, torch.eye(n), theta, basis="chebyshev",
                                           lambda_max=top)  # fmt: skip
        response = sum(t * (k * angles).cos() for k, t in enumerate(theta))  # pyright: ignore
        yield equals("filter", found, (U * response) @ U.T, tol=1e-11, n=n)
    two = torch.tensor([[2.0]])  # 2/lambda_max z - 1 at z = 3 and lambda_max = 2
    outside = geometry.polynomial_filter(two + 1, torch.ones(1), torch.eye(11)[10],
                                         basis="chebyshev", lambda_max=2.0)  # fmt: skip
    yield equals("T_10 of 2", outside, 262087.0, tol=0.0)


chebnet.erratum(
    "D-350",
    printed=r"$g_\theta(L)\approx\sum_{k=0}^K\theta_kT_k(\tilde L)$ with $\tilde L$ the normalised"
    " Laplacian of the preceding definition",
    right=r"$T_k(\hat L)$ with $\hat L = \frac{2}{\lambda_{\max}} L - I$",
    why="The symbol was just defined as the normalised Laplacian, with its spectrum in [0, 2]."
    r" Outside $[-1, 1]$ Chebyshev polynomials explode: $T_{10}(2) = 262087$.",
    weight="soft",
    refuted_by="norm of T_10",
    argument="normalised Laplacian",
)
