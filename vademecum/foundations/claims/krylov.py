"""What theory says of Krylov methods and of random probes, and of ours."""

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import scipy.stats
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.claims import (
    Evidence,
    at_least,
    at_most,
    claim,
    equals,
    in_mean,
    with_eigenvalues,
)
from vademecum.foundations import ProbeEstimate, cg, eigsh, log_det, spectral_density, trace
from vademecum.foundations import diagonal as diagonal_of


def ordered(values: Tensor, which: str) -> Tensor:
    """Eigenvalues in the order in which they are asked for."""
    key = {"largest": values, "smallest": -values, "magnitude": values.abs()}[which]
    return values[key.argsort(descending=True)]


@claim(
    by="sampling",
    budget=0.6,
    full={"n": 500, "matrices": 10},
    short=r"\min_i |\lambda_i - \theta| \le \|A x - \theta x\|, \quad"
    r" \theta = x^\top A x,\ \|x\| = 1,\ A = A^\top",
)
def lanczos_residual_bound(power: int = 1, n: int = 40, matrices: int = 1):
    r"""A Ritz value is as close to an eigenvalue as its residual norm.

    For symmetric $A$, a unit vector $x$ and $\theta = x^\top A x$ some eigenvalue $\lambda$ has
    $|\lambda - \theta| \le \|A x - \theta x\|$; and no Ritz value is above the largest eigenvalue
    or below the smallest. So the residual norms that Lanczos gets for nothing certify what it
    found. Which eigenvalues these are they do not say: that Lanczos finds those at the ends of the
    spectrum first, and multiple ones as often as they occur, is checked here and not proved.

    *Proof.* With $x = \sum_i c_i u_i$, $\|A x - \theta x\|^2 = \sum_i c_i^2 (\lambda_i - \theta)^2
    \ge \min_i (\lambda_i - \theta)^2$. For the largest eigenvalue the error
    $\sum_i c_i^2 (\lambda_1 - \lambda_i)$ is of the order of the squared residual over the gap: a
    spectrum of width $w$ leaves at least $\|A x - \theta x\|^2 / w$.

    Knobs:
        power: The power of the residual norm that bounds the error.
        n: The size of the matrices.
        matrices: How many matrices are drawn.
    """
    ends = torch.tensor([0.12, 0.12, -0.11, 0.1, -0.09])  # the largest one twice
    for _ in range(matrices):
        inner = (torch.arange(n - 5.0) + torch.rand(n - 5) / 2) / n - 0.5
        values = torch.cat([ends, inner / 8])
        A = with_eigenvalues(values)
        for which, k in itertools.product(("largest", "smallest", "magnitude"), (1, 3)):
            at = {"k": k, "which": which}
            found = eigsh(A, k, which=which, tol=1e-3, degenerate=False)
            X, theta = found.vectors, found.values
            residuals = (A @ X - X * theta).norm(dim=0)
            yield equals("lengths of the vectors", X.norm(dim=0), 1.0, **at)
            rounding = 1e-14  # of products with a matrix of norm 0.12
            yield equals("residual norms reported", found.residuals, residuals, tol=rounding, **at)
            distance = (theta - values[:, None]).abs().amin(0)
            bound = residuals**power
            yield at_most("distance to an eigenvalue", distance, bound, tol=rounding, **at)
            yield at_most("Ritz values", theta, values.max(), tol=rounding, **at)
            yield at_least("Ritz values, from below", theta, values.min(), tol=rounding, **at)
            found = eigsh(A, k, which=which).values
            yield equals("eigenvalues found", found, ordered(values, which)[:k], **at)


lanczos_residual_bound.foil(
    "the squared residual, without the gap that it must be divided by", power=2
)


