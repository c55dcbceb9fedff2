"""Generating functions of named laws: each in closed form."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Binomial, Distribution, Gamma, Poisson

from vademecum.claims import at_least, claim, equals
from vademecum.foundations.claims.moment_generating import derivatives

T = torch.tensor([-2.0, -0.4, 0.0, 0.4, 1.5], dtype=torch.float64)
Formula = Callable[..., Tensor]


def summed(law: Distribution, count: int) -> Tensor:
    r"""$\sum_k e^{t k} P(X = k)$ over `count` outcomes, at all of T."""
    k = torch.arange(float(count))
    return (T[:, None] * k + law.log_prob(k)).exp().sum(1)


@claim(
    by="identity",
    sources=("D-019", "D-021", "E-020", "E-022"),
    budget=0.5,
    short=r"X \sim \mathrm{Bin}(n, p) \implies M_X(t) = (p e^t + 1 - p)^n",
)
def mgf_binomial(formula: Formula = lambda n, p, t: (p * t.exp() + 1 - p) ** n):
    r"""The moment generating function of the Bernoulli and binomial laws.

    $X \sim \mathrm{Bin}(n, p)$ has $M_X(t) = (p e^t + 1 - p)^n$ for all real $t$; $n = 1$ is the
    Bernoulli law, $M(t) = p e^t + 1 - p$.

    *Check.* Against the sum over torch's probabilities; the first derivatives at 0 are $n p$ and
    $n p (1 - p) + n^2 p^2$.

    Knobs:
        formula: $M$ as a function of $n$, $p$ and $t$.
    """
    for n in range(1, 7):
        for p in (0.5, float(torch.rand(()))):
            at, at_zero = {"n": n, "p": p}, formula(n, p, torch.tensor(0.0))
            yield equals("$M(0)$", at_zero, 1.0, **at)
            exact = summed(Binomial(n, torch.tensor(p)), n + 1)
            yield equals("$M(t)$, over the sum of its terms", formula(n, p, T) / exact, 1.0, **at)
            moments = (n * p, n * p * (1 - p) + n**2 * p**2)
            for k, moment in enumerate(moments, 1):
                measured = derivatives(lambda t, n=n, p=p: formula(n, p, t[0]), (k,))
                name = ("mean", "second moment")[k - 1]
                yield equals(f"{name}, by differentiation", measured, moment, **at)


mgf_binomial.foil(
    r"the exponents misplaced: $p^t + (1 - p)^{1 - t}$ is 1.5 at $t = 0$, $p = \frac12$",
    formula=lambda n, p, t: (p**t + (1 - p) ** (1 - t)) ** n,
)
mgf_binomial.foil(
    r"$(p e + 1 - p)^n$, the $t$ lost", formula=lambda n, p, t: (p * math.e + 1 - p + 0 * t) ** n
)


@claim(
    by="identity",
    sources=("D-023", "E-024"),
    budget=0.5,
    short=r"X \sim \mathrm{Pois}(\lambda) \implies M_X(t) = e^{\lambda (e^t - 1)}",
)
def mgf_poisson(formula: Formula = lambda rate, t: (rate * (t.exp() - 1)).exp()):
    r"""The moment generating function of the Poisson law.

    $X \sim \mathrm{Pois}(\lambda)$ has $M_X(t) = e^{\lambda (e^t - 1)}$ for all real $t$, so that
    sums of independent Poisson variables are Poisson with the rates added.

    *Check.* Against the sum over 400 outcomes, beyond which less than $10^{-300}$ is left; the
    probabilities of a sum by convolution, which adds positive numbers only, so that ratios are
    right up to the rounding of logarithms of up to 230.

    Knobs:
        formula: $M$ as a function of $\lambda$ and $t$.
    """
    for rate in (0.5, 1.7, 6.0):
        law = Poisson(torch.tensor(rate))
        yield equals("$M(0)$", formula(rate, torch.tensor(0.0)), 1.0, rate=rate)
        ratio = formula(rate, T) / summed(law, 400)
        yield equals("$M(t)$, over the sum of its terms", ratio, 1.0, rate=rate)
        k = torch.arange(60.0)
        first, second = (Poisson(torch.tensor(r)).log_prob(k).exp() for r in (rate, 2.5))
        convolved = torch.tensor(np.convolve(first, second)[:60])
        ratio = Poisson(torch.tensor(rate + 2.5)).log_prob(k).exp() / convolved
        yield equals("probabilities of a sum, over the convolved", ratio, 1.0, tol=1e-12, rate=rate)
        ratio = formula(rate, T) * formula(2.5, T) / formula(rate + 2.5, T)
        yield equals("product of two $M$, over that of the sum", ratio, 1.0, rate=rate)


mgf_poisson.foil(
    r"the bracket slipped: $e^{\lambda e^{t - 1}}$ is 1.2 at $t = 0$ for $\lambda = \frac12$",
    formula=lambda rate, t: (rate * (t - 1).exp()).exp(),
)
mgf_poisson.foil(
    r"$e^{\lambda t - 1}$ is 0.37 at $t = 0$", formula=lambda rate, t: (rate * t - 1).exp()
)


def truncated(law: Distribution, t: float, start: float, stop: float, panels: int = 200) -> float:
    r"""$\int e^{t x} p(x)\,dx$ between two bounds, by Gauss-Legendre rules on panels.

    Panels grow with the distance from `start`, where the mass of the laws here lies.
    """
    nodes, weights = (torch.tensor(v) for v in np.polynomial.legendre.leggauss(16))
    reach = abs(stop - start)
    edges = torch.expm1(torch.linspace(0, math.log1p(reach), panels + 1))
    half = edges.diff()[:, None] / 2
    away = edges[:-1, None] + half * (1 + nodes)
    x = start + math.copysign(1, stop - start) * away
    return float((weights * half * (t * x + law.log_prob(x)).exp()).sum())


@claim(
    by="identity",
    sources=("D-022", "E-023"),
    budget=0.5,
    short=r"X \sim \mathrm{Gam}(\alpha, \beta) \implies "
    r"M_X(t) = (1 - \beta t)^{-\alpha},\ t < 1/\beta",
)
def mgf_gamma(formula: Formula = lambda alpha, beta, t: (1 - beta * t) ** -alpha):
    r"""The moment generating function of the gamma law.

    $X \sim \mathrm{Gam}(\alpha, \beta)$ with shape $\alpha$ and scale $\beta$ has
    $M_X(t) = (1 - \beta t)^{-\alpha}$ for $t < 1/\beta$ and $+\infty$ beyond; with the rate
    $\beta' = 1/\beta$ it is $\big( \frac{\beta'}{\beta' - t} \big)^\alpha$.

    *Check.* Quadrature of torch's density after $x = y^{1/\alpha}$, which removes the pole at 0;
    $M(0) = 1$, mean $\alpha \beta$ and variance $\alpha \beta^2$ by differentiation. At
    $1.5/\beta$ the integral up to $R$ grows without bound: from $20 \beta$ to $40 \beta$ by about
    $e^{10} 2^{\alpha - 1}$.

    Knobs:
        formula: $M$ as a function of $\alpha$, $\beta$ and $t$.
    """
    for alpha, beta, times in (
        (2.0, 0.5, (0.6, -3.0)),
        (2.5, 0.7, (0.6,)),
        (0.5, 2.0, (-1.0, 0.3)),
    ):
        law, at = Gamma(torch.tensor(alpha), torch.tensor(1 / beta)), {"alpha": alpha, "beta": beta}
        for t in times:
            exact = integrated(law, t)
            yield equals("$M(t)$", formula(alpha, beta, torch.tensor(t)), exact, t=t, **at)
        yield equals("$M(0)$", formula(alpha, beta, torch.tensor(0.0)), 1.0, **at)
        first, second = (
            derivatives(lambda s, a=alpha, b=beta: formula(a, b, s[0]), (k,)) for k in (1, 2)
        )
        yield equals("mean, by differentiation", first, alpha * beta, **at)
        yield equals("variance, by differentiation", second - first**2, alpha * beta**2, **at)
        reach = [truncated(law, 1.5 / beta, beta, r * beta) for r in (20, 40)]
        growth = reach[1] / reach[0]
        yield at_least("growth of the integral beyond $1/\\beta$", growth, 100.0, **at)


def integrated(law: Gamma, t: float) -> float:
    r"""$\int e^{t x} p(x)\,dx$ over all x, with $x = y^{1/\alpha}$.

    By Gauss-Legendre rules on panels of y that shrink towards 0, four an octave; below the last one
    less than $10^{-13}$ is left, and as little beyond the first.
    """
    nodes, weights = (torch.tensor(v) for v in np.polynomial.legendre.leggauss(16))
    alpha = law.concentration
    edges = (60 / (law.rate - t)) ** alpha * 2.0 ** (torch.arange(-240.0, 1.0) / 4)
    half = edges.diff()[:, None] / 2
    x = (edges[:-1, None] + half * (1 + nodes)) ** (1 / alpha)
    share = (t * x + law.log_prob(x)).exp() * x ** (1 - alpha) / alpha
    return float((weights * half * share).sum())


mgf_gamma.foil(
    "the rate's formula used with a scale: 25 instead of 2.04 at first",
    formula=lambda a, b, t: (b / (b - t)) ** a,
)
mgf_gamma.erratum(
    "D-022",
    printed=r"$\left(\frac{1}{\alpha - \beta t}\right)^\alpha$ for $t < 1/\beta$",
    right=r"$\left(\frac{1}{1 - \beta t}\right)^\alpha$",
    why=r"At $t = 0$ this is $\alpha^{-\alpha} \ne 1$ unless $\alpha = 1$, so it is no moment "
    r"generating function. At $\alpha = 2.5, \beta = 0.7, t = 0.6$ quadrature gives 3.903, the "
    "printed form 0.160.",
    weight="hard",
    refuted_by="$M(0)$",
    formula=lambda a, b, t: (1 / (a - b * t)) ** a,
)
mgf_gamma.erratum(
    "E-023",
    printed=r"$\left(\frac{\alpha}{\alpha + \beta t}\right)^{\alpha}$ for $t < 1/\beta$",
    right=r"$\left(\frac{1}{1 - \beta t}\right)^{\alpha}$",
    why="As scanned: the neighbouring lines of this page are garbled (Bernoulli as "
    r"$p^t + (1 - p)^{1 - t}$), and the sibling sheet prints another form. Its derivative at 0 is "
    r"$-\beta$, but the mean is $\alpha \beta > 0$. At $\alpha = 2, \beta = \frac12, t = 0.6$ the "
    "true value is 2.041, this one 0.756.",
    weight="scan",
    formula=lambda a, b, t: (a / (a + b * t)) ** a,
)


@claim(
    by="identity",
    sources=("A-013", "B-026", "D-020", "E-021"),
    budget=0.5,
    full={"draws": 100},
    short=r"X \sim \mathcal N(\mu, \Sigma) \implies M_X(t) = "
    r"\exp(t^\top \mu + \tfrac12 t^\top \Sigma t)",
)
def mgf_gaussian(half: float = 0.5, power: int = 2, draws: int = 3):
    r"""The moment generating function of a Gaussian.

    $X \sim \mathcal N(\mu, \Sigma)$ has $M_X(t) = \exp(t^\top \mu + \frac12 t^\top \Sigma t)$ for
    all $t \in \mathbb R^n$; in one dimension $\exp(\mu t + \frac12 \sigma^2 t^2)$ with $\sigma^2$
    the variance.

    *Check.* Gauss-Hermite quadrature in up to three dimensions. With $m$ nodes an axis it is exact
    on polynomials of degree $2 m - 1$, and $e^{s z}$ with $s \le 2$ has less than
    $2^{48} / 48! < 10^{-46}$ of its series beyond.

    Knobs:
        half: The factor before the quadratic form.
        power: The power of $\sigma$ in one dimension.
        draws: How many Gaussians of each dimension are drawn.
    """
    nodes, weights = (torch.tensor(v) for v in np.polynomial.hermite_e.hermegauss(24))
    weights = weights / weights.sum()
    for sigma, t in ((1.0, 1.0), (2.0, 0.7), (0.5, -1.0)):
        exact = weights @ (t * (0.3 + sigma * nodes)).exp()
        stated = math.exp(0.3 * t + half * sigma**power * t**2)
        yield equals("$M(t)$ in one dimension", stated, exact, sigma=sigma, t=t)
    for n in (2, 3) * draws:
        b = 2 * torch.rand(n, n) - 1
        cov, mu, t = b @ b.T + torch.eye(n) / 10, torch.randn(n), 2 * torch.rand(n) - 1
        x = mu + torch.cartesian_prod(*[nodes] * n) @ torch.linalg.cholesky(cov).T
        exact = torch.cartesian_prod(*[weights] * n).prod(1) @ (x @ t).exp()
        ratio = (t @ mu + half * t @ cov @ t).exp() / exact
        yield equals("$M(t)$, over its integral", ratio, 1.0, n=n)


mgf_gaussian.foil(
    r"without the $\frac12$: $e^{1.3} = 3.67$ instead of $e^{0.8} = 2.23$ at first", half=1.0
)
mgf_gaussian.foil(r"$\sigma t^2$ instead of $\sigma^2 t^2$, seen where $\sigma = 2$", power=1)
