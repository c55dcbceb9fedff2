r"""How many independent examples augmented ones are worth.

Of each of $n$ examples there are $k$ copies, whose numbers have variance $\sigma^2$ and correlation
$\rho$ within an example and 0 between examples. Their mean has the variance

$$\frac{\sigma^2}{n k} \bigl(1 + (k - 1) \rho\bigr) , \qquad
\text{so they are worth } \frac{n k}{1 + (k - 1) \rho} \le \frac n\rho$$

independent ones. Exact. Checked by the claim `regularization.augmented_dependence`.
"""

from vademecum.arguments import number, whole

__all__ = ["effective_sample_size"]


def effective_sample_size(n: int, copies: int, *, correlation: float) -> float:
    """The number of independent examples whose mean is as certain as that of augmented ones.

    Args:
        n: How many examples there are.
        copies: How many versions of each.
        correlation: Between two versions of one example, from -1 / (copies - 1) to 1.

    Raises:
        ValueError: If no variables can have this correlation, or a count is not positive.

    Example:
        >>> effective_sample_size(100, 10, correlation=0.5)  # 1000 / 5.5
        181.8181818181818
        >>> effective_sample_size(100, 10, correlation=1.0)
        100.0
    """
    n, k = whole("n", n, low=1), whole("copies", copies, low=1)
    rho = number("correlation", correlation, low=-1 / (k - 1) if k > 1 else -1.0, high=1.0)
    spread = 1 + (k - 1) * rho
    return n * k / spread if spread > 0 else float("inf")
