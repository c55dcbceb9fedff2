"""What the course claims of layouts and of the chain rule in each of them."""

from collections.abc import Callable
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor

from vademecum.claims import Evidence, claim, complex_step, equals
from vademecum.foundations.claims.matrix_calculus import dot
from vademecum.gradients.layouts import denominator_layout, numerator_layout

Map = Callable[[Tensor], Tensor]


def integers(*shape: int) -> Tensor:
    """Small whole numbers in floating point, with which polynomials are computed exactly."""
    return torch.randint(-9, 10, shape).to(torch.get_default_dtype())


def tanh_layer(n: int, m: int) -> Map:
    """A random smooth map from n to m dimensions, analytic near the real numbers."""
    w, b = torch.randn(m, n), torch.randn(m)
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


def agree(measured: Tensor, stated: Tensor, **at: Any) -> Evidence:
    """The entries are equal; where the shapes are not, that is the evidence."""
    if measured.shape == stated.shape:
        return equals(measured, stated, **at)
    sizes = [([t.ndim, *t.shape] + 8 * [0])[:8] for t in (measured, stated)]
    return equals(*sizes, **at)


def confirm(f: Map, x: Tensor, stated: Tensor, *, numerator: bool = False, **at: Any):
    """The stated derivative is that of our layout function, and that of the oracle.

    For a scalar function, or a vector function of a vector; no rounding is allowed at a point with
    whole entries.
    """
    at["tol"] = 0.0 if is_whole(x) else None
    layout = numerator_layout if numerator else denominator_layout
    yield agree(layout(f, x), stated, **at)
    found = partials(f, x)
    is_jacobian = found.ndim > x.ndim
    yield agree(found.T if is_jacobian and not numerator else found, stated, **at)


@claim(by="identity", sources=("D-092", "D-093", "E-069", "E-070"), budget=0.5)
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
    is a matrix, and is its transpose in numerator layout. Checked entry by entry.
    """
    n, m = 2, 3
    by_hand = lambda x: torch.stack([x[0], x[0] * x[1], x[1] * x[1]])  # noqa: E731
    for name, f in {"by hand": by_hand, "tanh": tanh_layer(n, m)}.items():
        x = torch.randn(n)
        found, jacobian, exact = arrange(f, x), numerator_layout(f, x), complex_step(f, x)
        yield equals(list(found.shape), [n, m] if shape == "n m" else [m, n], map=name)
        for i, j in product(range(n), range(m)):
            yield equals(found[i, j], exact[j, i], map=name)
            yield equals(jacobian[j, i], exact[j, i], map=name)
        if name == "by hand":
            a, b = x.tolist()
            yield equals(found, torch.tensor([[1.0, b, 0.0], [0.0, a, 2 * b]]))
    for at in (torch.randn(4), torch.randn(2, 3)):
        s = torch.randn(len(at), len(at))
        form = lambda x, s=s: dot(x.mT if x.ndim == 2 else x, s, x).sum()  # noqa: E731
        gradient = partials(form, at)
        yield agree(arrange(form, at), gradient, order=at.ndim)
        row = gradient.T if at.ndim == 2 else gradient
        yield agree(numerator_layout(form, at), row, order=at.ndim)


layouts.foil("the Jacobian itself is the numerator layout", arrange=numerator_layout)
layouts.erratum(
    "E-069",
    printed=r"$(\partial f/\partial x)_{ij} := \partial f_j/\partial x_i$,"
    r" $\partial f/\partial x \in \mathbb{R}^{m \times n}$",
    right=r"$\partial f/\partial x \in \mathbb{R}^{n \times m}$",
    why=r"the row index runs over the $n$ inputs: for $f: \mathbb{R}^2 \to \mathbb{R}^3$ the rule"
    r" gives a $2 \times 3$ matrix",
    shape="m n",
)


@claim(by="identity", sources=("B-143", "D-091", "D-112"), budget=0.5)
def chain_rule(first: Literal["outer", "inner"] = "outer", outer_at: Literal["F(x)", "x"] = "F(x)"):
    r"""Chain rule for maps.

    For differentiable $F: \mathbb{R}^n \to \mathbb{R}^k$ and $G: \mathbb{R}^k \to \mathbb{R}^m$,
    $$\partial (G \circ F)(x) = \partial G(F(x)) \cdot \partial F(x),$$
    in numerator layout the product of an $m \times k$ and a $k \times n$ matrix: the outermost
    factor comes first and is taken at $F(x)$.
    """
    for n, k, m in ((3, 3, 3), (4, 3, 2)):
        inner, outer, x = tanh_layer(n, k), tanh_layer(k, m), torch.randn(n)
        point = inner(x) if outer_at == "F(x)" else x
        factors = numerator_layout(outer, point), numerator_layout(inner, x)
        stated = factors[0] @ factors[1] if first == "outer" else factors[1] @ factors[0]
        yield from confirm(lambda x: outer(inner(x)), x, stated, numerator=True, n=n)  # noqa: B023


chain_rule.foil("matrix products do not commute", first="inner")
chain_rule.foil("the outer derivative belongs to F(x), not to x", outer_at="x")


@claim(by="identity", sources=("D-093", "E-071"), budget=0.5)
def chain_rule_denominator(first: Literal["inner", "outer"] = "inner"):
    r"""Chain rule in denominator layout.

    Transposition reverses the product: in denominator layout the inner derivative stands on the
    left, $\frac{\partial}{\partial x} f(g(x)) = \frac{\partial g}{\partial x}\,
    \frac{\partial f}{\partial g}$, an $n \times k$ matrix times a $k \times m$ matrix.
    """
    for n, k, m in ((3, 3, 3), (2, 3, 4)):
        g, f, x = tanh_layer(n, k), tanh_layer(k, m), torch.randn(n)
        inner, outer = denominator_layout(g, x), denominator_layout(f, g(x))
        stated = inner @ outer if first == "inner" else outer @ inner
        yield equals(list(stated.shape), [n, m], n=n)
        yield from confirm(lambda x: f(g(x)), x, stated, n=n)  # noqa: B023


chain_rule_denominator.foil("the order of the numerator layout", first="outer")
