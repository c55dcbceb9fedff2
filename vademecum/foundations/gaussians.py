r"""Gaussian laws: divergence, conditioning, marginals and maximum likelihood.

For $P = \mathcal N(\mu_P, \Sigma_P)$ and $Q = \mathcal N(\mu_Q, \Sigma_Q)$ on $\mathbb R^d$ with
Cholesky factors $\Sigma_P = L_P L_P^\top$, $\Sigma_Q = L_Q L_Q^\top$ and $M = L_Q^{-1} L_P$,
which is triangular,

$$\mathrm{KL}(P \| Q) = \tfrac12 \Big[ (\mu_Q - \mu_P)^\top \Sigma_Q^{-1} (\mu_Q - \mu_P)
+ \mathrm{tr}(\Sigma_Q^{-1} \Sigma_P) - \ln \tfrac{|\Sigma_P|}{|\Sigma_Q|} - d \Big]
= \tfrac12 \Big[ \|L_Q^{-1} (\mu_Q - \mu_P)\|^2 + \sum_{i > j} M_{ij}^2
+ \sum_i \big( u_i - \ln (1 + u_i) \big) \Big], \quad u_i = M_{ii}^2 - 1.$$

No term of the second form is negative and none cancels another, so that laws which hardly differ
get a small divergence and not the rounding of $d$. In blocks, $a_1$ observed and $a_2$ the rest,

$$a_2 \mid a_1 = z \;\sim\; \mathcal N\big(\mu_2 + \Sigma_{21} \Sigma_{11}^{-1} (z - \mu_1),\;
\Sigma_{22} - \Sigma_{21} \Sigma_{11}^{-1} \Sigma_{12}\big), \qquad
a_1 \sim \mathcal N(\mu_1, \Sigma_{11}).$$

All of it is exact up to rounding, by triangular solves and without an inverse. A covariance that
must be invertible is refused as singular if rounding could have made it so: with $C = L L^\top$ its
correlation matrix, a row of $L^{-1}$ is $(-w, 1) / \sqrt{v}$ for the best prediction $w$ of a
coordinate from those before it and the variance $v$ of the error, and changes of $C$ by
$\mathrm{eps}$ move $v$ by about $\mathrm{eps} \|(-w, 1)\|^2$; it must be four times as large.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vademecum.arguments import broadcasting, floats, symmetric
from vademecum.results import one_line

__all__ = ["Gaussian", "gaussian_condition", "gaussian_kl", "gaussian_marginal", "gaussian_mle"]

Index = Sequence[int] | Int[Tensor, " e"]


class Gaussian(NamedTuple):
    r"""The law $\mathcal N(\mu, \Sigma)$, or a batch of them; unpack it to hand it on.

    Example:
        >>> fitted = gaussian_mle(torch.tensor([[0.0], [2.0]]))
        >>> gaussian_kl(*fitted, torch.zeros(1), torch.eye(1))
        tensor(0.5000)
    """

    mean: Float[Tensor, " *#batch d"]
    r"""The mean $\mu$."""
    cov: Float[Tensor, " *#batch d d"]
    r"""The covariance $\Sigma$."""

    __repr__ = one_line


def gaussian_kl(
    mean_p: Float[Tensor, " *#batch d"],
    cov_p: Float[Tensor, " *#batch d d"] | Float[Tensor, " *#batch d"],
    mean_q: Float[Tensor, " *#batch d"],
    cov_q: Float[Tensor, " *#batch d d"] | Float[Tensor, " *#batch d"],
    *,
    diagonal: bool = False,
) -> Float[Tensor, " *batch"]:
    r"""The divergence $\mathrm{KL}(\mathcal N(\mu_P, \Sigma_P) \| \mathcal N(\mu_Q, \Sigma_Q))$.

    Leading axes are batches and broadcast.

    Args:
        mean_p: The mean $\mu_P$.
        cov_p: The covariance $\Sigma_P$, positive definite.
        mean_q: The mean $\mu_Q$.
        cov_q: The covariance $\Sigma_Q$, positive definite.
        diagonal: Whether both covariances are diagonal and given as vectors of variances.

    Returns:
        The divergence in nats, at least 0.

    Raises:
        ValueError: If a covariance is asymmetric, not positive definite or singular to working
            precision, or if shapes or dtypes do not fit.

    Example:
        >>> one = torch.ones(1)
        >>> gaussian_kl(one, one[None], 0 * one, 4 * one[None])  # (1/4 + 1/4 + ln 4 - 1) / 2
        tensor(0.4431)
        >>> gaussian_kl(one, one, 0 * one, 4 * one, diagonal=True)
        tensor(0.4431)
    """
    means, covs = {"mean_p": mean_p, "mean_q": mean_q}, {"cov_p": cov_p, "cov_q": cov_q}
    _fit(means | covs, {}) if diagonal else _fit(means, covs)
    d = mean_p.shape[-1]
    if diagonal:
        var_p, var_q = (_variances(n, v, d) for n, v in (("cov_p", cov_p), ("cov_q", cov_q)))
        shift = (floats("mean_q", mean_q, width=d) - mean_p) / var_q.sqrt()
        return (shift.square() + _excess((var_p - var_q) / var_q, var_p / var_q)).sum(-1) / 2
    factor_p, factor_q = (_factor(n, c, d) for n, c in (("cov_p", cov_p), ("cov_q", cov_q)))
    shift = (floats("mean_q", mean_q, width=d) - mean_p)[..., None]
    shift = torch.linalg.solve_triangular(factor_q, shift, upper=False)
    m = torch.linalg.solve_triangular(factor_q, factor_p, upper=False)
    pivots = m.diagonal(dim1=-2, dim2=-1)
    excess = _excess((pivots - 1) * (pivots + 1), pivots.square())
    off = m.tril(-1).square().sum((-2, -1))
    return (shift.square().sum((-2, -1)) + off + excess.sum(-1)) / 2


def gaussian_condition(
    mean: Float[Tensor, " *#batch d"],
    cov: Float[Tensor, " *#batch d d"],
    index: Index,
    value: Float[Tensor, " *#batch e"],
) -> Gaussian:
    r"""The law of the other coordinates, given what some of them are.

    Args:
        mean: The mean of all coordinates.
        cov: Their covariance, positive semidefinite.
        index: Which coordinates are observed, in the order of `value`.
        value: What they are; leading axes of all arguments are batches and broadcast.

    Returns:
        Mean and covariance of the rest, in ascending order of coordinates. The covariance does not
        depend on `value` and has no batch axes of it. What the observed coordinates determine has
        covariance 0 up to the rounding of `cov`, and no negative variance.

    Raises:
        ValueError: If the observed block of the covariance is singular, or the arguments are no
            Gaussian law.

    Example:
        >>> cov = torch.tensor([[4.0, 2.0], [2.0, 3.0]])
        >>> mean, cov = gaussian_condition(torch.tensor([1.0, 0.0]), cov, [0], torch.tensor([3.0]))
        >>> mean, cov  # 0 + 2/4 * (3 - 1) and 3 - 2 * 2/4
        (tensor([1.]), tensor([[2.]]))
    """
    _fit({"mean": mean, "value": value}, {"cov": cov})
    d = mean.shape[-1]
    cov = _semidefinite("cov", cov, d)
    seen = _places(index, d, cov.device)
    if len(seen) == d:
        raise ValueError(f"index must leave a coordinate, got all {d} of them")
    rest = torch.ones(d, dtype=torch.bool, device=cov.device).index_fill(0, seen, False).nonzero()
    rest = rest.flatten()
    shift = floats("value", value, width=len(seen)) - mean[..., seen]
    factor = _factor("cov[index, index]", _block(cov, seen, seen), len(seen))
    half = torch.linalg.solve_triangular(factor, _block(cov, seen, rest), upper=False)
    gain = torch.linalg.solve_triangular(factor.mT, half, upper=True)
    schur = _symmetrised(_block(cov, rest, rest) - half.mT @ half)
    lift = (-schur.diagonal(dim1=-2, dim2=-1)).clamp(min=0)
    mean = mean[..., rest] + (shift[..., None, :] @ gain)[..., 0, :]
    return Gaussian(mean, schur + torch.diag_embed(lift))


def gaussian_marginal(
    mean: Float[Tensor, " *#batch d"], cov: Float[Tensor, " *#batch d d"], index: Index
) -> Gaussian:
    """The law of some coordinates alone: the blocks of mean and covariance that belong to them.

    Args:
        mean: The mean of all coordinates.
        cov: Their covariance, positive semidefinite.
        index: Which coordinates, in the order wanted.

    Example:
        >>> cov = torch.tensor([[4.0, 2.0], [2.0, 3.0]])
        >>> gaussian_marginal(torch.tensor([1.0, 0.0]), cov, [1])
        Gaussian(mean=tensor([0.]), cov=tensor([[3.]]))
    """
    _fit({"mean": mean}, {"cov": cov})
    cov = _semidefinite("cov", cov, mean.shape[-1])
    places = _places(index, mean.shape[-1], cov.device)
    return Gaussian(mean[..., places], _block(cov, places, places))


def gaussian_mle(x: Float[Tensor, " *batch n d"], *, unbiased: bool = False) -> Gaussian:
    r"""The Gaussian that makes a sample most likely: its mean and covariance, with divisor $n$.

    That covariance is biased, $\mathbb E[\hat\Sigma] = \frac{n-1}{n} \Sigma$, whatever the law of
    the sample. It is singular for $n \le d$, when the likelihood has no maximum.

    Args:
        x: Samples of n points, in the last two axes.
        unbiased: Divide by $n - 1$ instead, which removes the bias and is not the maximiser.

    Raises:
        ValueError: If the sample is empty, not finite, or so large that its covariance is not.

    Example:
        >>> gaussian_mle(torch.tensor([[0.0], [0.0], [3.0]]))
        Gaussian(mean=tensor([1.]), cov=tensor([[2.]]))
    """
    if floats("x", x).is_complex() or x.ndim < 2:
        raise ValueError(f"x must be real with 2 or more axes, got {x.dtype}, {tuple(x.shape)}")
    n = x.shape[-2]
    if unbiased and n < 2:
        raise ValueError(f"x must hold 2 or more points for an unbiased covariance, got {n}")
    mean = x.mean(-2)
    centred = x - mean[..., None, :]
    cov = _symmetrised(centred.mT @ centred) / (n - unbiased)
    return Gaussian(mean, floats("the covariance of x", cov))


def _fit(vectors: dict[str, Tensor], matrices: dict[str, Tensor]) -> None:
    """All are real, finite, of one dtype and device, and their leading axes broadcast."""
    (first, lead), *_ = vectors.items()
    for name, x in (vectors | matrices).items():
        if floats(name, x).is_complex() or x.ndim == 0:
            raise ValueError(
                f"{name} must be real with 1 or more axes, got {x.dtype}, shape {tuple(x.shape)}"
            )
        if (x.dtype, x.device) != (lead.dtype, lead.device):
            raise ValueError(
                f"{name} must have the dtype and device of {first}, {lead.dtype} on {lead.device},"
                f" got {x.dtype} on {x.device}"
            )
    batches = {n: x.shape[:-1] for n, x in vectors.items()}
    broadcasting("batch shapes", batches | {n: x.shape[:-2] for n, x in matrices.items()})


def _excess(u: Tensor, ratio: Tensor) -> Tensor:
    r"""The terms $u - \ln(1 + u)$, given the ratio $1 + u$, too: of a small one u has no digits."""
    small = ratio < 0.5
    near = torch.where(small, 0, u).log1p()
    return u - torch.where(small, torch.where(small, ratio, 1).log(), near)


def _variances(name: str, v: Tensor, d: int) -> Tensor:
    if (floats(name, v, width=d) <= 0).any():
        raise ValueError(f"{name} must hold variances > 0, got {v.min().item():.6g}")
    return v


def _factor(name: str, cov: Tensor, d: int) -> Tensor:
    """The Cholesky factor of a covariance that is not singular to working precision."""
    cov = _covariance(name, cov, d)
    factor, failed = torch.linalg.cholesky_ex(cov)
    if not failed.any():
        scale = torch.diag_embed(cov.detach().diagonal(dim1=-2, dim2=-1).sqrt())
        inverse = torch.linalg.solve_triangular(factor.detach(), scale, upper=False)
        if inverse.square().sum(-1).max() < 1 / (4 * torch.finfo(cov.dtype).eps):
            return factor
    low = torch.linalg.eigvalsh(cov.detach()).min().item()
    raise ValueError(
        f"{name} must be positive definite and not singular in {cov.dtype}, got a smallest"
        f" eigenvalue of {low:.3g}"
    )


def _semidefinite(name: str, cov: Tensor, d: int) -> Tensor:
    """A covariance that may be singular; eigenvalues are negative by rounding at most."""
    spread = _covariance(name, cov, d).detach().diagonal(dim1=-2, dim2=-1).amax(-1).clamp(min=0)
    slack = 10 * d * torch.finfo(cov.dtype).eps * spread + torch.finfo(cov.dtype).tiny
    eye = torch.eye(d, dtype=cov.dtype, device=cov.device)
    if torch.linalg.cholesky_ex(cov.detach() + slack[..., None, None] * eye).info.any():
        low = torch.linalg.eigvalsh(cov.detach()).min().item()
        raise ValueError(f"{name} must be positive semidefinite, got an eigenvalue of {low:.3g}")
    return cov


def _covariance(name: str, cov: Tensor, d: int) -> Tensor:
    cov = symmetric(name, cov)
    if cov.shape[-1] != d:
        raise ValueError(f"{name} must be {d} wide, got shape {tuple(cov.shape)}")
    return cov


def _places(index: Index, d: int, device: torch.device) -> Tensor:
    places = index.tolist() if isinstance(index, Tensor) else index
    good = isinstance(places, Sequence) and all(type(i) is int and 0 <= i < d for i in places)
    if not good or not 0 < len(places) == len(set(places)):
        raise ValueError(f"index must hold distinct integers from 0 to {d - 1}, got {places}")
    return torch.tensor(places, device=device)


def _block(cov: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    return cov[..., rows[:, None], columns]


def _symmetrised(matrix: Tensor) -> Tensor:
    return (matrix + matrix.mT) / 2
