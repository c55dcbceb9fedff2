"""What theory says of Krylov methods and of random probes, and of ours."""

import itertools
import warnings

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, in_mean
from vademecum.foundations.conjugate_gradients import cg
from vademecum.foundations.extreme_eigenvalues import eigsh
from vademecum.foundations.lanczos_quadrature import spectral_density
from vademecum.foundations.stochastic_trace import trace


def planted(values: Tensor) -> Tensor:
    """A symmetric matrix with these eigenvalues, and random eigenvectors."""
    Q = torch.linalg.qr(torch.randn(len(values), len(values))).Q
    A = (Q * values) @ Q.T
    return (A + A.T) / 2


@claim(by="sampling", budget=0.5, full={"n": 500, "matrices": 10})
def lanczos_residual_bound(power: int = 1, n: int = 60, matrices: int = 4):
    r"""A Ritz value is as close to an eigenvalue as its residual norm.

    For symmetric $A$, a unit vector $x$ and $\theta = x^\top A x$ some eigenvalue $\lambda$ has
    $|\lambda - \theta| \le \|A x - \theta x\|$; and no Ritz value is above the largest
    eigenvalue. So the residual norms that Lanczos gets for nothing certify what it found.

    *Proof.* With $x = \sum_i c_i u_i$, $\|A x - \theta x\|^2 = \sum_i c_i^2 (\lambda_i - \theta)^2
    \ge \min_i (\lambda_i - \theta)^2$. For the largest eigenvalue the error
    $\sum_i c_i^2 (\lambda_1 - \lambda_i)$ is of the order of the squared residual over the gap: a
    spectrum of width $w$ leaves at least $\|A x - \theta x\|^2 / w$.
    """
    for _ in range(matrices):
        values = torch.rand(n) / 2
        A = planted(values)
        for k in (1, 3):
            found = eigsh(A, k, tol=1e-3, degenerate=False)
            X, theta = found.vectors, found.values
            true = (A @ X - X * theta).norm(dim=0)
            yield equals(found.residuals, true, tol=1e-13, k=k)
            distance = (theta - values[:, None]).abs().amin(0)
            yield at_most(distance, true**power, tol=1e-13, k=k)
            yield at_most(theta, values.max(), tol=1e-13, k=k)


lanczos_residual_bound.foil(
    "the squared residual, without the gap that it must be divided by", power=2
)


@claim(by="sampling", budget=0.5, full={"n": 1000})
def cg_error_bound(root: int = 2, kappa: float = 100.0, n: int = 60):
    r"""The error of conjugate gradients falls with the square root of the condition number.

    For symmetric positive definite $A$ with condition number $\kappa$,
    $\|x_t - x^*\|_A \le 2 \left(\frac{\sqrt\kappa - 1}{\sqrt\kappa + 1}\right)^t \|x_0 - x^*\|_A$
    with $\|e\|_A^2 = e^\top A e$. With $m$ distinct eigenvalues $m$ steps suffice.

    *Proof.* $x_t$ is the best of $x_0 + p(A) r_0$ over polynomials $p$ of degree below $t$; the
    shifted Chebyshev polynomial gives the bound, one with roots at the eigenvalues the rest.
    """
    A = planted(torch.cat([torch.tensor([1.0, kappa]), 1 + (kappa - 1) * torch.rand(n - 2)]))
    solution = torch.randn(n)
    b, start = A @ solution, (solution @ A @ solution).sqrt()
    rate = (kappa ** (1 / root) - 1) / (kappa ** (1 / root) + 1)
    for t in (1, 2, 4, 8, 16):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            error = cg(A, b, tol=1e-15, max_iter=t).x - solution
        yield at_most((error @ A @ error).sqrt() / start, 2 * rate**t, t=t)
    few = planted(torch.tensor([1.0, 3.0, 10.0]).repeat(n // 3))
    yield at_most(int(cg(few, few @ torch.randn(len(few)), tol=1e-10).iterations), 3, t=3)


cg_error_bound.foil("with the fourth root it is too good to be true", root=4)


@claim(by="identity", budget=0.5, full={"runs": 5000})
def hutchinson_variance(diagonal: float = 0.0, n: int = 7, runs: int = 200):
    r"""Mean and variance of Hutchinson's estimator.

    For a vector $z$ of independent random signs and a real symmetric $A$,
    $\mathbb{E}[z^\top A z] = \mathrm{Tr}\, A$ and
    $\mathrm{Var}[z^\top A z] = 2 \sum_{i \ne j} A_{ij}^2$: the diagonal does not contribute.

    *Proof.* $z^\top A z = \mathrm{Tr}\, A + 2 \sum_{i < j} A_{ij} z_i z_j$, and the products
    $z_i z_j$ are uncorrelated, with mean 0 and variance 1. In expectation, by all $2^n$ vectors of
    signs; sampled, both means lie within seven standard errors, a false alarm of less than
    $10^{-7}$ even for the skewed estimates of the variance.
    """
    A = planted(torch.randn(n))
    Z = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=n)))
    forms = ((Z @ A) * Z).sum(1)
    squares = A.square()
    off = squares.sum() - squares.trace()
    variance = 2 * (off + diagonal * squares.trace())
    yield equals(forms.mean(), A.trace(), n=n)
    yield equals(forms.var(correction=0), variance, n=n)
    wide = planted(torch.randn(4 * n))
    estimates = [trace(wide, method="hutchinson", applications=8) for _ in range(runs)]
    yield in_mean(torch.stack([e.value for e in estimates]), float(wide.trace()), sigmas=7, n=4 * n)
    off = wide.square().sum() - wide.diagonal().square().sum()
    told = torch.stack([e.standard_error for e in estimates]).square()
    yield in_mean(told, float(2 * off / 8), sigmas=7, n=4 * n)


hutchinson_variance.foil(
    r"$2 \|A\|_F^2$, the variance with Gaussian instead of sign vectors", diagonal=1.0
)


@claim(by="identity", budget=0.5)
def spectral_quadrature(extra: int = 0, n: int = 30):
    r"""Lanczos is Gauss quadrature.

    After $s$ steps from a unit vector $v$ the eigenvalues $\theta_j$ of the tridiagonal matrix and
    the squares $w_j$ of the first components of its eigenvectors satisfy
    $\sum_j w_j p(\theta_j) = v^\top p(A) v$ for every polynomial $p$ of degree at most $2 s - 1$,
    and the nodes lie within the range of the spectrum.

    *Proof.* $v^\top A^{a+b} v = (A^a v)^\top A^b v$, and both powers stay in the Krylov space up to
    degree $s - 1$, with one more factor of $A$ between them.
    """
    values = torch.linspace(-1, 1, n) + 0.01 * torch.rand(n)
    A = planted(values)
    for s in (1, 2, 3, 4):
        found = spectral_density(A, probes=3, steps=s, generator=torch.Generator().manual_seed(s))
        signs = 2.0 * torch.randint(2, (3, n), generator=torch.Generator().manual_seed(s)).T - 1
        V = signs / n**0.5
        for degree in range(2 * s + extra):
            form = (V * (torch.linalg.matrix_power(A, degree) @ V)).sum(0)
            yield equals(
                (found.weights * found.nodes**degree).sum(1), form, tol=1e-12, degree=degree
            )
        yield at_most(found.nodes, values.max(), tol=1e-12, steps=s)
        yield at_least(found.nodes, values.min(), tol=1e-12, steps=s)


spectral_quadrature.foil(r"degree $2 s$ is one too many", extra=1)
