"""What the course claims of traces and determinants."""

import math
from fractions import Fraction
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import claim, equals, row_reduce


def integers(*shape: int) -> Tensor:
    """Random integers from -5 to 5."""
    return torch.randint(-5, 6, shape)


def leibniz(A: Tensor | np.ndarray) -> Any:
    """The determinant as the sum over permutations, in integers or fractions."""
    rows, n, total = A.tolist(), len(A), 0
    for p in permutations(range(n)):
        inversions = sum(p[i] > p[j] for j in range(n) for i in range(j))
        total += (-1) ** inversions * math.prod(rows[i][p[i]] for i in range(n))
    return total


def bareiss(A: Tensor) -> int:
    """The determinant by elimination without fractions."""
    rows, sign, before = A.tolist(), 1, 1
    for k in range(len(rows) - 1):
        pivot = next((i for i in range(k, len(rows)) if rows[i][k]), None)
        if pivot is None:
            return 0
        if pivot != k:
            rows[k], rows[pivot], sign = rows[pivot], rows[k], -sign
        for i in range(k + 1, len(rows)):
            for j in range(k + 1, len(rows)):
                rows[i][j] = (rows[i][j] * rows[k][k] - rows[i][k] * rows[k][j]) // before
        before = rows[k][k]
    return sign * rows[-1][-1]


def minus_second_coefficient(A: Tensor) -> int:
    """The sum of the roots of det(x - A), from its values at 0, ..., n - 1.

    The difference of order n - 1 takes x^n to binom(n, 2) (n - 1)! and c x^(n-1) to c (n - 1)!.
    """
    n = len(A)
    values = [leibniz(x * torch.eye(n, dtype=torch.long) - A) for x in range(n)]
    for _ in range(n - 1):
        values = [b - a for a, b in pairwise(values)]
    return math.comb(n, 2) - values[0] // math.factorial(n - 1)


@claim(by="identity", sources=("D-080", "D-081", "E-060", "E-061"), budget=0.5)
def trace_eigenvalues(counted: str = "all"):
    r"""Trace and the sum of the eigenvalues.

    For square $A$, $\mathrm{Tr}(A) = \sum_i a_{ii} = \sum_i \lambda_i$, the eigenvalues taken in
    $\mathbb{C}$ and counted with algebraic multiplicity; for real $A$ the imaginary parts cancel.

    *Proof.* Compare the coefficients of $x^{n-1}$ in $\det(x I - A) = \prod_i (x - \lambda_i)$. The
    computed eigenvalues are those of a matrix within rounding of $A$, so that their sum is accurate
    even where a defective $A$ makes each of them inaccurate.
    """
    turn = torch.tensor([[0, -1], [1, 0]])
    jordan = torch.tensor([[2, 1, 0], [0, 2, 1], [0, 0, 2]])
    for A in (torch.eye(3).long(), turn, jordan, *(integers(n, n) for n in range(1, 6))):
        total = int(A.trace())
        yield equals(total, minus_second_coefficient(A), n=len(A))
        if counted == "singular":
            values = torch.linalg.svdvals(A.double()).tolist()
        else:
            values = torch.linalg.eigvals(A.double()).tolist()
        if counted == "distinct":
            values = {complex(round(v.real, 3), round(v.imag, 3)) for v in values}
        yield equals(sum(complex(v).real for v in values), total, n=len(A))
        yield equals(sum(complex(v).imag for v in values), 0.0, n=len(A))


trace_eigenvalues.foil(
    "each distinct eigenvalue once: 1 for the identity of size 3", counted="distinct"
)
trace_eigenvalues.foil("the singular values: 2 for a quarter turn", counted="singular")


@claim(by="identity", sources=("D-082", "E-062"), budget=0.5)
def trace_cyclic(order: str = "BCA CAB"):
    r"""Cyclic property of the trace.

    $\mathrm{Tr}(A B C) = \mathrm{Tr}(B C A) = \mathrm{Tr}(C A B)$ whenever the products are
    defined, also for rectangular factors; permutations that are not cyclic change the value in
    general.

    *Proof.* All are $\sum_{ijk} a_{ij} b_{jk} c_{ki}$.
    """
    unit = torch.eye(4).long().reshape(4, 2, 2)  # E_11, E_12, E_21, E_22
    triples = [{"A": unit[1], "B": unit[2], "C": unit[0]}]
    for p, q, r in ((2, 3, 4), (1, 5, 2), (4, 1, 1), (3, 3, 3)):
        triples.append({"A": integers(p, q), "B": integers(q, r), "C": integers(r, p)})
    for factors in triples:
        total = int((factors["A"] @ factors["B"] @ factors["C"]).trace())
        for word in order.split():
            x, y, z = (factors[letter] for letter in word)
            if x.shape[1] == y.shape[0] and y.shape[1] == z.shape[0]:
                yield equals(int((x @ y @ z).trace()), total, size=len(factors["A"]))


