r"""What the course claims of moment generating functions $M_X(t) = \mathbb E[e^{t^\top X}]$."""

import math
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Cauchy, Normal, Uniform

from vademecum.claims import at_most, claim, equals

Pmf = dict[int, Fraction]


def law(d: int = 2) -> tuple[Tensor, Tensor]:
    """A random law on six integer points, and their probabilities."""
    weights = torch.randint(1, 9, (6,)).double()
    return torch.randint(-3, 4, (6, d)).double(), weights / weights.sum()


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


@claim(by="identity", sources=("A-010", "B-024", "E-254"), budget=0.5, full={"draws": 200})
def mgf(formula: Callable[..., Tensor] = generating, transposed: bool = True, draws: int = 3):
    r"""The moment generating function.

    $M_X(t) = \mathbb E[e^{t^\top X}] \in (0, \infty]$ for a random vector $X \in \mathbb R^n$ and
    $t \in \mathbb R^n$. Always $M_X(0) = 1$, the set where it is finite is convex, $\log M_X$ is
    convex there, and $M_{A X + b}(t) = e^{t^\top b} M_X(A^\top t)$.

    *Proof* of convexity: $M_X(\lambda s + (1 - \lambda) t) \le M_X(s)^\lambda M_X(t)^{1 - \lambda}$
    by Hölder's inequality.
    """
    for k in range(draws):
        x, p = law()
        x[0] = x[1] + 1  # not constant
        t, s = torch.randn(2, 20, 2)
        m = formula(x, p, t)
        loop = [
            math.fsum(float(q) * math.exp(float(u @ v)) for q, v in zip(p, x, strict=True))
            for u in t
        ]
        yield equals(m, loop, draw=k)
        yield equals(formula(x, p, 0 * t), 1.0, draw=k)
        middle = formula(x, p, (s + t) / 2).log()
        yield at_most(middle, (formula(x, p, s).log() + m.log()) / 2, draw=k)
        a, b = torch.randint(-2, 3, (2, 2)).double(), torch.randn(2)
        a[0, 1] = a[1, 0] + 1
        inner = t @ a if transposed else t @ a.T  # rows (A^T t)^T = t^T A
        moved = formula(x @ a.T + b, p, t)
        yield equals(moved / ((t @ b).exp() * formula(x, p, inner)), 1.0, draw=k)


mgf.foil(r"$e^{t^\top \mathbb E X}$ is smaller, by Jensen's inequality", formula=of_the_mean)
mgf.foil(r"the affine rule with $A$ instead of $A^\top$", transposed=False)


