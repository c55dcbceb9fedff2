"""Layouts: numerators, denominators, and the chain rule in each."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from vademecum.claims import Evidence, claim, complex_step, equals
from vademecum.foundations.claims.matrix_calculus import dot
from vademecum.gradients import denominator_layout, numerator_layout

Map = Callable[[Tensor], Tensor]


def tanh_layer(n: int, m: int) -> Map:
    """A random smooth map from n to m dimensions, analytic near the real numbers."""
    w, b = torch.randn(m, n) / n**0.5, torch.randn(m) / 2  # not many units are saturated
    return lambda x: torch.tanh(dot(w, x) + b)


def is_whole(x: Tensor) -> bool:
    """Whether all entries are whole numbers."""
    return bool((x == x.round()).all())


def partials(f: Map, x: Tensor) -> Tensor:
    """Partial derivatives without autograd, the axes of the value first.

    At whole numbers by a five-point difference, which has no error for polynomials of degree four
    or less; elsewhere by the complex step.
    """
    if not is_whole(x):
        return complex_step(f, x)
    columns = []
    for e in torch.eye(x.numel()).view(-1, *x.shape):
        near, far = f(x + e) - f(x - e), f(x + 2 * e) - f(x - 2 * e)
        columns.append((8 * near - far) / 12)
    found = torch.stack(columns, -1)
    return found.view(*found.shape[:-1], *x.shape)


def agree(name: str, measured: Tensor, stated: Tensor, **at: Any) -> Evidence:
    """The entries are equal; where the shapes are not, that is the evidence."""
    if measured.shape == stated.shape:
        return equals(name, measured, stated, **at)
    at.pop("tol", None)
    if measured.ndim == stated.ndim:
        return equals(f"shape of the {name}", list(measured.shape), list(stated.shape), **at)
    return equals(f"number of axes of the {name}", measured.ndim, stated.ndim, **at)


def confirm(
    name: str, f: Map, x: Tensor, stated: Tensor, *, numerator: bool = False, **at: Any
) -> Iterator[Evidence]:
    """The derivative of our layout function, and that of an oracle, is the stated one.

    For a scalar function, or a vector function of a vector; no rounding is allowed at a point with
    whole entries.
    """
    at["tol"] = 0.0 if is_whole(x) else None
    layout = numerator_layout if numerator else denominator_layout
    yield agree(name, layout(f, x), stated, **at, via="autodiff")
    found = partials(f, x)
    is_jacobian = found.ndim > x.ndim
    found = found.T if is_jacobian and not numerator else found
    oracle = "differences" if is_whole(x) else "complex step"
    yield agree(name, found, stated, **at, via=oracle)


@claim(
    by="identity", sources=("D-092", "D-093", "E-069", "E-070"), budget=0.5,
    short=r"(\partial f / \partial x)_{ij} = \partial f_j / \partial x_i"
    r" \text{ in denominator layout, } n \times m",
)  # fmt: skip
def layouts(
    arrange: Callable[[Map, Tensor], Tensor] = denominator_layout,
    shape: Literal["n m", "m n"] = "n m",
):
    r"""Numerator and denominator layout.

    For differentiable $f: \mathbb{R}^n \to \mathbb{R}^m$ the numerator layout is the Jacobian,
    $\big(\frac{\partial f}{\partial x}\big)_{ij} = \frac{\partial f_i}{\partial x_j}$, an
    $m \times n$ matrix. The denominator layout is its transpose,
    $\big(\frac{\partial f}{\partial x}\big)_{ij} = \frac{\partial f_j}{\partial x_i}$, an
    $n \times m$ matrix; so the gradient of a scalar function has the shape of $x$, also where $x$
    is a matrix, and is its transpose in numerator layout. Checked for $n = 2$, $m = 3$, and for
    quadratic forms of a vector and of a matrix.

    Knobs:
        arrange: The function that is taken for the denominator layout.
        shape: The number of rows and of columns of the denominator layout.
    """
    n, m = 2, 3
    by_hand = lambda x: torch.stack([x[0], x[0] * x[1], x[1] * x[1]])  # noqa: E731
    rows, columns = (n, m) if shape == "n m" else (m, n)
    for name, f in {"by hand": by_hand, "tanh": tanh_layer(n, m)}.items():
        x = torch.randn(n)
        found, exact = arrange(f, x), complex_step(f, x)
        yield equals("rows of the denominator layout", found.shape[0], rows, map=name)
        yield equals("columns of the denominator layout", found.shape[1], columns, map=name)
        yield agree("denominator layout", found, exact.T, map=name)
        yield agree("numerator layout", numerator_layout(f, x), exact, map=name)
    found = arrange(by_hand, torch.tensor([5.0, 7.0]))
    known = torch.tensor([[1.0, 7.0, 0.0], [0.0, 5.0, 14.0]])
    yield agree("denominator layout of $(x_1, x_1 x_2, x_2^2)$ at $(5, 7)$", found, known)
    for at in (torch.randn(4), torch.randn(2, 3)):
        s = torch.randn(len(at), len(at))
        form = lambda x, s=s: dot(x.mT if x.ndim == 2 else x, s, x).sum()  # noqa: E731
        gradient = partials(form, at)
        yield agree("gradient of a scalar function", arrange(form, at), gradient, axes=at.ndim)
        row = gradient.T if at.ndim == 2 else gradient
        found = numerator_layout(form, at)
        yield agree("scalar function in numerator layout", found, row, axes=at.ndim)


layouts.foil("the Jacobian itself is the numerator layout", arrange=numerator_layout)
layouts.erratum(
    "E-069",
    printed=r"$(\partial f/\partial x)_{ij} := \partial f_j/\partial x_i$,"
    r" $\partial f/\partial x \in \mathbb{R}^{m \times n}$",
    right=r"$\partial f/\partial x \in \mathbb{R}^{n \times m}$",
    why=r"As scanned: the row index runs over the $n$ inputs and the column index over the $m$"
    r" outputs, so the array is $n \times m$; for $f: \mathbb{R}^2 \to \mathbb{R}^3$ the index rule"
    r" gives $2 \times 3$, the shape as scanned $3 \times 2$. The page is badly scanned, and the"
    r" sibling sheet has $\mathbb{R}^{n \times m}$ at this place.",
    weight="scan",
    refuted_by="rows of the denominator layout",
    shape="m n",
)


@claim(
    by="identity", sources=("B-143", "D-091", "D-112"), budget=0.5,
    short=r"\partial (G \circ F)(x) = \partial G(F(x)) \cdot \partial F(x)",
)  # fmt: skip
def chain_rule(first: Literal["outer", "inner"] = "outer", outer_at: Literal["F(x)", "x"] = "F(x)"):
    r"""Chain rule for maps.

    For differentiable $F: \mathbb{R}^n \to \mathbb{R}^k$ and $G: \mathbb{R}^k \to \mathbb{R}^m$,
    $$\partial (G \circ F)(x) = \partial G(F(x)) \cdot \partial F(x),$$
    in numerator layout the product of an $m \times k$ and a $k \times n$ matrix: the outermost
    factor comes first and is taken at $F(x)$.

    Knobs:
        first: Which of the two factors stands on the left.
        outer_at: Where the outer derivative is taken; at $x$ only if $F$ has as many values as
            variables.
    """
    for n, k, m in ((3, 3, 3), (4, 3, 2)):
        inner, outer, x = tanh_layer(n, k), tanh_layer(k, m), torch.randn(n)
        point = x if outer_at == "x" and n == k else inner(x)
        factors = numerator_layout(outer, point), numerator_layout(inner, x)
        swapped = first == "inner" and n == m  # or there is no such product
        stated = factors[1] @ factors[0] if swapped else factors[0] @ factors[1]
        whole = lambda x, F=inner, G=outer: G(F(x))  # noqa: E731
        yield from confirm(r"Jacobian of $G \circ F$", whole, x, stated, numerator=True, n=n)


chain_rule.foil("matrix products do not commute", first="inner")
chain_rule.foil("the outer derivative belongs to F(x), not to x", outer_at="x")


@claim(
    by="identity", sources=("D-093", "E-071"), budget=0.5,
    short=r"\partial f(g(x)) / \partial x = (\partial g / \partial x) (\partial f / \partial g)"
    r" \text{ in denominator layout}",
)  # fmt: skip
def chain_rule_denominator(first: Literal["inner", "outer"] = "inner"):
    r"""Chain rule in denominator layout.

    Transposition reverses the product: in denominator layout the inner derivative stands on the
    left, $\frac{\partial}{\partial x} f(g(x)) = \frac{\partial g}{\partial x}\,
    \frac{\partial f}{\partial g}$, an $n \times k$ matrix times a $k \times m$ matrix.

    Knobs:
        first: Which of the two factors stands on the left, where both products exist.
    """
    for n, k, m in ((3, 3, 3), (2, 3, 4)):
        g, f, x = tanh_layer(n, k), tanh_layer(k, m), torch.randn(n)
        inner, outer = denominator_layout(g, x), denominator_layout(f, g(x))
        stated = outer @ inner if first == "outer" and n == m else inner @ outer
        yield equals("rows of the product", stated.shape[0], n, n=n)
        yield equals("columns of the product", stated.shape[1], m, n=n)
        whole = lambda x, f=f, g=g: f(g(x))  # noqa: E731
        yield from confirm("derivative of $f(g(x))$ in denominator layout", whole, x, stated, n=n)


chain_rule_denominator.foil("the order of the numerator layout", first="outer")
