"""What the course claims of derivatives by vectors: product rules, forms, norms, linear maps."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import claim, equals
from vademecum.foundations.claims.matrix_calculus import dot, square
from vademecum.gradients.claims.layouts import agree, confirm, integers, partials, tanh_layer
from vademecum.gradients.layouts import denominator_layout, numerator_layout

Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@claim(by="identity", sources=("D-094", "D-095", "E-080"), budget=0.5)
def scalar_rules(
    product: Rule = lambda u, v, du, dv: u * dv + v * du, inner: Literal["v(x)", "x"] = "v(x)"
):
    r"""Product rule and chain rule for scalar functions of a vector.

    For differentiable $u, v: \mathbb{R}^n \to \mathbb{R}$ and $h: \mathbb{R} \to \mathbb{R}$,
    $$\frac{\partial}{\partial x}[u v] = u \frac{\partial v}{\partial x} + v \frac{\partial u}
    {\partial x}, \qquad \frac{\partial}{\partial x}[h(v(x))] = h'(v(x))\,
    \frac{\partial v}{\partial x}.$$
    """
    u = lambda x: (square(x) / 10).exp()  # noqa: E731
    for n in (2, 5):
        x, a, s = torch.randn(n), torch.randn(n), torch.randn(n, n)
        v = lambda x, a=a: dot(a, x).sin()  # noqa: E731
        stated = product(u(x), v(x), partials(u, x), partials(v, x))
        yield from confirm(lambda x, v=v: u(x) * v(x), x, stated, n=n)
        form = lambda x, s=s: dot(x, s, x)  # noqa: E731
        slope = 1 - torch.tanh(form(x) if inner == "v(x)" else x) ** 2
        yield from confirm(lambda x, form=form: form(x).tanh(), x, slope * partials(form, x), n=n)


scalar_rules.foil("the factors paired wrongly", product=lambda u, v, du, dv: u * du + v * dv)
scalar_rules.foil(
    "a derivative of a product is no product of derivatives",
    product=lambda u, v, du, dv: du * dv,
)
scalar_rules.foil("the outer derivative belongs to v(x)", inner="x")


@claim(by="identity", sources=("D-096", "D-097"), budget=0.5)
def bilinear_rule(transposed: bool = True):
    r"""The gradient of an inner product of two vector functions.

    For differentiable $f: \mathbb{R}^n \to \mathbb{R}^m$, $g: \mathbb{R}^n \to \mathbb{R}^k$, a
    constant $m \times k$ matrix $A$, and $J_f = \frac{\partial f}{\partial x} \in \mathbb{R}^{n
    \times m}$ in denominator layout,
    $$\frac{\partial}{\partial x}[f^T A g] = J_f A g + J_g A^T f,$$
    so $\frac{\partial}{\partial x}[f^T g] = J_f g + J_g f$ for $A = I$. With Jacobians in numerator
    layout it reads $J_f^T A g + J_g^T A^T f$.
    """
    for n, m, k in ((4, 3, 3), (4, 3, 5)):
        x, a = torch.randn(n), torch.randn(m, k)
        f, wave = tanh_layer(n, m), torch.randn(k, n)
        g = lambda x, wave=wave: dot(wave, x).sin()  # noqa: E731
        jf, jg = denominator_layout(f, x), denominator_layout(g, x)
        for middle in (a, torch.eye(m)) if m == k else (a,):
            other = middle.T if transposed else middle
            stated = jf @ middle @ g(x) + jg @ other @ f(x)
            form = lambda x, f=f, g=g, a=middle: dot(f(x), a, g(x))  # noqa: E731
            yield from confirm(form, x, stated, k=k)
            rows = numerator_layout(f, x).T @ middle @ g(x) + numerator_layout(g, x).T @ (
                other @ f(x)
            )
            yield agree(rows, stated, k=k)


bilinear_rule.foil("the second term needs the transpose of A", transposed=False)


@claim(by="identity", sources=("D-098", "D-100", "E-084", "E-092"), budget=0.5)
def linear_form(transposed: bool = True):
    r"""The gradient of a linear form.

    $\nabla_x [a^T x] = \nabla_x [x^T a] = a$, hence $\nabla_x [b^T A x] = \nabla_x [x^T A^T b] =
    A^T b$ for a constant $m \times n$ matrix $A$; an expression without $x$ has gradient zero.
    Exact in whole numbers.
    """
    for draw, m in ((torch.randn, 3), (integers, 3), (torch.randn, 2), (integers, 2)):
        x, a, b, matrix = draw(3), draw(3), draw(m), draw(m, 3)
        yield from confirm(lambda x, a=a: dot(a, x), x, a, m=m)
        yield from confirm(lambda x, a=a: dot(x, a), x, a, m=m)
        stated = (matrix.T if transposed else matrix) @ b
        yield from confirm(lambda x, b=b, w=matrix: dot(b, w, x), x, stated, m=m)
        yield from confirm(lambda x, b=b, w=matrix: dot(x, w.T, b), x, stated, m=m)
        constant = a @ matrix.T @ b
        yield equals(denominator_layout(lambda _, c=constant: c, x), torch.zeros(3), m=m)


linear_form.foil("A b in place of its transpose", transposed=False)


@claim(by="identity", sources=("D-099", "D-101", "E-093"), budget=0.5)
def quadratic_form(symmetrised: bool = True):
    r"""The gradient of a quadratic form.

    $\nabla_x [x^T A x] = (A + A^T) x$ for any constant $n \times n$ matrix, which is $2 A x$ only
    if $A x = A^T x$, so for symmetric $A$. In particular $\nabla_x [x^T x] = 2 x$, and
    $\nabla_x [x^T B^T B x] = 2 B^T B x$ for any $B$. Exact in whole numbers; for
    $A = \big(\begin{smallmatrix} 0 & 1 \\ 0 & 0 \end{smallmatrix}\big)$ the gradient at $(1, 1)$
    is $(1, 1)$, and not $(2, 0)$.
    """
    corner = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    cases = [(corner, torch.ones(2)), (integers(3, 3), integers(3))]
    cases += [(torch.randn(n, n), torch.randn(n)) for n in (1, 4)]
    for a, x in cases:
        stated = (a + a.T if symmetrised else 2 * a) @ x
        yield from confirm(lambda x, a=a: dot(x, a, x), x, stated, n=len(x))
        gram = lambda x, a=a: dot(x, a.T, a, x)  # noqa: E731
        yield from confirm(gram, x, 2 * a.T @ a @ x, n=len(x))
        yield from confirm(square, x, 2 * x, n=len(x))


quadratic_form.foil("2 A x is right for symmetric A only", symmetrised=False)


@claim(by="identity", sources=("D-102",), budget=0.5)
def affine_bilinear(transposed: bool = True, second: float = 1.0):
    r"""The gradient of a product of two affine maps.

    For constant $A \in \mathbb{R}^{m \times n}$, $C \in \mathbb{R}^{m \times k}$, $D \in
    \mathbb{R}^{k \times n}$ and vectors $b$, $e$,
    $$\nabla_x \big[(A x + b)^T C (D x + e)\big] = A^T C (D x + e) + D^T C^T (A x + b).$$
    Exact in whole numbers.
    """
    for draw, k in ((torch.randn, 3), (torch.randn, 5), (integers, 5)):
        x, a, b, c, d, e = draw(4), draw(3, 4), draw(3), draw(3, k), draw(k, 4), draw(k)
        form = lambda x, a=a, b=b, c=c, d=d, e=e: dot(dot(a, x) + b, c, dot(d, x) + e)  # noqa: E731
        other = c.T if transposed else c
        stated = a.T @ c @ (d @ x + e) + second * d.T @ other @ (a @ x + b)
        yield from confirm(form, x, stated, k=k)


affine_bilinear.foil("the second term needs the transpose of C", transposed=False)
affine_bilinear.foil("both factors depend on x", second=0.0)


@claim(by="identity", sources=("D-103", "E-088"), budget=0.5)
def squared_norm(transposed: bool = True, weighted: bool = True):
    r"""The gradient of the squared norm of a map.

    For differentiable $f: \mathbb{R}^n \to \mathbb{R}^m$, $\nabla_x \|f(x)\|_2^2 = 2 J^T f(x)$ with
    the Jacobian $J \in \mathbb{R}^{m \times n}$ in numerator layout; with $J_f = J^T$ in
    denominator layout the same vector is written $2 J_f f(x)$.
    """
    by_hand = lambda x: torch.stack([x[0].sin(), x[0] * x[1], x[1].exp()])  # noqa: E731
    for n, f in ((3, tanh_layer(3, 3)), (2, by_hand), (4, tanh_layer(4, 2))):
        x = torch.randn(n)
        jacobian, transpose = numerator_layout(f, x), denominator_layout(f, x)
        norm = lambda x, f=f: square(f(x))  # noqa: E731
        for j in (jacobian.T if transposed else jacobian, transpose):
            yield from confirm(norm, x, 2 * (j @ f(x) if weighted else j), n=n)


squared_norm.foil("the Jacobian in numerator layout must be transposed", transposed=False)
squared_norm.foil("the factor f(x) was lost", weighted=False)


@claim(by="identity", sources=("D-104", "E-089"), budget=0.5)
def scalar_times_vector(
    numerator: Rule = lambda u, f, du, df: u * df + torch.outer(f, du),
    denominator: Rule = lambda u, f, du, df: u * df + torch.outer(du, f),
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
    """
    u = lambda x: (x[0] * x[1]).sin()  # noqa: E731
    for n, m in ((3, 3), (2, 3)):
        x, f = torch.randn(n), tanh_layer(n, m)
        scaled = lambda x, f=f: u(x) * f(x)  # noqa: E731
        du, column = partials(u, x), denominator_layout(f, x)
        stated = numerator(u(x), f(x), du, numerator_layout(f, x))
        yield from confirm(scaled, x, stated, numerator=True, n=n)
        yield from confirm(scaled, x, denominator(u(x), f(x), du, column), n=n)


