"""Random probes: what a matrix tells through a few products."""

import itertools
from collections.abc import Iterator
from typing import Any

import scipy.stats
import torch
from torch import Tensor

from vademecum.claims import (
    Evidence,
    at_least,
    at_most,
    claim,
    equals,
    in_mean,
    lowest,
    with_eigenvalues,
)
from vademecum.foundations import ProbeEstimate, log_det, spectral_density, trace
from vademecum.foundations import diagonal as diagonal_of
from vademecum.foundations.claims.krylov import counted


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
    yield equals(f"{name} from few probes", found.value, samples.mean(-1), **at)
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
    lowest("n", n, 3)
    lowest("runs", runs, 100)
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
        found = trace(wide, method=method, applications=9, generator=dice(1))
        yield from one_sample("trace", found, by_definition(wide, method), method=method)
        values, _ = stacked([trace(wide, method=method, applications=9) for _ in range(runs // 2)])
        yield in_mean("trace in the mean", values, float(wide.trace()), sigmas=7, method=method)
        exact = trace(low, method=method, applications=9).value
        yield equals("trace of a matrix of rank two", exact, 2.0, method=method)
    yield from products_taken(wide)


def by_definition(A: Tensor, method: str) -> Tensor:
    """The terms whose mean Hutch++ or XTrace takes, from nine products, as they are defined."""
    n = len(A)
    if method == "hutch++":
        S, G = signs(6, n, dice(1)).split(3, 1)
        others = [(torch.linalg.qr(A @ S).Q, g, 1.0) for g in G.T]
    else:
        omega = torch.randn(4, n, generator=dice(1)).T
        rest = [torch.arange(4) != i for i in range(4)]
        others = [(torch.linalg.qr(A @ omega[:, r]).Q, omega[:, ~r][:, 0], 0.0) for r in rest]
    terms = []
    for Q, z, plain in others:
        x = z - Q @ (Q.T @ z)
        weight = plain or (n - 3) / (x @ x)
        terms.append((Q.T @ A @ Q).trace() + weight * (x @ A @ x))
    return torch.stack(terms)


def products_taken(A: Tensor) -> Iterator[Evidence]:
    """What is reported as the number of products, and that n of them leave nothing to chance."""
    for most in (9, len(A), len(A) + 1):
        for method in ("hutchinson", "hutch++", "xtrace", "diagonal"):
            op, columns = counted(A)
            exact = A.diagonal() if method == "diagonal" else A.trace()
            if method == "diagonal":
                found = diagonal_of(op, applications=most)
            else:
                found = trace(op, method=method, applications=most)
            at = {"allowed": most, "method": method}
            yield equals("products reported", found.applications, sum(columns), **at)
            yield at_most("products taken", sum(columns), min(most, len(A)), **at)
            if most >= len(A):
                yield equals("estimate from n products", found.value, exact, **at)
                yield equals("its standard error", found.standard_error, 0.0, tol=0.0, **at)


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
    lowest("n", n, 6)
    values = torch.linspace(-1, 1, n) + 0.01 * torch.rand(n)
    A = with_eigenvalues(values)
    for s in (1, 2, 3, 4):
        op, columns = counted(A)
        found = spectral_density(op, probes=3, steps=s, generator=dice(s))
        yield equals("products reported", found.applications, sum(columns), steps=s)
        V = signs(3, n, dice(s)) / n**0.5
        for degree in range(2 * s + extra):
            form = (V * (torch.linalg.matrix_power(A, degree) @ V)).sum(0)
            sums = (found.weights * found.nodes**degree).sum(1)
            yield equals("sum over the nodes", sums, form, tol=1e-12, degree=degree, steps=s)
        yield at_most("nodes", found.nodes, values.max(), tol=1e-12, steps=s)
        yield at_least("nodes, from below", found.nodes, values.min(), tol=1e-12, steps=s)
    squares = n * (V * (A @ A @ V)).sum(0)
    yield from one_sample("trace of $A^2$", found.trace(torch.square), squares, n=n)
    grid, spread = torch.linspace(-1.5, 1.5, 7), float(found.nodes.max() - found.nodes.min())
    yield equals("width that four steps resolve", found.resolution, spread / 4)
    for width in (0.3, None):
        wide = width or spread / 4  # coarser than a fiftieth of the range
        bumps = scipy.stats.norm.pdf(grid[:, None, None].numpy(), found.nodes.numpy(), wide)
        found_here = ProbeEstimate(*found(grid, width=width), 0)
        bumps = (found.weights * torch.as_tensor(bumps)).sum(-1)
        yield from one_sample("smoothed density", found_here, bumps, width=wide)
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
