r"""Averages of predictors: never worse than their members are on average.

With the weights $w_k \ge 0$, $\sum_k w_k = 1$, the error of an average splits exactly into the mean
of the members' errors and their ambiguity. For numbers, $\bar f = \sum_k w_k f_k$, and for
probabilities, $\bar p = \sum_k w_k p_k$,

$$(\bar f - y)^2 = \sum_k w_k (f_k - y)^2 - \sum_k w_k (f_k - \bar f)^2, \qquad
-\log \bar p_y = -\sum_k w_k \log p_{k y} - \sum_k w_k \log \frac{\bar p_y}{p_{k y}},$$

where the last sums are never negative (Jensen). The average need not beat its best member. Exact
up to rounding. The claim is `ensemble_averaging`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import floats, probabilities
from vademecum.results import one_line

__all__ = ["EnsembleAverage", "ensemble_average"]


class EnsembleAverage(NamedTuple):
    """An average, and what it gains.

    Example:
        >>> ensemble_average(torch.tensor([[0.0], [1.0]]), torch.tensor([0.0])).error
        tensor([0.2500])
    """

    mean: Float[Tensor, " n *rest"]
    """The average of the members."""
    error: Float[Tensor, " n"] | None
    """Its error on each example: the squared distance, or the log-loss; None without targets."""
    mean_error: Float[Tensor, " n"] | None
    """The average error of the members."""
    ambiguity: Float[Tensor, " n"] | None
    """How much they disagree: what the average gains, `mean_error - error`."""

    __repr__ = one_line


def ensemble_average(
    members: Float[Tensor, " members n *rest"],
    y: Tensor | None = None,
    *,
    weights: Float[Tensor, " members"] | None = None,
) -> EnsembleAverage:
    """Average the predictions of several members, and split the error of the average.

    Args:
        members: Predictions, one row for each member and in it one for each example: numbers, or
            probabilities of classes along the last axis where targets are classes.
        y: Targets: numbers shaped like the prediction of a member, or classes as integers (n,).
        weights: The members' weights, which sum to one; equal ones by default.

    Raises:
        ValueError: If there is no member, shapes do not fit, or weights or probabilities are none.

    References:
        Krogh and Vedelsby, Neural network ensembles, cross validation, and active learning, NIPS,
        1994.

    Example:
        >>> found = ensemble_average(torch.tensor([[1.0], [5.0]]), torch.tensor([2.0]))
        >>> found.mean, found.error, found.mean_error, found.ambiguity  # 1 = 5 - 4
        (tensor([3.]), tensor([1.]), tensor([5.]), tensor([4.]))
    """
    members = floats("members", members)
    if members.ndim < 2:
        raise ValueError(f"members must have shape (members, n, ...), got {tuple(members.shape)}")
    w = _weights(weights, members)
    mean = torch.tensordot(w, members, 1)
    if y is None:
        return EnsembleAverage(mean, None, None, None)
    if not isinstance(y, Tensor):
        raise ValueError(f"y must be a tensor, got {type(y).__name__}")
    if y.is_floating_point():
        if y.shape != mean.shape:
            raise ValueError(f"y must have shape {tuple(mean.shape)}, got {tuple(y.shape)}")
        floats("y", y)
        apart = [t.square().flatten(t.ndim - y.ndim + 1).sum(-1) if y.ndim > 1 else t.square()
                 for t in (mean - y, members - y, members - mean)]  # fmt: skip
        error, errors, gains = apart
    else:
        own, average = _of_classes(members, mean, y)
        error, errors, gains = -average, -own, average - own
    counts = w[:, None] > 0  # a member that does not may be infinitely wrong
    errors, gains = (torch.where(counts, t, 0) for t in (errors, gains))
    return EnsembleAverage(mean, error, w @ errors, w @ gains)


def _weights(weights: Tensor | None, members: Tensor) -> Tensor:
    if weights is None:
        return torch.full_like(members[:, 0].reshape(len(members), -1)[:, 0], 1 / len(members))
    weights = probabilities("weights", weights)
    if weights.shape != (len(members),):
        shape = tuple(weights.shape)
        raise ValueError(f"weights must have shape ({len(members)},), got {shape}")
    return weights.to(members)


def _of_classes(members: Tensor, mean: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithms of the probabilities of the targets: the members' and the average's."""
    n, k = mean.shape[0], mean.shape[-1]
    if members.ndim != 3 or y.shape != (n,):
        raise ValueError(
            "members must have shape (members, n, k) and y (n,) where y are classes, got"
            f" {tuple(members.shape)} and {tuple(y.shape)}"
        )
    probabilities("members", members)
    if y.min() < 0 or y.max() >= k:
        raise ValueError(f"y must be classes from 0 to {k - 1}, got {y.tolist()}")
    place = torch.arange(n, device=y.device), y.long()
    own, average = members[:, place[0], place[1]], mean[place]
    return own.log(), average.log()
