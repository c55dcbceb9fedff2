"""The normal density: in one dimension and in more."""

import math
from collections.abc import Callable
from typing import Any

import scipy.stats
import torch
from torch import Tensor
from torch.distributions import (
    AffineTransform,
    MultivariateNormal,
    Normal,
    TransformedDistribution,
)

from vademecum.claims import claim, equals
from vademecum.foundations import pushforward_density
from vademecum.foundations.claims.gaussians import covariance
from vademecum.foundations.claims.information import quadrature


def normal_pdf(x: Tensor, mu: float, var: float, *, width: float = 1, prefactor: float = 0.5):
    """The normal density, with slips to choose from."""
    return (-((x - mu) ** 2) / (2 * var**width)).exp() / (2 * math.pi * var) ** prefactor


@claim(
    by="identity",
    sources=("B-028",),
    budget=0.5,
    short=r"\mathcal N(x; \mu, \sigma^2) = "
    r"(2 \pi \sigma^2)^{-1/2} \exp(-(x - \mu)^2 / (2 \sigma^2))",
)
def normal_density(width: float = 1.0, prefactor: float = 0.5, standardised: bool = True):
    r"""The univariate normal density.

    $\mathcal N(\mu, \sigma^2)$ has the density
    $\frac1{\sqrt{2 \pi \sigma^2}} \exp\big(-\frac{(x - \mu)^2}{2 \sigma^2}\big)$, the mean $\mu$
    and the variance $\sigma^2$; the standard normal law is the case $\mu = 0$, $\sigma^2 = 1$, and
    $X \sim \mathcal N(\mu, \sigma^2)$ if and only if $\frac{X - \mu}\sigma$ is standard normal.

    *Check.* The logarithm of the formula against torch and SciPy up to ten standard deviations
    away, and its moments by quadrature.

    Knobs:
        width: The power of $\sigma^2$ in the exponent.
        prefactor: The power of $\frac1{2 \pi \sigma^2}$ before it.
        standardised: Whether the variable is standardised before its law is compared with the
            standard normal one.
    """
    for mu, sigma in ((3.0, 2.0), (0.0, 1.0), (float(torch.randn(())), 0.3)):
        var, at = sigma**2, {"mu": mu, "sigma": sigma}
        x, w = quadrature(mu - 10 * sigma, mu + 10 * sigma)
        density, law = normal_pdf(x, mu, var, width=width, prefactor=prefactor), Normal(mu, sigma)
        log = density.log()  # down to -50
        yield equals("log-density, against torch", log, law.log_prob(x), tol=1e-12, **at)
        peer = scipy.stats.norm.logpdf(x.numpy(), mu, sigma)
        yield equals("log-density, against SciPy", log, peer, tol=1e-12, **at)
        yield equals("mass", w @ density, 1.0, **at)
        yield equals("mean", w @ (x * density), mu, **at)
        yield equals("variance", w @ ((x - mu) ** 2 * density), var, **at)
        shift, scale = (-mu / sigma, 1 / sigma) if standardised else (0.0, 1.0)
        moved = TransformedDistribution(law, AffineTransform(shift, scale))
        z = torch.linspace(-3, 3, 13)
        standard = Normal(0.0, 1.0).log_prob(z)
        name = "log-density, against the standard normal law's"
        yield equals(name, moved.log_prob(z), standard, tol=1e-12, **at)


normal_density.foil(r"$2 \sigma$ instead of $2 \sigma^2$ in the exponent", width=0.5)
normal_density.foil(r"$\frac1{2 \pi \sigma^2}$ without the root", prefactor=1.0)
normal_density.erratum(
    "B-028",
    printed=r"Standard normal: $p(x \mid \mu, \sigma^2) = "
    r"\frac{e^{-(x - \mu)^2 / (2 \sigma^2)}}{\sqrt{2 \pi \sigma^2}}$",
    right=r"the formula of every normal law; the standard one has $\mu = 0$ and $\sigma^2 = 1$",
    why="The formula is that of every normal law; the name standard normal belongs to "
    r"$\mathcal N(0, 1)$ alone. $\mathcal N(3, 4)$ satisfies the printed formula and is not "
    "standard.",
    weight="soft",
    standardised=False,
)


