r"""Early stopping: the weights at the best validation loss, and when to give up hope.

With validation losses $v_1, v_2, \dots$ the best step so far is $b$, and step $s$ takes its place
if $v_s < v_b - \delta$. Training stops at the first $s$ with $s - b \ge$ `patience`, and the
weights of step $b$ are put back. NaN and $+\infty$ are no improvement on anything.

Nothing is approximated. The claim is `early_stopping`.
"""

import math
from copy import deepcopy
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from vademecum.arguments import number, whole
from vademecum.models import unwrapped

__all__ = ["EarlyStopping"]

_WEIGHTS = "weights."


class EarlyStopping:
    r"""Tell when to stop training, and keep the best weights until then.

    Call it after each epoch with the validation loss and the model; it says whether to stop.
    `restore` puts the best weights back. They are copies of all that the model's state dict holds,
    on its devices. What `torch.compile` has put around a model does not count.

    Args:
        patience: How many values in a row may be no improvement.
        min_delta: A value must be better than the best by more than that to count.
        maximize: Whether larger values are better, as an accuracy is.

    Attributes:
        best: The best value so far; infinity before there is one.
        best_step: The call that brought it, counted from 1; 0 before there is one.
        step: How many values there were.

    Example:
        >>> model, stopping = nn.Linear(1, 1, bias=False), EarlyStopping(patience=2)
        >>> for value in (3.0, 1.0, 2.0, float("nan"), 0.5):
        ...     with torch.no_grad():
        ...         _ = model.weight.fill_(10 * value)
        ...     if stopping(value, model):
        ...         break
        >>> stopping
        EarlyStopping(patience=2, min_delta=0.0, best=1 at step 2 of 4)
        >>> stopping.restore(model)
        >>> model.weight.item()
        10.0
    """

    def __init__(self, patience: int, min_delta: float = 0.0, *, maximize: bool = False):
        self.patience = whole("patience", patience, low=1)
        self.min_delta = number("min_delta", min_delta, low=0)
        self.maximize = maximize
        self.best = -math.inf if maximize else math.inf
        self.best_step = self.step = 0
        self._weights: dict[str, Any] = {}

    def __repr__(self) -> str:
        best = f"best={self.best:g} at step {self.best_step} of {self.step}"
        options = f"patience={self.patience}, min_delta={self.min_delta}"
        return f"EarlyStopping({options}{', maximize=True' * self.maximize}, {best})"

    def __call__(self, value: float | Tensor, model: nn.Module) -> bool:
        """Take note of a value, keep the weights if it is the best, and say whether to stop.

        Args:
            value: The validation loss, a number or a tensor with one entry; it may be NaN.
            model: The module that it was measured on, always the same.
        """
        value = _number(value)
        self.step += 1
        gain = value - self.best if self.maximize else self.best - value
        if gain > self.min_delta:
            self.best, self.best_step = value, self.step
            self._keep(unwrapped(model).state_dict())
        return self.stopped

    @property
    def stopped(self) -> bool:
        """Whether there was no improvement for as long as patience allows."""
        return self.step - self.best_step >= self.patience

    def restore(self, model: nn.Module) -> None:
        """Put the best weights back into the model.

        Raises:
            ValueError: If no value has been an improvement yet.
        """
        if not self.best_step:
            raise ValueError(
                "restore must come after a value that is an improvement, got none among"
                f" {self.step}"
            )
        unwrapped(model).load_state_dict(self._weights)

    def state_dict(self) -> dict[str, Any]:
        """Everything to go on from, copied: tensors by name, as safetensors writes them.

        The three numbers are "best", "best_step" and "step"; weights have their names behind
        "weights.". Patience and the like are not part of it.
        """
        numbers = {
            "best": torch.tensor(self.best, dtype=torch.float64),
            "best_step": torch.tensor(self.best_step),
            "step": torch.tensor(self.step),
        }
        return numbers | {_WEIGHTS + name: _copied(w) for name, w in self._weights.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state.

        Args:
            state_dict: What `state_dict` gave; it is copied.

        Raises:
            ValueError: If it is none of ours.
        """
        missing = [name for name in ("best", "best_step", "step") if name not in state_dict]
        if missing:
            raise ValueError(f"state_dict must have the entries {missing}, got {[*state_dict][:5]}")
        self.best = float(state_dict["best"])
        self.best_step, self.step = int(state_dict["best_step"]), int(state_dict["step"])
        self._weights = {
            name.removeprefix(_WEIGHTS): _copied(w)
            for name, w in state_dict.items()
            if name.startswith(_WEIGHTS)
        }

    def _keep(self, state: dict[str, Any]) -> None:
        """Copy weights, into the tensors of the last time where these still fit."""
        for name in [name for name in self._weights if name not in state]:
            del self._weights[name]
        for name, w in state.items():
            old = self._weights.get(name)
            if isinstance(w, Tensor) and isinstance(old, Tensor) and _alike(w, old):
                old.copy_(w.detach())
            else:
                self._weights[name] = _copied(w)


def _number(value: Any) -> float:
    if isinstance(value, Tensor):
        if value.numel() != 1 or value.is_complex():
            raise ValueError(
                f"value must be one real number, got {value.dtype} of shape {tuple(value.shape)}"
            )
        return float(value)
    if isinstance(value, Real) and math.isnan(value):
        return math.nan
    return float(number("value", value, infinite=True))


def _alike(one: Tensor, other: Tensor) -> bool:
    kinds = [(w.shape, w.dtype, w.device) for w in (one, other)]
    return kinds[0] == kinds[1]


def _copied(w: Any) -> Any:
    if not isinstance(w, Tensor):  # of a module with a state of another kind
        return deepcopy(w)
    return w.detach().clone(memory_format=torch.contiguous_format)
