r"""How far confidences are from frequencies: estimators on bins, and the best temperature.

For confidences $p_i$ and whether each answer was right, $c_i \in \{0, 1\}$, in bins $b$ of equal
mass $w_b$ with means $\bar p_b, \bar c_b$ of $n_b$ examples,

$$\widehat{\mathrm{CE}}^2 = \sum_b w_b \Big[ (\bar p_b - \bar c_b)^2
- \frac{\bar c_b (1 - \bar c_b)}{n_b - 1} \Big]$$

has no bias from the noise in $\bar c_b$, which the plain estimate has (Kumar, Liang, Ma, Verified
uncertainty calibration, NeurIPS, 2019). With $v_b$ the variance of $\bar c_b$,
$\sum_b w_b (\bar p_b - \bar c_b)^2$ has about the law of $a$ times a chi-square number of $\nu$
degrees of freedom and noncentrality $\mathrm{CE}^2 / a$, for
$a = \sum_b (w_b v_b)^2 / \sum_b w_b v_b$ and $\nu = (\sum_b w_b v_b)^2 / \sum_b (w_b v_b)^2$ (the
same mean and, where $w_b v_b$ are alike, the same law); the interval of 95 % holds all
$\mathrm{CE}$ under which what was seen is in neither tail of 2 %: half a percent on each side is
for the law, which is not quite that, and for $v_b$, which are estimates. Binning can only make the
error smaller: what is estimated is that of the bins.

Brier's score of being right splits into reliability, resolution, uncertainty and two terms within
bins (Stephenson, Coelho, Jolliffe, Two extra components in the Brier score decomposition, Weather
and Forecasting, 2008):

$$\overline{(p - c)^2} = \sum_b w_b (\bar p_b - \bar c_b)^2 - \sum_b w_b (\bar c_b - \bar c)^2
+ \bar c (1 - \bar c) + \overline{(p - \bar p_b)^2}
- 2\, \overline{(p - \bar p_b)(c - \bar c_b)} .$$

The best temperature minimises $-\overline{\log \mathrm{softmax}(z / T)_y}$, which is convex in
$\beta = 1 / T$. The standard error of $\beta$ is that of an M-estimator, and the ends of its
interval of 95 % are turned over: scores that hardly differ leave $T$ without an upper end, where a
multiple of its own standard error would put one below the truth.
"""

import math
from typing import NamedTuple

import torch
from scipy import special
from torch import Tensor
from torch.nn import functional as F

from vademecum.results import one_line

__all__ = ["BestTemperature", "Bins", "BrierParts", "best_temperature", "binned", "brier_parts"]

_NEARLY_NORMAL = 1e6  # is a chi-square number from here: an end of its interval is off by 0.1 % of
# the interval, and SciPy's search takes long
_TAIL = 0.02  # of the law on each side. Observed coverage in 4,000 samples each, for 30 to
# 2,000 examples and errors from 0 to 0.3: 0.9505 at least; with 0.025 it was 0.935 at least
_NORMAL = 1.959963985  # two-sided, 95 %
_WIDEST = 1e12  # inverse temperatures that are searched, up to this and down to its inverse


class Bins(NamedTuple):
    """Confidences and frequencies in bins of equal mass.

    Example:
        >>> p = torch.tensor([0.5, 0.5, 0.9, 0.9]).double()
        >>> binned(p, torch.tensor([True, False, True, True]), 2).frequency
        tensor([0.5000, 1.0000], dtype=torch.float64)
    """

    confidence: Tensor
    """The mean confidence of each bin."""
    frequency: Tensor
    """The share of right answers in each bin."""
    counts: Tensor
    """How many examples are in each bin."""
    places: Tensor
    """The bin of each example."""

    __repr__ = one_line

    @property
    def plain_error(self) -> float:
        """The plain expected calibration error, the mean of absolute differences; it is biased."""
        weights = self.counts / self.counts.sum()
        return float((weights * (self.confidence - self.frequency).abs()).sum())

    @property
    def square(self) -> float:
        """The mean square calibration error without bias; it may come out below zero."""
        return float((self.counts / self.counts.sum() * self._gaps()).sum())

    def _gaps(self) -> Tensor:
        noise = self.frequency * (1 - self.frequency) / (self.counts - 1).clamp(min=1)
        return (self.confidence - self.frequency).square() - noise

    def error(self) -> tuple[float, float, float]:
        """The debiased root mean square calibration error, and the ends of its interval."""
        n, weights, square = self.counts, self.counts / self.counts.sum(), max(self.square, 0.0)
        # where all of a bin are right, or none, the noise is not zero: as if half of one were not
        smooth = (self.frequency * n + 0.5) / (n + 1)
        noise = weights * smooth * (1 - smooth) / n
        total = float(noise.sum())
        size = float(noise.square().sum()) / total
        seen, freedom = (square + total) / size, total / size
        low, high = (size * _noncentrality(seen, freedom, q) for q in (1 - _TAIL, _TAIL))
        return math.sqrt(square), math.sqrt(low), min(math.sqrt(high), 1.0)  # all there can be


