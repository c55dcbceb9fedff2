r"""How many modes of a known mixture a sample finds, and how much of it lies nowhere near one.

An example belongs to the mode $k$ at the least distance $r_k(x) = \sqrt{(x - \mu_k)^\top
\Sigma_k^{-1} (x - \mu_k)}$, in standard deviations of that mode, and to none (it is *junk*) if that
exceeds a radius. Of a mode's own law in $d$ dimensions $P(\chi^2_d > r^2)$ is junk, 1.1 % for
$d = 2$ and $r = 3$. Exact. Used by the claim `generative.mode_collapse`.

References:
    Srivastava et al., VEEGAN: reducing mode collapse in GANs using implicit variational learning,
    NeurIPS, 2017.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vademecum.arguments import floats, number, symmetric, whole
from vademecum.arrays import portions
from vademecum.results import one_line

__all__ = ["ModeCoverage", "mode_coverage"]

_CACHE = 2**20  # bytes of distances at a time on a CPU: larger and smaller ones were no faster
_PORTION = 2**28  # and on other devices, which want much to do at once


class ModeCoverage(NamedTuple):
    """What a sample has of a mixture's modes.

    Example:
        >>> x, means = torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([[0.0], [9.0]])
        >>> found = mode_coverage(x, means, torch.ones(2))
        >>> found.covered, found.assignment.tolist()
        (1, [0, 0, -1])
    """

    covered: int
    """How many modes have enough examples."""
    junk: float
    """The share of examples that belong to no mode."""
    entropy: float
    """The entropy of the shares of modes among the others, in nats: log k if all k are equal, 0 if
    there is only one, or all is junk."""
    counts: Int[Tensor, " k"]
    """How many examples belong to each mode."""
    assignment: Int[Tensor, " n"]
    """The mode of each example, -1 for junk."""

    __repr__ = one_line


def mode_coverage(
    x: Float[Tensor, " n d"],
    means: Float[Tensor, " k d"],
    covariances: Float[Tensor, " k ..."],
    *,
    radius: float = 3.0,
    least: int = 1,
) -> ModeCoverage:
    """How many modes of a Gaussian mixture a sample covers.

    Args:
        x: The sample.
        means: The centres of the modes.
        covariances: Their covariances: variances (k,), diagonals (k, d), or matrices (k, d, d).
        radius: How many standard deviations from a centre still belong to its mode.
        least: How many examples cover a mode.

    Raises:
        ValueError: If a covariance is not positive definite, or shapes do not fit.

    Example:
        >>> means = torch.tensor([[-5.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
        >>> x = torch.tensor([[-5.0, 1.0], [5.0, 0.0], [4.0, 0.0], [0.0, 0.0]])
        >>> found = mode_coverage(x, means, torch.ones(3))
        >>> found.covered, found.junk, found.counts.tolist()
        (2, 0.25, [1, 2, 0])
    """
    floats("x", x, ndim=2)
    k, d = floats("means", means, ndim=2, width=x.shape[1]).shape
    for name, given in (("means", means), ("covariances", covariances)):
        if (given.dtype, given.device) != (x.dtype, x.device):
            here, there = (f"{t.dtype} on {t.device}" for t in (x, given))
            raise ValueError(f"{name} must be {here} like x, got {there}")
    number("radius", radius, above=0.0)
    factors = _factors(covariances, k, d)
    each = k * (d if factors.ndim == 3 else 2) * x.element_size()
    parts = portions(len(x), each=each, memory=_PORTION if x.is_cuda else _CACHE)
    found = [_nearest(_squares(x[part].to(factors.dtype).T, means, factors)) for part in parts]
    nearest, mode = (torch.cat(column) for column in zip(*found, strict=True))
    nearest = nearest.sqrt()
    mode = torch.where(nearest <= radius, mode, -1)  # of an overflow none
    counts = torch.bincount(mode + 1, minlength=k + 1)[1:]
    good = int(counts.sum())
    shares = counts.double() / max(good, 1)
    entropy = -float(torch.xlogy(shares, shares).sum())
    covered = int((counts >= whole("least", least, low=1)).sum())
    return ModeCoverage(covered, (len(x) - good) / len(x), abs(entropy), counts, mode)


def _factors(covariances: Tensor, k: int, d: int) -> Tensor:
    """The roots of variances, (k, 1) or (k, d), or the Cholesky factors of matrices."""
    single = torch.promote_types(covariances.dtype, torch.float32)  # in half precision none exist
    covariances = floats("covariances", covariances).to(single)
    if covariances.shape in ((k,), (k, d)):
        if not (covariances > 0).all():
            raise ValueError(f"covariances must be > 0, got {float(covariances.min())}")
        return covariances.view(k, -1).sqrt()
    if covariances.shape != (k, d, d):
        given = tuple(covariances.shape)
        raise ValueError(f"covariances must be ({k},), ({k}, {d}) or ({k}, {d}, {d}), got {given}")
    factors, failed = torch.linalg.cholesky_ex(symmetric("covariances", covariances))
    if failed.any():
        place = int(failed.nonzero()[0])
        raise ValueError(f"covariances must be positive definite, and number {place} is not")
    return factors


def _squares(x: Tensor, means: Tensor, factors: Tensor) -> Tensor:
    """Squared distances (k, n) in standard deviations, for examples in columns."""
    if factors.ndim == 3:
        away = torch.linalg.solve_triangular(factors, x - means[:, :, None], upper=False)
        return away.square_().sum(1)
    total = x.new_zeros(len(means), x.shape[1])
    for j, row in enumerate(x):
        away = (row - means[:, j, None]).div_(factors[:, j % factors.shape[1], None])
        total.addcmul_(away, away)
    return total


def _nearest(squares: Tensor) -> tuple[Tensor, Tensor]:
    """The least of each column, and the first row that has it; on a CPU what is given is spent."""
    k = len(squares)
    if squares.is_cuda or k >= 2**24:
        found = squares.min(0)
        return found.values, found.indices
    least = squares.amin(0)  # torch's `min` with indices takes four times all of this on a CPU
    ranks = torch.arange(k, 0, -1, device=squares.device)[:, None].to(squares)
    return least, k - squares.eq_(least).mul_(ranks).amax(0).long()
