r"""Barron's constant: how hard a function is for sigmoidal networks, whatever the dimension.

For $f(x) = \int e^{i \omega^\top x} \hat f(\omega)\, d\omega$ on $\mathbb R^n$ it is the first
absolute moment of the spectrum,

$$C_f = \int \|\omega\|\, |\hat f(\omega)|\, d\omega .$$

For a finite spectrum $f(x) = \sum_k a_k e^{i \omega_k^\top x}$ it is
$\sum_k |a_k|\, \|\omega_k\|$, and for a radial one, $|\hat f(\omega)| = \rho(\|\omega\|)$,

$$C_f = \frac{2 \pi^{n / 2}}{\Gamma(n / 2)} \int_0^\infty r^n \rho(r)\, dr .$$

The first is a sum, exact up to rounding; the second comes from SciPy's adaptive quadrature, to a
relative $10^{-8}$ or better by its own estimate, for spectra with their mass at radii between
$e^{-300}$ and $e^{300}$. Mind the normalisation, which has the factor $(2 \pi)^{-n}$ in $\hat f$.
The claim is `barron_constant`.
"""

import math
import warnings
from collections.abc import Callable

import torch
from jaxtyping import Float, Inexact
from scipy.integrate import IntegrationWarning, quad
from torch import Tensor

from vademecum.arguments import floats, whole

__all__ = ["barron_constant", "radial_barron_constant"]

_RTOL = 1e-8


def barron_constant(a: Inexact[Tensor, " k"], omega: Float[Tensor, " k n"]) -> Float[Tensor, ""]:
    r"""The Barron constant $\sum_k |a_k| \|\omega_k\|$ of a finite spectrum.

    The nodes and weights of a quadrature rule are one too, with $a_k = \hat f(\omega_k)$ times the
    weight: that gives the constant of any function whose transform is known.

    Args:
        a: The coefficients of $f(x) = \sum_k a_k e^{i \omega_k^\top x}$, real or complex. A cosine
            has two of 1/2, or for this purpose one of 1.
        omega: The frequencies, no two of them equal.

    References:
        Barron, Universal approximation bounds for superpositions of a sigmoidal function, IEEE
        Transactions on Information Theory, 1993.

    Example:
        >>> barron_constant(torch.tensor([2.0]), torch.tensor([[3.0, 4.0]]))  # 2 cos(3 x + 4 y)
        tensor(10.)
    """
    omega = floats("omega", omega, ndim=2)
    a = floats("a", a, ndim=1, width=len(omega))
    return a.abs() @ torch.linalg.vector_norm(omega, dim=1)


def radial_barron_constant(rho: Callable[[Tensor], Tensor], n: int) -> float:
    r"""The Barron constant of a function on $\mathbb R^n$ whose spectrum is radial.

    Args:
        rho: The modulus of the transform as a function of the radius, entry by entry of a tensor:
            $|\hat f(\omega)| = \rho(\|\omega\|)$.
        n: The dimension.

    Raises:
        ValueError: If `rho` is negative or not finite, or the integral does not converge: then the
            function is not of Barron's class.

    Example:
        >>> gauss = lambda r: (-r * r / 2).exp() / (2 * torch.pi) ** 0.5  # of exp(-x^2 / 2)
        >>> round(radial_barron_constant(gauss, 1) ** 2 * torch.pi, 9)  # sqrt(2 / pi)
        2.0
    """
    half = whole("n", n, low=1) / 2
    area = math.log(2) + half * math.log(math.pi) - math.lgamma(half)
    u = torch.arange(-300, 300, 0.25, dtype=torch.float64)
    peak = float((_checked(rho, u.exp()).log() + (n + 1) * u).argmax() * 0.25 - 300)

    def shell(v: float) -> float:  # with r = v exp(peak), for a quadrature that finds the mass
        log_r = math.log(v) + peak if v > 0 else -math.inf
        value = float(_checked(rho, torch.tensor(math.exp(log_r), dtype=torch.float64)))
        return math.exp(area + n * log_r + peak + math.log(value)) if value and v else 0.0

    with warnings.catch_warnings():
        warnings.simplefilter("error", IntegrationWarning)
        try:
            inside = quad(shell, 0, 1, epsabs=0, epsrel=_RTOL, limit=500)[0]
            outside = quad(shell, 1, math.inf, epsabs=_RTOL * inside, epsrel=_RTOL, limit=500)[0]
        except (IntegrationWarning, OverflowError) as reason:
            raise ValueError(f"rho must have a finite moment r^{n}: {reason}") from None
    return inside + outside


def _checked(rho: Callable[[Tensor], Tensor], r: Tensor) -> Tensor:
    value = floats("rho(r)", rho(r))
    if value.shape != r.shape:
        raise ValueError(f"rho(r) must have shape {tuple(r.shape)}, got {tuple(value.shape)}")
    if not (value >= 0).all():
        worst = value.flatten().argmin()
        raise ValueError(
            f"rho must be >= 0, got {value.flatten()[worst].item():g} at radius"
            f" {r.flatten()[worst].item():g}"
        )
    return value
