"""What the course claims of expectations, variances and covariances."""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import scipy.stats
import torch
from torch import Tensor
from torch.distributions import Beta, Cauchy, Distribution, Exponential, Gamma, Normal

from vademecum.claims import at_least, claim, equals
from vademecum.foundations.claims.information import quadrature

Law = tuple[Tensor, Tensor]


def finite_law(d: int, atoms: int = 8) -> Law:
    """Random integer points, one a row, and how often each of them occurs."""
    return torch.randint(-6, 7, (atoms, d)), torch.randint(1, 8, (atoms,))


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


@claim(by="identity", sources=("D-007", "E-007"), budget=0.5)
def expectation(centre: Literal["mean", "median", "mode"] = "mean", power: int = 1):
    r"""The expectation of a continuous random variable.

    With the density $f_X$, $\mathbb E[X] = \int t\,f_X(t)\,\mathrm dt$ provided that
    $\int |t|\,f_X(t)\,\mathrm dt < \infty$; more generally $\mathbb E[h(X)] = \int h f_X$. The
    Cauchy law has no mean: $\int_0^R \frac{t\,\mathrm dt}{\pi (1 + t^2)} =
    \frac{\log(1 + R^2)}{2 \pi}$ grows by $\frac{\log 2}{\pi}$ with every doubling of a large $R$,
    and both torch and SciPy call its mean undefined.

    *Check.* The means that torch and SciPy give, by Gauss quadrature of torch's densities; second
    moments too. `power` is that of $t$ in the integral.
    """
    for name, (law, twin, low, high, closed) in named_laws().items():
        t, w = quadrature(low, high)
        f = law.log_prob(t).exp()
        centres = {"mean": law.mean, "median": torch.tensor(twin.median()), "mode": law.mode}
        yield equals((w * t**power * f).sum(), centres[centre], law=name)
        yield equals([float(law.mean), twin.mean()], closed, law=name)
        second = law.variance + law.mean**2
        yield equals((w * t**2 * f).sum(), second, law=name)
    cauchy, total, gain = Cauchy(0.0, 1.0), 0.0, 0.0
    yield equals(int(cauchy.mean.isnan()) + int(np.isnan(scipy.stats.cauchy.mean())), 2)
    for k in range(16):
        t, w = quadrature(0.0 if k == 0 else 2.0 ** (k - 1), 2.0**k, 60)
        gain = float((w * t * cauchy.log_prob(t).exp()).sum())
        total += gain
        yield equals(total, math.log1p(4.0**k) / (2 * math.pi), R=2**k)
    yield equals(gain, math.log(2) / math.pi, tol=4.0**-15, R=2**15)


expectation.foil("without the factor t the integral is 1, whatever the law", power=0)
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


@claim(by="identity", sources=("B-003", "B-004", "D-008", "E-008"), budget=0.5, full={"draws": 200})
def covariance(formula: Callable[..., Tensor] = cross_covariance, draws: int = 5):
    r"""The covariance of random vectors.

    $\mathrm{Cov}(X, Y) = \mathbb E[(X - \mathbb E X)(Y - \mathbb E Y)^\top] =
    \mathbb E[X Y^\top] - \mathbb E[X]\,\mathbb E[Y]^\top$, a $\dim X \times \dim Y$ matrix with
    $\mathrm{Cov}(Y, X) = \mathrm{Cov}(X, Y)^\top$, for square-integrable $X$, $Y$.

    *Check.* Laws on integer points with rational weights: both forms agree exactly, and with
    `torch.cov` and `numpy.cov`.
    """
    one = torch.ones(4, 1, dtype=torch.long)
    yield equals(formula(one, one, one[:, 0]), 0.0)
    for k in range(draws):
        xy, w = finite_law(5)
        x, y, n = xy[:, :3], xy[:, 3:], w.sum()
        product = exact_cov(x, y, w)
        centred = ((n * x - w @ x).T * w) @ (n * y - w @ y)
        yield equals(centred, n * product, draw=k)
        yield equals(product, exact_cov(y, x, w).T, draw=k)
        measured = formula(x, y, w)
        yield equals(list(measured.shape), [3, 2], draw=k)
        yield equals(measured, product / n**2, draw=k)
        peer = np.cov(xy.T.numpy(), ddof=0, aweights=w.numpy())
        yield equals(peer[:3, 3:], product / n**2, draw=k)


