"""The hyperbolic tangent: a logistic function stretched and moved."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from vademecum.approximation.claims.activations import EPS, derivative
from vademecum.claims import at_least, at_most, claim, complex_step, equals
from vademecum.models import mlp


@claim(
    by="identity",
    sources=("A-047", "B-104", "B-106", "B-107", "C-060", "C-062", "D-141", "D-142"),
    budget=0.5,
    short=r"\tanh z = \frac{e^z - e^{-z}}{e^z + e^{-z}}, \quad \tanh' = 1 - \tanh^2 \in (0, 1]",
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

    On $[-10, 10]$ the slope is at least $1 / \cosh^2 10$, which rounding cannot hide.

    Knobs:
        slope: The derivative as a function of $t = \tanh z$.
        unit: The unit that is said to centre.
        n: How many pre-activations are drawn, each with its opposite.
    """
    z = torch.linspace(-10, 10, 1001)
    t, least = torch.tanh(z), 1 / math.cosh(10) ** 2
    paper = (z.exp() - (-z).exp()) / (z.exp() + (-z).exp())
    yield equals("hyperbolic tangent", t, paper)
    far = torch.tensor([-1000.0, 1000.0])
    yield equals(r"hyperbolic tangent at $\pm 1000$", torch.tanh(far), far.sign(), tol=0.0)
    yield at_least(
        "growth of the hyperbolic tangent from point to point",
        t.diff(),
        0.02 * least * (1 - 1e-5),
        tol=0.0,
    )
    yield at_most("modulus of the hyperbolic tangent", t.abs(), 1 - EPS / 2, tol=0.0)
    exact = complex_step(np.tanh, z.numpy(), 1)
    yield equals("slope as a function of the value", slope(t), exact)
    yield equals("slope by autograd", derivative(torch.tanh, z), exact)
    yield at_least("slope by the complex step", exact, least * (1 - 1e-5), tol=0.0)
    yield at_most("slope by the complex step", exact, 1.0)
    z = 3 * torch.randn(n) + 1
    z = torch.cat([z, -z])
    yield equals("mean activation of a symmetric sample", unit(z).mean(), 0.0)
    yield equals("mean of the logistic function on it", torch.sigmoid(z).mean(), 0.5)


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


@claim(
    by="identity",
    sources=("A-046", "B-105", "C-061", "D-151"),
    budget=0.5,
    short=r"\tanh z = 2 \sigma(2 z) - 1, \quad \sigma(z) = \tfrac12 + \tfrac12 \tanh \tfrac z2",
)
def tanh_logistic(inner: float = 2.0, shift: float = 0.5, n: int = 100):
    r"""The hyperbolic tangent is a rescaled logistic function.

    $\tanh z = 2 \sigma(2 z) - 1$, or $\sigma(z) = \frac12 + \frac12 \tanh \frac z2$. Hence networks
    of the same architecture represent the same functions with either unit: a layer
    $V \sigma(W x + b) + c$ is $\frac12 V \tanh\left(\frac12 W x + \frac12 b\right) +
    \left(c + \frac12 V \mathbf{1}\right)$.

    A network with three hidden layers is converted there and back.

    Knobs:
        inner: The factor of $z$ in the argument of $\sigma$.
        shift: The multiple of $V \mathbf{1}$ that corrects the bias on the way to $\tanh$.
        n: At how many inputs the networks are compared.
    """
    z = torch.linspace(-20, 20, 401)
    yield equals(r"$2 \sigma(2 z) - 1$", 2 * torch.sigmoid(inner * z) - 1, torch.tanh(z))
    half = 0.5 + torch.tanh(z / 2) / 2
    yield equals(r"$\frac12 + \frac12 \tanh \frac z2$", half, torch.sigmoid(z))
    model, x = mlp([3, 8, 6, 5, 2], nn.Sigmoid), 3 * torch.randn(n, 3)
    with torch.no_grad():
        there = rescaled(model, nn.Tanh(), 0.5, shift)
        back = rescaled(there, nn.Sigmoid(), 2.0, -1.0)
        yield equals("network converted to tanh", there(x), model(x))
        yield equals("network converted to tanh and back", back(x), model(x))


tanh_logistic.foil("the argument not doubled", inner=1.0)
tanh_logistic.foil("the correction of the bias forgotten", shift=0.0)
