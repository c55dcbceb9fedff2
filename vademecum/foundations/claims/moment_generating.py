r"""Moment generating functions: moments as derivatives."""

import math
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import at_most, claim, equals, finite_law, integers

Pmf = dict[int, Fraction]


def generating(x: Tensor, p: Tensor, t: Tensor) -> Tensor:
    r"""$M_X(t)$ of a finite law, at each row of `t`."""
    return torch.logsumexp(t @ x.mT + p.log(), -1).exp()


def of_the_mean(x: Tensor, p: Tensor, t: Tensor) -> Tensor:
    r"""$e^{t^\top \mathbb E X}$: exponential and expectation exchanged."""
    return (t @ (p @ x)).exp()


def derivatives(f: Callable[[Tensor], Tensor], orders: tuple[int, ...]) -> Tensor:
    """The mixed derivative of these orders at 0, by automatic differentiation."""
    t = torch.zeros(len(orders), requires_grad=True)
    value = f(t)
    for i, order in enumerate(orders):
        for _ in range(order):
            value = torch.autograd.grad(value, t, create_graph=True)[0][i]
    return value


@claim(
    by="identity",
    sources=("A-010", "B-024", "E-254"),
    budget=0.5,
    full={"draws": 200},
    short=r"M_X(t) = \mathbb E[e^{t^\top X}], \quad M_{A X + b}(t) = e^{t^\top b} M_X(A^\top t)",
)
def mgf(formula: Callable[..., Tensor] = generating, transposed: bool = True, draws: int = 2):
    r"""The moment generating function.

    $M_X(t) = \mathbb E[e^{t^\top X}] \in (0, \infty]$ for a random vector $X \in \mathbb R^n$ and
    $t \in \mathbb R^n$. Always $M_X(0) = 1$, the set where it is finite is convex, $\log M_X$ is
    convex there, and $M_{A X + b}(t) = e^{t^\top b} M_X(A^\top t)$. Checked for finite laws, where
    it is finite everywhere.

    *Proof* of convexity: $M_X(\lambda s + (1 - \lambda) t) \le M_X(s)^\lambda M_X(t)^{1 - \lambda}$
    by Hölder's inequality.

    Knobs:
        formula: The function of the points of a law, their probabilities, and $t$.
        transposed: Whether the affine rule has $A^\top t$, or $A t$.
        draws: How many laws of each dimension are drawn.
    """
    for n, k in product((2, 3), range(draws)):
        at = {"n": n, "draw": k}
        x, p = finite_law(n)
        x[0] = x[1] + 1  # not constant
        t, s = torch.randn(2, 20, n)
        m = formula(x, p, t)
        loop = [
            math.fsum(float(q) * math.exp(float(u @ v)) for q, v in zip(p, x, strict=True))
            for u in t
        ]
        yield equals("$M(t)$, over the sum of its terms", m / torch.tensor(loop), 1.0, **at)
        yield equals("$M(0)$", formula(x, p, 0 * t), 1.0, **at)
        share = torch.rand(20, 1)
        between = formula(x, p, share * s + (1 - share) * t).log()
        chord = share[:, 0] * formula(x, p, s).log() + (1 - share[:, 0]) * m.log()
        yield at_most(r"$\log M$ between two points", between, chord, **at)
        a, b = integers(n, n, most=2), torch.randn(n)
        a[0, 1] = a[1, 0] + 1
        inner = t @ a if transposed else t @ a.T  # rows (A^T t)^T = t^T A
        ratio = formula(x @ a.T + b, p, t) / ((t @ b).exp() * formula(x, p, inner))
        yield equals("$M$ of the image, over its formula", ratio, 1.0, **at)


mgf.foil(r"$e^{t^\top \mathbb E X}$ is smaller, by Jensen's inequality", formula=of_the_mean)
mgf.foil(r"the affine rule with $A$ instead of $A^\top$", transposed=False)