def _noncentrality(x: float, freedom: float, q: float) -> float:
    """The noncentrality under which a chi-square number is at most x with probability q, or 0."""
    if special.chndtr(x, freedom, 0.0) <= q:
        return 0.0
    if x > _NEARLY_NORMAL:
        return x - freedom - special.ndtri(q) * math.sqrt(4 * x)
    return float(special.chndtrinc(x, freedom, q))


def binned(confidence: Tensor, right: Tensor, bins: int) -> Bins:
    """Sort confidences into bins of equally many, equal ones into the same bin."""
    p, c = confidence.double(), right.double()
    _, place, counts = p.unique(return_inverse=True, return_counts=True)
    middle = counts.cumsum(0) - counts / 2  # the rank of each value
    index = (middle / len(p) * bins).long().clamp(max=bins - 1)[place]
    kept, index = index.unique(return_inverse=True)
    count = torch.zeros(len(kept), dtype=p.dtype, device=p.device).index_add_(
        0, index, torch.ones_like(p)
    )
    sums = [torch.zeros_like(count).index_add_(0, index, t) / count for t in (p, c)]
    return Bins(sums[0], sums[1], count, index)


class BrierParts(NamedTuple):
    """The parts of Brier's score of being right."""

    score: float
    reliability: float
    resolution: float
    uncertainty: float
    within: float
    """What is within bins: the score is reliability - resolution + uncertainty + this."""

    __repr__ = one_line


def brier_parts(confidence: Tensor, right: Tensor, bins: Bins) -> BrierParts:
    """Split Brier's score of confidences."""
    p, c, weights = confidence.double(), right.double(), bins.counts / bins.counts.sum()
    off, miss = p - bins.confidence[bins.places], c - bins.frequency[bins.places]
    mean = c.mean()
    return BrierParts(
        float((p - c).square().mean()),
        float((weights * (bins.confidence - bins.frequency).square()).sum()),
        float((weights * (bins.frequency - mean).square()).sum()),
        float(mean * (1 - mean)),
        float(off.square().mean() - 2 * (off * miss).mean()),
    )


class BestTemperature(NamedTuple):
    """What scores should be divided by.

    Example:
        >>> z = torch.tensor([[2.0, 0.0]] * 4)  # right three times of four: odds of 3, not e^2
        >>> best_temperature(z, torch.tensor([0, 0, 0, 1])).value
        1.8204784...
    """

    value: float
    """The temperature; 0 where no score is above that of the right class, infinite where equal
    scores are best."""
    interval: tuple[float, float] | None
    """That of 95 %; its upper end is infinite where equal scores may be best."""
    loss: float
    """The mean cross-entropy with it."""

    __repr__ = one_line


def best_temperature(z: Tensor, y: Tensor) -> BestTemperature:
    """The temperature with the least cross-entropy, for scores (n, k) and classes (n,)."""
    z = z.double()  # in half precision their range may be infinite
    best = z.amax(1, keepdim=True)
    scale = float((best[:, 0] - z.amin(1)).mean()) or 1.0
    low, high = math.log(1 / _WIDEST), math.log(_WIDEST)
    slope, _ = _slopes(z, y, math.exp(low) / scale)
    if float(slope.mean()) >= 0:  # also where all scores are equal
        return BestTemperature(math.inf, None, math.log(z.shape[1]))
    slope, _ = _slopes(z, y, math.exp(high) / scale)
    if float(slope.mean()) <= 0:  # no score is above that of the right class: the colder the better
        return BestTemperature(0.0, None, float((z == best).sum(1).double().log().mean()))
    for _ in range(70):
        middle = (low + high) / 2
        slope, _ = _slopes(z, y, math.exp(middle) / scale)
        low, high = (low, middle) if float(slope.mean()) > 0 else (middle, high)
    beta = math.exp((low + high) / 2) / scale
    slope, curvature = _slopes(z, y, beta)
    spread = float(slope.square().mean().sqrt()) / max(float(curvature.mean()), 1e-300)
    reach = _NORMAL * spread / len(y) ** 0.5
    high = 1 / (beta - reach) if reach < beta else math.inf
    loss = F.cross_entropy(z * beta, y)
    return BestTemperature(1 / beta, (1 / (beta + reach), high), float(loss))


def _slopes(z: Tensor, y: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """Derivatives of each example's cross-entropy in the inverse temperature, first and second."""
    z = z.double()
    z = z - z.amax(1, keepdim=True)  # of equal scores nothing is left, no rounding either
    p = (beta * z).softmax(1)
    mean = (p * z).sum(1)
    own = z.gather(1, y[:, None])[:, 0]
    return mean - own, (p * (z - mean[:, None]).square()).sum(1)
