r"""The law of $x = \mu + W z + \eta$ with factors $z \sim \mathcal N(0, I_k)$ and noise $\eta$.

The noise $\eta \sim \mathcal N(0, \Psi)$, $\Psi = \mathrm{diag}(\psi)$, is independent of the
factors, so $x \sim \mathcal N(\mu, W W^\top + \Psi)$. With $B = \Psi^{-1/2} W$, $y = \Psi^{-1/2} (x
- \mu)$ and $M = I + B^\top B$, which is a matrix of $k \times k$,

$$z \mid x \sim \mathcal N(m, M^{-1}), \quad m = M^{-1} B^\top y, \qquad
-2 \log p(x) = \|y - B m\|^2 + \|m\|^2 + \log |M| + \sum_j \log (2 \pi \psi_j) .$$

The first two terms are $y^\top (I + B B^\top)^{-1} y$ by Woodbury's formula, written such that
nothing cancels. An entry that is missing is integrated out exactly: it is left out of every sum
over features, so that $M$ belongs to a row's pattern of missing entries. Rows come sorted by their
pattern, and $M$ is factored once for each.

Exact up to rounding, in double precision, in portions of rows. The claims are `factor_analysis`,
`factor_posterior_mean` and `factor_posterior_covariance`.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.arrays import portions
from vademecum.results import one_line

__all__ = ["FactorLaw", "FactorPosterior", "Rows", "has_gaps", "posterior", "rows_by_pattern"]

MEMORY = 2**26  # bytes for the work on a portion of rows; larger ones were no faster


class FactorPosterior(NamedTuple):
    """What is known of the factors of each row: a normal law."""

    mean: Any
    """Their means, of shape (n, k)."""
    covariance: Any
    """Their covariance, (k, k), the same for all rows; (n, k, k) where entries are missing."""

    __repr__ = one_line


class FactorLaw(NamedTuple):
    """The parameters, in double precision."""

    mean: Tensor  # (d,)
    loadings: Tensor  # W, (d, k)
    noise: Tensor  # psi, (d,)


class Rows(NamedTuple):
    """A portion of the rows: their places, entries (0 where missing) and patterns."""

    places: Tensor
    x: Tensor
    patterns: Tensor | None  # (P, d), 1 where there is an entry; None without missing ones
    pattern: Tensor | None  # (n,), the row's pattern


def has_gaps(x: Tensor) -> bool:
    """Whether an entry is missing: the extremes tell, and need no mask.

    Example:
        >>> has_gaps(torch.tensor([1.0, math.nan])), has_gaps(torch.tensor([1.0, 2.0]))
        (True, False)
    """
    return math.isnan(float(torch.aminmax(x).min))


def rows_by_pattern(x: Tensor, k: int) -> Iterator[Rows]:
    """The rows in double precision, in portions, those with the same entries missing together."""
    n, d = x.shape
    places = torch.arange(n, device=x.device)
    if not has_gaps(x):
        for here in portions(n, each=8 * (3 * d + k), memory=MEMORY):
            yield Rows(places[here], x[here].double(), None, None)
        return
    patterns, pattern = torch.unique(x.isnan(), dim=0, return_inverse=True)
    places = pattern.argsort(stable=True)
    for here in portions(n, each=8 * (4 * d + 3 * (k + 1) ** 2), memory=MEMORY):
        own, index = pattern[places[here]].unique(return_inverse=True)
        rows = x[places[here]].double().nan_to_num(nan=0.0)
        yield Rows(places[here], rows, (~patterns[own]).double(), index)


class Posterior(NamedTuple):
    """Of the rows of a portion: means of factors, covariances by pattern, log-densities."""

    mean: Tensor  # (n, k)
    covariance: Tensor  # (k, k), or (P, k, k)
    log_density: Tensor  # (n,)


def posterior(law: FactorLaw, rows: Rows) -> Posterior:
    """What the rows say of their factors, and how likely they are.

    Example:
        >>> one = torch.ones(1, dtype=torch.float64)
        >>> rows = next(rows_by_pattern(torch.tensor([[4.0]]), 1))
        >>> round(posterior(FactorLaw(one, one[:, None], 2 * one), rows).mean.item(), 9)  # 3 / 3
        1.0
    """
    k = law.loadings.shape[1]
    root = law.noise.sqrt()
    B, y = law.loadings / root[:, None], (rows.x - law.mean) / root
    M = torch.eye(k, dtype=B.dtype, device=B.device)
    constants = root.log() * 2 + math.log(2 * math.pi)
    seen, index = rows.patterns, rows.pattern
    if seen is None or index is None:
        factor = torch.linalg.cholesky(M + B.mT @ B)
        mean = torch.cholesky_solve((y @ B).mT, factor).mT
        left = y - mean @ B.mT
        volume = factor.diagonal().log().sum() * 2 + constants.sum()
    else:
        outer = (B[:, :, None] * B[:, None]).flatten(1)
        factor = torch.linalg.cholesky(M + (seen @ outer).view(len(seen), k, k))
        y = y * seen[index]
        mean = torch.cholesky_solve((y @ B)[:, :, None], factor[index])[:, :, 0]
        left = y - mean @ B.mT * seen[index]
        volume = factor.diagonal(dim1=1, dim2=2).log().sum(1) * 2 + seen @ constants
        volume = volume[index]
    distance = left.square().sum(1) + mean.square().sum(1)
    return Posterior(mean, torch.cholesky_inverse(factor), -(distance + volume) / 2)
