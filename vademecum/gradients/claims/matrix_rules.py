"""What the course claims of gradients by matrices: forms, traces, the inverse, the determinant."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import claim
from vademecum.foundations.claims.matrix_calculus import dot, square
from vademecum.gradients.claims.layouts import agree, confirm, integers, partials
from vademecum.gradients.layouts import denominator_layout


def dominant(n: int) -> Tensor:
    """A matrix whose diagonal outweighs each row by one or more: its inverse is at most one."""
    return (n + 1) * torch.eye(n) + 2 * torch.rand(n, n) - 1


@claim(by="identity", sources=("D-114", "D-115", "E-101", "E-102"), budget=0.5)
def matrix_bilinear(exchanged: bool = True):
    r"""The matrix gradient of a bilinear form.

    $\nabla_X [a^T X b] = a b^T$ and $\nabla_X [a^T X^T b] = b a^T$: the gradient has the shape of
    $X$. Exact in whole numbers.
    """
    for draw, n in ((torch.randn, 3), (torch.randn, 4), (integers, 4)):
        x, a, b = draw(3, n), draw(3), draw(n)
        yield from confirm(lambda x, a=a, b=b: dot(a, x, b), x, torch.outer(a, b), n=n)
        stated = torch.outer(a, b) if exchanged else torch.outer(b, a)
        yield from confirm(lambda x, a=a, b=b: dot(b, x.mT, a), x, stated, n=n)


matrix_bilinear.foil("the form with the transpose has the transposed gradient", exchanged=False)


@claim(by="identity", sources=("D-116", "E-103"), budget=0.5)
def matrix_gram(symmetrised: bool = True):
    r"""The matrix gradient of a bilinear form in the Gram matrix.

    $\nabla_X [a^T X^T X b] = X (a b^T + b a^T)$ for any $m \times n$ matrix; $2 X a b^T$ is right
    only for $a = b$ (or $X$ that does not tell them apart). Exact in whole numbers.
    """
    for draw, m, n in ((torch.randn, 5, 4), (integers, 3, 2)):
        x, a, b = draw(m, n), draw(n), draw(n)
        ab = torch.outer(a, b)
        stated = x @ (ab + ab.T if symmetrised else 2 * ab)
        yield from confirm(lambda x, a=a, b=b: dot(a, x.mT, x, b), x, stated, m=m)


matrix_gram.foil("the two vectors differ", symmetrised=False)


@claim(by="identity", sources=("E-104", "E-105"), budget=0.5)
def matrix_products(
    two: Literal["product rule", "Gram pattern"] = "product rule",
    three: Literal["product rule", "Gram pattern"] = "product rule",
):
    r"""The matrix gradient of higher products: each occurrence of $X$ contributes one term.

    For square $X$
    $$\nabla_X [a^T X^T X^T b] = b a^T X^T + X^T b a^T,$$
    $$\nabla_X [a^T X^T X^T X b] = X^T X b a^T + X b a^T X^T + X^2 a b^T.$$
    Proof: vary one factor at a time. Exact in whole numbers.
    """
    for draw, n in ((torch.randn, 4), (integers, 2)):
        x, a, b = draw(n, n), draw(n), draw(n)
        ab, ba = torch.outer(a, b), torch.outer(b, a)
        stated = ba @ x.T + x.T @ ba if two == "product rule" else x.T @ (ab + ba)
        yield from confirm(lambda x, a=a, b=b: dot(a, x.mT, x.mT, b), x, stated, n=n)
        terms = x.T @ x @ ba + x @ ba @ x.T + x @ x @ ab
        stated = terms if three == "product rule" else x.T @ x @ (ab + ba)
        yield from confirm(lambda x, a=a, b=b: dot(a, x.mT, x.mT, x, b), x, stated, n=n)


matrix_products.foil("the pattern of the Gram rule, for two factors", two="Gram pattern")
matrix_products.foil("the pattern of the Gram rule, for three factors", three="Gram pattern")


@claim(by="identity", sources=("D-117", "D-118", "D-119", "E-174"), budget=0.5)
def trace_linear(
    one_factor: Literal["B^T", "B"] = "B^T", two_factors: Literal["A^T B^T", "B A"] = "A^T B^T"
):
    r"""The matrix gradient of a linear trace.

    $\nabla_X \operatorname{tr} X = I$, $\nabla_X \operatorname{tr}(X B) = B^T$,
    $\nabla_X \operatorname{tr}(A X B) = A^T B^T$ and $\nabla_X \operatorname{tr}(A X^T B) = B A$
    for constant matrices of any shapes that fit. Exact in whole numbers.
    """
    for draw, p, q, r in ((torch.randn, 3, 3, 3), (torch.randn, 2, 3, 4), (integers, 2, 3, 4)):
        x, y, a, b, c = draw(p, p), draw(p, q), draw(r, p), draw(q, r), draw(q, p)
        yield from confirm(lambda x: dot(x).trace(), x, torch.eye(p), q=q)
        stated = c.T if one_factor == "B^T" else c
        yield from confirm(lambda x, c=c: dot(x, c).trace(), y, stated, q=q)
        stated = a.T @ b.T if two_factors == "A^T B^T" else b @ a
        yield from confirm(lambda x, a=a, b=b: dot(a, x, b).trace(), y, stated, q=q)
        yield from confirm(lambda x, a=a, b=b: dot(b.T, x.mT, a.T).trace(), y, a.T @ b.T, q=q)


trace_linear.foil("the transpose of the gradient of tr(A X B)", two_factors="B A")
trace_linear.foil("the transpose of the gradient of tr(X B)", one_factor="B")


@claim(by="identity", sources=("E-173",), budget=0.5)
def frobenius_norm(factor: int = 2, transposed: bool = False):
    r"""The gradient of the squared Frobenius norm.

    $\nabla_A \operatorname{tr}(A A^T) = \nabla_A \|A\|_F^2 = 2 A$ for any $m \times n$ matrix.
    Exact in whole numbers.
    """
    for draw, n in ((torch.randn, 2), (torch.randn, 3), (integers, 3)):
        a = draw(2, n)
        stated = factor * (a.T if transposed else a)
        yield from confirm(lambda a: dot(a, a.mT).trace(), a, stated, n=n)
        yield from confirm(square, a, stated, n=n)
        yield agree(denominator_layout(lambda a: torch.linalg.matrix_norm(a) ** 2, a), stated, n=n)


frobenius_norm.foil("the gradient of half the norm", factor=1)
frobenius_norm.foil("the numerator layout", transposed=True)


@claim(by="identity", sources=("E-240",), budget=0.5)
def trace_inverse(
    formula: Callable[[Tensor, Tensor], Tensor] = lambda s, inverse: -(inverse @ s @ inverse).T,
):
    r"""The gradient of a trace with an inverse.

    For invertible $A$, $\nabla_A \operatorname{tr}(S A^{-1}) = -(A^{-1} S A^{-1})^T$, from
    $d A^{-1} = - A^{-1}\,(dA)\,A^{-1}$; for symmetric $A$ and $S$ this is $- A^{-1} S A^{-1}$, and
    $-s / a^2$ for numbers. Here the gradient is the one over all matrices $A$, without regard to
    symmetry.
    """
    for n in (1, 5):
        a, s = dominant(n), torch.randn(n, n)
        for matrix, weight in ((a, s), (a + a.T, s + s.T)):
            trace = lambda a, s=weight: dot(s, torch.linalg.inv(a)).trace()  # noqa: E731
            inverse = torch.linalg.inv(matrix)
            yield from confirm(trace, matrix, formula(weight, inverse), n=n)
            if n == 1:
                yield from confirm(trace, matrix, -weight / matrix**2, n=n)
            elif matrix is not a:
                yield from confirm(trace, matrix, -inverse @ weight @ inverse, n=n)


trace_inverse.foil(
    "without the transpose, right for symmetric matrices only",
    formula=lambda s, inverse: -inverse @ s @ inverse,
)
trace_inverse.erratum(
    "E-240",
    printed=r"$\nabla_A \operatorname{tr}(S A^{-1}) = -A^{-1} S$",
    right=r"$-(A^{-1} S A^{-1})^T$",
    why=r"as scanned: the differential of the inverse brings a second $A^{-1}$; for numbers"
    r" $\frac{d}{da} \frac{s}{a} = -\frac{s}{a^2}$, and not $-\frac{s}{a}$",
    formula=lambda s, inverse: -inverse @ s,
)


@claim(by="identity", sources=("E-241",), budget=0.5)
def log_determinant(
    formula: Callable[[Tensor, Tensor], Tensor] = lambda a, inverse: inverse.T,
):
    r"""The gradient of the log-determinant.

    For $\det A > 0$, $\nabla_A \log \det A = A^{-T}$, which is $A^{-1}$ for symmetric $A$; the same
    holds for $\log |\det A|$ and any invertible $A$. Proof: by cofactors
    $\frac{\partial \det A}{\partial A_{ij}} = \det(A)\,(A^{-1})_{ji}$.
    """
    for n in (2, 4):
        positive = dominant(n)
        negative = positive * torch.tensor([-1.0] + [1.0] * (n - 1))
        for a in (positive, negative):
            stated = formula(a, torch.linalg.inv(a))
            yield agree(denominator_layout(lambda x: torch.linalg.slogdet(x)[1], a), stated, n=n)
            # log(det^2) / 2 is analytic, and log |det| for either sign.
            yield agree(partials(lambda x: torch.det(x).square().log() / 2, a), stated, n=n)
        symmetric = positive + positive.T
        for a in (positive, symmetric):
            stated = formula(a, torch.linalg.inv(a))
            yield agree(denominator_layout(torch.logdet, a), stated, n=n)
        yield agree(denominator_layout(torch.logdet, symmetric), torch.linalg.inv(symmetric), n=n)


log_determinant.foil("without the transpose", formula=lambda a, inverse: inverse)
log_determinant.foil(
    "the gradient of the determinant itself", formula=lambda a, inverse: torch.det(a) * inverse.T
)
