r"""What an attack wants of the logits $z$: another class than $y$, or the class $t$.

Its *margin* is positive where it is there,

$$m(z) = \max_{j \ne y} z_j - z_y, \qquad m_t(z) = z_t - \max_{j \ne t} z_j,$$

and it climbs one of three functions:

- "ce": the cross-entropy $\log \sum_j e^{z_j} - z_y$, with a target minus that of $t$;
- "margin": $m$ itself, which never saturates;
- "dlr": the difference of logits ratio $m / (z_{(1)} - z_{(3)})$ with the logits in falling order,
  for a target $(z_t - z_y) / (z_{(1)} - \frac12 (z_{(3)} + z_{(4)}))$: not changed by shifts and
  positive factors of $z$. It needs three classes, with a target four; with fewer it is the margin.
"""

import warnings
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vademecum.results import one_line
from vademecum.robustness._logits import rounding_gap

__all__ = ["LOSSES", "Goal", "best_classes", "best_other", "enough_classes"]

LOSSES = ("ce", "margin", "dlr")
"""What an attack may climb."""
_SECURED = 1.25  # gaps of rounding; between passes margins move by an eighth of one, see `_logits`


class Goal(NamedTuple):
    """The labels of examples, and the classes that they shall be taken for.

    Example:
        >>> Goal(torch.tensor([0])).margin(torch.tensor([[1.0, 3.0]]))
        tensor([2.])
    """

    y: Tensor
    """The labels (n,)."""
    target: Tensor | None = None
    """The classes that are wanted; None if any other will do."""
    aim: Tensor | None = None
    """The classes at which the loss aims, if they are others."""

    __repr__ = one_line

    def rows(self, index: Tensor | slice) -> "Goal":
        """The same for some of the examples."""
        others = (None if labels is None else labels[index] for labels in self[1:])
        return Goal(self.y[index], *others)

    def margin(self, z: Tensor) -> Tensor:
        """By how much logits are where the attack wants them."""
        if self.target is None:
            return best_other(z, self.y) - _entry(z, self.y)
        return _entry(z, self.target) - best_other(z, self.target)

    def reached(self, z: Tensor) -> Tensor:
        """Whether they are there by more than rounding."""
        return self.margin(z) > rounding_gap(z)

    def secured(self, z: Tensor) -> Tensor:
        """Whether they are there so far that another pass, which rounds otherwise, agrees."""
        return self.margin(z) > _SECURED * rounding_gap(z)

    def loss(self, z: Tensor, kind: str) -> Tensor:
        """What the attack climbs, for each example."""
        aim = self.target if self.aim is None else self.aim
        if kind == "ce":
            sign, label = (1, self.y) if aim is None else (-1, aim)
            return sign * cross_entropy(z, label, reduction="none")
        if kind == "margin" or z.shape[1] < (3 if aim is None else 4):
            return Goal(self.y, aim).margin(z)
        tiny = torch.finfo(z.dtype).tiny
        top = z.topk(3 if aim is None else 4, dim=1).values
        if aim is None:
            return Goal(self.y).margin(z) / (top[:, 0] - top[:, 2]).clamp(min=tiny)
        scale = top[:, 0] - (top[:, 2] + top[:, 3]) / 2
        return (_entry(z, aim) - _entry(z, self.y)) / scale.clamp(min=tiny)


def best_other(z: Tensor, y: Tensor) -> Tensor:
    """The largest logit of another class."""
    return z.scatter(1, y[:, None], -torch.inf).amax(1)


def best_classes(z: Tensor, y: Tensor, count: int) -> Tensor:
    """The likeliest other classes (n, count), or all of them, the likeliest first."""
    others = z.scatter(1, y[:, None], -torch.inf)
    return others.topk(min(count, z.shape[1] - 1), dim=1).indices


def enough_classes(kind: str, k: int, *, targeted: bool) -> None:
    """Warn where there are too few classes for "dlr", so that it is the margin."""
    least = 4 if targeted else 3
    if kind == "dlr" and k < least:
        aim = "with a target " if targeted else ""
        warnings.warn(
            f"loss 'dlr' {aim}needs {least} classes and model has {k}: 'margin' takes its place",
            UserWarning,
            stacklevel=4,
        )


def _entry(z: Tensor, y: Tensor) -> Tensor:
    return z.gather(1, y[:, None])[:, 0]
