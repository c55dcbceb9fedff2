"""Calculus: the logarithm, integrals and Taylor's formula."""

import math
from fractions import Fraction
from typing import Any, Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, integers

Polynomial = list[Fraction]


def fraction(low: int, high: int, parts: int = 7) -> Fraction:
    """A random fraction between two integers, with a denominator of at most `parts`."""
    q = int(torch.randint(1, parts + 1, ()))
    return Fraction(int(torch.randint(low * q, high * q + 1, ())), q)


def polynomial(degree: int) -> Polynomial:
    """A random polynomial with integer coefficients, the constant one first."""
    return [Fraction(int(c)) for c in torch.randint(-9, 10, (degree + 1,))]


def value(p: Polynomial, x: Fraction) -> Fraction:
    """The value of a polynomial."""
    return sum((c * x**k for k, c in enumerate(p)), Fraction(0))


def derivative(p: Polynomial, order: int = 1) -> Polynomial:
    """The derivative of a polynomial, of any order."""
    for _ in range(order):
        p = [k * c for k, c in enumerate(p)][1:] or [Fraction(0)]
    return p


def product(p: Polynomial, q: Polynomial) -> Polynomial:
    """The product of two polynomials."""
    out = [Fraction(0)] * (len(p) + len(q) - 1)
    for i, a in enumerate(p):
        for j, b in enumerate(q):
            out[i + j] += a * b
    return out


def integral(p: Polynomial, a: Fraction, b: Fraction) -> Fraction:
    """The integral of a polynomial."""
    whole = [Fraction(0), *(c / (k + 1) for k, c in enumerate(p))]
    return value(whole, b) - value(whole, a)


@claim(
    by="identity",
    sources=("A-001", "B-001"),
    budget=0.5,
    full={"points": 2000},
    short=r"\log(1 + x) \le x \;\; (x > -1), \quad \log(1 + x) = x - \tfrac{x^2}2 + O(x^3)",
)
def log1p_expansion(
    constant: float = 1.0,
    logarithm: Literal["natural", "decimal"] = "natural",
    points: int = 100,
):
    r"""The logarithm to first order.

    $\log(1 + x) = x - \frac{x^2}2 + O(x^3)$ as $x \to 0$, so that $\log(1 + x) \approx x$ for small
    $|x|$. Globally $\log(1 + x) \le x$ for every $x > -1$, with equality only at zero, and
    $|\log(1 + x) - x| \le x^2$ for $|x| \le \frac12$.

    *Proof.* The logarithm is concave and $x$ is its tangent; the alternating series has the
    remainder $x^2 \sum_{k \ge 2} |x|^{k-2} / k \le x^2$ at most. Checked with 50 digits; that the
    inequality is strict, by $\log(1 + x) - x \le -\frac{x^2}{2 (1 + \max\{x, 0\})}$.

    Knobs:
        constant: The factor of $x^2$ in the bound of the error.
        logarithm: Which logarithm is expanded.
        points: How many points of each range are tried.
    """
    import mpmath

    with mpmath.workdps(50):
        log = {"natural": mpmath.log, "decimal": mpmath.log10}[logarithm]
        for k in range(1, 9):
            for x in (mpmath.mpf(10) ** -k, -(mpmath.mpf(10) ** -k)):
                off = float(abs((log(1 + x) - x) / x**2 + 0.5))
                name = "distance of $(\\log(1 + x) - x) / x^2$ from $-1/2$"
                yield at_most(name, off, float(abs(x)), tol=0.0, x=float(x))
        for i in range(points, 0, -1):
            for x in (mpmath.mpf(i) / (2 * points), -mpmath.mpf(i) / (2 * points)):
                error, most = float(abs(log(1 + x) - x)), float(constant * x**2)
                yield at_most(
                    "error of $\\log(1 + x) \\approx x$", error, most, tol=0.0, x=float(x)
                )
            for x in (mpmath.mpf(10 * i) / points, mpmath.mpf(i) / (points + 1) - 1):
                gap, most = float(log(1 + x) - x), -float(x**2 / (2 + 2 * max(x, 0)))
                yield at_most("$\\log(1 + x) - x$", gap, most, tol=0.0, x=float(x))
        yield equals("logarithm of 1", float(log(1)), 0.0)


