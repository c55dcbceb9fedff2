"""Derivatives by vectors: product rules, entrywise and linear maps."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import claim, equals, integers
from vademecum.foundations.claims.matrix_calculus import dot, square
from vademecum.gradients import denominator_layout, numerator_layout
from vademecum.gradients.claims.layouts import agree, confirm, partials, tanh_layer

Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@claim(
    by="identity", sources=("D-094", "D-095", "E-080"), budget=0.5,
    short=r"\partial [u v] / \partial x = u\, \partial v / \partial x + v\, \partial u /"
    r" \partial x",
)  # fmt: skip
def scalar_rules(
    product: Rule = lambda u, v, du, dv: u * dv + v * du, inner: Literal["v(x)", "x"] = "v(x)"
):
    r"""Product rule and chain rule for scalar functions of a vector.

    For differentiable $u, v: \mathbb{R}^n \to \mathbb{R}$ and $h: \mathbb{R} \to \mathbb{R}$,
    $$\frac{\partial}{\partial x}[u v] = u \frac{\partial v}{\partial x} + v \frac{\partial u}
    {\partial x}, \qquad \frac{\partial}{\partial x}[h(v(x))] = h'(v(x))\,
    \frac{\partial v}{\partial x}.$$

    Knobs:
        product: The gradient of $u v$ as a function of $u$, $v$ and their gradients.
        inner: Where $h'$ is taken: at $v(x)$, or at $x$ entry by entry.
    """
    u = lambda x: (square(x) / 10).exp()  # noqa: E731
    for n in (2, 5):
        x, a = torch.randn(n), torch.randn(n)
        v = lambda x, a=a: dot(a, x).sin()  # noqa: E731
        stated = product(u(x), v(x), partials(u, x), partials(v, x))
        yield from confirm("gradient of $u v$", lambda x, v=v: u(x) * v(x), x, stated, n=n)
        x, s = 1 + torch.rand(n), (torch.rand(n, n) - 0.5) / (8 * n**2)
        form = lambda x, s=s: dot(x, s, x)  # noqa: E731, at most 1/4, and no x_i is below 1
        slope = 1 - torch.tanh(form(x) if inner == "v(x)" else x) ** 2
        stated = slope * partials(form, x)
        composed = lambda x, form=form: form(x).tanh()  # noqa: E731
        yield from confirm("gradient of $h(v(x))$", composed, x, stated, n=n)


scalar_rules.foil("the factors paired wrongly", product=lambda u, v, du, dv: u * du + v * dv)
scalar_rules.foil(
    "a derivative of a product is no product of derivatives",
    product=lambda u, v, du, dv: du * dv,
)
scalar_rules.foil("the outer derivative belongs to v(x)", inner="x")


@claim(
    by="identity", sources=("D-104", "E-089"), budget=0.5,
    short=r"\partial [u f] / \partial x = u\, \partial f / \partial x + f\, \partial u /"
    r" \partial x \text{ in numerator layout}",
)  # fmt: skip
def scalar_times_vector(
    numerator: Callable[[Tensor, Tensor], Tensor] = lambda f, du: torch.outer(f, du),
    denominator: Callable[[Tensor, Tensor], Tensor] = lambda f, du: torch.outer(du, f),
):
    r"""The derivative of a scalar times a vector function.

    For differentiable $u: \mathbb{R}^n \to \mathbb{R}$ and $f: \mathbb{R}^n \to \mathbb{R}^m$, in
    numerator layout
    $$\frac{\partial}{\partial x}[u f] = u \frac{\partial f}{\partial x} + f \frac{\partial u}
    {\partial x},$$
    whose last term is an outer product, $m \times 1$ by $1 \times n$; in denominator layout
    $$\frac{\partial}{\partial x}[u f] = u \frac{\partial f}{\partial x} + \frac{\partial u}
    {\partial x} f^T,$$
    an $n \times m$ matrix.

    Knobs:
        numerator: The last term in numerator layout, as a function of $f$ and the gradient of $u$.
        denominator: The last term in denominator layout, likewise.
    """
    u = lambda x: (x[0] * x[1]).sin()  # noqa: E731
    for n, m in ((3, 3), (2, 3)):
        x, f = torch.randn(n), tanh_layer(n, m)
        scaled = lambda x, f=f: u(x) * f(x)  # noqa: E731
        for layout, term in ((numerator_layout, numerator), (denominator_layout, denominator)):
            name = f"derivative of $u f$ in {layout.__name__.replace('_', ' ')}"
            df, last = layout(f, x), term(f(x), partials(u, x))
            rest = layout(scaled, x) - u(x) * df
            yield agree(f"last term of the {name}", rest, last, n=n, m=m)
            if last.shape == df.shape:  # or there is no such sum
                stated, is_numerator = u(x) * df + last, layout is numerator_layout
                yield from confirm(name, scaled, x, stated, numerator=is_numerator, n=n, m=m)


scalar_times_vector.foil(
    "the outer product the wrong way round", numerator=lambda f, du: torch.outer(du, f)
)
scalar_times_vector.erratum(
    "E-089",
    printed=r"$\frac{\partial}{\partial x}[u(x) f(x)] = u \frac{\partial f}{\partial x} +"
    r" f \frac{\partial u}{\partial x}$ (read with the help of the sibling sheet; the scan is"
    " garbled) on a sheet that declares denominator layout",
    right=r"$u \frac{\partial f}{\partial x} + \frac{\partial u}{\partial x} f^T$",
    why=r"As scanned: with column gradients $f$ is $m \times 1$ and $\partial u / \partial x$ is"
    r" $n \times 1$, so the last product does not exist; even with one factor transposed, in this"
    r" order it is $3 \times 2$ for $n = 2$, $m = 3$, and the derivative is $2 \times 3$. It must"
    r" be $\frac{\partial u}{\partial x} f^T$. Only the order of the last two factors is legible;"
    " the sibling sheet, in numerator layout, is right.",
    weight="scan",
    refuted_by="shape of the last term of the derivative of $u f$ in denominator layout",
    denominator=lambda f, du: torch.outer(f, du),
)


@claim(
    by="identity", sources=("B-162", "D-105", "D-148", "E-090"), budget=0.5,
    short=r"\partial [f(x_1), \dots, f(x_n)] / \partial x = \operatorname{diag}(f'(x))",
)  # fmt: skip
def elementwise(form: Callable[[Tensor], Tensor] = torch.diag):
    r"""A function that acts on each entry has a diagonal Jacobian.

    $\frac{\partial}{\partial x}[f(x_1), \dots, f(x_n)] = \operatorname{diag}(f'(x))$, the same in
    both layouts: $\operatorname{diag}(\sigma(x) \odot (1 - \sigma(x)))$ for the logistic sigmoid,
    $\operatorname{diag}(1 - \tanh^2 x)$, $\operatorname{diag}(e^x)$, and $\operatorname{diag}(a)$
    for the product $x \odot a$ with a constant. The entries off the diagonal are exactly zero.

    Knobs:
        form: The derivative as a function of the vector of slopes $f'(x)$.
    """
    n = 5
    x, a = torch.randn(n), torch.randn(n)
    s, t = x.sigmoid(), x.tanh()
    table: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
        "sigmoid": (torch.sigmoid, s * (1 - s)),
        "tanh": (torch.tanh, 1 - t * t),
        "exp": (torch.exp, x.exp()),
        "product": (lambda x: x * a, a),
    }
    for name, (f, slope) in table.items():
        stated = form(slope)
        for numerator in (True, False):
            which = "Jacobian" if numerator else "derivative in denominator layout"
            yield from confirm(which, f, x, stated, numerator=numerator, function=name)
        apart = numerator_layout(f, x)[~torch.eye(n, dtype=torch.bool)]
        yield equals("entries off the diagonal", apart, 0.0, tol=0.0, function=name)


elementwise.foil("the vector of slopes is no Jacobian", form=lambda slope: slope)
elementwise.foil(
    "an entry depends on its own argument alone", form=lambda slope: slope[:, None].expand(-1, 5)
)


@claim(
    by="identity", sources=("D-106", "D-107", "D-108", "D-109", "E-091"), budget=0.5,
    short=r"\partial [A x] / \partial x = A, \quad \partial [x^T A] / \partial x = A^T"
    r" \text{ in numerator layout}",
)  # fmt: skip
def linear_map_jacobian(transposed: bool = True):
    r"""The Jacobians of linear maps.

    In numerator layout $\frac{\partial}{\partial x}[a] = 0$, $\frac{\partial}{\partial x}[x] = I$,
    $\frac{\partial}{\partial x}[A x] = A$ and $\frac{\partial}{\partial x}[x^T A] = A^T$; in
    denominator layout the last two are $A^T$ and $A$. Exact in whole numbers.

    Knobs:
        transposed: Whether $x^T A$ has the Jacobian $A^T$, and not $A$.
    """
    for draw, m in ((torch.randn, 3), (torch.randn, 4), (integers, 4)):
        x, y, a, c = draw(3), draw(m), draw(m, 3), draw(2)
        ax = lambda x, a=a: dot(a, x)  # noqa: E731
        xa = lambda y, a=a: dot(y, a)  # noqa: E731
        yield from confirm("Jacobian of $A x$", ax, x, a, numerator=True, m=m)
        yield from confirm("derivative of $A x$ in denominator layout", ax, x, a.T, m=m)
        row, column = (a.T, a) if transposed else (a, a.T)
        yield from confirm("Jacobian of $x^T A$", xa, y, row, numerator=True, m=m)
        yield from confirm("derivative of $x^T A$ in denominator layout", xa, y, column, m=m)
        yield from confirm("Jacobian of $x$", torch.clone, x, torch.eye(3), numerator=True, m=m)
        found = numerator_layout(lambda _, c=c: c, x)
        yield agree("Jacobian of a constant", found, torch.zeros(2, 3), m=m)


linear_map_jacobian.foil(r"$x^\top A$ has the Jacobian of $A^\top x$", transposed=False)


@claim(
    by="identity", sources=("D-110", "D-111", "E-091"), budget=0.5,
    short=r"J_{a f} = a J_f, \quad J_{A f} = A J_f \text{ in numerator layout}",
)  # fmt: skip
def jacobian_linearity(side: Literal["left", "right"] = "left"):
    r"""Constant factors come out of the Jacobian.

    For a constant number $a$ and a constant matrix $A$, in numerator layout
    $\frac{\partial}{\partial x}[a f] = a \frac{\partial f}{\partial x}$ and
    $\frac{\partial}{\partial x}[A f] = A \frac{\partial f}{\partial x}$; in denominator layout
    $\frac{\partial}{\partial x}[f^T A] = \frac{\partial f}{\partial x} A$.

    Knobs:
        side: On which side of the derivative of $f$ the matrix stands in numerator layout, where
            it fits there; in denominator layout it is the other side.
    """
    for n, m, k in ((3, 3, 3), (2, 3, 4)):
        f, x, a, w = tanh_layer(n, m), torch.randn(n), torch.randn(()), torch.randn(k, m)
        j, d, left = numerator_layout(f, x), denominator_layout(f, x), side == "left" or n != k
        scaled = lambda x, f=f, a=a: a * f(x)  # noqa: E731
        yield from confirm("Jacobian of $a f$", scaled, x, a * j, numerator=True, n=n)
        mapped, stated = lambda x, f=f, w=w: dot(w, f(x)), w @ j if left else j @ w
        yield from confirm("Jacobian of $A f$", mapped, x, stated, numerator=True, n=n)
        row, stated = lambda x, f=f, w=w: dot(f(x), w.T), d @ w.T if left else w.T @ d
        yield from confirm("derivative of $f^T A$ in denominator layout", row, x, stated, n=n)


jacobian_linearity.foil("A on the other side", side="right")
