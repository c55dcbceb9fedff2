"""Densities: what makes one, and the density of a sum."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import scipy.stats
import torch
from torch import Tensor
from torch.distributions import Exponential, Gamma, Laplace, LogNormal, Normal, Uniform

from vademecum.claims import claim, equals
from vademecum.foundations.claims.information import quadrature

Density = Callable[[Tensor], Tensor]


def integrated(f: Density, low: Tensor, high: Tensor) -> Tensor:
    """The integrals of a function between pairs of limits, by 200 nodes of Gauss and Legendre."""
    t, w = quadrature(0.0, 1.0)
    width = (high - low)[:, None]
    return (f(low[:, None] + width * t) * width) @ w


@claim(
    by="identity",
    sources=("D-016", "E-017"),
    budget=0.5,
    short=r"\tfrac{\mathrm d}{\mathrm dt} P(X \le t) = f_X(t)",
)
def density_from_cdf(tail: Literal["lower", "upper"] = "lower", kink: bool = False):
    r"""The density is the derivative of the distribution function.

    Where the density is continuous, $\frac{\mathrm d}{\mathrm dt} P(X \le t) = F_X'(t) = f_X(t)$;
    conversely $F_X(t) = \int_{-\infty}^t f_X$.

    Checked by automatic differentiation of torch's distribution functions, by a central difference
    of SciPy's (with a step $h = 10^{-4}$ it errs by $\frac{h^2}6 |f''| < 2 \cdot 10^{-9}$), and by
    integrals of SciPy's densities.

    Knobs:
        tail: Whether $P(X \le t)$ or $P(X > t)$ is differentiated.
        kink: Whether $t = 0$ is among the places, where the density of the exponential law jumps.
    """
    for name, law in (
        ("normal", Normal(0.5, 2.0)),
        ("exponential", Exponential(1.5)),
        ("gamma", Gamma(2.5, 2.0)),
        ("Laplace", Laplace(0.0, 1.0)),
        ("log-normal", LogNormal(0.0, 0.5)),
    ):
        t = (3 * torch.rand(20) + 0.1).requires_grad_()
        below = law.cdf(t)
        chance = below if tail == "lower" else 1 - below
        (slope,) = torch.autograd.grad(chance.sum(), t)
        share = slope / law.log_prob(t).exp()
        yield equals("slope of the distribution function over the density", share, 1.0, law=name)
    h = 1e-4
    for name in ("expon", "norm", "logistic"):
        twin = getattr(scipy.stats, name)
        t = (4 * torch.rand(20) + 2 * h).numpy()
        t[0] = 0.0 if kink else t[0]
        slope = (twin.cdf(t + h) - twin.cdf(t - h)) / (2 * h)
        yield equals(
            "central difference of the distribution function",
            slope,
            twin.pdf(t),
            tol=2e-9,
            law=name,
        )
    for name, reach, shape in (("norm", 9, (1, 2)), ("gamma", 9, (3.5,)), ("beta", 1, (2, 3))):
        twin = getattr(scipy.stats, name)(*shape)
        low, high = (reach * torch.rand(2, 20)).sort(0).values
        area = integrated(lambda x, f=twin.pdf: torch.as_tensor(f(x.numpy())), low, high)
        chance = twin.cdf(high.numpy()) - twin.cdf(low.numpy())
        yield equals("integral of the density", area, chance, law=name)


density_from_cdf.foil(r"the derivative of $P(X > t)$ is $-f$", tail="upper")
density_from_cdf.foil("at a jump of the density the two-sided derivative is half of it", kink=True)


def convolved(f: Density, g: Density, z: Tensor, low: Tensor, high: Tensor) -> Tensor:
    r"""$\int f(t) g(z - t)\,\mathrm dt$ between limits outside of which the integrand is zero."""
    return integrated(lambda t: f(t) * g(z[:, None] - t), low, high)


def correlated(f: Density, g: Density, z: Tensor, low: Tensor, high: Tensor) -> Tensor:
    r"""$\int f(t) g(z + t)\,\mathrm dt$, the density of the difference."""
    return integrated(lambda t: f(t) * g(z[:, None] + t), low, high)


@claim(
    by="identity",
    sources=("D-025", "E-026"),
    budget=0.5,
    full={"draws": 200},
    short=r"f_{X + Y}(z) = \int f_X(t) f_Y(z - t)\,\mathrm dt \quad (X, Y \text{ independent})",
)
def sum_density_convolution(
    formula: Callable[..., Tensor] = convolved,
    pair: Literal["independent", "equal"] = "independent",
    draws: int = 4,
):
    r"""The density of a sum of independent variables is a convolution.

    If $X$ and $Y$ are independent with densities, $Z = X + Y$ has the density
    $f_Z(z) = \int f_X(t) f_Y(z - t)\,\mathrm dt = \int f_X(z - t) f_Y(t)\,\mathrm dt
    = (f_X * f_Y)(z)$; for integer variables the probabilities are convolved.

    Checked for integer weights by NumPy against all pairs of outcomes, exactly; then two
    exponential laws give $z e^{-z}$, two uniform ones the triangle, and
    $\mathcal N(0, 1) * \mathcal N(1, 4) = \mathcal N(1, 5)$, all from torch's densities.

    Knobs:
        formula: The density of the sum, from two densities, z and the limits of the integral.
        pair: Whether the integer variables are independent, or one and the same.
        draws: How many pairs of integer laws are drawn.
    """
    for k in range(draws):
        p = torch.randint(1, 9, (3 + k,))
        q = torch.randint(1, 9, (5,)) if pair == "independent" else p
        joint = torch.outer(p, q) if pair == "independent" else p.diag() * p.sum()
        total = torch.zeros(len(p) + len(q) - 1, dtype=torch.long)
        for i, row in enumerate(joint):
            total[i : i + len(q)] += row
        weights = np.convolve(p.numpy(), q.numpy())
        yield equals("weights of a sum of integers", weights, total, draw=k)
    z = 1.8 * torch.rand(20) + 0.1
    zero = torch.zeros_like(z)
    cases: dict[str, Any] = {
        "normal": (Normal(0.0, 1.0), Normal(1.0, 2.0), zero - 12, zero + 12,
                   Normal(1.0, 5**0.5).log_prob(z).exp()),
        "exponential": (Exponential(1.0), Exponential(1.0), zero, z, z * (-z).exp()),
        "uniform": (Uniform(0.0, 1.0), Uniform(0.0, 1.0), (z - 1).clamp(min=0), z.clamp(max=1),
                    1 - (z - 1).abs()),
    }  # fmt: skip
    for name, (one, other, low, high, closed) in cases.items():
        f, g = (lambda t, law=law: law.log_prob(t).exp() for law in (one, other))
        share = formula(f, g, z, low, high) / closed
        yield equals("density of the sum over the exact one", share, 1.0, law=name)
        if name == "normal":
            share = formula(g, f, z, low + 1, high + 1) / closed
            yield equals(
                "density of the sum, roles exchanged, over the exact one", share, 1.0, law=name
            )


sum_density_convolution.foil(
    "the product of the densities", formula=lambda f, g, z, low, high: f(z) * g(z)
)
sum_density_convolution.foil("the density of the difference", formula=correlated)
sum_density_convolution.foil("a dependent pair: $X + X$ is even", pair="equal")
