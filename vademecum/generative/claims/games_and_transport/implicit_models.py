"""Models that are a way to draw: noise, sent through a map."""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from scipy.integrate import quad
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals, in_mean
from vademecum.claims.evidence import ALARM
from vademecum.foundations import pushforward_density
from vademecum.generative import GAN


class Map(nn.Module):
    """A generator without parameters."""

    def __init__(self, f: Callable[[Tensor], Tensor]):
        super().__init__()
        self.f = f

    def forward(self, z: Tensor) -> Tensor:
        """The images of codes."""
        return self.f(z)


def drawn(
    f: Callable[[Tensor], Tensor],
    n: int,
    d: int = 1,
    prior: Literal["normal", "uniform"] = "normal",
) -> Tensor:
    """A sample of the push-forward of a simple law."""
    return GAN(Map(f), nn.Identity(), latent_dim=d, prior=prior).sample(n)


@claim(
    by="sampling",
    sources=("A-330", "B-488", "C-309", *(f"E-{i}" for i in range(273, 279))),
    short=r"x = F_\theta(z), \quad z \sim \pi, \quad p_\theta = F_{\theta\#} \pi",
)
def implicit_model(branches: int = 2, n: int = 40_000):
    r"""Implicit generative model.

    A model given by a sampling mechanism: $z \in \mathbb R^d$ from a simple law $\pi$ (say
    $\mathcal N(0, I)$) and $x = F_\theta(z) \in \mathbb R^m$, so that $p_\theta$ is the
    push-forward of $\pi$. One draw and one forward pass give a sample, but a density need not exist
    (for $d < m$ the law sits on a lower-dimensional set) and, where $F_\theta$ is not injective,
    all branches contribute.

    Checked for samples of a `GAN`: the inverse distribution function of an exponential law of
    uniform codes, by the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart at a level of
    $10^{-6}$; a linear map $A$, whose covariance is $A A^\top$; $z \mapsto (z, z)$, whose
    covariance has rank one; and $x = z^2$, whose density $\sum_{\pm} p_z(\pm \sqrt x) \frac1{2
    \sqrt x}$ integrates to 1, and to the share of samples below any point.

    Knobs:
        branches: How many of the two preimages of $z^2$ the density counts.
        n: How many samples are drawn from each model.
    """
    rate = 0.5 + torch.rand(())
    x = drawn(lambda z: -torch.log1p(-z) / rate, n, prior="uniform")[:, 0]
    yield distance("an exponential law", x, lambda t: -np.expm1(-float(rate) * t))
    A, b = torch.randn(3, 2), torch.randn(3)
    x = drawn(lambda z: z @ A.T + b, n, d=2) - b
    wanted = A @ A.T
    for i, j in ((0, 0), (0, 1), (1, 2)):
        products = x[:, i] * x[:, j]
        yield in_mean("covariance of a linear model", products, float(wanted[i, j]), i=i, j=j)
    double = drawn(lambda z: torch.cat([z, z], 1), n)
    spectrum = torch.linalg.eigvalsh(double.T.cov())
    yield at_most("smaller variance of (z, z)", spectrum[0], 0.0, tol=1e-12)
    # a sum of squares: its relative deviation is sqrt(2 / n), of which six are allowed
    yield equals("larger variance of (z, z)", spectrum[1], 2.0, tol=2 * 6 * math.sqrt(2 / n) / 3)
    yield from squares(branches, n)


def squares(branches: int, n: int):
    """The law of the square of a normal number."""
    normal = torch.distributions.Normal(0.0, 1.0)

    def density(x: float) -> float:
        z = torch.tensor([[-math.sqrt(x)], [math.sqrt(x)]])[:branches]
        images = pushforward_density(lambda z: normal.log_prob(z)[:, 0], lambda z: z**2, z)
        return float(images.log_density.exp().sum())

    # x = u^2 takes the singularity away
    mass = [quad(lambda u: 2 * u * density(u**2), a, b)[0] for a, b in ((1e-9, 1), (1, 9))]
    yield equals("mass of the density of a square", sum(mass), 1.0, tol=1e-8)
    below = (drawn(lambda z: z**2, n)[:, 0] < 1).double()
    yield in_mean("share of squares below one", below, mass[0])
    yield at_least("smallest square", drawn(lambda z: z**2, n), 0.0)


def distance(what: str, x: Tensor, cdf: Callable[[Any], Any]) -> Evidence:
    """The largest distance of the distribution functions, and what DKW allows."""
    n, reached = len(x), cdf(x.sort().values.numpy())
    steps = np.arange(n + 1) / n
    gap = max(np.abs(reached - steps[:-1]).max(), np.abs(reached - steps[1:]).max())
    allowed = math.sqrt(math.log(2 / ALARM) / (2 * n))
    return at_most(f"distance of samples from {what}", gap, allowed, tol=0.0)


implicit_model.erratum(
    "A-330",
    printed=r"$x = f_\theta(z)$ with implicit distribution $p_\theta(x) = p_z(f_\theta^{-1}(x))"
    r" \big|\tfrac{d f_\theta^{-1}(x)}{dx}\big|$",
    right=r"the push-forward of $p_z$; this density where $f_\theta$ is a diffeomorphism",
    why=r"Stated for implicit models in general, but it needs $f_\theta$ to be a diffeomorphism of"
    r" equal dimensions (and a determinant): for $x = z^2$ one branch has total mass $\frac12$, and"
    r" $z \mapsto (z, z)$ has no density at all.",
    weight="soft",
    refuted_by="mass of the density of a square",
    branches=1,
)
