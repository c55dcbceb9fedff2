"""Derivatives by matrices: forms, traces, the inverse, the determinant."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import claim, integers
from vademecum.foundations.claims.matrix_calculus import dot, square
from vademecum.gradients import denominator_layout
from vademecum.gradients.claims.layouts import agree, confirm, partials


def dominant(n: int) -> Tensor:
    """A matrix whose diagonal outweighs each row by one or more: its inverse is at most one."""
    return (n + 1) * torch.eye(n) + 2 * torch.rand(n, n) - 1


@claim(
    by="identity", sources=("D-114", "D-115", "E-101", "E-102"), budget=0.5,
    short=r"\nabla_X [a^T X b] = a b^T, \quad \nabla_X [a^T X^T b] = b a^T",
)  # fmt: skip
def matrix_bilinear(exchanged: bool = True):
    r"""The matrix gradient of a bilinear form.

    $\nabla_X [a^T X b] = a b^T$ and $\nabla_X [a^T X^T b] = b a^T$: the gradient has the shape of
    $X$. Exact in whole numbers.

    Knobs:
        exchanged: Whether $a$ and $b$ change places in the gradient of the form with $X^T$.
    """
    for draw, n in ((torch.randn, 3), (torch.randn, 4), (integers, 4)):
        x, a, b = draw(3, n), draw(3), draw(n)
        form = lambda x, a=a, b=b: dot(a, x, b)  # noqa: E731
        yield from confirm("gradient of $a^T X b$", form, x, torch.outer(a, b), n=n)
        a, b = b, a
        form = lambda x, a=a, b=b: dot(a, x.mT, b)  # noqa: E731
        stated = torch.outer(b, a) if exchanged else torch.outer(a, b)
        yield from confirm("gradient of $a^T X^T b$", form, x, stated, n=n)


matrix_bilinear.foil("the form with the transpose has the transposed gradient", exchanged=False)


@claim(
    by="identity", sources=("D-116", "E-103"), budget=0.5,
    short=r"\nabla_X [a^T X^T X b] = X (a b^T + b a^T)",
)  # fmt: skip
def matrix_gram(symmetrised: bool = True):
    r"""The matrix gradient of a bilinear form in the Gram matrix.

    $\nabla_X [a^T X^T X b] = X (a b^T + b a^T)$ for any $m \times n$ matrix; $2 X a b^T$ is right
    only for $a = b$ (or $X$ that does not tell them apart). Exact in whole numbers.

    Knobs:
        symmetrised: Whether $a b^T + b a^T$ stands in the gradient, and not $2 a b^T$.
    """
    for draw, m, n in ((torch.randn, 5, 4), (torch.randn, 2, 3), (integers, 3, 2)):
        x, a, b = draw(m, n), draw(n), draw(n)
        ab = torch.outer(a, b)
        stated = x @ (ab + ab.T if symmetrised else 2 * ab)
        form = lambda x, a=a, b=b: dot(a, x.mT, x, b)  # noqa: E731
        yield from confirm("gradient of $a^T X^T X b$", form, x, stated, m=m)


matrix_gram.foil("the two vectors differ", symmetrised=False)


@claim(
    by="identity", sources=("E-104", "E-105"), budget=0.5,
    short=r"\nabla_X [a^T X^T X^T b] = b a^T X^T + X^T b a^T",
)  # fmt: skip
def matrix_products(
    two: Literal["product rule", "Gram pattern"] = "product rule",
    three: Literal["product rule", "Gram pattern"] = "product rule",
):
    r"""The matrix gradient of higher products: each occurrence of $X$ contributes one term.

    For square $X$
    $$\nabla_X [a^T X^T X^T b] = b a^T X^T + X^T b a^T,$$
    $$\nabla_X [a^T X^T X^T X b] = X^T X b a^T + X b a^T X^T + X^2 a b^T.$$
    Proof: vary one factor at a time. Exact in whole numbers.

    Knobs:
        two: Where the gradient of the form with two factors comes from: the product rule, or the
            pattern $X^T (a b^T + b a^T)$ of the Gram rule.
        three: The same for three factors, with the pattern $X^T X (a b^T + b a^T)$.
    """
    for draw, n in ((torch.randn, 4), (integers, 2)):
        x, a, b = draw(n, n), draw(n), draw(n)
        ab, ba = torch.outer(a, b), torch.outer(b, a)
        stated = ba @ x.T + x.T @ ba if two == "product rule" else x.T @ (ab + ba)
        form = lambda x, a=a, b=b: dot(a, x.mT, x.mT, b)  # noqa: E731
        yield from confirm("gradient of $a^T X^T X^T b$", form, x, stated, n=n)
        terms = x.T @ x @ ba + x @ ba @ x.T + x @ x @ ab
        stated = terms if three == "product rule" else x.T @ x @ (ab + ba)
        form = lambda x, a=a, b=b: dot(a, x.mT, x.mT, x, b)  # noqa: E731
        yield from confirm("gradient of $a^T X^T X^T X b$", form, x, stated, n=n)


matrix_products.foil("the pattern of the Gram rule, for two factors", two="Gram pattern")
matrix_products.foil("the pattern of the Gram rule, for three factors", three="Gram pattern")


@claim(
    by="identity", sources=("D-117", "D-118", "D-119", "E-174"), budget=0.5,
    short=r"\nabla_X \operatorname{tr}(A X B) = A^T B^T, \quad"
    r" \nabla_X \operatorname{tr}(A X^T B) = B A",
)  # fmt: skip
def trace_linear(
    one_factor: Literal["B^T", "B"] = "B^T", two_factors: Literal["A^T B^T", "B A"] = "A^T B^T"
):
    r"""The matrix gradient of a linear trace.

    $\nabla_X \operatorname{tr} X = I$, $\nabla_X \operatorname{tr}(X B) = B^T$,
    $\nabla_X \operatorname{tr}(A X B) = A^T B^T$ and $\nabla_X \operatorname{tr}(A X^T B) = B A$
    for constant matrices of any shapes that fit. Exact in whole numbers.

    Knobs:
        one_factor: The gradient of $\operatorname{tr}(X B)$.
        two_factors: The gradient of $\operatorname{tr}(A X B)$.
    """
    for draw, p, q, r in ((torch.randn, 3, 3, 3), (torch.randn, 2, 3, 4), (integers, 2, 3, 4)):
        x, y, a, b, c = draw(p, p), draw(p, q), draw(r, p), draw(q, r), draw(q, p)
        trace = lambda x: dot(x).trace()  # noqa: E731
        yield from confirm(r"gradient of $\operatorname{tr} X$", trace, x, torch.eye(p), q=q)
        trace, stated = lambda x, b=c: dot(x, b).trace(), c.T if one_factor == "B^T" else c
        yield from confirm(r"gradient of $\operatorname{tr}(X B)$", trace, y, stated, q=q)
        stated = a.T @ b.T if two_factors == "A^T B^T" else b @ a
        trace = lambda x, a=a, b=b: dot(a, x, b).trace()  # noqa: E731
        yield from confirm(r"gradient of $\operatorname{tr}(A X B)$", trace, y, stated, q=q)
        a, b = b.T, a.T
        trace = lambda x, a=a, b=b: dot(a, x.mT, b).trace()  # noqa: E731
        z = draw(p, q)
        yield from confirm(r"gradient of $\operatorname{tr}(A X^T B)$", trace, z, b @ a, q=q)


trace_linear.foil("the transpose of the gradient of tr(A X B)", two_factors="B A")
trace_linear.foil("the transpose of the gradient of tr(X B)", one_factor="B")


@claim(
    by="identity", sources=("E-173",), budget=0.5,
    short=r"\nabla_A \operatorname{tr}(A A^T) = \nabla_A \|A\|_F^2 = 2 A",
)  # fmt: skip
def frobenius_norm(factor: int = 2, transposed: bool = False):
    r"""The gradient of the squared Frobenius norm.

    $\nabla_A \operatorname{tr}(A A^T) = \nabla_A \|A\|_F^2 = 2 A$ for any $m \times n$ matrix.
    Exact in whole numbers.

    Knobs:
        factor: The factor of $A$ in the gradient.
        transposed: Whether $A^T$ stands in the gradient, and not $A$.
    """
    for draw, n in ((torch.randn, 2), (torch.randn, 3), (integers, 3)):
        a = draw(2, n)
        stated = factor * (a.T if transposed else a)
        trace = lambda a: dot(a, a.mT).trace()  # noqa: E731
        yield from confirm(r"gradient of $\operatorname{tr}(A A^T)$", trace, a, stated, n=n)
        name = r"gradient of $\|A\|_F^2$"
        yield from confirm(name, square, a, stated, n=n)
        found = denominator_layout(lambda a: torch.linalg.matrix_norm(a) ** 2, a)
        yield agree(name, found, stated, n=n, via="torch's matrix norm")


frobenius_norm.foil("the gradient of half the norm", factor=1)
frobenius_norm.foil("the numerator layout", transposed=True)


@claim(
    by="identity", sources=("E-240",), budget=0.5,
    short=r"\nabla_A \operatorname{tr}(S A^{-1}) = -(A^{-1} S A^{-1})^T",
)  # fmt: skip
def trace_inverse(
    formula: Callable[[Tensor, Tensor], Tensor] = lambda s, inverse: -(inverse @ s @ inverse).T,
):
    r"""The gradient of a trace with an inverse.

    For invertible $A$, $\nabla_A \operatorname{tr}(S A^{-1}) = -(A^{-1} S A^{-1})^T$, from
    $d A^{-1} = - A^{-1}\,(dA)\,A^{-1}$; for symmetric $A$ and $S$ this is $- A^{-1} S A^{-1}$, and
    $-s / a^2$ for numbers. Here the gradient is the one over all matrices $A$, without regard to
    symmetry.

    Knobs:
        formula: The gradient as a function of $S$ and $A^{-1}$.
    """
    number = "derivative of $s / a$ at $s = 4$, $a = 2$"
    name = r"gradient of $\operatorname{tr}(S A^{-1})$"
    trace = lambda a, s: dot(s, torch.linalg.inv(a)).trace()  # noqa: E731
    two, four = torch.tensor([[2.0]]), torch.tensor([[4.0]])
    found = denominator_layout(lambda a: trace(a, four), two)
    yield agree(number, found, formula(four, 1 / two))
    yield agree(number, found, -four / two**2)
    for n in (2, 5):
        a, s = dominant(n), torch.randn(n, n)
        for kind, matrix, weight in (("any", a, s), ("symmetric", a + a.T, s + s.T)):
            inverse = torch.linalg.inv(matrix)
            at = {"n": n, "matrices": kind}
            of = lambda a, s=weight: trace(a, s)  # noqa: E731
            yield from confirm(name, of, matrix, formula(weight, inverse), **at)
            if kind == "symmetric":
                yield from confirm(name, of, matrix, -inverse @ weight @ inverse, **at)


trace_inverse.foil(
    "without the transpose, right for symmetric matrices only",
    formula=lambda s, inverse: -inverse @ s @ inverse,
)
trace_inverse.erratum(
    "E-240",
    printed=r"$\nabla_A \mathrm{Tr}(S A^{-1}) = -A^{-1} S$",
    right=r"$-(A^{-1} S A^{-1})^T$",
    why=r"As scanned: the differential of the inverse brings a second $A^{-1}$, and the sheet's"
    r" next step, $S A^{-1} = I$, needs it, so the scan may have lost it. For numbers"
    r" $\frac{d}{da} \frac{s}{a} = -\frac{s}{a^2}$, while the rule as scanned gives $-\frac{s}{a}$:"
    r" at $s = 4$, $a = 2$ the derivative is $-1$, and not $-2$.",
    weight="scan",
    refuted_by="derivative of $s / a$ at $s = 4$, $a = 2$",
    formula=lambda s, inverse: -inverse @ s,
)


@claim(
    by="identity", sources=("E-241",), budget=0.5,
    short=r"\nabla_A \log \det A = A^{-T}, \quad \det A > 0",
)  # fmt: skip
def log_determinant(
    formula: Callable[[Tensor, Tensor], Tensor] = lambda a, inverse: inverse.T,
):
    r"""The gradient of the log-determinant.

    For $\det A > 0$, $\nabla_A \log \det A = A^{-T}$, which is $A^{-1}$ for symmetric $A$; the same
    holds for $\log |\det A|$ and any invertible $A$. Proof: by cofactors
    $\frac{\partial \det A}{\partial A_{ij}} = \det(A)\,(A^{-1})_{ji}$.

    Knobs:
        formula: The gradient as a function of $A$ and $A^{-1}$.
    """
    absolute, plain = r"gradient of $\log |\det A|$", r"gradient of $\log \det A$"
    for n in (2, 4):
        positive = dominant(n)
        negative = positive * torch.tensor([-1.0] + [1.0] * (n - 1))
        for sign, a in ((1, positive), (-1, negative)):
            stated, at = formula(a, torch.linalg.inv(a)), {"n": n, "sign": sign}
            found = denominator_layout(lambda x: torch.linalg.slogdet(x)[1], a)
            yield agree(absolute, found, stated, **at, via="autodiff")
            # log(det^2) / 2 is analytic, and log |det| for either sign.
            found = partials(lambda x: torch.det(x).square().log() / 2, a)
            yield agree(absolute, found, stated, **at, via="complex step")
        symmetric = positive + positive.T
        for kind, a in (("any", positive), ("symmetric", symmetric)):
            stated = formula(a, torch.linalg.inv(a))
            yield agree(plain, denominator_layout(torch.logdet, a), stated, n=n, matrix=kind)
        found = denominator_layout(torch.logdet, symmetric)
        yield agree(plain, found, torch.linalg.inv(symmetric), n=n, matrix="symmetric")


log_determinant.foil("without the transpose", formula=lambda a, inverse: inverse)
log_determinant.foil(
    "the gradient of the determinant itself", formula=lambda a, inverse: torch.det(a) * inverse.T
)
