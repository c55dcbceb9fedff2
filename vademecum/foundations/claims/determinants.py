"""Determinants: of products, inverses, transposes, and of inverse maps."""

import math
from fractions import Fraction
from itertools import pairwise, permutations, product
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.arrays import row_reduce
from vademecum.claims import at_least, claim, equals, integers


def whole(*shape: int) -> Tensor:
    """Random integers from -5 to 5, of integer type."""
    return integers(*shape, most=5).long()


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


@claim(
    by="identity",
    sources=("A-008", "B-022"),
    budget=0.5,
    short=r"\det(A B) = \det(A) \det(B)",
)
def determinant_product(sum_rule: Literal["rows", "two"] = "rows"):
    r"""Determinant of a product.

    $\det(A B) = \det(A) \det(B)$ for square matrices of equal size; hence $\det(A B) = \det(B A)$
    and $\det(A^k) = \det(A)^k$. It is not additive, but linear in each row: $\det(A + B)$ is the
    sum of the $2^n$ determinants with each row from $A$ or from $B$. Two exact algorithms and
    torch's agree on all of it, for $n \le 5$ and $k \le 3$.

    Knobs:
        sum_rule: Which determinants are said to add up to that of $A + B$: those of all choices of
            rows, or $\det A$ and $\det B$ alone.
    """
    pairs = [(torch.eye(2).long(), torch.eye(2).long())]
    pairs += [(whole(n, n), whole(n, n)) for n in range(1, 6)]
    for A, B in pairs:
        n, a, b = len(A), leibniz(A), leibniz(B)
        yield equals("determinant by elimination", bareiss(A), a, n=n)
        yield equals("torch's determinant", torch.linalg.det(A.double()), float(a), n=n)
        yield equals(r"$\det(A B)$", bareiss(A @ B), a * b, n=n)
        yield equals(r"$\det(B A)$", bareiss(B @ A), a * b, n=n)
        yield equals(r"$\det(A^k)$", bareiss(A @ A), a**2, k=2, n=n)
        yield equals(r"$\det(A^k)$", bareiss(A @ A @ A), a**3, k=3, n=n)
        whose = product((0, 1), repeat=n) if sum_rule == "rows" else ((0,) * n, (1,) * n)
        mixed = [torch.stack([(A, B)[w][i] for i, w in enumerate(rows)]) for rows in whose]
        yield equals(r"$\det(A + B)$", leibniz(A + B), sum(map(bareiss, mixed)), n=n)


determinant_product.foil("additivity: 2 for the identity of size 2, not 4", sum_rule="two")


def inverse(A: Tensor) -> list[list[Fraction]] | None:
    """The inverse by Gauss-Jordan elimination in fractions, None for a singular matrix."""
    n = len(A)
    rows, pivots = row_reduce(torch.cat([A, torch.eye(n, dtype=A.dtype)], 1).tolist())
    return [row[n:] for row in rows] if pivots == list(range(n)) else None


@claim(
    by="identity",
    sources=("A-009", "B-023"),
    budget=0.5,
    short=r"\det A \ne 0 \implies \det(A^{-1}) = 1 / \det(A)",
)
def determinant_inverse(formula: Literal["1 / det", "det", "-det"] = "1 / det"):
    r"""Determinant of an inverse.

    If $\det A \ne 0$ then $A$ is invertible and $\det(A^{-1}) = 1 / \det(A)$; if $\det A = 0$ there
    is no inverse.

    *Proof.* $1 = \det I = \det(A^{-1}) \det(A)$.

    Knobs:
        formula: What $\det(A^{-1})$ is said to be.
    """
    singular = whole(4, 4)
    singular[3] = singular[0] - 2 * singular[1]
    cases = [torch.diag(torch.tensor([2, 1])), torch.tensor([[1, 2], [2, 4]]), singular]
    for A in (*cases, *(whole(n, n) for n in range(1, 6))):
        n, d, found = len(A), leibniz(A), inverse(A)
        deficiency = n - len(row_reduce(A.tolist()).pivots)
        if found is None:
            yield equals("determinant of a matrix without inverse", d, 0, n=n)
            yield at_least("rank missing where the determinant is 0", deficiency, 1, n=n)
            continue
        yield equals("rank missing where there is an inverse", deficiency, 0, n=n)
        product = np.array(found, object) @ A.numpy().astype(object)
        yield equals(
            "inverse times matrix", (d * product).astype(int), d * np.eye(n, dtype=int), n=n
        )
        value = leibniz(np.array(found, object))
        target = {"1 / det": Fraction(1, d), "det": Fraction(d), "-det": Fraction(-d)}[formula]
        yield equals("determinant of the inverse", float(value), float(target), tol=0.0, n=n)
        # Relative to 1 / det: the condition is at most 25 * 5e4, from the norms of matrix and
        # cofactors, which rounding is multiplied by.
        share = d * torch.linalg.det(torch.linalg.inv(A.double()))
        yield equals(
            r"torch's determinant of the inverse, times $\det A$",
            share,
            float(target * d),
            tol=1e-7,
            n=n,
        )


