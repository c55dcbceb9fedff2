r"""The log marginal likelihood of a Gaussian process and its derivatives, from Cholesky's factor.

For $t$ targets $Y \in \mathbb R^{n \times t}$, independent processes with one kernel and the noise
$\sigma$, and $A = K + \sigma^2 I$, $\alpha = A^{-1} Y$,

$$\log p(Y) = -\tfrac12 \langle Y, \alpha \rangle - \tfrac t2 \log \det A - \tfrac{n t}2 \log 2 \pi,
\qquad \frac{\partial \log p(Y)}{\partial \log h} = \tfrac12 \sum_{ij} W_{ij} \frac{\partial
A_{ij}}{\partial \log h}, \quad W = \alpha \alpha^\top - t A^{-1} .$$

Exact up to rounding, which `_rounding` measures.
"""

import math
from collections.abc import Collection
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from vademecum.kernels._covariance import covariance
from vademecum.kernels._factor import Factor, factorised
from vademecum.kernels._hyperparameters import NOISE

__all__ = ["DENSE", "DenseFit", "dense_fit"]

DENSE = 5
"""How many n x n matrices are held at a time: K, its factor, inverse, and the kernel's own."""


class DenseFit(NamedTuple):
    """A process conditioned on its targets."""

    value: float
    """The log marginal likelihood."""
    gradients: dict[str, Any]
    """Its derivatives to the logarithms of hyperparameters, if they were asked for."""
    alpha: Float[Tensor, " n t"]
    factor: Factor
    error: float = 0.0
    residual: float = math.nan
    """Not known yet."""
    system: None = None


def dense_fit(
    kernel: Any,
    noise: float,
    x: Tensor,
    y: Float[Tensor, " n t"],
    *,
    gradient: Collection[str] = (),
    limited: bool = True,
) -> DenseFit:
    """Condition a process, and differentiate its likelihood if that is asked for.

    Args:
        kernel: The kernel.
        noise: The standard deviation of the noise.
        x: The inputs.
        y: The targets.
        gradient: The names of hyperparameters whose derivatives are asked for, of the kernel and
            "noise"; if there is one of the kernel's, there are all of these.
        limited: Whether a jitter beyond what rounding explains is an error.
    """
    factor = factorised(covariance(kernel, x), diagonal=noise**2, limited=limited)
    alpha = factor.solve(y)
    n, t = y.shape
    fit = float((y.double() * alpha).sum())
    value = -(fit + t * factor.log_det() + n * t * math.log(2 * math.pi)) / 2
    gradients: dict[str, Any] = {}
    if gradient:
        W = factor.inverse().mul_(-t).addmm_(alpha, alpha.T)
        if set(gradient) - {NOISE}:
            found = kernel.weighted_gradients(x, W)
            gradients = {name: value / 2 for name, value in found.items()}
        gradients[NOISE] = noise**2 * float(W.diagonal().double().sum())
    return DenseFit(value, gradients, alpha, factor)
