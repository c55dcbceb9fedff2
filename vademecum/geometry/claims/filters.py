"""Filters that are polynomials of the Laplacian: local, cheap, and blind to directions."""

from collections import Counter
from itertools import product
from typing import Literal

import torch
from torch import Tensor

from vademecum import geometry
from vademecum.claims import claim, equals, integers
from vademecum.foundations import LinearOperator
from vademecum.geometry.claims._small_graphs import (
    cycle,
    edges_of,
    from_pairs,
    hops_from,
    laplacian_of,
    path,
    random_graph,
    torus,
)


def counted(L: geometry.GraphLaplacian) -> tuple[LinearOperator, Counter[str]]:
    """The operator, and how often it was applied."""
    count = Counter[str]()

    def matvec(x: Tensor) -> Tensor:
        count["products"] += 1
        return L.operator @ x

    return LinearOperator(L.operator.shape, matvec, matvec, dtype=L.operator.dtype), count


@claim(
    by="identity", sources=("A-212", "C-195", "D-351", "D-352"), budget=0.6,
    short=r"U \big(\sum_{k \le K} \alpha_k \Lambda^k\big) U^\top = \sum_{k \le K} \alpha_k L^k",
)  # fmt: skip
def polynomial_filter(
    reach: int = 0, kind: Literal["polynomial", "exponential"] = "polynomial", products: int = 0
):
    r"""Polynomial filters are local and cheap.

    $U \big(\sum_{k \le K} \alpha_k \Lambda^k\big) U^\top = \sum_{k \le K} \alpha_k L^k$: a
    polynomial filter needs no eigendecomposition but $K$ sparse products, each $O(|\mathcal E|)$
    for a signal, and is $K$-localised: entries between nodes more than $K$ hops apart are exactly
    0. Those at distance $K$ are $\alpha_K (-1)^K$ times the number of shortest paths.

    *Proof of the last.* A walk of length $K$ between them has no step to spare, and each of its
    steps is an entry $-1$ of $L$. Checked in whole numbers by Horner's rule against powers of the
    dense matrix and the spectral form, in Chebyshev polynomials too, on random graphs, a path and a
    cycle, for $K$ from 0 to 5.

    Knobs:
        reach: How many hops more than $K$ the filter reaches.
        kind: The filter: the polynomial, or $e^{-L}$.
        products: How many products with $L$ there are beyond $K$.
    """
    for A in (random_graph(10, 0.15, linked=True), random_graph(12, 0.1), path(8), cycle(9)):
        L, n, e = laplacian_of(A), len(A), torch.eye(len(A))
        dense = A.sum(1).diag() - A
        values, U = torch.linalg.eigh(dense)
        hops = torch.tensor([hops_from(A, v)[0] for v in range(n)])
        ways = torch.tensor([hops_from(A, v)[1] for v in range(n)])
        for K in (2, 0, 1, 5):
            c, at = integers(K + 1, most=3), {"n": n, "K": K}
            c[K] = 2.0
            op, count = counted(L)
            found = geometry.polynomial_filter(op, e, c)
            yield equals("products with L", count["products"], K + products, **at)
            powers = sum(a * torch.linalg.matrix_power(dense, k) for k, a in enumerate(c))
            yield equals("p(L), and powers", found, powers, tol=0.0, **at)
            spectral = (U * sum(a * values**k for k, a in enumerate(c))) @ U.T
            size = float(sum(a.abs() * values[-1] ** k for k, a in enumerate(c)))
            yield equals("p(L), and its spectral form", found, spectral, tol=1e-13 * n * size, **at)
            if kind == "exponential":
                found = (U * (-values).exp()) @ U.T
            far = (hops > K + reach) | (hops < 0)
            yield equals("entries too far apart", found.where(far, 0), 0.0, tol=0.0, **at)
            edge, stated = hops == K, c[K] * (-1) ** K * ways
            yield equals("entries K hops apart", found.where(edge, 0), stated.where(edge, 0),
                         tol=0.0, **at)  # fmt: skip
        c, top = torch.randn(5), float(values[-1])
        op, count = counted(L)
        for given in (None, top, 1.3 * top):
            count.clear()
            found = geometry.polynomial_filter(op, e, c, basis="chebyshev", lambda_max=given)
            angle = (2 / (given or top) * values - 1).clamp(-1, 1).arccos()
            waves = sum(a * (k * angle).cos() for k, a in enumerate(c))
            yield equals("Chebyshev filter", found, (U * waves) @ U.T,
                         tol=1e-11 if given else 1e-6, n=n)  # fmt: skip
            if given:
                yield equals("its products with L", count["products"], 4, n=n)
                far = (hops > 4) | (hops < 0)
                yield equals("its entries too far apart", found.where(far, 0), 0.0, tol=0.0, n=n)


polynomial_filter.foil("localised within $K - 1$ hops", reach=-1,
                       refuted_by="entries too far apart")  # fmt: skip
polynomial_filter.foil("the heat kernel is localised", kind="exponential",
                       refuted_by="entries too far apart")  # fmt: skip
polynomial_filter.foil("one product for each coefficient", products=1,
                       refuted_by="products with L")  # fmt: skip


def moved_nodes(side: int) -> list[Tensor]:
    """The 8 symmetries of the square about node 0 of a torus, as permutations of its nodes."""
    i, j = torch.cartesian_prod(torch.arange(side), torch.arange(side)).T
    turns = [(a, b) for a, b in ((i, j), (j, i))]
    found = [(s * a, t * b) for a, b in turns for s, t in product((1, -1), repeat=2)]
    return [side * (a % side) + b % side for a, b in found]