covariance.foil(
    r"without centring: 1 for the constants $X = Y = 1$",
    formula=lambda x, y, w: by_moments(x, y, w, 0),
)
covariance.foil("a plus between the terms", formula=lambda x, y, w: by_moments(x, y, w, 1))


@claim(
    by="identity",
    sources=("B-002", "D-009", "D-012", "E-009", "E-012"),
    budget=0.5,
    full={"draws": 200},
)
def variance_second_moment(sign: int = 1, correction: int = 0, draws: int = 5):
    r"""The variance as the second moment minus the squared mean.

    $\mathrm{Var}(X) = \mathrm{Cov}(X, X) = \mathbb E[(X - \mathbb E X)^2] =
    \mathbb E[X^2] - \mathbb E[X]^2 \ge 0$ for square-integrable $X$; for a vector
    $\mathrm{Cov}(X) := \mathrm{Cov}(X, X)$ is the covariance matrix, positive semidefinite.

    In floating point the difference cancels where the mean is large: for $\{10^9, 10^9 + 1\}$ it
    misses $\frac14$ by more than 0.1 in double precision, and `torch.var`, which centres, does not.
    `correction` is what the divisor of `torch.var` falls short of n.
    """
    for k in range(draws):
        x, w = finite_law(1)
        n, first, second = w.sum(), w @ x[:, 0], w @ x[:, 0] ** 2
        difference = sign * (n * second - first**2)
        yield equals(difference, exact_cov(x, x, w), draw=k)
        yield equals(w @ (n * x[:, 0] - first) ** 2, n * difference, draw=k)
        yield at_least(difference, 0, draw=k)
        sample = x[:, 0].repeat_interleave(w).double()
        yield equals(sample.var(correction=correction), difference / n**2, draw=k)
        points, w = finite_law(3)
        matrix = torch.cov(points.T.double(), correction=0, fweights=w)
        yield at_least(torch.linalg.eigvalsh(matrix), 0.0, draw=k)
        yield equals(matrix.diagonal(), exact_cov(points, points, w).diagonal() / w.sum() ** 2)
    far = torch.tensor([1e9, 1e9 + 1])
    yield equals(far.var(correction=0), 0.25)
    yield at_least(((far**2).mean() - far.mean() ** 2 - 0.25).abs(), 0.1)


variance_second_moment.foil("the difference the other way round is negative", sign=-1)
variance_second_moment.foil("the divisor n - 1 is for samples, not for laws", correction=1)


@claim(by="identity", sources=("B-005",), budget=0.5, full={"draws": 500})
def covariance_bilinearity(cross: int = 1, shift: int = 0, draws: int = 10):
    r"""The covariance is bilinear.

    $\mathrm{Cov}(a X + b Y,\, c W + d V) = a c\,\mathrm{Cov}(X, W) + a d\,\mathrm{Cov}(X, V) +
    b c\,\mathrm{Cov}(Y, W) + b d\,\mathrm{Cov}(Y, V)$ for scalars $a, b, c, d$; constants added to
    either argument drop out.

    *Check.* Joint laws on 8 integer points with rational weights, exactly. `cross` multiplies the
    terms with $a d$ and $b c$, and `shift` the product of the constants.
    """
    sign = torch.tensor([[-1], [1]])  # X = Y = W = V
    laws = [(sign.expand(2, 4), torch.tensor([1, 1])), *(finite_law(4) for _ in range(draws))]
    for k, (points, w) in enumerate(laws):
        a, b, c, d, left, right = torch.randint(-5, 6, (6,)) if k else torch.ones(6).long()
        x, y, u, v = points.split(1, 1)
        measured = exact_cov(a * x + b * y + left, c * u + d * v + right, w)
        straight = a * c * exact_cov(x, u, w) + b * d * exact_cov(y, v, w)
        crossed = a * d * exact_cov(x, v, w) + b * c * exact_cov(y, u, w)
        constants = shift * w.sum() ** 2 * left * right
        yield equals(measured, straight + cross * crossed + constants, law=k)


covariance_bilinearity.foil("the diagonal terms alone: 2 instead of 4 for equal signs", cross=0)
covariance_bilinearity.foil("constants do not count", shift=1)


