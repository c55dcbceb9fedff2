"""Moments: expectations, variances and covariances."""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import scipy.stats
import torch
from torch import Tensor
from torch.distributions import Beta, Cauchy, Distribution, Exponential, Gamma, Normal

from vademecum.claims import at_least, claim, equals, integers
from vademecum.foundations.claims.information import quadrature

Law = tuple[Tensor, Tensor]


def counted_law(d: int, atoms: int = 8) -> Law:
    """Random integer points, one a row, and how often each of them occurs."""
    return integers(atoms, d, most=6).long(), torch.randint(1, 8, (atoms,))


def exact_cov(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    r"""$n^2\,\mathrm{Cov}(X, Y)$ of integer points that occur w times, n times in all; exactly."""
    return w.sum() * (x.T * w) @ y - torch.outer(w @ x, w @ y)


def named_laws() -> dict[str, tuple[Distribution, Any, float, float, float]]:
    """Laws of torch, SciPy's, an interval that holds them up to rounding, and their means."""
    return {
        "exponential": (Exponential(2.0), scipy.stats.expon(scale=0.5), 0.0, 20.0, 0.5),
        "gamma": (Gamma(2.5, 1 / 0.7), scipy.stats.gamma(2.5, scale=0.7), 0.0, 35.0, 1.75),
        "beta": (Beta(2.0, 3.0), scipy.stats.beta(2, 3), 0.0, 1.0, 0.4),
        "normal": (Normal(1.0, 2.0), scipy.stats.norm(1, 2), -19.0, 21.0, 1.0),
    }


@claim(
    by="identity",
    sources=("D-007", "E-007"),
    budget=0.5,
    short=r"\mathbb E[X] = \int t\, f_X(t)\, \mathrm dt",
)
def expectation(centre: Literal["mean", "median", "mode"] = "mean", power: int = 1):
    r"""The expectation of a continuous random variable.

    With the density $f_X$, $\mathbb E[X] = \int t\,f_X(t)\,\mathrm dt$ provided that
    $\int |t|\,f_X(t)\,\mathrm dt < \infty$; more generally $\mathbb E[h(X)] = \int h f_X$. The
    Cauchy law has no mean: $\int_0^R \frac{t\,\mathrm dt}{\pi (1 + t^2)} =
    \frac{\log(1 + R^2)}{2 \pi}$ grows by $\frac{\log 2}{\pi}$ with every doubling of a large $R$,
    and both torch and SciPy call its mean undefined.

    *Check.* The means that torch and SciPy give, by Gauss quadrature of torch's densities; second
    moments too.

    Knobs:
        centre: What the integral is said to be.
        power: The power of $t$ in the integral.
    """
    for name, (law, twin, low, high, closed) in named_laws().items():
        t, w = quadrature(low, high)
        f = law.log_prob(t).exp()
        centres = {"mean": law.mean, "median": torch.tensor(twin.median()), "mode": law.mode}
        yield equals("integral of $t f(t)$", (w * t**power * f).sum(), centres[centre], law=name)
        yield equals("torch's mean", law.mean, closed, law=name)
        yield equals("SciPy's mean", twin.mean(), closed, law=name)
        second = law.variance + law.mean**2
        yield equals("integral of $t^2 f(t)$", (w * t**2 * f).sum(), second, law=name)
    cauchy, total, gain = Cauchy(0.0, 1.0), 0.0, 0.0
    undefined = [int(cauchy.mean.isnan()), int(np.isnan(scipy.stats.cauchy.mean()))]
    yield equals("means of the Cauchy law that are not a number", sum(undefined), 2)
    for k in range(16):
        t, w = quadrature(0.0 if k == 0 else 2.0 ** (k - 1), 2.0**k, 60)
        gain = float((w * t * cauchy.log_prob(t).exp()).sum())
        total += gain
        stated = math.log1p(4.0**k) / (2 * math.pi)
        yield equals("half the Cauchy law's integral up to $R$", total, stated, R=2**k)
    last = math.log(2) / math.pi
    yield equals("gain from the last doubling of $R$", gain, last, tol=4.0**-15, R=2**15)


expectation.foil(
    "without the factor t the integral is 1, whatever the law; the mean may be 0.5", power=0
)
expectation.foil("the median: 0.35 of the exponential law with mean 0.5", centre="median")
expectation.foil("the mode: 0 of the exponential law with mean 0.5", centre="mode")


def cross_covariance(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """A block of what torch computes for both vectors together."""
    both = torch.cat([x, y], 1).T.double()
    return torch.cov(both, correction=0, fweights=w)[: x.shape[1], x.shape[1] :]


def by_moments(x: Tensor, y: Tensor, w: Tensor, sign: int) -> Tensor:
    r"""$\mathbb E[X Y^\top] \pm \mathbb E[X] \mathbb E[Y]^\top$."""
    p = w / w.sum()
    return (x.T * p) @ y.double() + sign * torch.outer(p @ x.double(), p @ y.double())


@claim(
    by="identity",
    sources=("B-003", "B-004", "D-008", "E-008"),
    budget=0.5,
    full={"draws": 200},
    short=r"\mathrm{Cov}(X, Y) = \mathbb E[X Y^\top] - \mathbb E[X]\,\mathbb E[Y]^\top",
)
def covariance(formula: Callable[..., Tensor] = cross_covariance, draws: int = 5):
    r"""The covariance of random vectors.

    $\mathrm{Cov}(X, Y) = \mathbb E[(X - \mathbb E X)(Y - \mathbb E Y)^\top] =
    \mathbb E[X Y^\top] - \mathbb E[X]\,\mathbb E[Y]^\top$, a $\dim X \times \dim Y$ matrix with
    $\mathrm{Cov}(Y, X) = \mathrm{Cov}(X, Y)^\top$, for square-integrable $X$, $Y$.

    *Check.* Laws on integer points with rational weights: both forms agree exactly, and with
    `torch.cov` and `numpy.cov`.

    Knobs:
        formula: The covariance of points that occur with multiplicities.
        draws: How many laws are drawn.
    """
    one = torch.ones(4, 1, dtype=torch.long)
    yield equals("covariance of constants", formula(one, one, one[:, 0]), 0.0)
    for k in range(draws):
        xy, w = counted_law(5)
        x, y, n = xy[:, :3], xy[:, 3:], w.sum()
        product = exact_cov(x, y, w)
        centred = ((n * x - w @ x).T * w) @ (n * y - w @ y)
        yield equals("centred products, times $n^3$", centred, n * product, draw=k)
        measured, turned = formula(x, y, w), formula(y, x, w).T
        yield equals("covariance of Y and X, transposed", turned, product / n**2, draw=k)
        yield equals("shape of the covariance", measured.shape, [3, 2], draw=k)
        yield equals("covariance", measured, product / n**2, draw=k)
        peer = np.cov(xy.T.numpy(), ddof=0, aweights=w.numpy())
        yield equals("NumPy's covariance", peer[:3, 3:], product / n**2, draw=k)


covariance.foil(
    r"without centring: 1 for the constants $X = Y = 1$",
    formula=lambda x, y, w: by_moments(x, y, w, 0),
)
covariance.foil(
    "a plus between the terms: 2 for these constants",
    formula=lambda x, y, w: by_moments(x, y, w, 1),
)


@claim(
    by="identity",
    sources=("B-002", "D-009", "D-012", "E-009", "E-012"),
    budget=0.5,
    full={"draws": 200},
    short=r"\mathrm{Var}(X) = \mathbb E[X^2] - \mathbb E[X]^2 \ge 0",
)
def variance_second_moment(sign: int = 1, correction: int = 0, draws: int = 5):
    r"""The variance as the second moment minus the squared mean.

    $\mathrm{Var}(X) = \mathrm{Cov}(X, X) = \mathbb E[(X - \mathbb E X)^2] =
    \mathbb E[X^2] - \mathbb E[X]^2 \ge 0$ for square-integrable $X$; for a vector
    $\mathrm{Cov}(X) := \mathrm{Cov}(X, X)$ is the covariance matrix, positive semidefinite.

    In floating point the difference cancels where the mean is large: for $\{10^9, 10^9 + 1\}$ it
    misses $\frac14$ by more than 0.1, since doubles near $10^{18}$ are multiples of 128, and
    `torch.var`, which centres, does not.

    Knobs:
        sign: Which way round the difference is taken.
        correction: By how much the divisor of `torch.var` falls short of $n$.
        draws: How many laws are drawn.
    """
    for k in range(draws):
        x, w = counted_law(1)
        n, first, second = w.sum(), w @ x[:, 0], w @ x[:, 0] ** 2
        difference = sign * (n * second - first**2)
        centred = w @ (n * x[:, 0] - first) ** 2
        yield equals(
            "second moment less square of the mean, times $n^3$", n * difference, centred, draw=k
        )
        yield at_least("variance, times $n^2$", difference, 0, draw=k)
        sample = x[:, 0].repeat_interleave(w).double()
        variance = sample.var(correction=correction)
        yield equals("torch's variance", variance, difference / n**2, draw=k)
        points, w = counted_law(3)
        matrix = torch.cov(points.T.double(), correction=0, fweights=w)
        least = torch.linalg.eigvalsh(matrix)[0]
        yield at_least("least eigenvalue of the covariance matrix", least, 0.0, draw=k)
        exact = exact_cov(points, points, w).diagonal() / w.sum() ** 2
        yield equals("diagonal of the covariance matrix", matrix.diagonal(), exact, draw=k)
    far = torch.tensor([1e9, 1e9 + 1])
    yield equals(r"torch's variance near $10^9$", far.var(correction=0), 0.25)
    miss = ((far**2).mean() - far.mean() ** 2 - 0.25).abs()
    yield at_least(r"error of the difference near $10^9$", miss, 0.1)


variance_second_moment.foil("the difference the other way round is negative", sign=-1)
variance_second_moment.foil("the divisor $n - 1$ is for samples, not for laws", correction=1)
