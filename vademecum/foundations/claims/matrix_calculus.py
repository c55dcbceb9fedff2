"""Matrix calculus: one table, in both layouts."""

from collections.abc import Callable
from functools import reduce
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from vademecum.claims import claim, complex_step, equals


class Identity(NamedTuple):
    """A function and its derivative in numerator layout; the denominator layout is transposed."""

    name: str
    function: Callable[[Tensor], Tensor]
    at: Tensor
    derivative: Tensor


def of_vectors(symmetrise: bool) -> list[Identity]:
    """Identities for functions of a vector: rows of the derivative belong to values."""
    n, m = 3, 4
    x, a, b = torch.randn(n), torch.randn(n), torch.randn(m)
    s, r = torch.randn(n, n), torch.randn(m, n)
    twice = s + s.T if symmetrise else 2 * s
    p = torch.softmax(x, 0)
    soft = lambda x: x.exp() / x.exp().sum()  # noqa: E731
    return [
        Identity("a^T x", lambda x: dot(a, x), x, a[None]),
        Identity("A x", lambda x: dot(r, x), x, r),
        Identity("x^T x", lambda x: x @ x, x, 2 * x[None]),
        Identity("x^T A x", lambda x: dot(x, s, x), x, (x @ twice)[None]),
        Identity("|A x - b|^2", lambda x: square(dot(r, x) - b), x, 2 * ((r @ x - b) @ r)[None]),
        Identity("log sum exp", lambda x: x.exp().sum().log(), x, p[None]),
        Identity("softmax", soft, x, torch.diag(p) - torch.outer(p, p)),
        Identity("sin, entry by entry", torch.sin, x, torch.diag(x.cos())),
        Identity("b (a^T x)", lambda x: b * dot(a, x), x, torch.outer(b, a)),
    ]


def of_matrices(symmetrise: bool) -> list[Identity]:
    """Identities for scalar functions of a matrix: the derivative has the transposed shape."""
    p, q = 3, 2
    x, a, b = torch.randn(p, q), torch.randn(p), torch.randn(q)
    r, s = torch.randn(q, p), torch.randn(p, p)
    twice = s + s.T if symmetrise else 2 * s
    y = torch.eye(p) + 0.4 * torch.rand(p, p)  # diagonally dominant, so its determinant is positive
    inverse = torch.linalg.inv(y)
    return [
        Identity("a^T X b", lambda x: dot(a, x, b), x, torch.outer(b, a)),
        Identity("tr(A X)", lambda x: dot(r, x).trace(), x, r),
        Identity("tr(X^T A X)", lambda x: dot(x.mT, s, x).trace(), x, x.T @ twice),
        Identity("|X|_F^2", square, x, 2 * x.T),
        Identity("det X", torch.det, y, torch.det(y) * inverse),
        Identity("log det X", lambda x: torch.det(x).log(), y, inverse),
        Identity(
            "tr(X^-1 A)", lambda x: dot(torch.linalg.inv(x), s).trace(), y, -inverse @ s @ inverse
        ),
    ]


def dot(*factors: Tensor) -> Tensor:
    """The product of vectors and matrices, some of which may be complex."""
    analytic = any(factor.is_complex() for factor in factors)
    return reduce(torch.matmul, (f.to(torch.complex128) if analytic else f for f in factors))


def square(v: Tensor) -> Tensor:
    """The sum of squares, without conjugation, so that it is analytic."""
    return (v * v).sum()


def partials(f: Callable[[Tensor], Tensor], x: Tensor, engine: str) -> Tensor:
    """The partial derivatives, with the axes of the values first and then those of x."""
    if engine == "complex step":
        return complex_step(f, x)
    found = torch.autograd.functional.jacobian(f, x)
    assert isinstance(found, Tensor)  # since there is one function and one variable
    return found


def laid_out(derivatives: Tensor, x: Tensor, layout: str) -> Tensor:
    """A row for each value, a column for each entry of a vector x; or the other way round.

    The derivative by a matrix x has its shape in denominator layout, transposed in the other.
    """
    if x.ndim == 2:
        return derivatives.mT if layout == "numerator" else derivatives
    rows = derivatives.reshape(-1, len(x))
    return rows if layout == "numerator" else rows.T


