"""Traces: what may be moved around inside."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import product as combinations_of
from typing import Literal

import numpy as np
import scipy.sparse
import torch

from vademecum.claims import Evidence, claim, equals
from vademecum.foundations import LinearOperator, aslinearoperator, trace
from vademecum.foundations.claims.determinants import minus_second_coefficient, whole


@claim(
    by="identity",
    sources=("D-080", "D-081", "E-060", "E-061"),
    budget=0.5,
    short=r"\mathrm{Tr}(A) = \sum_i a_{ii} = \sum_i \lambda_i",
)
def trace_eigenvalues(counted: Literal["all", "distinct", "singular"] = "all"):
    r"""Trace and the sum of the eigenvalues.

    For square $A$, $\mathrm{Tr}(A) = \sum_i a_{ii} = \sum_i \lambda_i$, the eigenvalues taken in
    $\mathbb{C}$ and counted with algebraic multiplicity; for real $A$ the imaginary parts cancel.

    *Proof.* Compare the coefficients of $x^{n-1}$ in $\det(x I - A) = \prod_i (x - \lambda_i)$. The
    computed eigenvalues are those of a matrix within rounding of $A$, so that their sum is accurate
    even where a defective $A$ makes each of them inaccurate.

    Knobs:
        counted: Which values are added up: all eigenvalues, each distinct one once, or the singular
            values.
    """
    cases = {
        "identity": torch.eye(3).long(),
        "quarter turn": torch.tensor([[0, -1], [1, 0]]),
        "Jordan block": torch.tensor([[2, 1, 0], [0, 2, 1], [0, 0, 2]]),
    }
    cases |= {f"random, {n} x {n}": whole(n, n) for n in range(1, 6)}
    for matrix, A in cases.items():
        total, at = sum(A[i, i].item() for i in range(len(A))), {"n": len(A), "matrix": matrix}
        yield equals("sum of the roots of the polynomial", minus_second_coefficient(A), total, **at)
        yield equals(
            "trace of the operator", trace(A.double(), applications=len(A)).value, total, **at
        )
        if counted == "singular":
            values = torch.linalg.svdvals(A.double()).tolist()
        else:
            values = torch.linalg.eigvals(A.double()).tolist()
        if counted == "distinct":
            values = {complex(round(v.real, 3), round(v.imag, 3)) for v in values}
        found = complex(sum(values))
        yield equals("sum of the eigenvalues", found.real, total, **at)
        yield equals("imaginary part of the sum of the eigenvalues", found.imag, 0.0, **at)


trace_eigenvalues.foil(
    "each distinct eigenvalue once: 1 for the identity of size 3", counted="distinct"
)
trace_eigenvalues.foil(
    "the singular values: 2 for a quarter turn, whose trace is 0", counted="singular"
)


@claim(
    by="identity",
    sources=("D-082", "E-062"),
    budget=0.5,
    short=r"\mathrm{Tr}(A B C) = \mathrm{Tr}(B C A) = \mathrm{Tr}(C A B)",
)
def trace_cyclic(order: Literal["BCA CAB", "ACB"] = "BCA CAB"):
    r"""Cyclic property of the trace.

    $\mathrm{Tr}(A B C) = \mathrm{Tr}(B C A) = \mathrm{Tr}(C A B)$ whenever the products are
    defined, also for rectangular factors; permutations that are not cyclic change the value in
    general.

    *Proof.* All are $\sum_{ijk} a_{ij} b_{jk} c_{ki}$.

    Knobs:
        order: The orders of the factors that are said to have the trace of $A B C$.
    """
    unit = torch.eye(4).long().reshape(4, 2, 2)  # E_11, E_12, E_21, E_22
    triples = [{"A": unit[1], "B": unit[2], "C": unit[0]}]
    for p, q, r in ((2, 3, 4), (1, 5, 2), (4, 1, 1), (3, 3, 3)):
        triples.append({"A": whole(p, q), "B": whole(q, r), "C": whole(r, p)})
    for factors in triples:
        a, b, c = (factors[letter].tolist() for letter in "ABC")
        total = sum(
            a[i][j] * b[j][k] * c[k][i]
            for i, j, k in combinations_of(range(len(a)), range(len(b)), range(len(c)))
        )
        for word in ("ABC", *order.split()):
            x, y, z = (factors[letter] for letter in word)
            if x.shape[1] == y.shape[0] and y.shape[1] == z.shape[0]:
                shape = "x".join(str(len(factors[letter])) for letter in "ABC")
                found = int((x @ y @ z).trace())
                yield equals("trace of the product", found, total, order=word, sizes=shape)


trace_cyclic.foil("the swap of two factors, at unit matrices: 0 for 1", order="ACB")


@claim(
    by="identity",
    sources=("D-083", "D-084", "E-063", "E-064"),
    budget=0.5,
    short=r"\mathrm{Tr}(A + cB) = \mathrm{Tr}(A) + c\,\mathrm{Tr}(B),\ "
    r"\mathrm{Tr}(A^\top) = \mathrm{Tr}(A)",
)
def trace_linear(
    product: Literal["entries", "traces"] = "entries", homogeneous: Literal["c", "c^n"] = "c"
):
    r"""Linearity and transpose invariance of the trace.

    $\mathrm{Tr}(A + B) = \mathrm{Tr}(A) + \mathrm{Tr}(B)$,
    $\mathrm{Tr}(c A) = c\, \mathrm{Tr}(A)$ and $\mathrm{Tr}(A^\top) = \mathrm{Tr}(A)$ for square
    $A, B$ of one size and scalars $c$. It is not multiplicative: $\mathrm{Tr}(A B) =
    \sum_{ij} a_{ij} b_{ji}$.

    Knobs:
        product: What the trace of $A B$ is said to be: the sum over entries, or
            $\mathrm{Tr}(A)\,\mathrm{Tr}(B)$.
        homogeneous: The factor by which $c A$ is said to have the larger trace.
    """
    pairs = [(torch.eye(2).long(), torch.eye(2).long())]
    pairs += [(whole(n, n), whole(n, n)) for n in range(1, 7)]
    for A, B in pairs:
        n, entries = len(A), list(zip(A.flatten().tolist(), B.T.flatten().tolist(), strict=True))
        a, b = (sum(M[i, i].item() for i in range(n)) for M in (A, B))
        yield equals("trace of the sum", int((A + B).trace()), a + b, n=n)
        yield equals("trace of the transpose", int(A.T.trace()), a, n=n)
        stated = sum(x * y for x, y in entries) if product == "entries" else a * b
        yield equals("trace of the product", int((A @ B).trace()), stated, n=n)
        c = Fraction(2 + abs(int(whole())), 8)  # never 1
        scaled = np.trace(c * A.numpy().astype(object))
        factor = c if homogeneous == "c" else c**n
        name = "trace of $c A$, times $8^n$"
        yield equals(name, int(8**n * scaled), int(8**n * factor * a), n=n, c=str(c))
    yield from _operators()


def _operators() -> Iterator[Evidence]:
    """Sums, multiples, products and adjoints of matrices that are known by their products only."""
    A, B, C = (torch.randn(*s, dtype=torch.complex128) for s in ((3, 2), (3, 2), (2, 4)))
    a = LinearOperator((3, 2), lambda x: A @ x, lambda y: A.mH @ y, dtype=A.dtype)
    rows, x = torch.randn(5, 3, dtype=A.dtype), torch.randn(2, dtype=A.dtype)
    dense = {"a + B": A + B, "B - a": B - A, "-2i a": -2j * A, "a C": A @ C, "C^T a^T": C.T @ A.T,
             "a^H": A.mH, "a^T": A.T, "a / 4": A / 4}  # fmt: skip
    c = aslinearoperator(C)
    found = (a + B, aslinearoperator(B) - a, -2j * a, a @ c, c.T @ a.T, a.H, a.T, a / 4)
    for (name, wanted), op in zip(dense.items(), found, strict=True):
        yield equals("matrix of an operator", op.dense(), wanted, of=name)
        (m, n), probe = wanted.shape, torch.randn(wanted.shape[0], 2, dtype=A.dtype)
        yield equals("size of an operator", list(op.shape), [m, n], of=name)
        yield equals("product with the adjoint", op.H @ probe, wanted.mH @ probe, of=name)
    yield equals("product with a vector", a @ x, A @ x)
    yield equals("product from the left", rows @ a, rows @ A)
    yield equals("product of a row", rows[0] @ a, rows[0] @ A)
    table = np.arange(6.0).reshape(2, 3)[:, ::-1]
    for kind, given in (("NumPy", table), ("SciPy", scipy.sparse.csr_array(table))):
        wanted = torch.tensor(table.tolist())
        found = aslinearoperator(given)
        yield equals("matrix of another library", found.dense(), wanted, of=kind)
        probe = torch.randn(2, 1)
        yield equals("product with its transpose", found.T @ probe, wanted.T @ probe, of=kind)


trace_linear.foil(
    "multiplicativity, which the determinant has: 4 for the identity of size 2, not 2",
    product="traces",
)
trace_linear.foil(
    "the power $c^n$, as for the determinant",
    refuted_by="trace of $c A$, times $8^n$",
    homogeneous="c^n",
)