scalar_times_vector.foil(
    "the outer product the wrong way round",
    numerator=lambda u, f, du, df: u * df + torch.outer(du, f),
)
scalar_times_vector.erratum(
    "E-089",
    printed=r"$\frac{\partial}{\partial x}[u(x) f(x)] = u \frac{\partial f}{\partial x} +"
    r" f \frac{\partial u}{\partial x}$, in denominator layout",
    right=r"$u \frac{\partial f}{\partial x} + \frac{\partial u}{\partial x} f^T$",
    why="as scanned: columns with m and n entries have no product, and the nearest one that exists"
    " for m = n, the outer product in this order, is transposed",
    denominator=lambda u, f, du, df: u * df + torch.outer(f, du),
)


@claim(by="identity", sources=("B-162", "D-105", "D-148", "E-090"), budget=0.5)
def elementwise(form: Callable[[Tensor], Tensor] = torch.diag):
    r"""A function that acts on each entry has a diagonal Jacobian.

    $\frac{\partial}{\partial x}[f(x_1), \dots, f(x_n)] = \operatorname{diag}(f'(x))$, the same in
    both layouts: $\operatorname{diag}(\sigma(x) \odot (1 - \sigma(x)))$ for the logistic sigmoid,
    $\operatorname{diag}(1 - \tanh^2 x)$, $\operatorname{diag}(e^x)$, and $\operatorname{diag}(a)$
    for the product $x \odot a$ with a constant. The entries off the diagonal are exactly zero.
    """
    x, a = torch.randn(5), torch.randn(5)
    s, t = x.sigmoid(), x.tanh()
    table: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
        "sigmoid": (torch.sigmoid, s * (1 - s)),
        "tanh": (torch.tanh, 1 - t * t),
        "exp": (torch.exp, x.exp()),
        "product": (lambda x: x * a, a),
    }
    for name, (f, slope) in table.items():
        for numerator in (True, False):
            yield from confirm(f, x, form(slope), numerator=numerator, function=name)
        jacobian = numerator_layout(f, x)
        yield equals(jacobian[~torch.eye(5, dtype=torch.bool)], 0.0, tol=0.0, function=name)


