r"""The inception score: are samples recognised, and are all classes among them?

With what a classifier says of each sample, $p(y \mid x)$, and the mean $p(y)$ over samples,

$$\mathrm{IS} = \exp\big(\mathbb E_x\, \mathrm{KL}(p(y \mid x) \,\|\, p(y))\big)
= \exp\big(H(Y) - H(Y \mid X)\big) ,$$

between 1 and the number of classes. It never looks at the data. Exact up to rounding, for the
samples given, in one pass over batches; the standard error is that of the jackknife which leaves
out one of $G$ groups at a time. The claims are `inception_score` and `inception_score_blind_spots`.
"""

import math
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vademecum.arguments import choice, probabilities, whole
from vademecum.generative.measures._feature_rows import feature_rows
from vademecum.models import Output
from vademecum.results import one_line

__all__ = ["InceptionScore", "inception_score"]


class InceptionScore(NamedTuple):
    """An inception score.

    Example:
        >>> found = inception_score(torch.eye(3), given="probabilities", splits=1)
        >>> round(found.value, 6), found.standard_error
        (3.0, None)
    """

    value: float
    """The score of all samples together, at least 1 and at most the number of classes."""
    standard_error: float | None
    """Its standard error; None for a single split."""
    splits: Float[Tensor, " splits"]
    """The scores of the splits, whose mean is what is often reported (and lower)."""

    __repr__ = one_line


def inception_score(
    x: Any,
    *,
    features: nn.Module | None = None,
    given: Literal["logits", "probabilities"] = "logits",
    splits: int = 10,
    output: Output = None,
    memory: int | None = None,
    progress: bool = False,
) -> InceptionScore:
    """The inception score of samples, in double precision.

    Args:
        x: What a classifier says of each sample, (n, k); inputs of `features`; or a `DataLoader` of
            either, which is streamed.
        features: The classifier; it is taken in evaluation mode and left as it was.
        given: Whether the rows, or the classifier's outputs, are logits or probabilities.
        splits: How many parts to score by themselves, for the standard error; sample i is in part
            i modulo them.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        progress: Whether to show a progress bar on standard error.

    Raises:
        ValueError: If there are fewer than two samples or fewer than splits, or rows are not what
            `given` says.

    References:
        Salimans et al., Improved techniques for training GANs, NeurIPS 2016. Barratt and Sharma, A
        note on the inception score, 2018.

    Example:
        >>> rows = torch.tensor([[0.9, 0.1], [0.1, 0.9]])
        >>> found = inception_score(rows, given="probabilities", splits=1)
        >>> round(found.value, 4)  # exp(log 2 - 0.3251)
        1.4449
    """
    choice("given", given, ("logits", "probabilities"))
    whole("splits", splits, low=1)
    n, laws, entropies, counts = 0, None, torch.zeros(0), torch.zeros(0)
    knobs: Any = {"output": output, "memory": memory, "progress": progress}
    for rows in feature_rows("x", x, features, **knobs):
        if laws is None:
            laws = rows.new_zeros(splits, rows.shape[1], dtype=torch.float64)
            entropies, counts = laws.new_zeros(splits), laws.new_zeros(splits)
        p = _law(rows, given)
        part = (torch.arange(n, n + len(p), device=p.device)) % splits
        laws.index_add_(0, part, p)
        entropies.index_add_(0, part, -torch.xlogy(p, p).sum(1))
        counts.index_add_(0, part, torch.ones_like(p[:, 0]))
        n += len(p)
    if n < max(2, splits) or laws is None:
        raise ValueError(f"x must hold at least {max(2, splits)} samples, got {n}")
    value = _score(laws.sum(0), entropies.sum(), counts.sum())
    scores = _score(laws, entropies, counts)
    if splits == 1:
        return InceptionScore(float(value), None, scores)
    rest = (total.sum(0) - total for total in (laws, entropies, counts))
    left = _score(*rest)
    error = ((splits - 1) / splits * (left - left.mean()).square().sum()).sqrt()
    return InceptionScore(float(value), float(error), scores)


def _law(rows: Tensor, given: str) -> Tensor:
    if given == "logits":
        return rows.double().softmax(1)
    return probabilities("x", rows).double()


def _score(law: Tensor, entropy: Tensor, n: Tensor) -> Tensor:
    """The score from sums of laws (..., k) and of their entropies (...,)."""
    mean = law / n[..., None]
    information = -torch.xlogy(mean, mean).sum(-1) - entropy / n
    return information.clamp(0, math.log(law.shape[-1])).exp().clamp(max=law.shape[-1])
