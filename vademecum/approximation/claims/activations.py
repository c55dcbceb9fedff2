"""What the course claims of the logistic function and the hyperbolic tangent."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor, nn

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


@claim(by="identity", sources=("A-042", "B-100", "C-059", "D-145", "D-150"), budget=0.5)
def logistic(
    formula: Callable[[Tensor], Tensor] = torch.sigmoid, total: float = 1.0, n: int = 10_001
):
    r"""The logistic function.

    $\sigma(z) = \frac{1}{1 + e^{-z}}$, applied entry by entry, is smooth and strictly increasing
    with the range $(0, 1)$, and $\sigma(z) + \sigma(-z) = 1$. It is a smooth surrogate of the
    threshold unit: $|\sigma(\beta z) - [z > 0]| \le e^{-\beta |z|}$. An implementation must not
    overflow for large $|z|$.

    Torch's is compared with SciPy's up to a relative error of 16 units of roundoff.
    """
    z = torch.linspace(-700, 700, n)
    yield at_most((formula(z) / torch.from_numpy(expit(z.numpy())) - 1).abs(), 16 * EPS, tol=0.0)
    ends = formula(torch.tensor([-1000.0, 1000.0]))
    yield equals(int(torch.isfinite(ends).sum()), 2, z=1000)
    yield at_most(ends[0].abs(), 1e-300, tol=0.0, z=-1000)
    yield equals(ends[1], 1.0, tol=0.0, z=1000)
    z = torch.linspace(-30, 30, 1001)
    yield equals(int((formula(z).diff() > 0).sum()), 1000)
    yield equals(formula(z) + formula(-z), total, tol=2 * EPS)
    z = torch.randn(100)
    for beta in (1, 10, 100):
        gap = (formula(beta * z) - (z > 0).double()).abs()
        yield at_most(gap, (-beta * z.abs()).exp(), beta=beta)


logistic.foil("the naive quotient is not a number for large arguments", formula=quotient)
logistic.foil("the logistic function is not odd", total=0.0)


@claim(by="identity", sources=("A-043", "B-101", "D-147"), budget=0.5)
def logit(inverse: Callable[[Tensor], Tensor] = torch.logit, n: int = 2000):
    r"""The logit, the inverse of the logistic function.

    For $t \in (0, 1)$ the inverse of $\sigma$ is the log-odds
    $\sigma^{-1}(t) = \log \frac{t}{1 - t}$, which is odd about $t = \frac12$.
    """
    t = torch.cat([torch.rand(n).clamp(1e-9, 1 - 1e-9), 10 ** -torch.linspace(1, 9, 50)])
    yield equals(torch.sigmoid(inverse(t)) / t, torch.ones_like(t))
    z = torch.linspace(-15, 15, n)
    yield equals(inverse(torch.sigmoid(z)), z)
    t = torch.arange(1, 1024) / 1024
    yield equals(inverse(t), [math.log(k) - math.log(1024 - k) for k in range(1, 1024)])
    yield equals(inverse(1 - t), -inverse(t))


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


@claim(by="identity", sources=("A-044", "B-102", "B-103", "D-146", "D-149"), budget=0.5)
def logistic_derivatives(half: float = 0.5, sign: int = -1, order: int = 6):
    r"""All derivatives of the logistic function are polynomials in it.

    $\sigma' = \sigma (1 - \sigma) = \sigma(z) \sigma(-z) =
    \frac14 \left(1 - \tanh^2 \frac z2\right) \le \frac14$ with equality at $z = 0$ alone. Since
    $\sigma'$ is a polynomial in $\sigma$, so is every derivative: $\sigma^{(k)} = p_k(\sigma)$ with
    $p_0(s) = s$ and $p_{k + 1}(s) = p_k'(s)\, (s - s^2)$, of degree $k + 1$ with the leading
    coefficient $(-1)^k k!$; hence $\sigma \in C^\infty$.

    The integer polynomials are compared with autograd, applied $k$ times.
    """
    z = torch.linspace(-10, 10, 401)
    slope = derivative(torch.sigmoid, z)
    yield equals((1 - torch.tanh(half * z) ** 2) / 4, slope)
    yield equals(torch.sigmoid(z) * torch.sigmoid(-z), slope)
    yield equals(int((slope >= 0.25).sum()), 1)
    yield equals(float(z[slope.argmax()]), 0.0)
    z = torch.randn(20)
    s = torch.sigmoid(z)
    for k, p in enumerate(polynomials(order, sign)):
        yield equals(p[-1], (-1) ** k * math.factorial(k), k=k)
        yield equals(len(p) - 1, k + 1, k=k)
        value = sum(c * s**i for i, c in enumerate(p))
        yield equals(value, derivative(torch.sigmoid, z, k) if k else s, k=k)


logistic_derivatives.foil("the argument of tanh not halved", half=1.0)
logistic_derivatives.foil(r"$\sigma' = \sigma (1 + \sigma)$", sign=1)


def through_chain(w: Tensor, x: Tensor, unit: Callable[[Tensor], Tensor]) -> Tensor:
    """The derivatives of chains of units, one a row of weights, with respect to their inputs."""

    def run(x: Tensor) -> Tensor:
        for layer in w.T:
            x = unit(layer * x)
        return x

    return derivative(run, x)


@claim(by="sampling", sources=("B-166", "B-175"), budget=0.5, full={"chains": 10_000})
def saturation(unit: Literal["sigmoid", "tanh"] = "sigmoid", chains: int = 50):
    r"""Saturating units damp gradients, active rectifiers do not.

    $\sigma'(z) = \sigma(z) \sigma(-z) \le e^{-|z|}$, so a logistic unit far from 0 transmits almost
    no gradient; and a chain of $L$ logistic units with weights $|w_l| \le 1$ has a derivative of at
    most $4^{-L}$ in modulus, since $\sigma' \le \frac14$. A ReLU has slope exactly 1 for every
    $z > 0$, however large, so a chain of active ReLUs with unit weights transmits the gradient
    undamped.
    """
    z = torch.linspace(0, 30, 301)
    slope = derivative(torch.sigmoid, -z)
    yield at_most(slope * z.exp(), 1.0)
    yield equals(derivative(torch.sigmoid, z), slope)
    for depth in (5, 20, 50):
        w, x = 2 * torch.rand(chains, depth) - 1, 2 * torch.randn(chains)
        w[0], x[0] = 1.0, 0.0
        found = through_chain(w, x, getattr(torch, unit))
        yield at_most(found.abs().log(), -depth * math.log(4), depth=depth)
        if depth == 5 and unit == "sigmoid":

            def chain(x: np.ndarray, w: Tensor = w) -> np.ndarray:
                for layer in w.T.numpy():
                    x = 1 / (1 + np.exp(-layer * x))
                return x

            yield equals(found / complex_step(chain, x.numpy(), 1), 1.0, depth=depth)
        active = through_chain(torch.ones(chains, depth), 1e6 * x.abs() + 1, torch.relu)
        yield equals(active, 1.0, tol=0.0, depth=depth)


saturation.foil("tanh has slope 1 at 0, so a chain at rest transmits everything", unit="tanh")


@claim(
    by="identity",
    sources=("A-047", "B-104", "B-106", "B-107", "C-060", "C-062", "D-141", "D-142"),
    budget=0.5,
)
def tanh(
    slope: Callable[[Tensor], Tensor] = lambda t: 1 - t**2,
    unit: Callable[[Tensor], Tensor] = torch.tanh,
    n: int = 1000,
):
    r"""The hyperbolic tangent and its derivative.

    $\tanh z = \frac{e^z - e^{-z}}{e^z + e^{-z}} \in (-1, 1)$ is odd and increasing with
    $\tanh'(z) = 1 - \tanh^2 z \in (0, 1]$. Being odd, it maps symmetrically distributed
    pre-activations to activations of mean zero, while the logistic function gives the mean
    $\frac12$; that is why it is often preferred for hidden units.
    """
    z = torch.linspace(-15, 15, n)
    t = torch.tanh(z)
    yield equals(t, (z.exp() - (-z).exp()) / (z.exp() + (-z).exp()))
    yield equals(torch.tanh(torch.tensor([-1000.0, 1000.0])), torch.tensor([-1.0, 1.0]), tol=0.0)
    yield equals(int((t.diff() > 0).sum()), n - 1)
    yield at_most(t.abs(), 1 - EPS / 2, tol=0.0)
    exact = complex_step(np.tanh, z.numpy(), 1)
    yield equals(slope(t), exact)
    yield equals(derivative(torch.tanh, z), exact)
    yield at_least(exact, 0.0, tol=0.0)
    z = 3 * torch.randn(n) + 1
    z = torch.cat([z, -z])
    yield equals(unit(z).mean(), 0.0)
    yield equals(torch.sigmoid(z).mean(), 0.5)


tanh.foil("the square forgotten", slope=lambda t: 1 - t)
tanh.foil("the logistic function does not centre", unit=torch.sigmoid)


def rescaled(model: nn.Sequential, unit: nn.Module, scale: float, shift: float) -> nn.Sequential:
    r"""The same network with other units $u$, if its own are $s\, u(s z) + \mathrm{shift}$.

    That is $\sigma(z) = \frac12 \tanh(\frac12 z) + \frac12$ and $\tanh z = 2 \sigma(2 z) - 1$, with
    the scales $s = \frac12$ and $s = 2$.
    """
    layers: list[nn.Module] = []
    for i, layer in enumerate(model):
        if not isinstance(layer, nn.Linear):
            layers.append(unit)
            continue
        new = nn.Linear(layer.in_features, layer.out_features)
        w, b = layer.weight.data, layer.bias.data
        w, b = (scale * w, b + shift * w.sum(1)) if i else (w, b)
        last = i == len(model) - 1
        new.weight.data, new.bias.data = (w, b) if last else (scale * w, scale * b)
        layers.append(new)
    return nn.Sequential(*layers)


@claim(by="identity", sources=("A-046", "B-105", "C-061", "D-151"), budget=0.5)
def tanh_logistic(inner: float = 2.0, shift: float = 0.5, n: int = 100):
    r"""The hyperbolic tangent is a rescaled logistic function.

    $\tanh z = 2 \sigma(2 z) - 1$, or $\sigma(z) = \frac12 + \frac12 \tanh \frac z2$. Hence networks
    of the same architecture represent the same functions with either unit: a layer
    $V \sigma(W x + b) + c$ is $\frac12 V \tanh\left(\frac12 W x + \frac12 b\right) +
    \left(c + \frac12 V \mathbf{1}\right)$.

    A network with three hidden layers is converted there and back.
    """
    z = torch.linspace(-20, 20, 401)
    yield equals(2 * torch.sigmoid(inner * z) - 1, torch.tanh(z))
    yield equals(0.5 + torch.tanh(z / 2) / 2, torch.sigmoid(z))
    sizes, layers = (3, 8, 8, 8, 2), []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.Sigmoid()]
    model, x = nn.Sequential(*layers[:-1]), 3 * torch.randn(n, 3)
    with torch.no_grad():
        there = rescaled(model, nn.Tanh(), 0.5, shift)
        back = rescaled(there, nn.Sigmoid(), 2.0, -1.0)
        yield equals(there(x), model(x))
        yield equals(back(x), model(x))


tanh_logistic.foil("the argument not doubled", inner=1.0)
tanh_logistic.foil("the correction of the bias forgotten", shift=0.0)