@claim(
    by="identity",
    sources=("A-012", "B-024", "E-255"),
    budget=0.5,
    full={"order": 6},
    short=r"\mathbb E[X_1^{k_1} \cdots X_n^{k_n}] = "
    r"\partial_{t_1}^{k_1} \cdots \partial_{t_n}^{k_n} M_X(0)",
)
def mgf_moments(cumulants: bool = False, pairings: int = 2, order: int = 4):
    r"""Moments from derivatives of the moment generating function.

    If $M_X$ is finite in a neighbourhood of 0, then $\mathbb E[X_1^{k_1} \cdots X_n^{k_n}] =
    \frac{\partial^{k_1 + \dots + k_n} M_X}{\partial t_1^{k_1} \cdots \partial t_n^{k_n}}
    \Big|_{t=0}$ for all exponents $k_i \ge 0$.

    *Check.* All mixed derivatives up to a total order, by automatic differentiation, for a finite
    law in the plane against sums over its atoms, and for a Gaussian with mean 0, where
    $\mathbb E[x_1^2 x_2^2] = \sigma_1^2 \sigma_2^2 + 2 \sigma_{12}^2$ (Isserlis).

    Knobs:
        cumulants: Whether $\log M_X$ is differentiated instead of $M_X$.
        pairings: The factor before $\sigma_{12}^2$.
        order: The highest total order.
    """
    x, p = finite_law(2)

    def taken(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return (lambda t: f(t).log()) if cumulants else f

    coin = torch.tensor([[0.0], [1.0]]), torch.tensor([0.5, 0.5])
    second = derivatives(taken(lambda t: generating(*coin, t)), (2,))
    yield equals("second moment of a fair coin", second, 0.5, order=2)
    for k in product(range(order + 1), repeat=2):
        if 0 < sum(k) <= order:
            moment = (p * x[:, 0] ** k[0] * x[:, 1] ** k[1]).sum()
            measured = derivatives(taken(lambda t: generating(x, p, t)), k)
            yield equals("mixed moment", measured, moment, order=sum(k), of=str(k))
    b = integers(2, 2, most=2)
    b[0, 0] = b[1, 0] = 1 + b[1, 1].abs()
    cov = b @ b.T + torch.eye(2)
    measured = derivatives(taken(lambda t: (t @ cov @ t / 2).exp()), (2, 2))
    isserlis = cov[0, 0] * cov[1, 1] + pairings * cov[0, 1] ** 2
    yield equals("mixed moment of a Gaussian", measured, isserlis, order=4)


mgf_moments.foil(
    r"derivatives of $\log M_X$ are cumulants: $\frac14$ for a fair coin, not $\frac12$",
    cumulants=True,
)
mgf_moments.foil("Isserlis without the factor 2", pairings=1)


def pmf(size: int = 3) -> Pmf:
    """A random law on the first few integers, in Fractions."""
    weights = torch.randint(1, 9, (size,)).tolist()
    return {k: Fraction(w, sum(weights)) for k, w in enumerate(weights)}


def multiply(p: dict[int, Any], q: dict[int, Any]) -> dict[int, Any]:
    """The product of two Laurent polynomials."""
    out = defaultdict(Fraction)
    for (i, a), (j, b) in product(p.items(), q.items()):
        out[i + j] += a * b
    return out


def power(p: Pmf, a: int, inside: bool) -> dict[int, Any]:
    r"""$M(a t)$ as a polynomial in $u = e^t$, or $M(t)^a$."""
    if inside:
        return {a * k: v for k, v in p.items()}
    out: dict[int, Any] = {0: Fraction(1)}
    for _ in range(abs(a)):
        out = multiply(out, p if a > 0 else {-k: v for k, v in p.items()})
    return out


Coupling = Literal["independent", "Y = X", "Y = -X"]
CORRELATION = {"independent": 0.0, "Y = X": 1.0, "Y = -X": -1.0}


def coupled_signs(coupling: str) -> float:
    """The mean of exp(X + Y) for two random signs, one of which may determine the other."""
    chance = {1: (1 + CORRELATION[coupling]) / 4, -1: (1 - CORRELATION[coupling]) / 4}
    return math.fsum(chance[x * y] * math.exp(x + y) for x, y in product((-1, 1), repeat=2))


def coupled_normals(coupling: str) -> float:
    """The mean of exp(X + Y) for two standard normal variables, by a Gauss-Hermite rule."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights, r = weights / weights.sum(), CORRELATION[coupling]
    other = r * nodes[:, None] + math.sqrt(1 - r * r) * nodes
    return float(weights @ np.exp(nodes[:, None] + other) @ weights)


@claim(
    by="identity",
    sources=("A-011", "B-025", "D-024", "E-025", "E-258"),
    budget=0.5,
    full={"draws": 50},
    short=r"X_i \text{ independent} \implies M_{\sum_i a_i X_i}(t) = \prod_i M_{X_i}(a_i t)",
)
def mgf_independent_sum(coupling: Coupling = "independent", inside: bool = True, draws: int = 3):
    r"""The moment generating function of a weighted sum of independent variables.

    For independent $X_1, \dots, X_n$ and constants $a_i$,
    $M_{\sum_i a_i X_i}(t) = \prod_i M_{X_i}(a_i t)$; in particular $M_{X + Y} = M_X M_Y$.
    Independence is essential, equal distribution is not needed (i.i.d. gives $M_X^n$).

    *Check.* Laws on integers with rational weights: with $u = e^t$ both sides are Laurent
    polynomials and agree coefficient by coefficient, in integers over a common denominator; the
    left one by enumeration of all outcomes. For two signs $\cosh^2 1$, for two standard normal
    variables $e$ at $t = 1$.

    Knobs:
        coupling: Whether the variables are independent, or two of them with $Y = \pm X$.
        inside: Whether the weights stand in the argument, or as powers $M_{X_i}(t)^{a_i}$.
        draws: How many triples of laws are drawn.
    """
    yield equals("$M_{X + Y}(1)$ of two signs", coupled_signs(coupling), math.cosh(1) ** 2)
    yield equals("$M_{X + Y}(1)$ of two normals", coupled_normals(coupling), math.e)
    for draw in range(draws):
        weights, parts = (2, -1, 3), [pmf(2), pmf(3), pmf(4)]
        joint = {
            x: math.prod((p[k] for p, k in zip(parts, x, strict=True)), start=Fraction(1))
            for x in product(*parts)
        }
        if coupling != "independent":
            weights, sign = (1, 1), int(CORRELATION[coupling])
            parts = [parts[1], {sign * k: v for k, v in parts[1].items()}]
            joint = {(k, sign * k): v for k, v in parts[0].items()}
        left = defaultdict(Fraction)
        for x, chance in joint.items():
            left[sum(a * k for a, k in zip(weights, x, strict=True))] += chance
        right: dict[int, Any] = {0: Fraction(1)}
        for a, part in zip(weights, parts, strict=True):
            right = multiply(right, power(part, a, inside))
        for k in sorted({*left, *right}):
            pair = [side.get(k, Fraction(0)) for side in (left, right)]
            scale = math.lcm(*(c.denominator for c in pair))
            one, other = (int(c * scale) for c in pair)
            yield equals(
                "coefficient of $e^{k t}$, times the common denominator", one, other, k=k, draw=draw
            )


mgf_independent_sum.foil("$Y = -X$: the sum is constant", coupling="Y = -X")
mgf_independent_sum.foil(
    r"the weights outside, $\prod_i M_{X_i}(t)^{a_i}$",
    refuted_by="coefficient of $e^{k t}$, times the common denominator",
    inside=False,
)
for _where, _coupling, _of, _why in (
    (
        "A-011",
        "Y = -X",
        "signs",
        r"Independence is missing. For $X = \pm 1$ with probability one half and $Y = -X$, "
        r"$M_{X + Y}(t) = 1$ while $M_X(t) M_Y(t) = \cosh^2 t$, 2.38 at $t = 1$.",
    ),
    (
        "B-025",
        "Y = X",
        "normals",
        r"Same omission: for $Y = X \sim \mathcal N(0, 1)$, $M_{2 X}(t) = e^{2 t^2}$ but "
        r"$M_X(t)^2 = e^{t^2}$; 7.39 and 2.72 at $t = 1$.",
    ),
):
    mgf_independent_sum.erratum(
        _where,
        printed=r"$M_{X + Y} = M_X \cdot M_Y$ without a hypothesis",
        right=r"for independent $X$ and $Y$",
        why=_why,
        weight="soft",
        refuted_by=f"$M_{{X + Y}}(1)$ of two {_of}",
        coupling=_coupling,
    )
