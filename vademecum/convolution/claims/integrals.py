"""Operators on functions: integrals, Fourier transforms and convolutions, by quadrature."""

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import factorial
from typing import Literal

import numpy as np
import torch

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.convolution.claims._signals import gauss

Values = np.ndarray


def laplace_moment(u: int, m: int) -> float:
    r"""$\int_0^1 e^{-u t} t^m dt$ for a whole number u, by its power series in fractions."""
    series = (Fraction((-u) ** j, factorial(j) * (m + j + 1)) for j in range(70))
    return float(sum(series))


@claim(
    by="identity", sources=("A-118", "B-258", "B-263", "D-180", "D-181", "D-182", "D-184"),
    budget=0.5, short=r"T(\alpha f + \beta g) = \alpha T f + \beta T g,\quad"
    r" (T f)(u) = \textstyle\int H(u, t) f(t)\, dt",
)  # fmt: skip
def integral_operator(
    transform: Literal["integral", "of the square", "running maximum"] = "integral",
    pairs: int = 20,
):
    r"""Integral operators are linear.

    An integral operator maps a function to $(T f)(u) = \int_{t_1}^{t_2} H(u, t) f(t)\, dt$ with a
    kernel $H$, real or complex, and limits $-\infty \le t_1 \le t_2 \le \infty$, wherever the
    integral converges. It is linear, $T(\alpha f + \beta g) = \alpha T f + \beta T g$, because $f$
    enters only under the integral and not otherwise. On a quadrature grid with nodes $t_j$ and
    weights $\omega_j$ it is the matrix with entries $H(u_i, t_j) \omega_j$.

    Checked for cubics, the real kernel $e^{-u t}$ on $[0, 1]$ and the complex one
    $e^{-(1 + 2 \pi i u) t}$ on $[0, \infty)$, whose integrals are known; quoted beyond.

    Knobs:
        transform: What is made of the function: an integral of it or of its square, or the largest
            value so far.
        pairs: How many pairs of cubics are drawn.
    """
    t, w = gauss(0, 1)
    u = np.arange(11)
    real = np.exp(-u[:, None] * t) * w
    moments = np.array([[laplace_moment(int(v), m) for m in range(4)] for v in u])
    yield from _linear("real kernel", transform, real, t, moments, pairs)
    t, w = np.concatenate([gauss(a, a + 5) for a in range(0, 60, 5)], 1)  # e^{-60} is left out
    u = np.linspace(0, 1.5, 7)
    waves = np.exp(-(1 + 2j * np.pi * u[:, None]) * t) * w
    s = 1 + 2j * np.pi * u[:, None]
    moments = np.array([factorial(m) for m in range(4)]) / s ** np.arange(1, 5)
    yield from _linear("complex kernel", transform, waves, t, moments, pairs)


def _linear(
    name: str, transform: str, matrix: Values, t: Values, moments: Values, pairs: int
) -> list[Evidence]:
    powers = t[:, None] ** np.arange(4)
    f, g = torch.randn(2, pairs, 4).numpy()
    a, b = (1 + torch.rand(2, pairs)).numpy() * np.array([[1], [-1]])

    def T(c: Values) -> Values:
        values = powers @ c
        if transform == "running maximum":
            return np.maximum.accumulate(values)
        return matrix @ (values**2 if transform == "of the square" else values)

    each = range(pairs)
    images = np.stack([T(a[i] * f[i] + b[i] * g[i]) for i in each])
    sums = np.stack([a[i] * T(f[i]) + b[i] * T(g[i]) for i in each])
    size = np.abs(sums).max()
    found = [equals("image of a combination", _parts(images / size), _parts(sums / size),
                    tol=1e-12, H=name)]  # fmt: skip
    if transform != "running maximum":  # which has no kernel
        stated = np.stack([moments @ f[i] for i in each])
        size = np.abs(moments).max()
        images = np.stack([T(f[i]) for i in each])
        # 40 nodes, cubics with coefficients of some 3: rounding of a few hundred units
        found.append(equals("integral of a cubic against the kernel", _parts(images / size),
                            _parts(stated / size), tol=1e-12, H=name))  # fmt: skip
    return found


def _parts(z: Values) -> Values:
    """Real and imaginary parts as numbers of their own."""
    return np.stack((np.real(z), np.imag(z)))


