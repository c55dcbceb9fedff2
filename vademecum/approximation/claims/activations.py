"""The logistic function: its inverse, its derivatives, and how it saturates."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, complex_step, equals

EPS = torch.finfo(torch.float64).eps


def derivative(f: Callable[[Tensor], Tensor], z: Tensor, order: int = 1) -> Tensor:
    """The derivative of a function, entry by entry, as autograd finds it."""
    z = z.detach().requires_grad_()
    value = f(z)
    for i in range(order):
        (value,) = torch.autograd.grad(value.sum(), z, create_graph=i < order - 1)
    return value.detach()


def quotient(z: Tensor) -> Tensor:
    """The logistic function as it is written on paper."""
    return z.exp() / (1 + z.exp())


@claim(
    by="identity",
    sources=("A-042", "B-100", "C-059", "D-145", "D-150"),
    budget=0.5,
    short=r"\sigma(z) = \frac{1}{1 + e^{-z}} \in (0, 1), \quad \sigma(-z) = 1 - \sigma(z)",
)
def logistic(
    formula: Callable[[Tensor], Tensor] = torch.sigmoid, total: float = 1.0, n: int = 10_001
):
    r"""The logistic function.

    $\sigma(z) = \frac{1}{1 + e^{-z}}$, applied entry by entry, is smooth and strictly increasing
    with the range $(0, 1)$, and $\sigma(z) + \sigma(-z) = 1$. It is a smooth surrogate of the
    threshold unit: $|\sigma(\beta z) - [z > 0]| \le e^{-\beta |z|}$, and at least half of that. An
    implementation must not overflow for large $|z|$.

    Torch's is compared with SciPy's up to a relative error of 16 units of roundoff. It grows from
    point to point of a grid by its spacing times the smallest slope between them, which is that at
    the outer point, less rounding: $10^{-5}$ of it for $|z| \le 20$.

    Knobs:
        formula: The implementation.
        total: The sum $\sigma(z) + \sigma(-z)$.
        n: At how many points it is compared with SciPy's.
    """
    z = torch.linspace(-700, 700, n)
    off = (formula(z) / torch.from_numpy(expit(z.numpy())) - 1).abs()
    yield at_most("relative error against SciPy", off, 16 * EPS, tol=0.0)
    ends = formula(torch.tensor([-1000.0, 1000.0]))
    off = (ends - torch.tensor([0.0, 1.0])).abs().nan_to_num(nan=math.inf)
    yield at_most(r"error at $\pm 1000$, infinite if it is no number", off, 1e-300, tol=0.0)
    z = torch.linspace(-20, 20, 1001)
    outer = torch.maximum(z[1:].abs(), z[:-1].abs()).neg().exp()
    rise = formula(z).diff() / (0.04 * outer / (1 + outer) ** 2)
    yield at_least("growth from point to point, over spacing and slope", rise, 1 - 1e-5, tol=0.0)
    yield equals("sum of the values at $z$ and $-z$", formula(z) + formula(-z), total, tol=2 * EPS)
    left = -torch.randn(100).abs()  # right of 0 it is the same, by the sum
    for beta in (1, 10, 100):
        share = formula(beta * left) / (beta * left).exp()
        yield at_most(r"distance from the step over $e^{-\beta |z|}$", share, 1.0, beta=beta)
        yield at_least(r"distance from the step over $e^{-\beta |z|}$", share, 0.5, beta=beta)


logistic.foil(
    "the naive quotient is not a number for large arguments",
    refuted_by=r"error at $\pm 1000$, infinite if it is no number",
    formula=quotient,
)
logistic.foil("the logistic function is not odd", total=0.0)


@claim(
    by="identity",
    sources=("A-043", "B-101", "D-147"),
    budget=0.5,
    short=r"\sigma^{-1}(t) = \log \frac{t}{1 - t}",
)
def logit(inverse: Callable[[Tensor], Tensor] = torch.logit, n: int = 2000):
    r"""The logit, the inverse of the logistic function.

    For $t \in (0, 1)$ the inverse of $\sigma$ is the log-odds
    $\sigma^{-1}(t) = \log \frac{t}{1 - t}$, which is odd about $t = \frac12$.

    Knobs:
        inverse: The inverse as a function of $t$.
        n: From how many points there and back again is tried.
    """
    t = torch.cat([torch.rand(n).clamp(1e-9, 1 - 1e-9), 10 ** -torch.linspace(1, 9, 50)])
    yield equals(r"$\sigma(\sigma^{-1}(t))$ over $t$", torch.sigmoid(inverse(t)) / t, 1.0)
    z = torch.linspace(-15, 15, n)
    yield equals(r"$\sigma^{-1}(\sigma(z))$", inverse(torch.sigmoid(z)), z)
    t = torch.arange(1, 1024) / 1024
    odds = [math.log(k) - math.log(1024 - k) for k in range(1, 1024)]
    yield equals("log-odds", inverse(t), odds)
    yield equals("log-odds of the complement", inverse(1 - t), -inverse(t))


logit.foil("the odds upside down", inverse=lambda t: ((1 - t) / t).log())


def polynomials(order: int, sign: int) -> list[list[int]]:
    r"""Coefficients of $p_0(s) = s$ and $p_{k + 1} = p_k' (s + \mathrm{sign}\, s^2)$."""
    found = [[0, 1]]
    for _ in range(order):
        p = found[-1]
        slope = [i * c for i, c in enumerate(p)][1:]
        found.append([0] * (len(p) + 1))
        for i, c in enumerate(slope):
            found[-1][i + 1] += c
            found[-1][i + 2] += sign * c
    return found


