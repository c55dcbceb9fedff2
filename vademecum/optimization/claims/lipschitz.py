"""Lipschitz functions of one variable: bounded slopes, and what compactness is for."""

import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals, slope
from vademecum.foundations import Box, lipschitz_constant
from vademecum.optimization.claims._objectives import Function

CURVES: dict[str, tuple[Function, float]] = {
    "sin 10x": (lambda x: (10 * x).sin(), 10.0),
    "arctan": (torch.atan, 1.0),
    "logistic loss": (lambda x: nn.functional.softplus(-x), 1.0),
    "Huber loss": (lambda x: nn.functional.huber_loss(x, 0 * x, reduction="none", delta=2.0), 2.0),
}
"""Differentiable functions with the supremum of their slopes, all but reached on [-20, 20]."""


def interval(low: float, high: float) -> Box:
    """A box of one dimension."""
    return Box(torch.tensor([low]), torch.tensor([high]))


def found_on(f: Function, low: float, high: float, *, starts: int = 4, steps: int = 10) -> float:
    """The steepest quotient that `lipschitz_constant` finds of a function of one variable."""
    box = interval(low, high)
    return lipschitz_constant(
        lambda x: f(x)[:, 0], box, pairs=5 * starts, starts=starts, steps=steps
    ).value


@claim(
    by="sampling",
    sources=("E-148", "E-152"),
    budget=0.5,
    full={"n": 100_000},
    short=r"|f(x_1) - f(x_2)| \le L\,|x_1 - x_2| \;\forall x_1, x_2 \iff \sup |f'| \le L",
)
def lipschitz(constant: Literal["slope", "height"] = "slope", growth: float = 1.0, n: int = 1000):
    r"""Lipschitz continuity and bounded derivatives.

    $f$ is $L$-Lipschitz if $\|f(x_1) - f(x_2)\| \le L \|x_1 - x_2\|$ for all $x_1, x_2$ (in metric
    spaces with distances, see `foundations.lipschitz_continuity`). A differentiable
    $f : \mathbb R \to \mathbb R$ is Lipschitz if and only if $f'$ is bounded, and the best constant
    is $\sup |f'|$.

    *Proof.* By the mean value theorem every difference quotient is a value of $f'$, which is itself
    a limit of difference quotients. Checked on $[-20, 20]$ for four functions, the losses of
    logistic and of robust regression among them. Where $f'$ is not bounded the quotients are not:
    those of $x^2$ on $[-R, R]$ grow like $2 R$, and $x^2 \sin x^{-2}$, which has a derivative
    everywhere, has a quotient above $\sqrt a$ between $a^{-1/2}$ and $(a + \pi)^{-1/2}$ for
    $a = 2 \pi k + \frac\pi2$.

    Knobs:
        constant: What is said to be the best constant: $\sup |f'|$ or $\sup |f|$.
        growth: The power of $R$ with which the constant of $x^2$ on $[-R, R]$ grows.
        n: How many pairs of points are drawn for each function.
    """
    radii = torch.logspace(0, 2, 9)
    found = [found_on(torch.square, -R, R, starts=2, steps=5) for R in radii.tolist()]
    yield slope("constant of $x^2$ on $[-R, R]$ against $R$", radii, found, growth)
    yield equals("constant of $x^2$ on $[-R, R]$ over $R$", torch.tensor(found) / radii, 2.0)
    grid = torch.linspace(-20, 20, 100_001)
    for name, (f, steepest) in CURVES.items():
        at: dict[str, Any] = {"f": name}
        values = f(grid)
        L = steepest if constant == "slope" else float(values.abs().max())
        quotients = (values.diff() / grid.diff()).abs()
        # A quotient over 4e-4 of values up to 40 is rounded by 1e-11, and misses 1e-5 at most.
        yield at_most("quotient on a fine grid", quotients, L, **at)
        yield equals("largest quotient on a fine grid", quotients.max(), L, tol=1e-4, **at)
        x, y = 40 * torch.rand(2, n) - 20
        yield at_most("distance of two values", (f(x) - f(y)).abs(), L * (x - y).abs(), **at)
        yield equals("steepest quotient found", found_on(f, -20.0, 20.0), L, tol=1e-6, **at)
    wave = lambda x: x**2 * (x**-2).sin()  # noqa: E731
    for k in (1, 10**2, 10**4, 10**6):
        a = torch.tensor(2 * math.pi * k + math.pi / 2)
        x, y = a**-0.5, (a + math.pi) ** -0.5
        rise = (wave(x) - wave(y)) / (x - y)
        yield at_least("quotient of $x^2 \\sin x^{-2}$ over $\\sqrt a$", rise / a**0.5, 1.0, k=k)
        yield at_most("its quotient at 0 over x", (wave(x) / x).abs() / x, 1.0, k=k)


lipschitz.foil("$\\sin 10 x$ is at most 1 and has the constant 10", constant="height")
lipschitz.foil("$x^2$ is not Lipschitz on the whole line", growth=0.0)
lipschitz.foil("the constant of $x^2$ grows no slower than $R$", growth=0.85)


def horner(coefficients: list[float]) -> Function:
    """The polynomial with these coefficients, the constant one first."""

    def f(x: Tensor) -> Tensor:
        value = torch.zeros_like(x)
        for c in reversed(coefficients):
            value = value * x + c
        return value

    return f