log1p_expansion.foil("the leading constant is no bound: 0.193 > 0.125 at x = -1/2", constant=0.5)
log1p_expansion.foil("the decimal logarithm has the slope 0.434", logarithm="decimal")


@claim(
    by="identity",
    sources=("B-006",),
    budget=0.5,
    full={"draws": 100},
    short=r"\int_a^b f\,g'\,dx = \big[f\,g\big]_a^b - \int_a^b f'\,g\,dx",
)
def integration_by_parts(sign: int = -1, boundary: int = 1, draws: int = 8):
    r"""Integration by parts.

    For continuously differentiable $f, g$ on $[a, b]$:
    $\int_a^b f\,g'\,dx = \big[f\,g\big]_a^b - \int_a^b f'\,g\,dx$; without limits
    $\int f g' = f g - \int f' g$ up to a constant. It is the product rule, integrated.

    Checked in fractions on polynomials of degree 6, rounded only to be compared, and for
    $x^2 \cos x$ by quadrature with 30 digits.

    Knobs:
        sign: The sign of the second integral.
        boundary: The factor of the boundary term.
        draws: How many pairs of polynomials are drawn.
    """
    import mpmath

    x = [Fraction(0), Fraction(1)]
    cases = [(x, x, Fraction(0), Fraction(1))]
    for _ in range(draws):
        cases.append((polynomial(6), polynomial(6), fraction(-2, 2), fraction(-2, 2)))
    for i, (f, g, a, b) in enumerate(cases):
        left = integral(product(f, derivative(g)), a, b)
        edge = value(product(f, g), b) - value(product(f, g), a)
        right = boundary * edge + sign * integral(product(derivative(f), g), a, b)
        yield equals("integral of $f g'$", float(right), float(left), tol=0.0, case=i)
    with mpmath.workdps(30):
        left = mpmath.quad(lambda t: t**2 * mpmath.cos(t), [0, 2])
        edge = 4 * mpmath.sin(2)
        right = boundary * edge + sign * mpmath.quad(lambda t: 2 * t * mpmath.sin(t), [0, 2])
        error = float(abs(left - right))
        yield at_most("error of the integral of $x^2 \\cos x$", error, 1e-25, tol=0.0)


integration_by_parts.foil("the sign of the second integral is minus", sign=1)
integration_by_parts.foil("the boundary term is lost", boundary=0)


def taylor(p: Polynomial, n: int, x0: Fraction, x: Fraction) -> Fraction:
    """The Taylor polynomial of degree n of a polynomial."""
    terms = (value(derivative(p, k), x0) / math.factorial(k) * (x - x0) ** k for k in range(n + 1))
    return sum(terms, Fraction(0))