determinant_inverse.foil(
    r"$\det A$ itself, true for $\det A = \pm 1$ only: 2 for diag(2, 1)", formula="det"
)
determinant_inverse.foil(r"$-\det A$: $-2$ for diag(2, 1)", formula="-det")


@claim(by="identity", sources=("B-021",), budget=0.5, short=r"\det(A^\top) = \det(A)")
def determinant_transpose(turn: Literal["transpose", "quarter"] = "transpose"):
    r"""Determinant of a transpose.

    $\det(A^\top) = \det(A)$ for every square $A$, so every row rule for determinants is a column
    rule as well.

    *Proof.* A permutation and its inverse have the same sign, and the sum over permutations is one
    over their inverses.

    Knobs:
        turn: How the matrix is turned: about its diagonal, or by a quarter.
    """
    for A in (torch.eye(2).long(), *(whole(n, n) for n in range(1, 7))):
        n, right = len(A), bareiss(A)
        other = A.T if turn == "transpose" else torch.rot90(A)
        yield equals("determinant of the turned matrix", bareiss(other), right, n=n)
        value = torch.linalg.det(other.double())
        yield equals("torch's determinant of the turned matrix", value, float(right), n=n)
        if n < 6:
            yield equals("sum over permutations of the turned matrix", leibniz(other), right, n=n)


determinant_transpose.foil(
    r"a quarter turn, which takes the identity of size 2 to determinant $-1$", turn="quarter"
)


@claim(
    by="identity",
    sources=("B-497",),
    budget=0.5,
    short=r"A \text{ triangular} \implies \det A = \prod_i A_{ii}",
)
def determinant_triangular(triangular: bool = True):
    r"""Determinant of a triangular matrix.

    For an upper or lower triangular matrix $\det A = \prod_i A_{ii}$. This is why autoregressive
    and coupling flows have cheap log-determinants, $\sum_i \log |A_{ii}|$.

    *Proof.* Every permutation but the identity takes some index below, and some above, itself.

    Knobs:
        triangular: Whether the rule is applied to the triangles of a matrix, or to all of it.
    """
    for A in (torch.ones(2, 2).long(), *(whole(n, n) for n in range(1, 7))):
        n = len(A)
        for B in (A.tril(), A.triu()) if triangular else (A,):
            diagonal = math.prod(B[i, i].item() for i in range(n))
            yield equals("determinant", bareiss(B), diagonal, n=n)
            if n < 6:
                yield equals("sum over permutations", leibniz(B), diagonal, n=n)

    def flow(z: Tensor) -> Tensor:
        before = torch.cat([torch.zeros(1), z.cumsum(0)[:-1]])
        return z * torch.exp(torch.sin(before)) + before**2

    z = torch.randn(5)
    J = torch.autograd.functional.jacobian(flow, z)
    assert isinstance(J, Tensor)
    J = J if triangular else J + J.T
    scales = torch.sin(torch.cat([torch.zeros(1), z.cumsum(0)[:-1]]))  # log dx_i / dz_i
    yield equals("log-determinant of a flow", torch.linalg.slogdet(J).logabsdet, scales.sum(), n=5)


determinant_triangular.foil(
    "the diagonal of a full matrix: 1 for the matrix of four ones, 0 in truth", triangular=False
)


@claim(
    by="identity",
    sources=("B-493",),
    budget=0.5,
    short=r"\det \partial F^{-1}(x) = 1 / \det \partial F(F^{-1}(x))",
)
def inverse_jacobian_determinant(at: Literal["preimage", "image"] = "preimage"):
    r"""Jacobian determinant of an inverse map.

    If $F$ is a differentiable bijection with differentiable inverse then
    $\partial F^{-1}(x) = \big(\partial F(F^{-1}(x))\big)^{-1}$ and
    $\det \partial F^{-1}(x) = 1 / \det \partial F(F^{-1}(x))$: the Jacobian of $F$ is evaluated at
    the preimage, not at $x$.

    *Proof.* Differentiate $F(F^{-1}(x)) = x$. Checked for four maps with inverses in closed form.

    Knobs:
        at: Where the Jacobian of $F$ is taken: at $F^{-1}(x)$, or at $x$.
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
        yield equals("image of the preimage", F(z), x, map=name)
        J = torch.autograd.functional.jacobian(F, z if at == "preimage" else x)
        K = torch.autograd.functional.jacobian(G, x)
        right = 1 / torch.linalg.det(J)
        yield equals("determinant of the inverse's Jacobian", torch.linalg.det(K), right, map=name)
        yield equals("product of both Jacobians", K @ J, torch.eye(len(x)), map=name)


inverse_jacobian_determinant.foil(
    "the Jacobian at the image point: for the exponential at 2, 0.135 instead of 0.5", at="image"
)