@claim(by="identity", sources=("D-013", "D-014", "E-013", "E-014"), budget=0.5, full={"draws": 500})
def covariance_linear_map(
    formula: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda A, C, b: A @ C @ A.T,
    draws: int = 5,
):
    r"""The covariance of an affine map.

    $\mathrm{Var}[A X + b] = A\,\mathrm{Var}[X]\,A^\top$ for a constant matrix $A$ and vector $b$;
    in one dimension $\mathrm{Var}[a X + b] = a^2\,\mathrm{Var}[X]$: shifts drop out and scales
    enter squared.

    *Check.* The covariance of the mapped points, exactly, for integer $A$ and $b$.
    """
    square = (
        torch.cartesian_prod(torch.tensor([-1, 1]), torch.tensor([-2, 2])),
        torch.ones(4).long(),
    )
    corner = torch.tensor([[0, 1], [0, 0]]), torch.tensor([1, 0])
    cases = [(square, *corner)]
    for rows, d in ((2, 3), (1, 1), (3, 3)) * draws:
        A, b = torch.randint(-5, 6, (rows, d)), torch.randint(1, 6, (rows,))
        A[0, 0] = -2
        cases.append((finite_law(d), A, b))
    for (x, w), A, b in cases:
        n = w.sum()
        mapped = x @ A.T + b
        C = exact_cov(x, x, w)
        yield equals(exact_cov(mapped, mapped, w), formula(A, C, b * n**2), d=len(A.T))


covariance_linear_map.foil(
    r"$A^\top C A$: for $A = E_{12}$ it keeps the wrong variance",
    formula=lambda A, C, b: A.T @ C @ A,
)
covariance_linear_map.foil(r"$a$ instead of $a^2$", formula=lambda A, C, b: A @ C)
covariance_linear_map.foil("a shift that stays", formula=lambda A, C, b: A @ C @ A.T + b.diag())


@claim(by="identity", sources=("B-020", "D-015", "E-015", "E-016"), budget=0.5, full={"draws": 500})
def weighted_sum_variance(factor: int = 2, draws: int = 5):
    r"""The variance of a weighted sum.

    $\mathrm{Var}\big[\sum_i a_i X_i\big] = \sum_i a_i^2\,\mathrm{Var}[X_i] +
    2 \sum_{i < j} a_i a_j\,\mathrm{Cov}(X_i, X_j) = a^\top C a$; over ordered pairs $i \ne j$ the
    factor 2 disappears. It is the square of a sum,
    $(\sum_i a_i)^2 = \sum_i a_i^2 + 2 \sum_{i < j} a_i a_j$, applied to centred variables; for
    uncorrelated $X_i$ the variances add.

    *Check.* Joint laws of four integer variables, exactly. `factor` is the 2.
    """
    signs = torch.tensor([[1, 1], [-1, -1], [1, -1], [-1, 1]])
    together = signs, torch.tensor([3, 3, 1, 1])  # unit variances and the covariance 1/2
    for k, (x, w) in enumerate([together, *(finite_law(4) for _ in range(draws))]):
        a = torch.randint(-5, 6, (x.shape[1],)) if k else torch.ones(2).long()
        total, C = x @ a[:, None], exact_cov(x, x, w)
        variance, terms = exact_cov(total, total, w), torch.outer(a, a) * C
        alone, pairs = terms.diagonal().sum(), terms.triu(1).sum()
        yield equals(variance, alone + factor * pairs, law=k)
        yield equals(variance, alone + pairs + terms.tril(-1).sum(), law=k)
        yield equals(variance, a @ C @ a, law=k)
    apart = torch.cartesian_prod(*[torch.tensor([-1, 3])] * 3)
    everywhere = torch.ones(8).long()
    total = apart @ torch.tensor([[1], [2], [-3]])
    alone = exact_cov(apart, apart, everywhere).diagonal() @ torch.tensor([1, 4, 9])
    yield equals(exact_cov(total, total, everywhere), alone)
    for n in range(1, 11):
        a = torch.randint(-9, 10, (n,))
        pairs = torch.outer(a, a).triu(1).sum()
        yield equals(a.sum() ** 2, (a**2).sum() + factor * pairs, n=n)


weighted_sum_variance.foil(r"$\sum_{i < j}$ without the 2: 2.5 instead of 3 at first", factor=1)
weighted_sum_variance.foil("variances do not add where there is correlation", factor=0)
