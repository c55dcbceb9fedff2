"""What the course claims of the moment generating functions of named laws, and of those without."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from scipy.integrate import quad
from torch import Tensor
from torch.distributions import (
    Binomial,
    Cauchy,
    Distribution,
    Gamma,
    LogNormal,
    Normal,
    Pareto,
    Poisson,
)

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations.claims.moment_generating import derivatives

T = torch.tensor([-2.0, -0.4, 0.0, 0.4, 1.5], dtype=torch.float64)
Formula = Callable[..., Tensor]


def summed(law: Distribution, count: int) -> Tensor:
    r"""$\sum_k e^{t k} P(X = k)$ over `count` outcomes, at all of T."""
    k = torch.arange(float(count))
    return (T[:, None] * k + law.log_prob(k)).exp().sum(1)


@claim(by="identity", sources=("D-019", "D-021", "E-020", "E-022"), budget=0.5)
def mgf_binomial(formula: Formula = lambda n, p, t: (p * t.exp() + 1 - p) ** n):
    r"""The moment generating function of the Bernoulli and binomial laws.

    $X \sim \mathrm{Bin}(n, p)$ has $M_X(t) = (p e^t + 1 - p)^n$ for all real $t$; $n = 1$ is the
    Bernoulli law, $M(t) = p e^t + 1 - p$.

    *Check.* Against the sum over torch's probabilities; the first derivatives at 0 are $n p$ and
    $n p (1 - p) + n^2 p^2$.
    """
    for n in range(1, 7):
        for p in (0.5, float(torch.rand(()))):
            exact = summed(Binomial(n, torch.tensor(p)), n + 1)
            yield equals(formula(n, p, T) / exact, 1.0, n=n)
            moments = (n * p, n * p * (1 - p) + n**2 * p**2)
            for k, moment in enumerate(moments, 1):
                measured = derivatives(lambda t, n=n, p=p: formula(n, p, t[0]), (k,))
                yield equals(measured, moment, n=n)


mgf_binomial.foil(
    r"the exponents misplaced: $p^t + (1 - p)^{1 - t}$ is 1.5 at $t = 0$, $p = \frac12$",
    formula=lambda n, p, t: (p**t + (1 - p) ** (1 - t)) ** n,
)
mgf_binomial.foil(
    r"$(p e + 1 - p)^n$, the $t$ lost", formula=lambda n, p, t: (p * math.e + 1 - p + 0 * t) ** n
)


@claim(by="identity", sources=("D-023", "E-024"), budget=0.5)
def mgf_poisson(formula: Formula = lambda rate, t: (rate * (t.exp() - 1)).exp()):
    r"""The moment generating function of the Poisson law.

    $X \sim \mathrm{Pois}(\lambda)$ has $M_X(t) = e^{\lambda (e^t - 1)}$ for all real $t$, so that
    sums of independent Poisson variables are Poisson with the rates added.

    *Check.* Against the sum over 400 outcomes, beyond which less than $10^{-300}$ is left; the
    probabilities of a sum by convolution.
    """
    for rate in (0.5, 1.7, 6.0):
        law = Poisson(torch.tensor(rate))
        yield equals(formula(rate, T) / summed(law, 400), 1.0, rate=rate)
        k = torch.arange(60.0)
        first, second = (Poisson(torch.tensor(r)).log_prob(k).exp() for r in (rate, 2.5))
        convolved = np.convolve(first, second)[:60]
        yield equals(Poisson(torch.tensor(rate + 2.5)).log_prob(k).exp(), convolved, rate=rate)
        yield equals(formula(rate, T) * formula(2.5, T) / formula(rate + 2.5, T), 1.0, rate=rate)


mgf_poisson.foil(
    r"the bracket slipped: $e^{\lambda e^{t - 1}}$ is not 1 at $t = 0$",
    formula=lambda rate, t: (rate * (t - 1).exp()).exp(),
)
mgf_poisson.foil(r"$e^{\lambda t - 1}$", formula=lambda rate, t: (rate * t - 1).exp())


def truncated(law: Distribution, t: float, start: float, stop: float, panels: int = 200) -> float:
    r"""$\int e^{t x} p(x)\,dx$ between two bounds, by Gauss-Legendre rules on panels."""
    nodes, weights = (torch.tensor(v) for v in np.polynomial.legendre.leggauss(16))
    edges = torch.linspace(start, stop, panels + 1)
    half = (edges[1] - edges[0]) / 2
    x = (edges[:-1, None] + half * (1 + nodes)).flatten()
    return float((weights.repeat(panels) * half * (t * x + law.log_prob(x)).exp()).sum())


@claim(by="identity", sources=("D-022", "E-023"), budget=0.5)
def mgf_gamma(formula: Formula = lambda alpha, beta, t: (1 - beta * t) ** -alpha):
    r"""The moment generating function of the gamma law.

    $X \sim \mathrm{Gam}(\alpha, \beta)$ with shape $\alpha$ and scale $\beta$ has
    $M_X(t) = (1 - \beta t)^{-\alpha}$ for $t < 1/\beta$ and $+\infty$ beyond; with the rate
    $\beta' = 1/\beta$ it is $\big( \frac{\beta'}{\beta' - t} \big)^\alpha$.

    *Check.* Quadrature of torch's density after $x = y^{1/\alpha}$, which removes the pole at 0;
    $M(0) = 1$, mean $\alpha \beta$ and variance $\alpha \beta^2$ by differentiation. Beyond
    $1/\beta$ the integral up to $R$ grows without bound.
    """
    for alpha, beta, t in ((2.0, 0.5, 0.6), (2.5, 0.7, 0.6), (0.5, 2.0, -1.0)):
        law = Gamma(torch.tensor(alpha), torch.tensor(1 / beta))

        def integrand(y: float, alpha=alpha, t=t, law=law) -> float:
            x = y ** (1 / alpha)
            density = law.log_prob(torch.tensor(x)).exp().item()
            return math.exp(t * x) * density * x ** (1 - alpha) / alpha

        exact = quad(integrand, 1e-300, (60 / (1 / beta - t)) ** alpha, limit=200, epsrel=1e-12)[0]
        yield equals(formula(alpha, beta, torch.tensor(t)), exact, alpha=alpha)
        yield equals(formula(alpha, beta, torch.tensor(0.0)), 1.0, alpha=alpha)
        first, second = (
            derivatives(lambda s, a=alpha, b=beta: formula(a, b, s[0]), (k,)) for k in (1, 2)
        )
        yield equals(first, alpha * beta, alpha=alpha)
        yield equals(second - first**2, alpha * beta**2, alpha=alpha)
        reach = [truncated(law, 1.5 / beta, beta, r * beta) for r in (20, 40)]
        yield at_least(reach[1], 100 * reach[0], alpha=alpha)


mgf_gamma.foil("the rate's formula used with a scale", formula=lambda a, b, t: (b / (b - t)) ** a)
mgf_gamma.erratum(
    "D-022",
    printed=r"$\left(\frac{1}{\alpha - \beta t}\right)^\alpha$ for $t < 1/\beta$",
    right=r"$\left(\frac{1}{1 - \beta t}\right)^\alpha$",
    why=r"at $t = 0$ this is $\alpha^{-\alpha} \ne 1$ unless $\alpha = 1$",
    formula=lambda a, b, t: (1 / (a - b * t)) ** a,
)
mgf_gamma.erratum(
    "E-023",
    printed=r"$\left(\frac{\alpha}{\alpha + \beta t}\right)^{\alpha}$ for $t < 1/\beta$",
    right=r"$\left(\frac{1}{1 - \beta t}\right)^{\alpha}$",
    why=r"its derivative at 0 is $-\beta$, but the mean is $\alpha \beta > 0$",
    formula=lambda a, b, t: (a / (a + b * t)) ** a,
)


@claim(by="identity", sources=("A-013", "B-026", "D-020", "E-021"), budget=0.5, full={"draws": 100})
def mgf_gaussian(half: float = 0.5, power: int = 2, draws: int = 3):
    r"""The moment generating function of a Gaussian.

    $X \sim \mathcal N(\mu, \Sigma)$ has $M_X(t) = \exp(t^\top \mu + \frac12 t^\top \Sigma t)$ for
    all $t \in \mathbb R^n$; in one dimension $\exp(\mu t + \frac12 \sigma^2 t^2)$ with $\sigma^2$
    the variance.

    *Check.* Gauss-Hermite quadrature with 60 nodes an axis. The knobs are the $\frac12$ and the
    power of $\sigma$ in one dimension.
    """
    nodes, weights = (torch.tensor(v) for v in np.polynomial.hermite_e.hermegauss(60))
    weights = weights / weights.sum()
    for sigma, t in ((1.0, 1.0), (2.0, 0.7), (0.5, -1.0)):
        exact = weights @ (t * (0.3 + sigma * nodes)).exp()
        yield equals(math.exp(0.3 * t + half * sigma**power * t**2), exact, n=1)
    for _ in range(draws):
        b = 2 * torch.rand(2, 2) - 1
        cov, mu, t = b @ b.T + torch.eye(2) / 10, torch.randn(2), 2 * torch.rand(2) - 1
        x = mu + torch.cartesian_prod(nodes, nodes) @ torch.linalg.cholesky(cov).T
        exact = torch.cartesian_prod(weights, weights).prod(1) @ (x @ t).exp()
        yield equals((t @ mu + half * t @ cov @ t).exp(), exact, n=2)


mgf_gaussian.foil(r"without the $\frac12$: $e$ instead of 1.649", half=1.0)
mgf_gaussian.foil(r"$\sigma t^2$ instead of $\sigma^2 t^2$", power=1)


LAWS: dict[str, tuple[Distribution, float]] = {
    "normal": (Normal(0.0, 1.0), 0.0),
    "gamma": (Gamma(2.0, 1.0), 0.0),
    "Cauchy": (Cauchy(0.0, 1.0), 0.0),
    "log-normal": (LogNormal(0.0, 1.0), 0.0),
    "Pareto": (Pareto(1.0, 3.0), 1.0),
}  # with the point from which on a tail is integrated


@claim(by="witness", sources=("E-257",), budget=0.5)
def mgf_existence(heavy: tuple[str, ...] = ("Cauchy", "log-normal", "Pareto"), t: float = 0.1):
    r"""Not every distribution has a moment generating function.

    Heavy-tailed laws have none that is finite around 0: for the Cauchy law
    $\mathbb E[e^{t X}] = \infty$ for every $t \ne 0$, for the log-normal and Pareto laws for every
    $t > 0$. The characteristic function $\mathbb E[e^{i t^\top X}]$ always exists and always
    determines the law.

    *Check.* $I_R = \int^R e^{t x} p(x)\,dx$ for torch's densities: stable from $R = 200$ on for
    light tails, and growing by a factor of more than 100 with each doubling of $R$ for heavy ones,
    as it must, since $e^{t x}$ outgrows $1 / p(x)$. The Cauchy law's characteristic function is
    $e^{-\gamma |t|}$ for the scale $\gamma$, different for different scales.
    """
    for name, (law, start) in LAWS.items():
        reach = [truncated(law, t, start, r) for r in (200.0, 400.0, 800.0)]
        for r, (less, more) in zip((200, 400), pairwise(reach), strict=True):
            if name in heavy:
                yield at_least(more, 100 * less, law=name, R=r)
            else:
                yield at_most(more, 1.01 * less, law=name, R=r)
    for scale in (1.0, 2.0):
        for s in (0.5, 1.0, 3.0):

            def density(x: float, scale=scale) -> float:
                return 2 * scale / (math.pi * (scale**2 + x**2))

            value = quad(density, 0, math.inf, weight="cos", wvar=s)[0]
            yield equals(value, math.exp(-scale * s), tol=1e-7, t=s)


mgf_existence.foil("the log-normal law has all moments, and yet", heavy=("Cauchy", "Pareto"))
mgf_existence.foil("a light tail has one", heavy=("normal", "Cauchy", "log-normal", "Pareto"))
mgf_existence.erratum(
    "E-257",
    printed="each distribution has its own MGF",
    right="each distribution whose tails decay exponentially has one that is finite around 0",
    why=r"the Cauchy law has $\mathbb E[e^{t X}] = \infty$ for all $t \ne 0$",
    heavy=(),
)