@claim(
    by="identity",
    sources=("A-044", "B-102", "B-103", "D-146", "D-149"),
    budget=0.5,
    short=r"\sigma' = \sigma (1 - \sigma) = \tfrac14 (1 - \tanh^2 \tfrac z2) \le \tfrac14",
)
def logistic_derivatives(half: float = 0.5, sign: int = -1, order: int = 6):
    r"""All derivatives of the logistic function are polynomials in it.

    $\sigma' = \sigma (1 - \sigma) = \sigma(z) \sigma(-z) =
    \frac14 \left(1 - \tanh^2 \frac z2\right) \le \frac14$ with equality at $z = 0$ alone. Since
    $\sigma'$ is a polynomial in $\sigma$, so is every derivative: $\sigma^{(k)} = p_k(\sigma)$ with
    $p_0(s) = s$ and $p_{k + 1}(s) = p_k'(s)\, (s - s^2)$, of degree $k + 1$ with the leading
    coefficient $(-1)^k k!$; hence $\sigma \in C^\infty$.

    Torch's slope is compared with the complex step. The integer polynomials are compared with
    autograd, applied $k$ times to $1 / (1 + e^{-z})$, which knows no rule for $\sigma$.

    Knobs:
        half: The factor of $z$ in the argument of the hyperbolic tangent.
        sign: The sign of $s^2$ in the recursion.
        order: Up to which derivative polynomials are compared.
    """
    z = torch.linspace(-10, 10, 401)
    slope = derivative(torch.sigmoid, z)
    exact = complex_step(lambda t: 1 / (1 + np.exp(-t)), z.numpy(), 1)
    forms = {
        "autograd": slope,
        r"$\frac14 (1 - \tanh^2 \frac z2)$": (1 - torch.tanh(half * z) ** 2) / 4,
        r"$\sigma(z) \sigma(-z)$": torch.sigmoid(z) * torch.sigmoid(-z),
    }
    for form, found in forms.items():
        yield equals("slope over the complex step's", found / exact, 1.0, form=form)
    yield equals("slope at 0", slope[200], 0.25, tol=EPS)
    away = slope[z.abs() > 0.04]  # where tanh(z / 2)^2 is 6e-4 or more
    yield at_most("slope at a distance of 0.05 and more from 0", away, 0.25 - 1.5e-4, tol=0.0)
    z = torch.randn(20)
    s = torch.sigmoid(z)
    for k, p in enumerate(polynomials(order, sign)):
        leading = (-1) ** k * math.factorial(k)
        yield equals("leading coefficient", p[k + 1], leading, k=k)
        yield equals("degree", max(i for i, c in enumerate(p) if c), k + 1, k=k)
        value = sum(c * s**i for i, c in enumerate(p))
        paper = derivative(lambda t: 1 / (1 + (-t).exp()), z, k) if k else s
        yield equals("polynomial in the logistic function", value, paper, k=k)