@claim(by="identity", sources=("A-012", "B-024", "E-255"), budget=0.5, full={"order": 6})
def mgf_moments(cumulants: bool = False, pairings: int = 2, order: int = 4):
    r"""Moments from derivatives of the moment generating function.

    If $M_X$ is finite in a neighbourhood of 0, then $\mathbb E[X_1^{k_1} \cdots X_n^{k_n}] =
    \frac{\partial^{k_1 + \dots + k_n} M_X}{\partial t_1^{k_1} \cdots \partial t_n^{k_n}}
    \Big|_{t=0}$ for all exponents $k_i \ge 0$.

    *Check.* All mixed derivatives up to a total order, by automatic differentiation, for a finite
    law against sums over its atoms, and for a Gaussian with mean 0, where
    $\mathbb E[x_1^2 x_2^2] = \sigma_1^2 \sigma_2^2 + 2 \sigma_{12}^2$ (Isserlis).
    """
    x, p = law()

    def taken(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return (lambda t: f(t).log()) if cumulants else f

    coin = torch.tensor([[0.0], [1.0]]), torch.tensor([0.5, 0.5])
    yield equals(derivatives(taken(lambda t: generating(*coin, t)), (2,)), 0.5, order=2)
    for k in product(range(order + 1), repeat=2):
        if 0 < sum(k) <= order:
            moment = (p * x[:, 0] ** k[0] * x[:, 1] ** k[1]).sum()
            measured = derivatives(taken(lambda t: generating(x, p, t)), k)
            yield equals(measured, moment, order=sum(k))
    b = torch.randint(-2, 3, (2, 2)).double()
    b[0, 0] = b[1, 0] = 1 + b[1, 1].abs()
    cov = b @ b.T + torch.eye(2)
    measured = derivatives(taken(lambda t: (t @ cov @ t / 2).exp()), (2, 2))
    yield equals(measured, cov[0, 0] * cov[1, 1] + pairings * cov[0, 1] ** 2, order=4)


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


@claim(
    by="identity",
    sources=("A-011", "B-025", "D-024", "E-025", "E-258"),
    budget=0.5,
    full={"draws": 50},
)
def mgf_independent_sum(coupling: str = "independent", inside: bool = True, draws: int = 3):
    r"""The moment generating function of a weighted sum of independent variables.

    For independent $X_1, \dots, X_n$ and constants $a_i$,
    $M_{\sum_i a_i X_i}(t) = \prod_i M_{X_i}(a_i t)$; in particular $M_{X + Y} = M_X M_Y$.
    Independence is essential, equal distribution is not needed (i.i.d. gives $M_X^n$).

    *Check.* Laws on integers with rational weights: with $u = e^t$ both sides are Laurent
    polynomials and agree coefficient by coefficient, in integers over a common denominator; the
    left one by enumeration of all outcomes.
    """
    for draw in range(draws):
        weights, parts = (2, -1, 3), [pmf(2), pmf(3), pmf(4)]
        joint = {
            x: math.prod((p[k] for p, k in zip(parts, x, strict=True)), start=Fraction(1))
            for x in product(*parts)
        }
        if coupling != "independent":
            weights, sign = (1, 1), {"Y = X": 1, "Y = -X": -1}[coupling]
            parts = [parts[1], {sign * k: v for k, v in parts[1].items()}]
            joint = {(k, sign * k): v for k, v in parts[0].items()}
        left = defaultdict(Fraction)
        for x, chance in joint.items():
            left[sum(a * k for a, k in zip(weights, x, strict=True))] += chance
        right: dict[int, Any] = {0: Fraction(1)}
        for a, part in zip(weights, parts, strict=True):
            right = multiply(right, power(part, a, inside))
        for k in sorted({*left, *right}):
            gap = left.get(k, Fraction(0)) - right.get(k, Fraction(0))
            yield equals(gap.numerator, 0, power=k, draw=draw)


mgf_independent_sum.foil("$Y = -X$: the sum is constant", coupling="Y = -X")
mgf_independent_sum.foil(r"the weights outside, $\prod_i M_{X_i}(t)^{a_i}$", inside=False)
for _where, _coupling, _why in (
    ("A-011", "Y = -X", r"for $X = \pm 1$ and $Y = -X$ it is 1, not $\cosh^2 t$"),
    ("B-025", "Y = X", r"for $Y = X \sim \mathcal N(0, 1)$ it is $e^{2 t^2}$, not $e^{t^2}$"),
):
    mgf_independent_sum.erratum(
        _where,
        printed=r"$M_{X + Y} = M_X \cdot M_Y$ without a hypothesis",
        right=r"for independent $X$ and $Y$",
        why=_why,
        weight="soft",
        coupling=_coupling,
    )


def recovered(values: list[Fraction], points: list[Fraction]) -> list[Fraction]:
    r"""The coefficients of a polynomial from its values: Newton's interpolation in Fractions."""
    table = list(values)
    for level in range(1, len(points)):
        for i in range(len(points) - 1, level - 1, -1):
            table[i] = (table[i] - table[i - 1]) / (points[i] - points[i - level])
    out = [Fraction(0)] * len(points)
    for c, node in zip(reversed(table), reversed(points), strict=True):  # Horner
        out = [c - node * out[0], *(out[k - 1] - node * out[k] for k in range(1, len(out)))]
    return out


POINTS = [Fraction(k, 10) for k in (6, 8, 11, 14, 19)]  # u = e^t around 1
KNOWN: dict[str, Callable[[list[Fraction]], list[Fraction]]] = {
    "values": lambda p: [sum((v * u**k for k, v in enumerate(p)), Fraction(0)) for u in POINTS],
    "moments": lambda p: [sum((v * k**j for k, v in enumerate(p)), Fraction(0)) for j in range(4)],
    "point probabilities": lambda p: p,
}


def continuous(knows: str, finite: bool) -> list[tuple[Any, Any, list[float], list[float]]]:
    """Pairs of laws with densities, and what is known of each."""
    normal = [math.exp(t * t / 2) for t in (0.5, 1.0)]
    uniform = [(math.exp(t) - 1) / t for t in (0.5, 1.0)]
    if knows == "point probabilities":
        normal = uniform = [0.0, 0.0]
    pairs: list[Any] = [(Normal(0.0, 1.0), Uniform(0.0, 1.0), normal, uniform)]
    if not finite:  # see mgf_existence
        pairs += [(Cauchy(0.0, 1.0), Cauchy(0.0, 2.0), [math.inf] * 2, [math.inf] * 2)]
    return pairs


@claim(by="identity", sources=("D-018", "E-019", "E-256"), budget=0.5, full={"draws": 300})
def mgf_uniqueness(knows: str = "values", finite: bool = True, draws: int = 10):
    r"""The uniqueness theorem for moment generating functions.

    If $M_X$ and $M_Y$ are finite and equal on an open neighbourhood of 0, then $X$ and $Y$ have
    the same distribution, $P(X \le t) = P(Y \le t)$ for all $t$. Finiteness near 0 is essential:
    all Cauchy laws share $M(0) = 1$, $M(t) = \infty$ for $t \ne 0$. (Curtiss, 1942.)

    *Check.* Laws on $\{0, \dots, 4\}$ with rational weights: their values at five points determine
    the polynomial $\sum_k p_k u^k$, $u = e^t$, and hence the law, exactly. Two laws agree in what
    is known of them if and only if they are equal; among them $p$ and
    $p + \epsilon (1, -4, 6, -4, 1)$, which share the moments of order 0 to 3.
    """
    for draw in range(draws):
        p, r = (list(pmf(5).values()) for _ in range(2))
        step = min(p) / 8
        q = [v + step * c for v, c in zip(p, (1, -4, 6, -4, 1), strict=True)]
        for other in (p, q, r):
            same = KNOWN[knows](p) == KNOWN[knows](other)
            yield equals(int(same), int(p == other), draw=draw)
        for value, v in zip(recovered(KNOWN["values"](p), POINTS), p, strict=True):
            yield equals((value - v).numerator, 0, draw=draw)
    grid = torch.linspace(-3, 3, 25).clamp(1e-6, 1 - 1e-6)  # in the support of all
    for first, second, one, two in continuous(knows, finite):
        yield equals(int(one == two), int(torch.equal(first.cdf(grid), second.cdf(grid))))


mgf_uniqueness.foil("equality of the moments of order 0 to 3", knows="moments")
mgf_uniqueness.foil(
    r"equal point probabilities: $\mathcal N(0, 1)$ and $U(0, 1)$", knows="point probabilities"
)
for _where, _printed in {
    "D-018": r"$\psi_X(t) = \mathbb E[e^{t X}]$ said to characterise the law of $X$, without a "
    "condition",
    "E-019": r"$\psi_X(t) = E[e^{t X}]$ said to characterise the law, without an existence "
    "condition",
}.items():
    mgf_uniqueness.erratum(
        _where,
        printed=_printed,
        right=r"if it is finite in a neighbourhood of 0",
        why="all Cauchy laws share it",
        weight="soft",
        finite=False,
    )
mgf_uniqueness.erratum(
    "E-256",
    printed=r"$M_X = M_Y$ then $\forall t: P(\mathbf X = t) = P(\mathbf Y = t)$ (distributions are"
    " the same)",
    right=r"$P(X \le t) = P(Y \le t)$ for all $t$",
    why=r"equal point probabilities do not mean equal laws: they are 0 for $\mathcal N(0, 1)$ and"
    " for $U(0, 1)$",
    weight="soft",
    knows="point probabilities",
)