@claim(
    by="identity", sources=("A-213",), budget=0.4,
    short=r"p(L) P = P\, p(L) \quad\text{for every automorphism } P A P^\top = A",
)  # fmt: skip
def filter_isotropy(kind: Literal["polynomial", "shift"] = "polynomial"):
    r"""Polynomial filters are isotropic.

    A filter $p(L)$ commutes with every automorphism of the graph, $P A P^\top = A$, so that it
    treats symmetric neighbours alike: on a square torus the impulse response has the rotation and
    reflection symmetry of the grid, and no $p(L)$ can be directional, such as a one-sided
    difference.

    *Proof.* $P L P^\top = L$, hence $P\, p(L) P^\top = p(L)$. Checked in whole numbers for random
    polynomials of degree 3 on tori of $5 \times 5$ and $6 \times 6$ nodes, under all 8 symmetries
    of the square with all translations, and on a star, whose leaves may be permuted.

    Knobs:
        kind: The filter; a shift by one step commutes with translations alone.
    """
    for side in (5, 6):
        A, n = torus(side), side * side
        L, c = laplacian_of(A), integers(4, most=3)
        c[3] = 1.0

        def filtered(x: Tensor, L=L, c=c, side=side) -> Tensor:
            if kind == "shift":
                return x.reshape(side, side, -1).roll(1, 1).reshape(x.shape) - x
            return geometry.polynomial_filter(L, x, c)

        impulse, x = torch.eye(n)[0], integers(n, 2)
        response, image = filtered(impulse), filtered(x)
        grid = torch.arange(n).reshape(side, side)
        for number, move in enumerate(moved_nodes(side)):
            at = {"side": side, "symmetry": number}
            yield equals("impulse response, moved", response[move], response, tol=0.0, **at)
            shifts = product(range(side), repeat=2)
            places = [grid.roll(shift, (0, 1)).flatten()[move] for shift in shifts]
            found = filtered(torch.cat([x[place] for place in places], 1))
            stated = torch.cat([image[place] for place in places], 1)
            yield equals("p(L) of a moved signal", found, stated, tol=0.0, **at)
    star = from_pairs(6, [(0, leaf) for leaf in range(1, 6)])
    response = geometry.polynomial_filter(laplacian_of(star), torch.eye(6)[0], integers(4))
    yield equals("response of a star's leaves", response[1:], response[1], tol=0.0)


filter_isotropy.foil("a difference to one side", kind="shift",
                     refuted_by="impulse response, moved")  # fmt: skip


@claim(
    by="identity", sources=("A-214", "C-196", "C-197"), budget=0.5,
    short=r"x_j' = \sum_i \sum_{k=0}^K \alpha_{ijk} L^k x_i + b_j",
)  # fmt: skip
def polynomial_graph_layer(first: int = 0, bias: bool = True):
    r"""A layer of polynomial filters.

    $x_j^{\mathrm{out}} = \sum_{i=1}^{c_{\mathrm{in}}} p_{ij}(L)\, x_i^{\mathrm{in}} + b_j$ with
    learned polynomials $p_{ij}(L) = \sum_{k=0}^K \alpha_{ijk} L^k$, followed by a nonlinearity:
    $(K + 1)\, c_{\mathrm{in}} c_{\mathrm{out}} + c_{\mathrm{out}}$ parameters, and permutation
    equivariant.

    Checked for `PolynomialConv` against loops over features and powers of the dense matrix, with
    plain and normalised Laplacians, more features out than in and fewer, weights and none.

    Knobs:
        first: The lowest power that has a coefficient.
        bias: Whether the formula has the numbers b.
    """
    cases = ((2, 3, 2, None), (4, 2, 3, "sym"), (3, 3, 1, "gcn"), (2, 5, 0, "sym"))
    for c_in, c_out, K, kind in cases:
        A = random_graph(7, 0.4, most=1 if kind is None else 3, linked=True)
        edges, weight = edges_of(A)
        layer = geometry.PolynomialConv(c_in, c_out, K, normalization=kind).requires_grad_(False)
        torch.nn.init.normal_(layer.weight)
        assert layer.bias is not None
        torch.nn.init.normal_(layer.bias)
        at = {"c_in": c_in, "c_out": c_out, "K": K}
        count = sum(p.numel() for p in layer.parameters())
        stated = (K + 1 - first) * c_in * c_out + c_out * bias
        yield equals("parameters", count, stated, **at)
        d = A.sum(1) + (kind == "gcn")
        root = d.rsqrt() if kind else torch.ones(7)
        L = root[:, None] * (A.sum(1).diag() - A) * root
        x, y = torch.randn(7, c_in), torch.zeros(7, c_out)
        for j in range(c_out):
            y[:, j] = layer.bias[j] * bias
            for i, k in product(range(c_in), range(first, K + 1)):
                y[:, j] += layer.weight[k, i, j] * (torch.linalg.matrix_power(L, k) @ x[:, i])
        found = layer(x, edges, weight)
        yield equals("output", found, y, tol=1e-12 * 20.0 ** (0 if kind else K), **at)
        order = torch.randperm(7)
        other, weights = edges_of(A[order][:, order])
        moved = layer(x[order], other, weights)
        yield equals("output for permuted nodes", moved, found[order], tol=1e-11, **at)


polynomial_graph_layer.foil("the power 0 forgotten", first=1, refuted_by="parameters")
polynomial_graph_layer.foil("no bias", bias=False, refuted_by="parameters")
