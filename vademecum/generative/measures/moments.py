r"""Mean and covariance of features: what the Frechet distance needs of a data set.

$$\hat\mu = \frac1n \sum_i x_i, \qquad
\hat\Sigma = \frac{1}{n - 1} \sum_i (x_i - \hat\mu)(x_i - \hat\mu)^\top .$$

Exact up to rounding, in double precision and in one pass over batches, also where means are large.
"""

from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from vademecum.generative.measures._feature_rows import feature_rows
from vademecum.generative.measures._sums import Sums
from vademecum.models import Output
from vademecum.results import one_line

__all__ = ["FeatureMoments", "feature_moments"]


class FeatureMoments(NamedTuple):
    """The first two moments of features.

    Example:
        >>> found = feature_moments(torch.tensor([[0.0, 1.0], [2.0, 1.0]]))
        >>> found.mean.tolist(), found.covariance.tolist(), found.n
        ([1.0, 1.0], [[2.0, 0.0], [0.0, 0.0]], 2)
    """

    mean: Float[Tensor, " d"]
    """The mean, in float64."""
    covariance: Float[Tensor, " d d"]
    """The covariance with the divisor n - 1, in float64."""
    n: int
    """How many examples there were."""

    __repr__ = one_line


def feature_moments(
    x: Any,
    *,
    features: nn.Module | None = None,
    output: Output = None,
    memory: int | None = None,
    progress: bool = False,
) -> FeatureMoments:
    """The moments of features, to be kept and compared with `frechet_distance` many times.

    Args:
        x: Features (n, ...), flattened to rows; inputs of `features`; or a `DataLoader` of either,
            which is streamed.
        features: A module whose outputs are the features; it is taken in evaluation mode and left
            as it was.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If there are fewer than two examples, or features are not finite.

    Example:
        >>> feature_moments(torch.eye(2), features=nn.Flatten()).mean
        tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    sums = Sums()
    for rows in feature_rows("x", x, features, output=output, memory=memory, progress=progress):
        sums.add(rows)
    if sums.n < 2:
        raise ValueError(f"x must hold at least 2 examples, got {sums.n}")
    return FeatureMoments(*sums.moments(), sums.n)
