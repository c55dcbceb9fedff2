"""Gaussian expectations: gradients in the mean (Bonnet) and in the covariance (Price)."""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import Evidence, claim, complex_step, equals, in_mean
from vademecum.generative import reparameterize
from vademecum.generative.claims._exact_bounds import hermite
from vademecum.generative.claims.autoencoding.gradients_of_draws import random_covariance, symmetric


def moment(k: int, mu: Fraction, variance: Fraction) -> Fraction:
    r"""$\mathbb E[z^k]$ of a normal number, by $m_k = \mu m_{k-1} + (k - 1) v m_{k-2}$."""
    one, two = Fraction(1), mu
    for j in range(2, k + 1):
        one, two = two, mu * two + (j - 1) * variance * one
    return one if k == 0 else two


def slope_of_moment(k: int, mu: Fraction, variance: Fraction, by: str) -> Fraction:
    r"""The derivative of $\mathbb E[z^k]$, by a difference that is exact for its degree."""
    points = [Fraction(i) for i in range(-4, 5)]

    def at(h: Fraction) -> Fraction:
        return moment(k, mu + h, variance) if by == "mean" else moment(k, mu, variance + h)

    total = Fraction(0)  # the derivative at 0 of the interpolating polynomial of degree 8
    for i in points:
        others = [j for j in points if j != i]
        scale = math.prod((i - j for j in others), start=Fraction(1))
        slope = sum(
            (math.prod((-j for j in others if j != left), start=Fraction(1)) for left in others),
            Fraction(0),
        )
        total += at(i) * slope / scale
    return total


