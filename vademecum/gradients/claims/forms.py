"""Forms and norms: the gradients of products of two maps."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vademecum.claims import claim, complex_step, equals, integers
from vademecum.foundations.claims.matrix_calculus import dot, square
from vademecum.gradients import denominator_layout, hessian, hvp, numerator_layout
from vademecum.gradients.claims.layouts import agree, confirm, partials, tanh_layer


class Of(nn.Module):
    """A function of a vector of parameters, whatever the input is."""

    def __init__(self, f: Callable[[Tensor], Tensor], at: Tensor):
        super().__init__()
        self.f, self.at = f, nn.Parameter(at.clone())

    def forward(self, x: Tensor) -> Tensor:
        """The value of the function."""
        return self.f(self.at)


@claim(
    by="identity", sources=("D-098", "D-100", "E-084", "E-092"), budget=0.5,
    short=r"\nabla_x [a^T x] = a, \quad \nabla_x [b^T A x] = \nabla_x [x^T A^T b] = A^T b",
)  # fmt: skip
def linear_form(transposed: bool = True):
    r"""The gradient of a linear form.

    $\nabla_x [a^T x] = \nabla_x [x^T a] = a$, hence $\nabla_x [b^T A x] = \nabla_x [x^T A^T b] =
    A^T b$ for a constant $m \times n$ matrix $A$; an expression without $x$ has gradient zero.
    Exact in whole numbers.

    Knobs:
        transposed: Whether the gradient has $A^T$; if not, $A$ stands in its place where it fits.
    """
    for draw, m in ((torch.randn, 3), (integers, 3), (torch.randn, 2), (integers, 2)):
        x, a, b, matrix = draw(3), draw(3), draw(m), draw(m, 3)
        yield from confirm("gradient of $a^T x$", lambda x, a=a: dot(a, x), x, a, m=m)
        yield from confirm("gradient of $x^T a$", lambda x, a=a: dot(x, a), x, a, m=m)
        stated = (matrix.T if transposed or m != 3 else matrix) @ b
        form = lambda x, b=b, w=matrix: dot(b, w, x)  # noqa: E731
        yield from confirm("gradient of $b^T A x$", form, x, stated, m=m)
        form = lambda x, b=b, w=matrix: dot(x, w.T, b)  # noqa: E731
        yield from confirm("gradient of $x^T A^T b$", form, x, stated, m=m)
        constant = dot(a, matrix.T, b)
        found = denominator_layout(lambda _, c=constant: c, x)
        yield equals("gradient of the constant $a^T A^T b$", found, torch.zeros(3), tol=0.0, m=m)


linear_form.foil("A b in place of its transpose", transposed=False)


@claim(
    by="identity", sources=("D-099", "D-101", "E-093"), budget=0.5,
    short=r"\nabla_x [x^T A x] = (A + A^T) x, \quad \nabla_x [x^T x] = 2 x,"
    r" \quad \nabla_x [x^T B^T B x] = 2 B^T B x",
)  # fmt: skip
def quadratic_form(symmetrised: bool = True):
    r"""The gradient of a quadratic form.

    $\nabla_x [x^T A x] = (A + A^T) x$ for any constant $n \times n$ matrix, which is $2 A x$ only
    if $A x = A^T x$, so for symmetric $A$. In particular $\nabla_x [x^T x] = 2 x$, and
    $\nabla_x [x^T B^T B x] = 2 B^T B x$ for any $B$. The derivative of the gradient, the Hessian,
    is $A + A^T$. Exact in whole numbers; for
    $A = \big(\begin{smallmatrix} 0 & 1 \\ 0 & 0 \end{smallmatrix}\big)$ the gradient at $(1, 1)$
    is $(1, 1)$, and not $(2, 0)$.

    Knobs:
        symmetrised: Whether the matrix of the gradient is $A + A^T$, and not $2 A$.
    """
    corner = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    cases = [(corner, torch.ones(2)), (integers(3, 3), integers(3))]
    cases += [(torch.randn(n, n), torch.randn(n)) for n in (1, 4)]
    for a, x in cases:
        n, matrix = len(x), a + a.T if symmetrised else 2 * a
        form = lambda x, a=a: dot(x, a, x)  # noqa: E731
        yield from confirm("gradient of $x^T A x$", form, x, matrix @ x, n=n)
        model, loss, v = Of(torch.clone, x), lambda z, _, form=form: form(z), torch.randn(n)
        found = hessian(model, x=torch.zeros(1), y=None, loss=loss).dense()
        yield equals("Hessian of $x^T A x$", found, matrix, n=n)
        found = hvp(model, x=torch.zeros(1), y=None, v=v, loss=loss)
        yield equals("Hessian of $x^T A x$ times a vector", found, matrix @ v, n=n)
    for m, n in ((2, 3), (4, 2)):
        b, x = integers(m, n), integers(n)
        gram = lambda x, b=b: dot(x, b.T, b, x)  # noqa: E731
        yield from confirm("gradient of $x^T B^T B x$", gram, x, 2 * b.T @ b @ x, n=n)
        yield from confirm("gradient of $x^T x$", square, x, 2 * x, n=n)


quadratic_form.foil("2 A x is right for symmetric A only", symmetrised=False)


@claim(
    by="identity", sources=("D-102",), budget=0.5,
    short=r"\nabla_x [(A x + b)^T C (D x + e)] = A^T C (D x + e) + D^T C^T (A x + b)",
)  # fmt: skip
def affine_bilinear(transposed: bool = True, second: float = 1.0):
    r"""The gradient of a product of two affine maps.

    For constant $A \in \mathbb{R}^{m \times n}$, $C \in \mathbb{R}^{m \times k}$, $D \in
    \mathbb{R}^{k \times n}$ and vectors $b$, $e$,
    $$\nabla_x \big[(A x + b)^T C (D x + e)\big] = A^T C (D x + e) + D^T C^T (A x + b).$$
    Exact in whole numbers.

    Knobs:
        transposed: Whether the second term has $C^T$; if not, $C$ stands in its place where it
            fits.
        second: The factor of the second term.
    """
    for draw, k in ((torch.randn, 3), (torch.randn, 5), (integers, 5)):
        x, a, b, c, d, e = draw(4), draw(3, 4), draw(3), draw(3, k), draw(k, 4), draw(k)
        form = lambda x, a=a, b=b, c=c, d=d, e=e: dot(dot(a, x) + b, c, dot(d, x) + e)  # noqa: E731
        other = c.T if transposed or k != 3 else c
        stated = a.T @ c @ (d @ x + e) + second * d.T @ other @ (a @ x + b)
        yield from confirm("gradient of $(A x + b)^T C (D x + e)$", form, x, stated, k=k)


affine_bilinear.foil("the second term needs the transpose of C", transposed=False)
affine_bilinear.foil("both factors depend on x", second=0.0)


@claim(
    by="identity", sources=("D-096", "D-097"), budget=0.5,
    short=r"\partial [f^T A g] / \partial x = J_f A g + J_g A^T f \text{ in denominator layout}",
)  # fmt: skip
def bilinear_rule(transposed: bool = True):
    r"""The gradient of an inner product of two vector functions.

    For differentiable $f: \mathbb{R}^n \to \mathbb{R}^m$, $g: \mathbb{R}^n \to \mathbb{R}^k$, a
    constant $m \times k$ matrix $A$, and $J_f = \frac{\partial f}{\partial x} \in \mathbb{R}^{n
    \times m}$ in denominator layout,
    $$\frac{\partial}{\partial x}[f^T A g] = J_f A g + J_g A^T f,$$
    so $\frac{\partial}{\partial x}[f^T g] = J_f g + J_g f$ for $A = I$. With Jacobians in numerator
    layout it reads $J_f^T A g + J_g^T A^T f$.

    Knobs:
        transposed: Whether the second term has $A^T$; if not, $A$ stands in its place where it
            fits.
    """
    for n, m, k in ((4, 3, 3), (4, 3, 5)):
        x, a = torch.randn(n), torch.randn(m, k)
        f, wave = tanh_layer(n, m), torch.randn(k, n)
        g = lambda x, wave=wave: dot(wave, x).sin()  # noqa: E731
        jf, jg = denominator_layout(f, x), denominator_layout(g, x)
        for middle in (a, torch.eye(m)) if m == k else (a,):
            other = middle.T if transposed or m != k else middle
            stated = jf @ middle @ g(x) + jg @ other @ f(x)
            form = lambda x, f=f, g=g, a=middle: dot(f(x), a, g(x))  # noqa: E731
            name = "gradient of $f^T g$" if middle is not a else "gradient of $f^T A g$"
            yield from confirm(name, form, x, stated, k=k)
            left, right = numerator_layout(f, x).T, numerator_layout(g, x).T
            rows = left @ middle @ g(x) + right @ other @ f(x)
            name = f"{name}, against Jacobians in numerator layout"
            yield agree(name, partials(form, x), rows, k=k)


bilinear_rule.foil("the second term needs the transpose of A", transposed=False)


@claim(
    by="identity", sources=("D-103", "E-088"), budget=0.5,
    short=r"\nabla_x \|f(x)\|_2^2 = 2 J^T f(x), \quad J = \partial f / \partial x"
    r" \text{ in numerator layout}",
)  # fmt: skip
def squared_norm(transposed: bool = True, weighted: bool = True, curvature: float = 1.0):
    r"""The gradient of the squared norm of a map.

    For differentiable $f: \mathbb{R}^n \to \mathbb{R}^m$, $\nabla_x \|f(x)\|_2^2 = 2 J^T f(x)$ with
    the Jacobian $J \in \mathbb{R}^{m \times n}$ in numerator layout; with $J_f = J^T$ in
    denominator layout the same vector is written $2 J_f f(x)$. Once more, the Hessian is $2 J^T J +
    2 \sum_i f_i \nabla^2 f_i$; the first term alone is Gauss and Newton's.

    Knobs:
        transposed: Whether the Jacobian in numerator layout is transposed, which matters for
            square ones; others fit in no other way.
        weighted: Whether the factor $f(x)$ is there.
        curvature: The factor of the second term of the Hessian.
    """
    by_hand = lambda x: torch.stack([x[0].sin(), x[0] * x[1], x[1].exp()])  # noqa: E731
    for n, m, f in ((3, 3, tanh_layer(3, 3)), (2, 3, by_hand), (4, 2, tanh_layer(4, 2))):
        x = torch.randn(n)
        jacobian, transpose = numerator_layout(f, x), denominator_layout(f, x)
        norm = lambda x, f=f: square(f(x))  # noqa: E731
        first = jacobian.T if transposed or m != n else jacobian
        for layout, j in {"numerator": first, "denominator": transpose}.items():
            stated = 2 * (j @ f(x) if weighted else j)
            name = r"gradient of $\|f(x)\|^2$"
            yield from confirm(name, norm, x, stated, n=n, layout=layout)
    for n, m in ((2, 3), (4, 2)):
        w, x = torch.randn(m, n) / n**0.5, torch.randn(n)
        t = torch.tanh(w @ x)
        j, bend = (1 - t**2)[:, None] * w, -2 * t * (1 - t**2)
        stated = 2 * j.T @ j + curvature * 2 * w.T @ torch.diag(t * bend) @ w
        model = Of(lambda x, w=w: torch.tanh(w @ x), x)
        found = hessian(model, x=torch.zeros(1), y=None, loss=lambda z, _: square(z)).dense()
        yield equals(r"Hessian of $\|\tanh(W x)\|^2$", found, stated, n=n, via="autodiff")
        found = complex_step(lambda x, w=w: _slope(w, x), x)
        yield equals(r"Hessian of $\|\tanh(W x)\|^2$", found, stated, n=n, via="complex step")


def _slope(w: Tensor, x: Tensor) -> Tensor:
    """The gradient of the squared norm of tanh(W x), for complex numbers too."""
    t = torch.tanh(dot(w, x))
    return 2 * dot(w.T, t * (1 - t**2))


squared_norm.foil("the Jacobian in numerator layout must be transposed", transposed=False)
squared_norm.foil("the factor f(x) was lost", weighted=False)
squared_norm.foil("Gauss and Newton's matrix is not the whole Hessian", curvature=0.0)