integral_operator.foil(
    "an integral of the square doubles twice", refuted_by="image of a combination",
    transform="of the square",
)  # fmt: skip
integral_operator.foil(
    "a running maximum keeps no minus sign", refuted_by="image of a combination",
    transform="running maximum",
)  # fmt: skip


@claim(
    by="identity", sources=("A-125", "B-259", "D-183", "D-191"), budget=0.5,
    short=r"(\mathcal{F} f)(u) = \textstyle\int e^{-2 \pi i t u} f(t)\, dt,\quad"
    r" \|\mathcal{F} f\|_2 = \|f\|_2",
)  # fmt: skip
def fourier_transform(frequency: Literal["ordinary", "angular"] = "ordinary", sign: int = -1):
    r"""The Fourier transform in ordinary frequency.

    $(\mathcal{F} f)(u) = \int_{-\infty}^\infty e^{-2 \pi i t u} f(t)\, dt$ for $f \in
    L^1(\mathbb{R})$: the integral operator with kernel $e^{-2 \pi i t u}$. In this normalisation
    $e^{-\pi t^2}$ is its own transform, $e^{-\pi a (t - b)^2}$ has the transform $a^{-1/2}
    e^{-\pi u^2 / a}\, e^{-2 \pi i b u}$, the unit box has $\mathrm{sinc}(u) = \sin(\pi u)/(\pi u)$,
    and Plancherel's identity holds without constants, $\|\mathcal{F} f\|_2 = \|f\|_2$ for $f \in
    L^1 \cap L^2$. Checked for these functions.

    Knobs:
        frequency: Whether the exponent is $2 \pi i t u$, or $i t u$ as for angular frequencies.
        sign: The sign of the exponent.
    """
    turn = sign * 1j * (2 * np.pi if frequency == "ordinary" else 1)
    t = np.linspace(-8, 8, 801)
    # the trapezoidal rule is exact to rounding for what vanishes at its ends, as Gaussians do
    w = np.full(801, t[1] - t[0])
    u = np.linspace(-3, 3, 15)

    def F(f: Values, t: Values, w: Values, u: Values) -> Values:
        return np.exp(turn * u[:, None] * t) @ (f * w)

    found = F(np.exp(-np.pi * t**2), t, w, u)
    yield equals("transform of the Gaussian", _parts(found), _parts(np.exp(-np.pi * u**2) + 0j),
                 tol=1e-12)  # fmt: skip
    s, v = gauss(-0.5, 0.5)
    yield equals("transform of the box", _parts(F(np.ones(40), s, v, u)),
                 _parts(np.sinc(u) + 0j), tol=1e-12)  # fmt: skip
    for a, b in zip((0.5 + 1.5 * torch.rand(3)).tolist(), (1 - 2 * torch.rand(3)).tolist(),
                    strict=True):  # fmt: skip
        b = b if abs(b) > 0.1 else b + 0.5
        f, at = np.exp(-np.pi * a * (t - b) ** 2), {"a": a, "b": b}
        stated = a**-0.5 * np.exp(-np.pi * u**2 / a - 2j * np.pi * b * u)
        yield equals("transform of a shifted Gaussian", _parts(F(f, t, w, u)), _parts(stated),
                     tol=1e-12, **at)  # fmt: skip
        norm = (w * np.abs(F(f, t, w, t)) ** 2).sum()
        yield equals("squared norm of the transform", norm, (2 * a) ** -0.5, tol=1e-10, **at)


fourier_transform.foil(
    "without the $2 \\pi$ Plancherel's identity has a factor",
    refuted_by="squared norm of the transform",
    frequency="angular",
)
fourier_transform.foil(
    "without the $2 \\pi$ the Gaussian is no fixed point", refuted_by="transform of the Gaussian",
    frequency="angular",
)  # fmt: skip
fourier_transform.foil("that is the inverse transform", sign=1)


def pieces(f: Callable[[Values], Values], ends: list[float]) -> float:
    """The integral of a function that is smooth between these ends."""
    parts = [gauss(a, b) for a, b in pairwise(ends) if b > a]
    return float(sum((w * f(t)).sum() for t, w in parts))