def steepest_place(p: np.polynomial.Polynomial, R: float) -> float:
    """Where a polynomial is steepest on [-R, R]: at an end, or at a zero of the second slope."""
    turns = p.deriv(2).roots()
    places = [float(x.real) for x in turns if abs(x.imag) < 1e-9 and abs(x.real) <= R]
    return max((-R, R, *places), key=lambda x: abs(float(p.deriv()(x))))


@claim(
    by="sampling",
    sources=("E-151", "E-153", "E-154"),
    budget=0.5,
    full={"n": 100_000},
    short=r"C^1[a, b] \subsetneq \mathrm{Lip}[a, b] \subsetneq C[a, b]",
)
def lipschitz_inclusions(
    domain: Literal["closed and bounded", "bounded", "closed"] = "closed and bounded",
    jump: float = 2.0,
    rate: float = -0.5,
    n: int = 1000,
):
    r"""Continuously differentiable, Lipschitz and continuous functions on compact intervals.

    On a compact interval continuously differentiable functions are Lipschitz, and Lipschitz
    functions are (uniformly) continuous; both inclusions are strict. Hence every $C^1$ function on
    $\mathbb R$ is locally Lipschitz. The reason is that a continuous function, here $f'$, is
    bounded on a closed bounded interval; compactness cannot be dropped.

    Checked for random polynomials on $[-R, R]$, whose steepest slope is at an end or at a zero of
    $f''$; for $|x|$, which is Lipschitz, while its one-sided derivatives at 0 differ by 2; for
    $\sqrt x$ on $[0, 1]$, which is uniformly continuous, $|\sqrt x - \sqrt y| \le
    \sqrt{|x - y|}$, while its quotient at 0 is $h^{-1/2}$; and for the continuous functions $x$ and
    $1 / x$ on $[0.1, 1]$, on $(0, 1)$ and on $[0.1, \infty)$.

    Knobs:
        domain: The kind of interval on which continuous functions are said to be bounded.
        jump: By how much the one-sided derivatives of $|x|$ differ at 0.
        rate: The power of $h$ in the quotient of the root at 0.
        n: How many pairs of points are drawn.
    """
    ends = {
        "closed and bounded": (0.1, 1.0),
        "bounded": (1e-7, 1 - 1e-7),
        "closed": (0.1, 1e7),
    }[domain]
    x = torch.logspace(math.log10(ends[0]), math.log10(ends[1]), 100).clamp(*ends)
    for name, f in {"1/x": torch.reciprocal, "x": torch.clone}.items():
        yield at_most("value of a continuous function", f(x), 1e6, f=name, domain=domain)
    tops = torch.linspace(0.1, 1, 1000).reciprocal().max()
    yield equals("largest value of $1 / x$ on $[0.1, 1]$", tops, 10.0)
    for R, degree in ((1.0, 3), (2.0, 5), (3.0, 4)):
        p = np.polynomial.Polynomial(torch.randn(degree + 1).tolist())
        f = horner(p.coef.tolist())
        place, at = steepest_place(p, R), {"R": R, "degree": degree}
        most = abs(float(p.deriv()(place)))
        x, y = R * (2 * torch.rand(2, n) - 1)
        share = (f(x) - f(y)).abs() / most
        yield at_most("distance of two values of a polynomial", share, (x - y).abs(), **at)
        yield at_most("steepest quotient found of a polynomial", found_on(f, -R, R), most, **at)
        low, high = torch.tensor([place - 1e-5, place + 1e-5]).clamp(-R, R)
        near = (f(high) - f(low)).abs() / (high - low) / most
        # By Markov's inequality the slope changes by 16 / R of its maximum a unit at most.
        yield equals("quotient around the steepest place", near, 1.0, tol=5e-4, **at)
    x, y = 2 * torch.rand(2, n) - 1
    yield at_most("distance of two moduli", (x.abs() - y.abs()).abs(), (x - y).abs())
    h = torch.logspace(-8, 0, 17)
    sides = (h.abs() - 0) / h - ((-h).abs() - 0) / -h
    yield equals("jump of the slope of $|x|$ at 0", sides, jump)
    x, y = torch.rand(2, n)
    uniform: Tensor = (x.sqrt() - y.sqrt()).abs()
    yield at_most("distance of two roots", uniform, (x - y).abs().sqrt())
    yield slope("quotient of the root at 0 against h", h, h.sqrt() / h, rate)


lipschitz_inclusions.foil("Lipschitz functions need not be differentiable", jump=0.0)
lipschitz_inclusions.foil("the root would be Lipschitz at 0", rate=0.0)
lipschitz_inclusions.foil("the quotient grows no slower than $h^{-1/2}$", rate=-0.4)
lipschitz_inclusions.foil("$x$ is not bounded on a closed half-line", domain="closed")
lipschitz_inclusions.erratum(
    "E-154",
    printed="continuous functions are bounded on an interval",
    right="continuous functions are bounded on a closed bounded interval",
    why=r"closed and bounded is missing here (the sheet's preceding line, on inclusions, has it):"
    r" $1/x$ is continuous and unbounded on the interval $(0, 1)$, and $x$ on the interval"
    r" $\mathbb R$. The conclusion drawn from it, local boundedness of the derivative, is right",
    weight="soft",
    domain="bounded",
)
