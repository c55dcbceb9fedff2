r"""An interval for a median that holds for any law.

Of $n$ independent numbers the $j$-th and the $(n + 1 - j)$-th in order enclose the median of a
continuous law with probability $1 - 2\,\mathbb P(B \le j - 1)$, $B$ binomial with $n$ trials of a
fair coin. Of five or fewer not even the ends do so in 95 %: then nothing is known of it.
"""

from math import inf

from scipy.stats import binom
from torch import Tensor

__all__ = ["median_interval"]


def median_interval(values: Tensor, *, confidence: float = 0.95) -> tuple[float, float]:
    """The ends of the interval, which are infinite where there are too few.

    Example:
        >>> import torch
        >>> median_interval(torch.arange(10.0))  # from the second to the ninth: 97.9 %
        (1.0, 8.0)
        >>> median_interval(torch.arange(5.0))  # from the first to the last: 93.8 %
        (-inf, inf)
    """
    ordered, n = values.sort().values, len(values)
    j = int(binom.ppf((1 - confidence) / 2, n, 0.5))
    while j > 0 and binom.cdf(j - 1, n, 0.5) > (1 - confidence) / 2:
        j -= 1
    if j == 0:
        return -inf, inf
    return float(ordered[j - 1]), float(ordered[n - j])