def best_in_krylov_space(A: Tensor, x: Tensor, steps: int) -> Tensor:
    """The least energy norm of x - y over y in the span of A x, ..., A^steps x."""
    root = torch.linalg.cholesky(A).T
    basis = (A @ x)[:, None]
    for _ in range(steps - 1):
        basis = torch.linalg.qr(torch.cat([basis, (A @ basis[:, -1])[:, None]], 1)).Q
    Q = torch.linalg.qr(root @ basis).Q
    target = root @ x
    return (target - Q @ (Q.T @ target)).norm()


@claim(
    by="sampling",
    budget=0.5,
    full={"n": 1000},
    short=r"\|x_t - x^*\|_A \le 2 \left(\tfrac{\sqrt\kappa - 1}{\sqrt\kappa + 1}\right)^t"
    r" \|x_0 - x^*\|_A",
)
def cg_error_bound(root: int = 2, kappa: float = 100.0, n: int = 60):
    r"""The error of conjugate gradients falls with the square root of the condition number.

    For symmetric positive definite $A$ with condition number $\kappa$,
    $\|x_t - x^*\|_A \le 2 \left(\frac{\sqrt\kappa - 1}{\sqrt\kappa + 1}\right)^t \|x_0 - x^*\|_A$
    with $\|e\|_A^2 = e^\top A e$. With $m$ distinct eigenvalues $m$ steps suffice.

    *Proof.* $x_t$ is the best of $x_0 + p(A) r_0$ over polynomials $p$ of degree below $t$; the
    shifted Chebyshev polynomial gives the bound, one with roots at the eigenvalues the rest.

    Knobs:
        root: The root of $\kappa$ in the bound.
        kappa: The condition number.
        n: The size of the matrices.
    """
    angles = torch.pi * (torch.arange(n - 2) + torch.rand(n - 2)) / (n - 2)
    inner = (1 - angles.cos()) / 2  # dense at the ends, which is hard
    A = with_eigenvalues(1 + (kappa - 1) * torch.cat([torch.tensor([0.0, 1.0]), inner]))
    solutions = torch.randn(n, 2)
    start = ((A @ solutions) * solutions).sum(0).sqrt()
    rate = (kappa ** (1 / root) - 1) / (kappa ** (1 / root) + 1)
    for t in (1, 2, 4, 8, 16, 24):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            error = cg(A, A @ solutions, tol=1e-15, max_iter=t).x - solutions
        share = ((A @ error) * error).sum(0).sqrt() / start
        yield at_most("error over that of the start", share, 2 * rate**t, t=t)
        best = torch.stack([best_in_krylov_space(A, x, t) for x in solutions.T]) / start
        yield equals("error, against the best in the Krylov space", share, best, t=t)
    for values in ((3.0,), (1.0, 10.0), (1.0, 3.0, 10.0)):
        few = with_eigenvalues(torch.tensor(values).repeat(12 // len(values)))
        steps = int(cg(few, few @ torch.randn(len(few)), tol=1e-10).iterations)
        yield equals("steps taken", steps, len(values), distinct=len(values))


cg_error_bound.foil("with the fourth root it is too good to be true", root=4)
cg_error_bound.foil("with the third root as well", root=3)


def moments_of(
    name: str, values: Tensor, errors: Tensor, mean: Tensor, variance: Tensor, **at: Any
) -> Iterator[Evidence]:
    """Estimates have this mean, and their squared standard errors that variance for a mean."""
    yield in_mean(f"{name} in the mean", values, float(mean), sigmas=7, **at)
    name = f"squared standard error of the {name}"
    yield in_mean(name, errors.square(), float(variance), sigmas=7, **at)


def variances(A: Tensor, diagonal: float) -> Tensor:
    """The sums of squares of rows, with a weight for what stands on the diagonal."""
    own = A.diagonal().square()
    return A.square().sum(1) - own + diagonal * own


def one_sample(name: str, found: ProbeEstimate, samples: Tensor, **at: Any) -> Iterator[Evidence]:
    """An estimate is the mean of its samples, along the last axis, with the error of a mean."""
    yield equals(f"{name} from eight probes", found.value, samples.mean(-1), **at)
    error = samples.std(-1) / samples.shape[-1] ** 0.5
    yield equals(f"standard error of the {name}", found.standard_error, error, **at)


def stacked(found: list[ProbeEstimate]) -> tuple[Tensor, Tensor]:
    """The values of many estimates, and their standard errors."""
    return torch.stack([e.value for e in found]), torch.stack([e.standard_error for e in found])


@claim(
    by="identity",
    budget=0.7,
    full={"runs": 5000},
    short=r"z_i = \pm 1, A = A^\top: \mathbb E[z^\top A z] = \mathrm{Tr} A,\ "
    r"\mathrm{Var}[z^\top A z] = 2 \sum_{i \ne j} A_{ij}^2",
)
def hutchinson_variance(diagonal: float = 0.0, n: int = 7, runs: int = 120) -> Iterator[Evidence]:
    r"""Mean and variance of Hutchinson's estimator.

    For a vector $z$ of independent random signs and a real symmetric $A$,
    $\mathbb{E}[z^\top A z] = \mathrm{Tr}\, A$ and
    $\mathrm{Var}[z^\top A z] = 2 \sum_{i \ne j} A_{ij}^2$: the diagonal does not contribute.
    Likewise $z_i (A z)_i$ has the mean $A_{ii}$ and the variance $\sum_{j \ne i} A_{ij}^2$.

    *Proof.* $z^\top A z = \mathrm{Tr}\, A + 2 \sum_{i < j} A_{ij} z_i z_j$, and the products
    $z_i z_j$ are uncorrelated, with mean 0 and variance 1. In expectation, by all $2^n$ vectors of
    signs; sampled, all means lie within seven standard errors, a false alarm of less than
    $10^{-7}$ even for the skewed estimates of the variance. Hutch++ and XTrace have the same mean,
    and are exact for matrices of low rank.

    Knobs:
        diagonal: The weight of the squared diagonal entries in the variance.
        n: The size of the matrix whose sign vectors are enumerated; four times as large where they
            are drawn.
        runs: How many estimates are drawn, from eight products with the matrix each.
    """
    A = with_eigenvalues(torch.randn(n))
    Z = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=n)))
    entries, rows = (Z @ A) * Z, variances(A, diagonal)
    yield equals("mean of $z^\\top A z$", entries.sum(1).mean(), A.trace(), n=n)
    yield equals("variance of $z^\\top A z$", entries.sum(1).var(correction=0), 2 * rows.sum(), n=n)
    yield equals("mean of $z_i (A z)_i$", entries.mean(0), A.diagonal(), n=n)
    yield equals("variance of $z_i (A z)_i$", entries.var(0, correction=0), rows, n=n)
    wide = with_eigenvalues(1 + torch.randn(4 * n) / 10)
    Z = signs(8, 4 * n, dice(0))
    entries, rows, at = (wide @ Z) * Z, variances(wide, diagonal), {"n": 4 * n}
    found = trace(wide, method="hutchinson", applications=8, generator=dice(0))
    yield from one_sample("trace", found, entries.sum(0), **at)
    found = diagonal_of(wide, applications=8, generator=dice(0))
    yield from one_sample("diagonal", found, entries, **at)
    values, errors = stacked(
        [trace(wide, method="hutchinson", applications=8) for _ in range(runs)]
    )
    yield from moments_of("trace", values, errors, wide.trace(), rows.sum() / 4, **at)
    values, errors = stacked([diagonal_of(wide, applications=8) for _ in range(runs)])
    for i in (0, 2 * n):
        value, error, variance = values[:, i], errors[:, i], rows[i] / 8
        yield from moments_of("diagonal entry", value, error, wide[i, i], variance, i=i)
    low = with_eigenvalues(torch.cat([torch.tensor([5.0, -3.0]), torch.zeros(4 * n - 2)]))
    for method in ("hutch++", "xtrace"):
        values, _ = stacked([trace(wide, method=method, applications=9) for _ in range(runs // 2)])
        yield in_mean("trace in the mean", values, float(wide.trace()), sigmas=7, method=method)
        exact = trace(low, method=method, applications=9).value
        yield equals("trace of a matrix of rank two", exact, 2.0, method=method)


hutchinson_variance.foil(
    r"$2 \|A\|_F^2$, the variance with Gaussian instead of sign vectors", diagonal=1.0
)


@claim(
    by="identity",
    budget=0.5,
    short=r"\sum_j w_j\, p(\theta_j) = v^\top p(A)\, v, \quad \deg p \le 2 s - 1,\ \|v\| = 1",
)
def spectral_quadrature(extra: int = 0, n: int = 30):
    r"""Lanczos is Gauss quadrature.

    After $s$ steps from a unit vector $v$ the eigenvalues $\theta_j$ of the tridiagonal matrix and
    the squares $w_j$ of the first components of its eigenvectors satisfy
    $\sum_j w_j p(\theta_j) = v^\top p(A) v$ for every polynomial $p$ of degree at most $2 s - 1$,
    and the nodes lie within the range of the spectrum. For the logarithm of a positive definite $A$
    of condition $\kappa$ the error falls with $\big(\frac{\sqrt\kappa - 1}{\sqrt\kappa +
    1}\big)^{2 s}$ (quoted), so that the mean over random signs $\sqrt n v$ of
    $n \sum_j w_j \log \theta_j$ gives $\log \det A = \operatorname{tr} \log A$.

    *Proof.* $v^\top A^{a+b} v = (A^a v)^\top A^b v$, and both powers stay in the Krylov space up to
    degree $s - 1$, with one more factor of $A$ between them.

    Knobs:
        extra: By how much the degree exceeds $2 s - 1$.
        n: The size of the matrix.
    """
    values = torch.linspace(-1, 1, n) + 0.01 * torch.rand(n)
    A = with_eigenvalues(values)
    for s in (1, 2, 3, 4):
        found = spectral_density(A, probes=3, steps=s, generator=dice(s))
        V = signs(3, n, dice(s)) / n**0.5
        for degree in range(2 * s + extra):
            form = (V * (torch.linalg.matrix_power(A, degree) @ V)).sum(0)
            sums = (found.weights * found.nodes**degree).sum(1)
            yield equals("sum over the nodes", sums, form, tol=1e-12, degree=degree, steps=s)
        yield at_most("nodes", found.nodes, values.max(), tol=1e-12, steps=s)
        yield at_least("nodes, from below", found.nodes, values.min(), tol=1e-12, steps=s)
    grid = torch.linspace(-1.5, 1.5, 7)
    bumps = scipy.stats.norm.pdf(grid[:, None].numpy(), values.numpy(), 0.3).mean(1)
    density, _ = spectral_density(A, probes=n)(grid, width=0.3)
    yield equals("smoothed density of all eigenvalues", density, bumps, n=n)
    definite = A + 2 * torch.eye(n)  # of condition 3, so that 16 steps leave 1e-18
    Q, V = torch.linalg.eigh(definite).eigenvectors, signs(5, n, dice(0))
    forms = ((Q.T @ V).square() * (Q.T @ definite @ Q).diagonal().log()[:, None]).sum(0)
    found = log_det(definite, probes=5, steps=16, generator=dice(0))
    yield equals("log-determinant from five probes", found.value, forms.mean(), n=n)
    yield equals(
        "standard error of the log-determinant", found.standard_error, forms.std() / 5**0.5, n=n
    )
    exact = log_det(definite, probes=n).value
    yield equals("log-determinant from n probes", exact, torch.logdet(definite), n=n)


def dice(seed: int) -> torch.Generator:
    """A generator with a seed."""
    return torch.Generator().manual_seed(seed)


def signs(probes: int, n: int, generator: torch.Generator) -> Tensor:
    """Random signs, a column for each probe, as the library draws them."""
    return 2.0 * torch.randint(2, (probes, n), generator=generator).T - 1


spectral_quadrature.foil(r"degree $2 s$ is one too many", extra=1)
