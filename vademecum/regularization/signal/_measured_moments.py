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
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from vademecum.regularization.signal.rows import SignalMoments

__all__ = ["Measured", "cross_moment", "moment_sums", "moments_of"]

_SAFE = 1e15  # norms in single precision whose squares stay far from both ends of the range


class Measured:
    """Sums of moments over examples, of a signal that was read, in numbers when they are asked for.

    What else waits in the same list is computed then, too: many small sums cost as much as one.

    Args:
        norms: Norms of the examples, their sums, and their products with the sum of directions.
        d: How many entries an example has.
        waiting: Those that have not been asked for.
    """

    def __init__(self, norms: Tensor, d: int, waiting: "list[Measured]"):
        self._raw, self._d, self._waiting = norms, d, waiting
        self._sums: list[float] | None = None
        waiting.append(self)

    def tolist(self) -> list[float]:
        """Count, and sums of q, q^2, m, m^2, q m over examples; those in pairs, sums of c, c^2."""
        if self._sums is None:
            for group in _alike(self._waiting):
                raw = torch.stack([each._raw for each in group]).cpu()
                sizes = torch.tensor([each._d for each in group], dtype=torch.float64)
                for each, sums in zip(group, _sums(raw, sizes).tolist(), strict=True):
                    each._sums = sums
            self._waiting.clear()
        assert self._sums is not None
        return self._sums

    def tensor(self) -> Tensor:
        """The same where the signal is, which nobody waits for."""
        return _sums(self._raw[None], self._raw.new_full((1,), self._d))[0]


def _alike(waiting: list[Measured]) -> Iterable[list[Measured]]:
    """Those with equally many examples on one device, together."""
    groups: dict[Any, list[Measured]] = {}
    for each in waiting:
        groups.setdefault((each._raw.shape, each._raw.device), []).append(each)
    return groups.values()


def _sums(raw: Tensor, d: Tensor) -> Tensor:
    sizes, m, along = raw.unbind(1)
    d = d[:, None]
    q, m = sizes.square() / d, m / d
    seen = sizes > 0
    others = seen.sum(1, keepdim=True) - 1
    paired = seen & (others > 0)
    c = torch.where(paired, (along / sizes - 1) / others, 0.0)
    terms = torch.stack([torch.ones_like(q), q, q * q, m, m * m, q * m, paired.to(q), c, c * c])
    return terms.sum(2).T


@torch.no_grad()
def moment_sums(t: Tensor, n: int, waiting: list[Measured] | None = None) -> Measured:
    """Read a signal.

    Args:
        t: The signal; examples lie along its first axis, or are cut out of it in equal parts.
        n: How many examples there are.
        waiting: Where those stand that are computed together with it.
    """
    h = _by_examples(t.detach(), n)
    sizes = _norms(h)
    direction = sizes.reciprocal().clamp(max=torch.finfo(h.dtype).max / 4).to(h.dtype)
    rows = [sizes, h.sum(1).double(), (h @ (direction @ h)).double()]
    return Measured(torch.stack(rows), h.shape[1], [] if waiting is None else waiting)


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
    sizes = torch.linalg.vector_norm(h, dim=1)
    if float(sizes.min()) > 1 / _SAFE and float(sizes.max()) < _SAFE:
        return sizes.double()
    return torch.linalg.vector_norm(h.double(), dim=1)


def moments_of(sums: list[float]) -> SignalMoments:
    """The moments with their standard errors; None for what needs more examples than there are.

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
    if seen > 2:  # two examples are one pair, which shows no spread
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