def normaliser(d: int, det: Tensor) -> Tensor:
    r"""$\sqrt{(2 \pi)^d \det \Sigma}$."""
    return ((2 * math.pi) ** d * det).sqrt()


@claim(
    by="identity",
    sources=("A-014", "B-029", "D-026", "E-027"),
    budget=0.5,
    short=r"\mathcal N(x; \mu, \Sigma) = \det(2 \pi \Sigma)^{-1/2}"
    r" \exp(-\tfrac12 (x - \mu)^\top \Sigma^{-1} (x - \mu))",
)
def multivariate_normal(
    scale: Callable[[int, Tensor], Tensor] = normaliser,
    metric: Callable[[Tensor], Tensor] = torch.linalg.inv,
    dims: tuple[int, ...] = (1, 2, 3, 6),
):
    r"""The multivariate normal density.

    For $\mu \in \mathbb R^d$ and $\Sigma \succ 0$, $\mathcal N(x; \mu, \Sigma) =
    \frac1{\sqrt{(2 \pi)^d \det \Sigma}}
    \exp\big(-\frac12 (x - \mu)^\top \Sigma^{-1} (x - \mu)\big)$; for diagonal $\Sigma$ it is the
    product of univariate normal densities, and it is the pushforward of $\mathcal N(0, I)$ under
    $z \mapsto \mu + L z$ for any $L L^\top = \Sigma$.

    *Check.* The logarithm of the formula against torch, SciPy, the change of variables with a
    random root $L$, and the product; the mass in the plane by the trapezoidal rule.

    Knobs:
        scale: The number by which the exponential is divided, from $d$ and $\det \Sigma$.
        metric: The matrix of the quadratic form, from $\Sigma$.
        dims: The dimensions.
    """

    def density(x: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
        u = x - mu
        return (-(u @ metric(sigma) * u).sum(-1) / 2).exp() / scale(len(mu), sigma.det())

    line = torch.arange(-20.0, 20.0, 0.5)
    plane, var = torch.cartesian_prod(line, line), torch.tensor([1.0, 4.0])
    mass = density(plane, torch.zeros(2), var.diag()).sum() / 4
    yield equals("mass in the plane", mass, 1.0, d=2)
    for d in dims:
        mu, sigma = torch.randn(d), covariance(d)
        root = torch.linalg.cholesky(sigma) @ torch.linalg.qr(torch.randn(d, d)).Q
        z = torch.randn(50, d)
        x = mu + z @ root.T
        log = density(x, mu, sigma).log()
        yield equals(
            "log-density, against torch", log, MultivariateNormal(mu, sigma).log_prob(x), d=d
        )
        twin: Any = scipy.stats.multivariate_normal  # SciPy annotates a covariance as an integer
        peer = twin.logpdf(x.numpy(), mu.numpy(), sigma.numpy())
        yield equals("log-density, against SciPy", log, peer, d=d)
        standard = Normal(torch.zeros(d), 1.0)
        pushed = pushforward_density(
            lambda z, law=standard: law.log_prob(z).sum(-1), lambda z, r=root, m=mu: m + r @ z, z
        )
        yield equals("images under the pushforward", pushed.x, x, d=d)
        yield equals("log-density of the pushforward", pushed.log_density, log, d=d)
        var = torch.rand(d) + 0.1
        x = mu + z * var.sqrt()
        product = Normal(mu, var.sqrt()).log_prob(x).sum(-1)
        log = density(x, mu, var.diag()).log()
        yield equals("log-density with a diagonal, against the product", log, product, d=d)


multivariate_normal.foil(
    r"the prefactor without the root: a mass of $\frac{1}{4 \pi}$ in the plane",
    scale=lambda d, det: (2 * math.pi) ** d * det,
)
multivariate_normal.foil(r"$\Sigma$ in place of $\Sigma^{-1}$", metric=lambda sigma: sigma)
multivariate_normal.foil(
    r"$(2 \pi)^{\frac12}$ in every dimension", scale=lambda d, det: (2 * math.pi * det).sqrt()
)
