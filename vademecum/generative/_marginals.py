r"""What noising makes of an example: $x_t = s_t x_0 + \sigma_t \epsilon$ with normal noise.

Every process of this room, in steps or in continuous time, has `marginal(t)`, which gives $s_t$ and
$\sigma_t$. From these alone the four things that a network may predict follow from each other:

$$\epsilon = \frac{x_t - s_t x_0}{\sigma_t}, \qquad v = s_t \epsilon - \sigma_t x_0, \qquad
\nabla \log p_t(x_t) = -\frac{\mathbb E[\epsilon \mid x_t]}{\sigma_t}.$$

With $v$ the clean example is $x_0 = (s_t x_t - \sigma_t v) / (s_t^2 + \sigma_t^2)$, which needs no
division by a scale that may vanish. Exact.
"""

from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from vademecum.arguments import choice
from vademecum.results import one_line

__all__ = [
    "INTEGERS", "Marginal", "Predicts", "Process", "beside", "clean_from", "kind_of", "noise_from",
]  # fmt: skip

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8)
"""Dtypes that steps may have."""

Predicts = Literal["noise", "x0", "v", "score"]


class Marginal(NamedTuple):
    """The law of a noised example given the clean one, in float64."""

    scale: Tensor
    """The factor of the clean example, with the shape of t."""
    std: Tensor
    """The standard deviation of the noise, with the shape of t."""

    __repr__ = one_line


@runtime_checkable
class Process(Protocol):
    """Anything that turns examples into noise: a schedule of steps, a stochastic equation."""

    def marginal(self, t: Tensor) -> Marginal:
        """The law of the example at time t given the clean one."""
        ...


def kind_of(model: Any, predicts: Predicts | None, default: Predicts = "noise") -> Predicts:
    """What a model predicts: what was said, what it says itself, or a default."""
    own = getattr(model, "predicts", None)
    kind = predicts or own or default
    choice("predicts", kind, ("noise", "x0", "v", "score"))
    if own is not None and own != kind:
        raise ValueError(f"predicts must be {own!r}, as the model says, got {kind!r}")
    return kind


def beside(values: Tensor, x: Tensor) -> Tensor:
    """One number for each example as a factor of the examples, in their dtype and place.

    Example:
        >>> beside(torch.tensor([1.0, 2.0]), torch.ones(2, 3, 1)).shape
        torch.Size([2, 1, 1])
    """
    return values.to(x).reshape(-1, *[1] * (x.ndim - 1))


def clean_from(kind: Predicts, prediction: Tensor, x: Tensor, marginal: Marginal) -> Tensor:
    """The clean example that a prediction of any kind stands for."""
    scale, std = (beside(value, x) for value in marginal)
    if kind == "x0":
        return prediction
    if kind == "v":
        return (scale * x - std * prediction) / (scale**2 + std**2)
    noise = prediction if kind == "noise" else -std * prediction
    return (x - std * noise) / scale


def noise_from(kind: Predicts, prediction: Tensor, x: Tensor, marginal: Marginal) -> Tensor:
    """The noise that a prediction of any kind stands for."""
    scale, std = (beside(value, x) for value in marginal)
    if kind == "noise":
        return prediction
    if kind == "score":
        return -std * prediction
    if kind == "v":
        return (std * x + scale * prediction) / (scale**2 + std**2)
    return (x - scale * prediction) / std
