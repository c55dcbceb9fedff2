r"""Entropy and mutual information from counts, and how far off they are.

From the counts $c_x$ of $n$ independent draws, $\hat p_x = c_x / n$, the plug-in estimate
$H(\hat p)$ is too small on average, since entropy is concave:

$$\mathbb E[H(\hat p)] - H(p) = -\frac{K - 1}{2 n} + O(n^{-2})$$

with $K$ outcomes of positive probability; and for the mutual information of a $K_X \times K_Y$
table $\mathbb E[I(\hat p)] - I(p) = \frac{K_{XY} - K_X - K_Y + 1}{2 n} + O(n^{-2})$, too large.
*Miller and Madow* take away this term with $K$ the number of outcomes seen. The *jackknife* takes
away $(n - 1) \bigl(\sum_x \hat p_x \hat H_{-x} - \hat H\bigr)$, where $\hat H_{-x}$ is the estimate
from all draws but one that gave $x$; with $g(c) = (c - 1) \ln(1 - \frac1c)$ and $g(1) = 0$ this is
$g(n) - \sum_x \hat p_x \, g(c_x)$.

The plug-in value and both corrections are computed exactly, up to double precision. Corrected
values have a bias of the order $n^{-2}$, which matters while many outcomes have been seen once or
never. The standard error is that of the delta method,
$\sqrt{\mathrm{Var}_{\hat p}(\ln \hat p) / n}$ for the entropy: the leading term, which is zero for
a uniform $\hat p$ (in a table, for independent variables).
"""

import math
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Float, Real
from torch import Tensor

from vademecum.arguments import choice
from vademecum.foundations._finite_laws import nats
from vademecum.foundations.entropies import entropy
from vademecum.foundations.information import mutual_information
from vademecum.results import one_line

__all__ = ["InformationEstimate", "entropy_from_counts", "mutual_information_from_counts"]

Correction = Literal["miller_madow", "jackknife", "none"]


class InformationEstimate(NamedTuple):
    """An estimate from counts.

    Example:
        >>> entropy_from_counts(torch.tensor([8, 8])).standard_error
        tensor(0.)
    """

    value: Float[Tensor, " ..."]
    """The estimate, after correction."""
    bias: Float[Tensor, " ..."]
    """The estimated bias of the plug-in value, which a correction takes away."""
    standard_error: Float[Tensor, " ..."]
    """The estimated standard deviation of the plug-in value, to leading order."""

    __repr__ = one_line


def entropy_from_counts(
    counts: Real[Tensor, " *batch k"],
    *,
    correction: Correction = "miller_madow",
    base: float = math.e,
) -> InformationEstimate:
    r"""The entropy of the law from which $n$ independent draws gave these counts.

    Args:
        counts: How often each outcome was drawn, along the last axis; `torch.bincount` gives it.
        correction: "miller_madow" or "jackknife", against the plug-in estimate's bias, or "none".
        base: The base of the logarithm.

    Returns:
        Estimate, bias and standard error: in the dtype of floating-point counts, or the default
        one.

    Raises:
        ValueError: If counts are negative, no whole numbers or all zero, or one draw is to be
            jackknifed.

    References:
        Miller, Note on the bias of information estimates, Information Theory in Psychology, 1955.
        Zahl, Jackknifing an index of diversity, Ecology, 1977.

    Example:
        >>> estimate = entropy_from_counts(torch.tensor([5, 5, 0]), base=2, correction="none")
        >>> estimate.value, estimate.bias * math.log(2)
        (tensor(1.), tensor(-0.0500))
    """
    c = _counts(counts, 1)
    n = c.sum(-1, keepdim=True)
    p = c / n
    surprisal = -torch.where(p > 0, p, 1).log()
    bias = _jackknife(c) if _jackknifed(correction, n) else (1 - _seen(c)) / (2 * n[..., 0])
    value = entropy(p) if correction == "none" else entropy(p) - bias
    return _estimate(counts, base, value, bias, _standard_error(c, surprisal))


