r"""Weights of examples: a weight of $s_i$ is the example $s_i$ times, one of zero is its absence.

Least squares of weighted examples is that of the rows $\sqrt{s_i}\, (x_i - \bar x)$ and
$\sqrt{s_i}\, (y_i - \bar y)$ with the weighted means $\bar x$ and $\bar y$. A class weight $c_k$
multiplies the weights of the examples of class $k$; the balanced ones,
$c_k = \sum_i s_i \big/ K \sum_{i \in k} s_i$, give all $K$ classes the same total.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from sklearn.utils.validation import check_array
from torch import Tensor

from vademecum.arguments import floats, number
from vademecum.arrays import portions
from vademecum.results import one_line

__all__ = ["WeightedRows", "as_weights", "class_weights", "weighted_rows"]


def as_weights(s: Any, x: Any) -> Float[Tensor, " n"] | None:
    """Validate the weights of the examples `x`: a tensor beside them, or None if there are none.

    Raises:
        ValueError: If there is not one finite weight, at least 0, for each example, or all are 0.
    """
    if s is None:
        return None
    if not isinstance(s, Tensor):
        s = check_array(s, ensure_2d=False, input_name="sample_weight", force_writeable=True)
        s = torch.from_numpy(s)
    s = floats("sample_weight", s.detach().double().to(x.device), ndim=1, width=len(x))
    if not (s >= 0).all():
        raise ValueError(f"sample_weight must be >= 0, got {s.min().item()}")
    if not s.any():
        raise ValueError("sample_weight must not be zero for all examples")
    return s


def class_weights(weights: Any, classes: Any, index: Tensor, s: Tensor) -> Float[Tensor, " n"]:
    """The weights `s` of examples times those of their classes.

    Args:
        weights: None, "balanced", or a dictionary from labels to weights; 1 for those it lacks.
        classes: The labels.
        index: Each example's label, by its place there.
        s: The examples' weights.

    Raises:
        ValueError: If it is neither, names a label that is none, or has a negative weight.

    Example:
        >>> index, ones = torch.tensor([0, 1, 1, 1]), torch.ones(4)
        >>> class_weights("balanced", torch.tensor([5, 6]), index, ones)
        tensor([2.0000, 0.6667, 0.6667, 0.6667])
        >>> class_weights({6: 3.0}, torch.tensor([5, 6]), index, ones)
        tensor([1., 3., 3., 3.])
    """
    if weights is None:
        return s
    if isinstance(weights, str) and weights == "balanced":
        totals = s.new_zeros(len(classes)).index_add(0, index, s)
        factors = s.sum() / (len(classes) * totals)  # infinite for a class without weight
        return torch.where(s > 0, s * factors[index], 0.0)
    if not isinstance(weights, dict):
        raise ValueError(f"class_weight must be None, 'balanced' or a dict, got {weights!r}")
    labels = classes.tolist()
    for label, weight in weights.items():
        if label not in labels:
            raise ValueError(f"class_weight must be of labels in y, got {label!r}")
        number(f"class_weight of {label!r}", weight, low=0)
    return s * s.new_tensor([weights.get(label, 1.0) for label in labels])[index]


class WeightedRows(NamedTuple):
    """The rows to do unweighted least squares with, the weighted means, and the weights left."""

    x: Float[Tensor, " m d"]
    """Rows of features, times the roots of their weights."""
    y: Float[Tensor, " m t"]
    """Rows of targets, likewise."""
    mean_x: Float[Tensor, " d"]
    """The weighted mean of the features, zero without centring."""
    mean_y: Float[Tensor, " t"]
    """The weighted mean of the targets, zero without centring."""
    weights: Float[Tensor, " m"]
    """The weights that are not zero."""

    __repr__ = one_line

    @property
    def offset(self) -> Float[Tensor, " d"]:
        """The mean in the units of the rows: what they were far from zero by."""
        return self.mean_x * self.weights.mean().sqrt()


def weighted_rows(
    x: Float[Tensor, " n d"], y: Float[Tensor, " n t"], s: Float[Tensor, " n"], *, centre: bool
) -> WeightedRows:
    r"""The rows $\sqrt{s_i}\, (x_i - \bar x)$ with a positive weight.

    Without centring $\bar x = 0$.

    Example:
        >>> x, y = torch.tensor([[1.0], [5.0], [9.0]]), torch.zeros(3, 1)
        >>> rows = weighted_rows(x, y, torch.tensor([4.0, 4.0, 0.0]).double(), centre=True)
        >>> rows.mean_x, rows.x.T
        (tensor([3.], dtype=torch.float64), tensor([[-4., 4.]]))
    """
    if not (kept := s > 0).all():
        x, y, s = x[kept], y[kept], s[kept]
    share, roots = s / s.sum() * centre, s.sqrt()[:, None]
    made = []
    for v in (x, y):
        parts = portions(len(v), each=v.shape[1], memory=2**22)
        mean = first = v[0].double() * centre  # so that a constant is its mean to the last bit
        for here in parts:
            mean = mean + share[here] @ (v[here] - first)
        rows = torch.empty_like(v, dtype=torch.promote_types(v.dtype, torch.float32))
        for here in parts:
            rows[here] = (v[here] - mean) * roots[here]
        made.append((rows, mean))
    (x, mean_x), (y, mean_y) = made
    return WeightedRows(x, y, mean_x, mean_y, s)