logistic_derivatives.foil("the argument of tanh not halved", half=1.0)
logistic_derivatives.foil(
    r"$\sigma' = \sigma (1 + \sigma)$", refuted_by="polynomial in the logistic function", sign=1
)


def through_chain(w: Tensor, x: Tensor, unit: Callable[[Tensor], Tensor]) -> Tensor:
    """The derivatives of chains of units, one a row of weights, with respect to their inputs."""

    def run(x: Tensor) -> Tensor:
        for layer in w.T:
            x = unit(layer * x)
        return x

    return derivative(run, x)


@claim(
    by="sampling",
    sources=("B-166", "B-175"),
    budget=0.5,
    full={"chains": 10_000},
    short=r"\sigma'(z) \le e^{-|z|}, \quad |(\sigma_{w_L} \circ \dots \circ \sigma_{w_1})'|"
    r" \le 4^{-L} \text{ for } |w_l| \le 1",
)
def saturation(unit: Literal["sigmoid", "tanh"] = "sigmoid", chains: int = 50):
    r"""Saturating units damp gradients, active rectifiers do not.

    $\sigma'(z) = \sigma(z) \sigma(-z) \le e^{-|z|}$, so a logistic unit far from 0 transmits almost
    no gradient; and a chain of $L$ logistic units with weights $|w_l| \le 1$ has a derivative of at
    most $4^{-L}$ in modulus, since $\sigma' \le \frac14$ (attained for $L = 1$, $w = 1$ at 0). A
    ReLU has slope exactly 1 for every $z > 0$, however large, so a chain of active ReLUs with unit
    weights transmits the gradient undamped.

    Chains of up to 50 units with random weights, the first of them with unit weights and input 0.

    Knobs:
        unit: The saturating unit.
        chains: How many chains of a depth are drawn.
    """
    z = torch.linspace(0, 30, 301)
    slope = derivative(torch.sigmoid, -z)
    yield at_most("slope of the logistic function times $e^{|z|}$", slope * z.exp(), 1.0)
    yield equals("slope of the logistic function at $z$ and $-z$", derivative(torch.sigmoid, z),
                 slope, tol=2 * EPS)  # fmt: skip
    paper = {"sigmoid": lambda t: 1 / (1 + np.exp(-t)), "tanh": np.tanh}[unit]
    for depth in (1, 5, 20, 50):
        w, x = 2 * torch.rand(chains, depth) - 1, 2 * torch.randn(chains)
        w[0], x[0] = 1.0, 0.0
        found = through_chain(w, x, getattr(torch, unit))
        limit = -depth * math.log(4)
        yield at_most("log of the chain's derivative", found.abs().log(), limit, depth=depth)

        def chain(x: np.ndarray, w: Tensor = w) -> np.ndarray:
            for layer in w.T.numpy():
                x = paper(layer * x)
            return x

        exact = complex_step(chain, x.numpy(), 1)
        yield equals("chain's derivative over the complex step's", found / exact, 1.0, depth=depth)
        active = through_chain(torch.ones(chains, depth), 1e6 * x.abs() + 1, torch.relu)
        yield equals("derivative of a chain of active ReLUs", active, 1.0, tol=0.0, depth=depth)


saturation.foil("tanh has slope 1 at 0, so a chain at rest transmits everything", unit="tanh")