def normal(t: Values, variance: float) -> Values:
    """The density of a centred Gaussian."""
    return np.exp(-(t**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)


@claim(
    by="identity", sources=("A-119", "B-260", "C-104", "D-185", "D-186"), budget=0.5,
    short=r"(f * h)(u) = \textstyle\int h(u - t) f(t)\, dt,\quad"
    r" \int f * h = \int f \cdot \int h",
)  # fmt: skip
def function_convolution(kernel: Literal["h(u - t)", "h(t - u)"] = "h(u - t)"):
    r"""Convolution of functions.

    $(f * h)(u) = \int_{-\infty}^\infty h(u - t) f(t)\, dt = \int_{-\infty}^\infty h(t) f(u - t)\,
    dt$ whenever the integral converges absolutely; $f, h \in L^1$ suffices for almost every $u$,
    and then $\int f * h = \int f \cdot \int h$ and $\|f * h\|_1 \le \|f\|_1 \|h\|_1$, with equality
    if neither changes its sign. Typically $f$ is the signal and $h$ a kernel that decays fast;
    without decay the integral can diverge, as for $f \equiv h \equiv 1$.

    Checked against closed forms: Gaussian densities of the variances $v$ and $w$ give that of $v +
    w$, two unit boxes the triangle $\max(0, 1 - |u|)$, and $3 e^{-t}$ with $2 e^{-2 t}$, both for
    $t > 0$, give $6 (e^{-u} - e^{-2 u})$ for $u > 0$.

    Knobs:
        kernel: Which argument the kernel has under the integral.
    """
    sign = 1 if kernel == "h(u - t)" else -1
    grid = [-2.5, -1.3, -0.4, 0.0, 0.7, 1.1, 2.2]
    for v, w in ((1.0, 4.0), (0.5, 0.3)):
        t = np.linspace(-40, 40, 2001)
        found = [(normal(sign * (u - t), w) * normal(t, v)).sum() * (t[1] - t[0]) for u in grid]
        yield equals("two Gaussian densities", found, normal(np.array(grid), v + w), tol=1e-10)
    for u in grid:
        ends = sorted({-0.5, 0.5, *(np.clip([u - 0.5, u + 0.5], -0.5, 0.5).tolist())})
        found = pieces(lambda t, u=u: 1.0 * (np.abs(sign * (u - t)) <= 0.5), ends)
        yield equals("two boxes", found, max(0.0, 1 - abs(u)), tol=1e-12, u=u)
        stated = 6 * (np.exp(-u) - np.exp(-2 * u)) if u > 0 else 0.0
        one, other = exponentials(u, sign)
        yield equals("two exponentials", one, stated, tol=1e-10, u=u)
        if sign == 1:
            yield equals("two exponentials, the other way round", other, stated, tol=1e-10, u=u)
    yield from _integrals(sign)


def exponentials(u: float, sign: int) -> tuple[float, float]:
    """The integral over the kernel's place, and over the signal's."""

    def f(t: Values) -> Values:
        return np.where(t > 0, 3 * np.exp(-np.abs(t)), 0)

    def h(t: Values) -> Values:
        return np.where(t > 0, 2 * np.exp(-2 * np.abs(t)), 0)

    ends = sorted({0.0, max(u, 0.0), *np.linspace(max(u, 0.0), 40, 9).tolist()})
    other = sorted({min(u, 0.0), 0.0, max(u, 0.0)})
    return pieces(lambda t: h(sign * (u - t)) * f(t), ends), pieces(
        lambda t: h(t) * f(u - t), other
    )


def _integrals(sign: int) -> list[Evidence]:
    """What is said of integrals and norms."""
    u, w = np.concatenate([gauss(a, a + 3, 12) for a in range(-6, 27, 3)], 1)
    image = np.array([exponentials(float(v), sign)[0] for v in u])
    found = [equals("integral of two exponentials", w @ image, 3.0 * 1.0, tol=1e-8)]
    found.append(equals("norm, of two that are positive", w @ np.abs(image), 3.0, tol=1e-8))
    t = np.linspace(-20, 20, 601)
    f, h, step = normal(t, 1.0) * np.sin(2 * t), normal(t, 2.0), t[1] - t[0]
    image = np.array([(normal(sign * (v - t), 2.0) * f).sum() * step for v in t])
    norms = [np.abs(g).sum() * step for g in (image, f, h)]
    found.append(at_most("norm, if one changes its sign", norms[0], 0.5 * norms[1] * norms[2]))
    halves = [pieces(lambda t: np.ones_like(t), [-A, A]) for A in (10.0, 20.0)]
    found.append(at_least("integral of 1 * 1 over twice the interval", halves[1] / halves[0], 2.0))
    return found


function_convolution.foil(
    "that is a correlation, and not 0 before the signals begin",
    refuted_by="two exponentials",
    kernel="h(t - u)",
)