def exponent(d: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""A random $a$ with $a^\top \Sigma a = \frac12$, for short tails, a mean and $\Sigma$."""
    a, mean, cov = torch.randn(d), torch.randn(d), random_covariance(d)
    return a / (2 * a @ cov @ a).sqrt(), mean, cov


def expectations(a: Tensor, mean: Tensor, cov: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""The means of $f$, its gradient and its Hessian for $f(z) = e^{a^\top z}$, by quadrature."""
    nodes, weights = hermite(20, len(a))
    z = (mean + nodes @ torch.linalg.cholesky(cov).T).requires_grad_()
    f = (z @ a).exp()
    (slope,) = torch.autograd.grad(f.sum(), z, create_graph=True)
    rows = [torch.autograd.grad(slope[:, i].sum(), z, retain_graph=True)[0] for i in range(len(a))]
    hessian = torch.einsum("n,inj->ij", weights, torch.stack(rows))
    return weights @ f.detach(), weights @ slope.detach(), hessian


@claim(
    by="identity",
    sources=("C-230",),
    budget=0.3,
    full={"draws": 400_000},
    short=r"z \sim \mathcal N(\mu, \Sigma): \quad \nabla_\mu \mathbb E[f(z)] ="
    r" \mathbb E[\nabla f(z)]",
)
def bonnet_theorem(
    at: Literal["draws", "mean"] = "draws", factor: float = 1.0, draws: int = 40_000
):
    r"""The gradient in a Gaussian mean, after Bonnet.

    For $z \sim \mathcal N(\mu, \Sigma)$ and differentiable $f$ with integrable gradient,
    $\nabla_\mu \mathbb E[f(z)] = \mathbb E[\nabla_z f(z)]$.

    *Proof.* $z = \mu + \Sigma^{1/2} \eta$, and differentiation under the integral. *Checked* in
    exact fractions for $f = z^k$, $k \le 6$, where both sides are $4 \mu^3 + 12 \mu \sigma^2$ at
    $k = 4$; for $f = e^{a^\top z}$ in two and three dimensions with a full covariance, by
    quadrature and the complex step of $e^{a^\top \mu + \frac12 a^\top \Sigma a}$; and for the
    gradients that reach the mean of `reparameterize`.

    Knobs:
        at: Where the gradient is taken: at the draws, or at their mean.
        factor: A factor before the right side.
        draws: How many draws are taken.
    """
    mu, variance = (
        Fraction(int(torch.randint(1, 9, ())), 4),
        Fraction(int(torch.randint(1, 9, ())), 4),
    )
    for k in (2, 3, 4, 5, 6):
        inside = k * (moment(k - 1, mu, variance) if at == "draws" else mu ** (k - 1))
        left = slope_of_moment(k, mu, variance, "mean")
        yield equals("derivative of a moment in the mean", float(left), factor * float(inside), k=k)
    wanted = 4 * mu**3 + 12 * mu * variance
    yield equals("derivative of the fourth moment", float(slope_of_moment(4, mu, variance, "mean")),
                 float(wanted), tol=1e-15)  # fmt: skip
    for d in (2, 3):
        a, mean, cov = exponent(d)

        def closed(m, a=a, cov=cov):
            m = torch.as_tensor(m)
            return torch.exp((m * a).sum() + a @ cov @ a / 2).item()

        left = torch.as_tensor(complex_step(closed, mean.numpy()))
        right = expectations(a, mean, cov)[1] if at == "draws" else a * (a @ mean).exp()
        yield equals("gradient in the mean", left, factor * right, tol=1e-9, d=d)
        means = mean.expand(draws, d).clone().requires_grad_()
        z = reparameterize(means, covariance=cov.expand(draws, d, d))
        (each,) = torch.autograd.grad((z @ a).exp().sum(), means)
        for i in range(d):
            target = float(left[i])
            yield in_mean("gradient through draws", each[:, i], target, sigmas=6.0, d=d, i=i)


bonnet_theorem.foil("the gradient at the mean", at="mean")
bonnet_theorem.foil("half the gradient", factor=0.5)


@claim(
    by="identity",
    sources=("C-231",),
    budget=0.3,
    full={"draws": 400_000},
    short=r"z \sim \mathcal N(\mu, \Sigma): \quad \nabla_\Sigma \mathbb E[f(z)] = \tfrac12 \mathbb"
    r" E[\nabla^2 f(z)]",
)
def price_theorem(
    factor: float = 0.5, by: Literal["variance", "deviation"] = "variance", draws: int = 40_000
):
    r"""The gradient in a Gaussian covariance, after Price.

    For $z \sim \mathcal N(\mu, \Sigma)$ and twice differentiable $f$ of moderate growth,
    $\nabla_\Sigma \mathbb E[f(z)] = \frac12 \mathbb E[\nabla_z^2 f(z)]$, where the entries of
    $\Sigma$ are differentiated as independent and symmetrised.

    *Proof.* For $f = e^{i a^\top z}$ both sides are $-\frac12 a a^\top\, \mathbb E[f]$; then by
    Fourier's transform. *Checked* in exact fractions for $f = z^k$, $k \le 6$, where both sides
    are $6 \mu^2 + 6 \sigma^2$ at $k = 4$; for $f = e^{a^\top z}$ in two and three dimensions, by
    quadrature and the complex step along random symmetric directions; and for the gradients that
    reach the covariance of `reparameterize`.

    Knobs:
        factor: The factor before the mean of second derivatives.
        by: Whether the derivative is that in the variance or in the deviation.
        draws: How many draws are taken.
    """
    mu, sigma = Fraction(int(torch.randint(1, 9, ())), 4), Fraction(int(torch.randint(3, 9, ())), 4)
    for k in (2, 3, 4, 5, 6):
        inside = k * (k - 1) * moment(k - 2, mu, sigma**2)
        left = slope_of_moment(k, mu, sigma**2, "variance")
        left = left if by == "variance" else left * 2 * sigma
        yield equals("derivative of a moment", float(left), factor * float(inside), k=k)
    wanted = 6 * mu**2 + 6 * sigma**2
    found = slope_of_moment(4, mu, sigma**2, "variance")
    yield equals("derivative of the fourth moment", float(found), float(wanted), tol=1e-15)
    for d in (2, 3):
        yield from _exponential(d, factor, draws)


def _exponential(d: int, factor: float, draws: int) -> Iterator[Evidence]:
    a, mean, cov = exponent(d)
    hessian = expectations(a, mean, cov)[2]
    for _ in range(3):
        V = symmetric(torch.randn(d, d))

        def closed(t, V=V):
            t = torch.as_tensor(t)
            return torch.exp(a @ mean + (a @ cov @ a + t * (a @ V @ a)) / 2).sum().item()

        left = float(complex_step(closed, torch.zeros(1).numpy())[0])
        yield equals("slope along a direction", left, factor * (V * hessian).sum(), tol=1e-9, d=d)
    covs = cov.expand(draws, d, d).clone().requires_grad_()
    z = reparameterize(mean.expand(draws, d), covariance=covs)
    (each,) = torch.autograd.grad((z @ a).exp().sum(), covs)
    each = symmetric(each)
    for i in range(d):
        for j in range(i + 1):
            target = float(factor * hessian[i, j])
            at = {"d": d, "i": i, "j": j}
            yield in_mean("gradient through draws", each[:, i, j], target, sigmas=6.0, **at)


price_theorem.foil("without the half", factor=1.0)
price_theorem.foil("the derivative in the deviation", by="deviation")
