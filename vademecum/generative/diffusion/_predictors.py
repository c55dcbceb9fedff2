"""Any network as a predictor: with or without a context, guided.

A network is called `model(x, t)` or `model(x, t, context)`. Guidance with weight w goes beyond the
prediction with a context, away from the one without: (1 + w) out(context) - w out(). A network with
an attribute `null`, the context that stands for none, answers both in one call of twice as many
examples; another is called twice.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import number

__all__ = [
    "Model", "Predictor", "guided", "insist_on_shape", "without_context",
]  # fmt: skip

Model = Callable[..., Tensor]


def insist_on_tensor(name: str, out: Any) -> Tensor:
    """What a network gives: a tensor, and no object that holds one."""
    if not isinstance(out, Tensor):
        raise ValueError(f"{name} must give a tensor, got {type(out).__name__}")
    return out


def insist_on_shape(name: str, out: Any, wanted: tuple[int, ...]) -> Tensor:
    """What a network gives: a tensor of a shape."""
    if insist_on_tensor(name, out).shape != wanted:
        raise ValueError(f"{name} must give the shape {tuple(wanted)}, got {tuple(out.shape)}")
    return out


def guided(given: Tensor, free: Tensor, guidance: float) -> Tensor:
    """The guided prediction, from one with a context and one without.

    Example:
        >>> guided(torch.tensor([3.0]), torch.tensor([1.0]), 2.0)
        tensor([7.])
    """
    return torch.lerp(free, given, 1 + guidance)


def without_context(null: Any, context: Tensor) -> Tensor:
    """As many contexts that stand for none.

    A number is written where the context is, for a copy from elsewhere cannot be captured.
    """
    if isinstance(null, int | float):
        if not _holds(context.dtype, null):
            raise ValueError(
                f"context must be of a dtype that holds {null}, which stands for none, got"
                f" {context.dtype}"
            )
        return torch.full_like(context, null)
    return torch.as_tensor(null).to(context).expand_as(context)


def _holds(dtype: torch.dtype, number: float) -> bool:
    """Whether a number is one of a dtype, up to rounding: True is no label 2."""
    if dtype.is_floating_point or dtype.is_complex:
        return True
    if dtype == torch.bool:
        return number in (0, 1)
    limits = torch.iinfo(dtype)
    return limits.min <= number <= limits.max and number == int(number)


class Predictor:
    """A model with its context and its guidance: a function of x and t.

    Args:
        model: The network.
        n: How many examples there are.
        context: What it is told of each, or None.
        guidance: The weight w, or None for the plain prediction.
        doubled: Whether the output holds a second half, for variances, which is not guided.
    """

    def __init__(
        self,
        model: Model,
        n: int,
        context: Tensor | None,
        guidance: float | None,
        *,
        doubled: bool = False,
    ):
        self._model, self._n, self._doubled = model, n, doubled
        self._context, self._guidance = context, None
        if guidance is not None:
            if context is None:
                raise ValueError(f"context must be given where there is guidance, got {guidance}")
            self._guidance = number("guidance", guidance) or None  # 0 is the plain prediction
        if context is not None and len(context) != n:
            raise ValueError(
                f"context must have {n} rows, one for each example, got {len(context)}"
            )
        null = getattr(model, "null", None)
        self._both = None
        if self._guidance is not None and null is not None and context is not None:
            self._both = torch.cat([context, without_context(null, context)])

    def __call__(self, x: Tensor, t: Tensor) -> Tensor:
        """The prediction for examples x at times t, in the dtype of x."""
        wanted = (self._n, 2 * x.shape[1], *x.shape[2:]) if self._doubled else x.shape
        out = insist_on_shape("model", self._called(x, t), wanted)
        return out if out.dtype == x.dtype else out.to(x.dtype)

    def _called(self, x: Tensor, t: Tensor) -> Tensor:
        if self._context is None:
            return self._model(x, t)
        if self._guidance is None:
            return self._model(x, t, self._context)
        if self._both is not None:
            out = self._model(torch.cat([x, x]), torch.cat([t, t]), self._both)
            given, free = insist_on_tensor("model", out).chunk(2)
        else:
            given, free = self._model(x, t, self._context), self._model(x, t)
        if not self._doubled:
            return guided(given, free, self._guidance)
        (mean, variance), (other, _) = given.chunk(2, 1), free.chunk(2, 1)
        return torch.cat([guided(mean, other, self._guidance), variance], 1)
