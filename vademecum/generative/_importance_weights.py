r"""Logarithms of means of importance weights that come in portions.

For weights $w_1, \dots, w_k$ of an example, $\log \frac1k \sum_i w_i$ needs only the running
logarithms of $\sum_i w_i$ and $\sum_i w_i^2$. From these also follow the standard error of the
logarithm to first order and the number of equal weights that these are worth,

$$\mathrm{se}^2 = \frac{1}{k - 1} \Bigl(k \frac{\sum_i w_i^2}{(\sum_i w_i)^2} - 1\Bigr), \qquad
\frac{(\sum_i w_i)^2}{\sum_i w_i^2}.$$
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import whole
from vademecum.arrays import portions
from vademecum.estimators import warn_unconverged
from vademecum.models import bytes_each
from vademecum.progress import ticking
from vademecum.randomness import given_back
from vademecum.results import one_line

__all__ = ["LogEvidence", "RunningMean", "log_evidence", "rows_at_once"]

_PORTION = {"cpu": 2**22}  # bytes at a time without a limit: what caches hold, else 2**30
_FEW = 5.0  # effective draws below which an average is that of a few


class LogEvidence(NamedTuple):
    """Log-likelihoods by importance sampling.

    Example:
        >>> LogEvidence(torch.tensor([-3.5]), torch.tensor([0.01]), torch.tensor([900.0])).log_prob
        tensor([-3.5000])
    """

    log_prob: Float[Tensor, " n"]
    r"""The estimates of $\log p(x)$; they are low in mean, by about half the squared error."""
    standard_error: Float[Tensor, " n"]
    """Their standard errors, to first order; NaN for a single draw."""
    effective: Float[Tensor, " n"]
    """How many equal draws the draws are worth, from 1 to k."""

    __repr__ = one_line


class RunningMean:
    """The mean of weights, from their logarithms, (some, n) at a time; in double precision.

    Example:
        >>> mean = RunningMean(1)
        >>> mean.add(torch.tensor([[0.0], [0.0]]))
        >>> mean.add(torch.tensor([[4.0]]).log())
        >>> mean.log(), mean.effective()  # (1 + 1 + 4) / 3, and 36 / 18
        (tensor([0.6931], dtype=torch.float64), tensor([2.0000], dtype=torch.float64))
    """

    def __init__(self, n: int, device: torch.device | None = None):
        self.k = 0
        empty = torch.full((n,), -math.inf, dtype=torch.float64, device=device)
        self._one, self._two = empty, empty

    def add(self, log_weights: Tensor) -> None:
        """Take in further weights."""
        log_weights = log_weights.double()
        self.k += len(log_weights)
        self._one = torch.logaddexp(self._one, log_weights.logsumexp(0))
        self._two = torch.logaddexp(self._two, (2 * log_weights).logsumexp(0))

    def log(self) -> Tensor:
        """The logarithm of the mean."""
        return self._one - math.log(self.k)

    def effective(self) -> Tensor:
        """How many equal weights they are worth, from 1 to k."""
        return (2 * self._one - self._two).exp()

    def standard_error(self) -> Tensor:
        """The standard error of the logarithm; NaN for a single weight."""
        excess = (self.k / self.effective() - 1).clamp(min=0)
        return (excess / (self.k - 1)).sqrt() if self.k > 1 else torch.full_like(excess, math.nan)


def log_evidence(
    begin: Callable[[slice], Callable[[int], Tensor]],
    n: int,
    k: int,
    *,
    rows: int,
    progress: bool,
) -> LogEvidence:
    """The logarithms of means of k weights for each of n examples, some rows at a time.

    Args:
        begin: What makes, for some of the examples, a function of a number of draws that gives the
            logarithms of their weights, (draws, examples).
        n: How many examples there are.
        k: How many weights each has.
        rows: How many pairs of an example and a draw to take at a time.
        progress: Whether to show a progress bar on standard error.
    """
    found: list[tuple[Tensor, ...]] = []
    dtype = torch.float64
    with ticking("draws", n * k, progress=progress) as tick:
        for here in portions(n, each=1, memory=rows):
            size, draw = here.stop - here.start, begin(here)
            mean = None
            for part in portions(k, each=size, memory=rows):
                log_weights = draw(part.stop - part.start)
                mean = mean or RunningMean(size, log_weights.device)
                dtype = log_weights.dtype
                mean.add(log_weights)
                tick(log_weights.numel())
            assert mean is not None
            found.append((mean.log(), mean.standard_error(), mean.effective()))
    columns = [torch.cat(column).to(dtype) for column in zip(*found, strict=True)]
    few = columns[2] < min(_FEW, k / 2)
    if bool(few.any()):
        least = float(columns[2].min())
        warn_unconverged(
            f"{k} draws are worth {least:.3g} for an example, and few for {int(few.sum())} of {n}:"
            " the encoder is far from the posterior"
        )
    return LogEvidence(*columns)


def rows_at_once(work: Callable[[Tensor], Tensor], x: Tensor, memory: int | None) -> int:
    """How many rows of work keep to a limit in bytes, from the work on a few rows of x."""
    with given_back(None):
        fixed, each = bytes_each(work, x)
    room = _PORTION.get(x.device.type, 2**30) if memory is None else whole("memory", memory, low=1)
    if memory is not None and room < fixed + each:
        raise ValueError(f"memory must be >= {fixed + each} bytes for one draw, got {memory}")
    return max(1, (room - fixed) // each)
