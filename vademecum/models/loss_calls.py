r"""Calls of torch's losses in the code of a loss, or of a model, and over how many terms they go.

A loss is mostly a mean $\ell(B) = \frac1{m_B} \sum_{i \in B} \ell_i$ over terms: over the targets
that are not ignored, weighted by class, for the cross-entropy, and over the entries of the outputs
for others. To add up batches (or portions of them) as if they had been one,

$$\ell = \sum_B m_B\, \ell(B) \Big/ \sum_B m_B,$$

one must know the $m_B$, which nobody sees from outside. So a mode of torch sees the calls.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from vademecum.results import one_line

__all__ = ["LossCall", "LossCalls"]

_SIGNATURES = {
    function: inspect.signature(function)
    for function in (
        F.cross_entropy, F.nll_loss, F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss,
        F.binary_cross_entropy, F.binary_cross_entropy_with_logits,
    )  # pyright: ignore
}  # fmt: skip


class LossCall(NamedTuple):
    """A call of one of torch's losses, with all its arguments by name."""

    function: Callable[..., Tensor]
    """The function of `torch.nn.functional`."""
    given: dict[str, Any]
    """Its arguments by name, defaults included."""
    result: Tensor
    """What it gave."""

    __repr__ = one_line

    @property
    def terms(self) -> Tensor:
        """What a mean divides by."""
        z, y, w = self.given["input"], self.given["target"], self.given.get("weight")
        classes = self.function in (F.cross_entropy, F.nll_loss)
        if classes and not y.is_floating_point():
            kept = y != self.given["ignore_index"]
            return kept.sum() if w is None else (w[y.where(kept, 0).long()] * kept).sum()
        count = max(z.numel(), y.numel())
        count = count // z.shape[min(1, z.ndim - 1)] if classes else count
        return torch.tensor(count, device=z.device)


class LossCalls(TorchFunctionMode):
    """While it is entered, notes the calls of torch's losses.

    Example:
        >>> with LossCalls() as noted:
        ...     loss = F.cross_entropy(torch.zeros(3, 2), torch.tensor([0, 1, -100]))
        >>> noted.terms
        tensor(2)
    """

    def __init__(self):
        super().__init__()
        self.calls: list[LossCall] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Make a call, and note it if it is a loss."""
        kwargs = kwargs or {}
        signature = _SIGNATURES.get(func)
        if signature is None:
            return func(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        result = func(*args, **kwargs)
        if given.get("size_average") is None and given.get("reduce") is None:
            self.calls.append(LossCall(func, given, result))  # else by options that torch will drop
        return result

    @property
    def summed(self) -> bool:
        """Whether there were calls, and all of them gave sums."""
        return {call.given["reduction"] for call in self.calls} == {"sum"}

    @property
    def terms(self) -> Tensor | None:
        """Over how many terms the loss is a mean, if it is one call that is one."""
        if len(self.calls) != 1 or self.calls[0].given["reduction"] != "mean":
            return None
        return self.calls[0].terms