def mutual_information_from_counts(
    counts: Real[Tensor, " *batch x y"],
    *,
    correction: Correction = "miller_madow",
    base: float = math.e,
) -> InformationEstimate:
    r"""The mutual information of two variables whose $n$ independent draws gave this table.

    A corrected value can be negative, and often is if the variables are independent.

    Args:
        counts: How often each pair was drawn, in the last two axes.
        correction: "miller_madow" or "jackknife", against the plug-in estimate's bias, or "none".
        base: The base of the logarithm.

    Returns:
        Estimate, bias and standard error: in the dtype of floating-point counts, or the default
        one.

    Raises:
        ValueError: If counts are negative, no whole numbers or all zero, or one draw is to be
            jackknifed.

    References:
        Treves and Panzeri, The upward bias in measures of information derived from limited data
        samples, Neural Computation, 1995.

    Example:
        >>> estimate = mutual_information_from_counts(torch.tensor([[5, 5], [5, 5]]))
        >>> estimate.value, estimate.bias
        (tensor(-0.0250), tensor(0.0250))
    """
    table = _counts(counts, 2)
    c, c_x, c_y = table.flatten(-2), table.sum(-1), table.sum(-2)
    n = c.sum(-1, keepdim=True)
    independent = (c_x[..., :, None] / n[..., None] * c_y[..., None, :]).flatten(-2)
    information = torch.where(c > 0, c / torch.where(c > 0, independent, 1), 1).log()
    if _jackknifed(correction, n):
        bias = _jackknife(c_x) + _jackknife(c_y) - _jackknife(c)
    else:
        bias = (_seen(c) - _seen(c_x) - _seen(c_y) + 1) / (2 * n[..., 0])
    plug_in = mutual_information(table / n[..., None])
    value = plug_in if correction == "none" else plug_in - bias
    return _estimate(counts, base, value, bias, _standard_error(c, information))


def _counts(counts: Tensor, axes: int) -> Tensor:
    if not isinstance(counts, Tensor) or counts.dtype == torch.bool or counts.is_complex():
        what = counts.dtype if isinstance(counts, Tensor) else type(counts).__name__
        raise ValueError(f"counts must be a tensor of whole numbers, got {what}")
    if counts.ndim < axes or counts.numel() == 0:
        raise ValueError(f"counts must have {axes} or more axes, none of them empty, got shape"
                         f" {tuple(counts.shape)}")  # fmt: skip
    bad = ~((counts >= 0) & (counts == counts.round()) & (counts < math.inf))
    if bad.any():
        raise ValueError(f"counts must be whole numbers >= 0, got {counts[bad][0].item()}")
    counts = counts.double()
    if (counts.sum(tuple(range(-axes, 0))) == 0).any():
        raise ValueError("counts must sum to 1 or more, got a sum of 0")
    return counts


def _jackknifed(correction: Correction, n: Tensor) -> bool:
    choice("correction", correction, get_args(Correction))
    if correction == "jackknife" and (n < 2).any():
        raise ValueError("counts must sum to 2 or more for the jackknife, got a sum of 1")
    return correction == "jackknife"


def _seen(c: Tensor) -> Tensor:
    return (c > 0).sum(-1)


def _jackknife(c: Tensor) -> Tensor:
    n = c.sum(-1)
    return _g(n) - (c * _g(torch.where(c > 0, c, 1))).sum(-1) / n


def _g(c: Tensor) -> Tensor:
    return torch.special.xlog1py(c - 1, -1 / c)


def _standard_error(c: Tensor, information: Tensor) -> Tensor:
    n = c.sum(-1, keepdim=True)
    mean = (c * information).sum(-1, keepdim=True) / n
    return (c * (information - mean).square()).sum(-1).sqrt() / n[..., 0]


def _estimate(counts: Tensor, base: float, *nats_of: Tensor) -> InformationEstimate:
    dtype = counts.dtype if counts.is_floating_point() else torch.get_default_dtype()
    return InformationEstimate(*((each / nats(base)).to(dtype) for each in nats_of))