@claim(
    by="identity",
    sources=("D-056", "E-046"),
    budget=0.5,
    full={"draws": 100},
    short=r"f(x) = \sum_{k \le n} \frac{f^{(k)}(x_0)}{k!} (x - x_0)^k +"
    r" \int_{x_0}^x \frac{f^{(n+1)}(t)}{n!} (x - t)^n\,dt",
)
def taylor_remainder(over: int = 0, base: Literal["t", "x0"] = "t", draws: int = 4):
    r"""Taylor's formula with the integral and with the Lagrange remainder.

    For $f \in C^{n+1}$ near $x_0$: $f(x) = \sum_{k=0}^n \frac{f^{(k)}(x_0)}{k!} (x - x_0)^k +
    \int_{x_0}^x \frac{f^{(n+1)}(t)}{n!} (x - t)^n\,dt$, the integral remainder. The Lagrange form
    replaces the integral by $\frac{f^{(n+1)}(\xi)}{(n+1)!} (x - x_0)^{n+1}$ for some $\xi$ strictly
    between $x_0$ and $x$.

    *Note.* Two sheets (D-056, E-046) print the integral remainder under the heading
    "Taylor-Lagrange formula", which is the name of the other one. *Proof.* Integration by parts,
    $n$ times; then the mean value theorem.

    Checked in fractions on polynomials of degree 8; for $e^t \cos t$ with 40 digits; and for the
    exponential function, whose $\xi$ is a logarithm.

    Knobs:
        over: What is added to n in the factorial of the integral remainder.
        base: What is taken from x in the power under the integral.
        draws: How many polynomials are drawn for each n.
    """
    import mpmath

    cube = [Fraction(0)] * 3 + [Fraction(1)]
    cases = [(cube, 1, Fraction(0), Fraction(1))]
    for n in list(range(5)) * draws:
        cases.append((polynomial(8), n, fraction(-2, 2), fraction(-2, 2)))
    for f, n, x0, x in cases:
        kernel = [Fraction(1)]
        for _ in range(n):
            kernel = product(kernel, [x, Fraction(-1)] if base == "t" else [x - x0])
        rest = integral(product(derivative(f, n + 1), kernel), x0, x) / math.factorial(n + over)
        whole, exact = float(taylor(f, n, x0, x) + rest), float(value(f, x))
        yield equals("Taylor polynomial and remainder", whole, exact, tol=0.0, n=n)
    with mpmath.workdps(40):

        def wave(t: Any, k: int) -> Any:
            """The k-th derivative of exp(t) cos(t)."""
            return mpmath.re((1 + 1j) ** k * mpmath.exp((1 + 1j) * t))

        x0, x, n = mpmath.mpf("0.3"), mpmath.mpf("1.4"), 3
        head = sum(wave(x0, k) / math.factorial(k) * (x - x0) ** k for k in range(n + 1))
        scale = mpmath.factorial(n + over)
        power = lambda t: (x - (t if base == "t" else x0)) ** n  # noqa: E731
        tail: Any = mpmath.quad(lambda t: wave(t, n + 1) * power(t) / scale, [x0, x])
        error = float(abs(head + tail - wave(x, 0)))
        yield at_most("error of the formula for $e^t \\cos t$", error, 1e-25, tol=0.0, n=n)
        for n in range(5):
            x0, x = (mpmath.mpf(float(v)) for v in torch.randn(2))
            head = sum(mpmath.exp(x0) / math.factorial(k) * (x - x0) ** k for k in range(n + 1))
            rest = mpmath.exp(x) - head
            xi = mpmath.log(math.factorial(n + 1) * rest / (x - x0) ** (n + 1))
            share = float((xi - x0) / (x - x0))
            yield at_least("place of $\\xi$ between $x_0$ and x", share, 0.0, tol=0.0, n=n)
            yield at_most("place of $\\xi$ between $x_0$ and x", share, 1.0, tol=0.0, n=n)


taylor_remainder.foil("1 / (n + 1)! belongs to the Lagrange form", over=1)
taylor_remainder.foil("the power of (x - t) stands under the integral", base="x0")


def cubic(theta: Tensor, g: Tensor, h: Tensor, a: Tensor) -> Tensor:
    """A polynomial of third degree, for rows of points."""
    return 1 + theta @ g + ((theta @ h) * theta).sum(1) / 2 + ((theta @ a.T) ** 3).sum(1)


