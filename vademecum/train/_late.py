"""Numbers of a step that a GPU is still computing: read when the next step is about to move.

Who asks for the loss before the optimiser's step is queued lets the GPU run dry at each step. Fused
optimisers of torch's leave out a step by a flag on the device (`found_inf`, which they have for
scaled losses). So their step is queued behind that flag, and loss and norm are read later: before
the next step changes a weight, before anything is kept, and at the end. A step that is not finite
changes no weight and stops the run, as everywhere; all that came since is one forward and backward
pass in vain, perhaps after an evaluation of the weights as they were.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Late", "may_wait"]

_DEVICES = ("cuda",)
"""Where it is worth while: on others a number is there as soon as it is asked for."""

Found = dict[str, float]


def may_wait(objective: nn.Module, optimizers: Mapping[str, Any], *, scaled: bool) -> bool:
    """Whether the numbers of steps can be read late without a trace in any weight.

    Not where a second player moves next, where losses are scaled, where the objective does
    something to its weights after a step, where each process has a part of them, and not in
    float64, whose squares may overflow so that a norm does not tell all.
    """
    optimizer, *others = optimizers.values()
    groups = optimizer.param_groups
    return (
        not others
        and not scaled
        and not hasattr(type(objective), "after_step")
        and getattr(optimizer, "_step_supports_amp_scaling", False)
        and all(group.get("fused") for group in groups)
        and all(_plain(p) for group in groups for p in group["params"])
    )


def _plain(p: Tensor) -> bool:
    """Whether a parameter is no DTensor and the like, not in float64, and on a GPU."""
    narrow = p.dtype in (torch.float32, torch.bfloat16, torch.float16)
    return type(p) in (Tensor, nn.Parameter) and narrow and p.device.type in _DEVICES


class Late:
    """Loss and norm of the last step, while they are unread."""

    def __init__(self):
        self._numbers: Tensor | None = None
        self._copied: Any = None
        self._refuse: Callable[[float], object] | None = None
        self._note: tuple[Callable[[Found], None], Found] | None = None

    def step(
        self, optimizer: Any, loss: Tensor, norm: Tensor, refuse: Callable[[float], object]
    ) -> None:
        """Queue an optimiser's step, which is left out unless both numbers are finite.

        Args:
            optimizer: One that `may_wait` has found able to.
            loss: The loss of the step.
            norm: The norm of its gradient, in float64.
            refuse: What to call with the loss if they are not; it raises.
        """
        numbers = torch.stack([loss.to(torch.float64), norm])
        self._read(numbers)
        self._refuse = refuse
        optimizer.found_inf = (numbers.sum() * 0 != 0).float()  # of NaN and infinity it is NaN
        optimizer.grad_scale = None
        optimizer.step()
        del optimizer.found_inf, optimizer.grad_scale

    def then(self, note: Callable[[Found], None], found: Found) -> None:
        """Hand on what a step has found: now, or once its numbers were read."""
        if self._refuse is None:
            note(found)
        else:
            self._note = note, found

    def settle(self) -> None:
        """Read what is unread, and hand it on or refuse it."""
        if self._refuse is None or self._numbers is None:
            return
        if self._copied is not None:
            self._copied.synchronize()
        loss, norm = self._numbers.tolist()
        refuse, self._refuse = self._refuse, None
        if not (math.isfinite(loss) and math.isfinite(norm)):
            refuse(loss)
        if self._note is not None:
            note, found = self._note
            self._note = None
            note(found | {"loss": loss, "norm": norm})

    def _read(self, numbers: Tensor) -> None:
        """Copy numbers to the host behind all that is queued, without waiting for them."""
        if self._numbers is None:
            self._numbers = torch.empty(2, dtype=torch.float64, pin_memory=numbers.is_cuda)
            self._copied = torch.cuda.Event() if numbers.is_cuda else None
        self._numbers.copy_(numbers, non_blocking=True)
        if self._copied is not None:
            self._copied.record()