trace_cyclic.foil("the swap of two factors, at unit matrices: 0 for 1", order="ACB")


@claim(by="identity", sources=("D-083", "D-084", "E-063", "E-064"), budget=0.5)
def trace_linear(rule: str = "sum"):
    r"""Linearity and transpose invariance of the trace.

    $\mathrm{Tr}(A + B) = \mathrm{Tr}(A) + \mathrm{Tr}(B)$,
    $\mathrm{Tr}(c A) = c\, \mathrm{Tr}(A)$ and $\mathrm{Tr}(A^\top) = \mathrm{Tr}(A)$ for square
    $A, B$ of one size and scalars $c$.
    """
    pairs = [(torch.eye(2).long(), torch.eye(2).long())]
    pairs += [(integers(n, n), integers(n, n)) for n in range(1, 7)]
    for A, B in pairs:
        a, b, n = int(A.trace()), int(B.trace()), len(A)
        together, parts = (A + B, a + b) if rule == "sum" else (A @ B, a * b)
        yield equals(int(together.trace()), parts, n=n)
        yield equals(int(A.T.trace()), a, n=n)
        c = Fraction(int(integers()), 1 + abs(int(integers())))
        scaled = np.trace(c * A.numpy().astype(object))
        yield equals(int((scaled - c * a) * c.denominator), 0, n=n)


trace_linear.foil(
    "multiplicativity, which the determinant has: 4 for the identity of size 2", rule="product"
)


@claim(by="identity", sources=("A-008", "B-022"), budget=0.5)
def determinant_product(rule: str = "product"):
    r"""Determinant of a product.

    $\det(A B) = \det(A) \det(B)$ for square matrices of equal size; hence $\det(A B) = \det(B A)$
    and $\det(A^k) = \det(A)^k$. Two exact algorithms and torch's agree on them.
    """
    pairs = [(torch.eye(2).long(), torch.eye(2).long())]
    pairs += [(integers(n, n), integers(n, n)) for n in range(1, 6)]
    for A, B in pairs:
        n, a, b = len(A), leibniz(A), leibniz(B)
        yield equals(bareiss(A), a, n=n)
        yield equals(torch.linalg.det(A.double()), float(a), n=n)
        if rule == "product":
            yield equals(bareiss(A @ B), a * b, n=n)
            yield equals(bareiss(B @ A), a * b, n=n)
            yield equals(bareiss(A @ A @ A), a**3, n=n)
        else:
            yield equals(bareiss(A + B), a + b, n=n)


determinant_product.foil("additivity: 4 against 2 for the identity of size 2", rule="sum")


def inverse(A: Tensor) -> list[list[Fraction]] | None:
    """The inverse by Gauss-Jordan elimination in fractions, None for a singular matrix."""
    n = len(A)
    rows, pivots = row_reduce(torch.cat([A, torch.eye(n, dtype=A.dtype)], 1).tolist())
    return [row[n:] for row in rows] if pivots == list(range(n)) else None


@claim(by="identity", sources=("A-009", "B-023"), budget=0.5)
def determinant_inverse(formula: str = "1 / det"):
    r"""Determinant of an inverse.

    If $\det A \ne 0$ then $A$ is invertible and $\det(A^{-1}) = 1 / \det(A)$; if $\det A = 0$ there
    is no inverse.

    *Proof.* $1 = \det I = \det(A^{-1}) \det(A)$.
    """
    singular = torch.tensor([[1, 2], [2, 4]])
    for A in (torch.diag(torch.tensor([2, 1])), singular, *(integers(n, n) for n in range(1, 6))):
        d, found = leibniz(A), inverse(A)
        yield equals(int(found is None), int(d == 0), n=len(A))
        if found is None:
            continue
        product = np.array(found, object) @ A.numpy().astype(object)
        yield equals(int((product == np.eye(len(A), dtype=int)).all()), 1, n=len(A))
        value = leibniz(np.array(found, object))
        target = {"1 / det": Fraction(1, d), "det": Fraction(d), "-det": Fraction(-d)}[formula]
        yield equals(int((value - target) * d), 0, n=len(A))  # of integers over d
        yield equals(torch.linalg.det(torch.linalg.inv(A.double())), float(target), n=len(A))