@claim(
    by="sampling",
    sources=("A-075",),
    budget=0.5,
    full={"draws": 10_000},
    short=r"H\ M\text{-Lipschitz}: |f(x + \Delta) - f - g^\top \Delta - \tfrac12"
    r" \Delta^\top H \Delta| \le \tfrac M6 \|\Delta\|^3",
)
def second_order_taylor(
    half: float = 0.5, sixth: float = 6.0, bent: Literal["sine", "5/2"] = "sine", draws: int = 200
):
    r"""The second-order Taylor model of a function of several variables.

    If $\nabla^2 f$ is $M$-Lipschitz in operator norm, then
    $\big|f(\theta + \Delta) - f(\theta) - \nabla f(\theta)^\top \Delta
    - \frac12 \Delta^\top \nabla^2 f(\theta) \Delta\big| \le \frac M6 \|\Delta\|^3$; for $f \in C^3$
    the local error is $O(\|\Delta\|^3)$. This is the model behind Newton's step and behind
    arguments from curvature. The constant is attained by $f = (a^\top \theta)^3$, whose error is
    exactly $(a^\top \Delta)^3$. Checked for it, and for $\sum_i \sin \theta_i$ with $M = 1$;
    $\sum_i |\theta_i|^{5/2}$ has a Hessian that is continuous and not Lipschitz.

    Knobs:
        half: The factor of the quadratic term of the model.
        sixth: What M is divided by in the bound.
        bent: Which function is said to have a 1-Lipschitz Hessian.
        draws: How many points and steps are drawn in each dimension.
    """
    curve, peak = {
        "sine": (torch.sin, math.pi / 2),
        "5/2": (lambda x: x.abs() ** 2.5, 0.0),
    }[bent]
    for d in range(1, 7):
        theta, delta = torch.randn(2, draws, d)
        length = 10 ** (4 * torch.rand(draws, 1) - 3)
        delta = length * torch.nn.functional.normalize(delta, dim=1)
        f = lambda x: curve(x).sum(1)  # noqa: E731
        start, step = torch.full((1, d), peak), torch.eye(d)[:1] / 10
        rounding = 1e-12  # of d sines, slopes and curvatures, and of lengths up to 10
        error = model_error(f, start, step, half).abs() - rounding
        yield at_most("error of a step of 0.1 from the top", error, 0.001 / sixth, tol=0.0, d=d)
        error = model_error(f, theta, delta, half).abs() - rounding
        most = length[:, 0] ** 3 / sixth
        yield at_most("error of the quadratic model", error, most, tol=0.0, d=d)
        g, a = integers(d, most=3), integers(2, d, most=3)
        h = integers(d, d, most=3)
        theta, delta = integers(2, 50, d, most=4)
        error = model_error(lambda x, g=g, h=h, a=a: cubic(x, g, h + h.T, a), theta, delta, half)
        third = ((delta @ a.T) ** 3).sum(1)
        yield equals("error of a cubic's quadratic model", error.long(), third.long(), d=d)
        a = torch.randint(1, 4, (1, d)).double()
        error = model_error(lambda x, g=g, a=a: cubic(x, g, 0 * a.T * a, a), theta[:1], a, half)
        most = 6 * a.norm() ** 3 / sixth * a.norm() ** 3  # of the Hessian 6 (a^T theta) a a^T
        yield equals("error of the worst cubic", error, most, d=d)


def model_error(f, theta: Tensor, delta: Tensor, half: float) -> Tensor:
    """The function less its quadratic model, by autograd, for rows of points and steps."""
    theta = theta.clone().requires_grad_()
    value = f(theta)
    slope = (torch.autograd.grad(value.sum(), theta, create_graph=True)[0] * delta).sum(1)
    turn = torch.autograd.grad(slope.sum(), theta)[0]
    return (f(theta + delta) - value - slope - half * (turn * delta).sum(1)).detach()


second_order_taylor.foil("the factor 1/2 is lost: 0.005 > 0.00017 at a peak", half=1.0)
second_order_taylor.foil(
    "the constant M/6 cannot be halved", refuted_by="error of the worst cubic", sixth=12.0
)
second_order_taylor.foil("without a Lipschitz Hessian: 0.003 > 0.00017 at a kink", bent="5/2")
