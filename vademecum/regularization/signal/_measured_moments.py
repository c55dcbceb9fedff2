r"""Moments of a batch of signals $h_1, \dots, h_n$ with $d$ entries each, as sums that add up.

$$q_i = \frac{|h_i|^2}{d}, \quad m_i = \frac1d \sum_k h_{ik}, \quad
c_i = \frac1{n - 1} \sum_{j \ne i} \frac{h_i \cdot h_j}{|h_i| |h_j|} .$$

Their means are the second moment, the mean and the correlation between examples; the variance is
$q - m^2$. With $\hat h_i = h_i / |h_i|$ and $s = \sum_j \hat h_j$ it is $c_i = (\hat h_i \cdot s -
1) / (n - 1)$, so that no pair is visited. Standard errors are those over examples, to first order:
$\operatorname{sd}(q_i) / \sqrt n$, that of $q_i - 2 m m_i$, and $2 \operatorname{sd}(c_i) / \sqrt
n$, since each example is in pairs on both sides.
"""

import math

import torch
from torch import Tensor

from vademecum.regularization.signal.rows import SignalMoments

__all__ = ["cross_moment", "moment_sums", "moments_of"]

_SAFE = 1e15  # entries of single precision whose squares, and sums of these, stay far from overflow


@torch.no_grad()
def moment_sums(t: Tensor, n: int) -> Tensor:
    """Count, and sums of q, q^2, m, m^2, q m over examples; those in pairs, sums of c, c^2.

    Args:
        t: The signal; examples lie along its first axis, or are cut out of it in equal parts.
        n: How many examples there are.
    """
    h = _by_examples(t.detach(), n)
    d = h.shape[1]
    sizes = _norms(h)
    q = sizes.square() / d
    m = (h @ h.new_ones(d)).double() / d
    sums = [q, q * q, m, m * m, q * m]
    aligned, seen = _alignments(h, sizes)
    total = torch.stack([*(s.sum() for s in sums), seen.sum(), aligned.sum(), (aligned**2).sum()])
    return torch.cat([total.new_full((1,), len(h)), total])


def _by_examples(t: Tensor, n: int) -> Tensor:
    if t.is_complex():
        t = torch.view_as_real(t)
    if not t.dtype.is_floating_point or t.dtype.itemsize < 4:
        t = t.float()
    n = n if t.ndim and t.shape[0] % n == 0 and t.numel() else 1
    return t.reshape(n, -1)


def _norms(h: Tensor) -> Tensor:
    """Norms of rows in double precision; on a CPU that costs a copy, and is done where needed."""
    if h.device.type != "cpu" or h.dtype == torch.float64:
        return torch.linalg.vector_norm(h, dim=1, dtype=torch.float64)
    largest = float(torch.linalg.vector_norm(h, torch.inf))
    if 1 / _SAFE < largest < _SAFE:
        return torch.linalg.vector_norm(h, dim=1).double()
    return torch.linalg.vector_norm(h.double(), dim=1)


def _alignments(h: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """The mean cosine of each example with the others, and whether both have a direction."""
    seen = sizes > 0
    weights = torch.where(seen, 1 / sizes, 0.0)
    tiny = torch.finfo(h.dtype).max / 4
    direction = weights.clamp(max=tiny).to(h.dtype)
    along = (h @ (direction @ h)).double() * weights
    others = seen.sum() - 1
    paired = seen & (others > 0)
    return torch.where(paired, (along - 1) / others, 0.0), paired


def moments_of(sums: list[float]) -> SignalMoments:
    """The moments with their standard errors; None for what needs two examples, and one has.

    Example:
        >>> moments_of(moment_sums(torch.tensor([[3.0, 4.0], [4.0, -3.0]]), 2).tolist())[:2]
        (12.5, 8.5)
    """
    n, q, qq, m, mm, qm, seen, c, cc = sums
    q, m = q / n, m / n
    error = variance_error = correlation = correlation_error = None
    if n > 1:
        error = _error(qq, q, n)
        # the variance of q_i - 2 m m_i over examples
        spread = (qq - 4 * m * qm + 4 * m * m * mm) / n - (q - 2 * m * m) ** 2
        variance_error = math.sqrt(max(spread, 0.0) / (n - 1)) if spread == spread else spread
    if seen > 1:
        correlation = min(c / seen, 1.0)
        correlation_error = 2 * _error(cc, c / seen, seen)
    return SignalMoments(q, max(q - m * m, 0.0), correlation, error, variance_error,
                         correlation_error)  # fmt: skip


def _error(squares: float, mean: float, n: float) -> float:
    spread = squares / n - mean * mean
    return math.sqrt(max(spread, 0.0) / (n - 1)) if spread == spread else spread


def cross_moment(sums: list[float]) -> float:
    """The mean of $h_{ik} h_{jk}$ over pairs of examples, as correlation times second moment."""
    n, q, seen, c = sums[0], sums[1], sums[6], sums[7]
    return q / n * (c / seen) if seen > 1 else q / n