determinant_inverse.foil(r"$\det A$ itself, true for $\det A = \pm 1$ only", formula="det")
determinant_inverse.foil(r"$-\det A$", formula="-det")


@claim(by="identity", sources=("B-021",), budget=0.5)
def determinant_transpose(turn: str = "transpose"):
    r"""Determinant of a transpose.

    $\det(A^\top) = \det(A)$ for every square $A$, so every row rule for determinants is a column
    rule as well.

    *Proof.* A permutation and its inverse have the same sign, and the sum over permutations is one
    over their inverses.
    """
    for A in (torch.eye(2).long(), *(integers(n, n) for n in range(1, 7))):
        other = A.T if turn == "transpose" else torch.rot90(A)
        yield equals(bareiss(other), bareiss(A), n=len(A))
        yield equals(torch.linalg.det(other.double()), float(bareiss(A)), n=len(A))
        if len(A) < 6:
            yield equals(leibniz(other), leibniz(A), n=len(A))


determinant_transpose.foil(
    r"a quarter turn, which takes the identity of size 2 to determinant $-1$", turn="quarter"
)


@claim(by="identity", sources=("B-497",), budget=0.5)
def determinant_triangular(triangular: bool = True):
    r"""Determinant of a triangular matrix.

    For an upper or lower triangular matrix $\det A = \prod_i A_{ii}$. This is why autoregressive
    and coupling flows have cheap log-determinants, $\sum_i \log |A_{ii}|$.

    *Proof.* Every permutation but the identity takes some index below, and some above, itself.
    """
    matrices = [torch.ones(2, 2).long(), *(integers(n, n) for n in range(1, 7))]
    for A in matrices:
        for B in (A.tril(), A.triu()) if triangular else (A,):
            product = math.prod(B.diagonal().tolist())
            yield equals(bareiss(B), product, n=len(A))
            if len(A) < 6:
                yield equals(leibniz(B), product, n=len(A))

    def flow(z: Tensor) -> Tensor:
        before = torch.cat([torch.zeros(1), z.cumsum(0)[:-1]])
        return z * torch.exp(torch.sin(before)) + before**2

    J = torch.autograd.functional.jacobian(flow, torch.randn(5))
    assert isinstance(J, Tensor)
    J = J if triangular else J + J.T
    yield equals(torch.linalg.slogdet(J).logabsdet, J.diagonal().abs().log().sum(), n=5)


determinant_triangular.foil(
    "the diagonal of a full matrix: 1 for the matrix of four ones, 0 in truth", triangular=False
)


@claim(by="identity", sources=("B-493",), budget=0.5)
def inverse_jacobian_determinant(at: str = "preimage"):
    r"""Jacobian determinant of an inverse map.

    If $F$ is a differentiable bijection with differentiable inverse then
    $\partial F^{-1}(x) = \big(\partial F(F^{-1}(x))\big)^{-1}$ and
    $\det \partial F^{-1}(x) = 1 / \det \partial F(F^{-1}(x))$: the Jacobian of $F$ is evaluated at
    the preimage, not at $x$.

    *Proof.* Differentiate $F(F^{-1}(x)) = x$.
    """
    B, c = torch.eye(3) * 4 + torch.rand(3, 3), torch.randn(3)
    maps = {
        "exponential": (torch.exp, torch.log, torch.tensor([2.0])),
        "coupling": (
            lambda z: torch.stack([z[0], z[1] * z[0].exp() + z[0] ** 2]),
            lambda x: torch.stack([x[0], (x[1] - x[0] ** 2) * (-x[0]).exp()]),
            torch.randn(2),
        ),
        "polar": (
            lambda z: z[0] * torch.stack([z[1].cos(), z[1].sin()]),
            lambda x: torch.stack([x.norm(), torch.atan2(x[1], x[0])]),
            torch.tensor([3.0, 4.0]),
        ),
        "affine": (lambda z: B @ z + c, lambda x: torch.linalg.solve(B, x - c), torch.randn(3)),
    }
    for name, (F, G, x) in maps.items():
        z = G(x)
        yield equals(F(z), x, map=name)
        J = torch.autograd.functional.jacobian(F, z if at == "preimage" else x)
        K = torch.autograd.functional.jacobian(G, x)
        yield equals(torch.linalg.det(K), 1 / torch.linalg.det(J), map=name)
        yield equals(K @ J, torch.eye(len(x)), map=name)


inverse_jacobian_determinant.foil(
    "the Jacobian at the image point: for the exponential at 2, 0.135 instead of 0.5", at="image"
)