@claim(
    by="identity",
    budget=0.5,
    short=r"\partial (x^\top A x) = x^\top (A + A^\top), \quad d(X^{-1}) = -X^{-1}\,dX\,X^{-1}",
)
def matrix_calculus(
    layout: Literal["right", "transposed"] = "right", symmetrise: bool = True, sign: int = -1
):
    r"""The identities of matrix calculus, in numerator and in denominator layout.

    In numerator layout $\big(\frac{\partial f}{\partial x}\big)_{ij} = \frac{\partial f_i}{\partial
    x_j}$, and a scalar function of a $p \times q$ matrix has a $q \times p$ derivative,
    $\big(\frac{\partial f}{\partial X}\big)_{ji} = \frac{\partial f}{\partial X_{ij}}$; in
    denominator layout both are transposed, so that a gradient has the shape of its variable. In
    numerator layout

    - $\partial (a^\top x) = a^\top$, $\partial (A x) = A$, $\partial (x^\top x) = 2 x^\top$,
      $\partial (x^\top A x) = x^\top (A + A^\top)$,
      $\partial \|A x - b\|^2 = 2 (A x - b)^\top A$;
    - $\partial \log \sum_i e^{x_i} = p^\top$ and $\partial p = \operatorname{diag}(p) - p p^\top$
      for $p = \operatorname{softmax}(x)$;
    - $\partial (a^\top X b) = b a^\top$, $\partial \operatorname{tr}(A X) = A$,
      $\partial \operatorname{tr}(X^\top A X) = X^\top (A + A^\top)$,
      $\partial \|X\|_F^2 = 2 X^\top$;
    - $\partial \det X = \det(X)\,X^{-1}$, $\partial \log \det X = X^{-1}$,
      $\partial \operatorname{tr}(X^{-1} A) = - X^{-1} A X^{-1}$,

    where $X$ is any matrix, not one that is known to be symmetric. The differentials
    $d(X^{-1}) = - X^{-1}\,dX\,X^{-1}$, $d(A X B) = A\,dX\,B$ and $d(X^2) = X\,dX + dX\,X$ need no
    layout. Each is checked by automatic differentiation and by the complex step, which is exact up
    to rounding (Squire and Trapp, Using complex variables to estimate derivatives of real
    functions, SIAM Review, 1998).

    Knobs:
        layout: Whether the derivatives stand as stated, or transposed.
        symmetrise: Whether $A + A^\top$ stands for a matrix $A$ of a quadratic form, or $2 A$; and
            $X\,dX + dX\,X$ in the differential of the square, or $2 X\,dX$.
        sign: The sign of the differential of the inverse.
    """
    for name, f, x, derivative in [*of_vectors(symmetrise), *of_matrices(symmetrise)]:
        stated = derivative if layout == "right" else derivative.T
        for engine in ("autograd", "complex step"):
            entries = partials(f, x, engine)
            for kind, formula in (("numerator", stated), ("denominator", stated.T)):
                at: dict[str, Any] = {"identity": name, "layout": kind, "engine": engine}
                measured = laid_out(entries, x, kind)
                yield equals("shape of the derivative", measured.shape, formula.shape, **at)
                if measured.shape == formula.shape:
                    yield equals("entries of the derivative", measured, formula, **at)
    x, dx, a, b = torch.eye(3) + 0.4 * torch.rand(3, 3), *torch.randn(3, 3, 3)
    inverse = torch.linalg.inv(x)
    differentials: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
        "X^-1": (torch.linalg.inv, sign * inverse @ dx @ inverse),
        "A X B": (lambda x: dot(a, x, b), a @ dx @ b),
        "X^2": (lambda x: x @ x, x @ dx + dx @ x if symmetrise else 2 * x @ dx),
    }
    for name, (f, differential) in differentials.items():
        along = {
            "complex step": complex_step(f, x, dx),
            "autograd": torch.tensordot(partials(f, x, "autograd"), dx, 2),
        }
        for engine, value in along.items():
            yield equals("differential", value, differential, identity=name, engine=engine)


matrix_calculus.foil(
    r"the other layout: a column for $a^\top x$ instead of a row", layout="transposed"
)
matrix_calculus.foil(
    r"$2 A x$ is the gradient of $x^\top A x$ for symmetric $A$ only", symmetrise=False
)
matrix_calculus.foil(
    "the differential of the inverse has a minus", refuted_by="differential", sign=1
)