elementwise.foil("the vector of slopes is no Jacobian", form=lambda slope: slope)
elementwise.foil(
    "an entry depends on its own argument alone", form=lambda slope: slope[:, None].expand(-1, 5)
)


@claim(by="identity", sources=("D-106", "D-107", "D-108", "D-109", "E-091"), budget=0.5)
def linear_map_jacobian(transposed: bool = True):
    r"""The Jacobians of linear maps.

    In numerator layout $\frac{\partial}{\partial x}[a] = 0$, $\frac{\partial}{\partial x}[x] = I$,
    $\frac{\partial}{\partial x}[A x] = A$ and $\frac{\partial}{\partial x}[x^T A] = A^T$; in
    denominator layout the last two are $A^T$ and $A$. Exact in whole numbers.
    """
    for draw in (torch.randn, integers):
        x, y, a, c = draw(3), draw(4), draw(4, 3), draw(2)
        ax = lambda x, a=a: dot(a, x)  # noqa: E731
        xa = lambda y, a=a: dot(y, a)  # noqa: E731
        yield from confirm(ax, x, a, numerator=True)
        yield from confirm(ax, x, a.T)
        yield from confirm(xa, y, a.T if transposed else a, numerator=True)
        yield from confirm(xa, y, a if transposed else a.T)
        yield from confirm(lambda x: x.clone(), x, torch.eye(3), numerator=True)
        yield agree(numerator_layout(lambda _, c=c: c, x), torch.zeros(2, 3))


linear_map_jacobian.foil(r"$x^\top A$ has the Jacobian of $A^\top x$", transposed=False)


@claim(by="identity", sources=("D-110", "D-111", "E-091"), budget=0.5)
def jacobian_linearity(side: Literal["left", "right"] = "left"):
    r"""Constant factors come out of the Jacobian.

    For a constant number $a$ and a constant matrix $A$, in numerator layout
    $\frac{\partial}{\partial x}[a f] = a \frac{\partial f}{\partial x}$ and
    $\frac{\partial}{\partial x}[A f] = A \frac{\partial f}{\partial x}$; in denominator layout
    $\frac{\partial}{\partial x}[f^T A] = \frac{\partial f}{\partial x} A$.
    """
    for n, m, k in ((3, 3, 3), (2, 3, 4)):
        f, x, a, w = tanh_layer(n, m), torch.randn(n), torch.randn(()), torch.randn(k, m)
        j, d = numerator_layout(f, x), denominator_layout(f, x)
        scaled = lambda x, f=f, a=a: a * f(x)  # noqa: E731
        yield from confirm(scaled, x, a * j, numerator=True, n=n)
        mapped = lambda x, f=f, w=w: dot(w, f(x))  # noqa: E731
        yield from confirm(mapped, x, w @ j if side == "left" else j @ w, numerator=True, n=n)
        row = lambda x, f=f, w=w: dot(f(x), w.T)  # noqa: E731
        yield from confirm(row, x, d @ w.T if side == "left" else w.T @ d, n=n)


jacobian_linearity.foil("A on the other side", side="right")
