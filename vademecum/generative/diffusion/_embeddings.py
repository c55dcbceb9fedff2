r"""Time and context as vectors: what a network is told besides its examples.

A time in units of a horizon, $\tau = 1000\, t / h$, becomes $(\sin \omega_i \tau, \cos \omega_i
\tau)_i$ with frequencies $\omega_i$ from 1 down to 1e-4, then two dense layers. Class labels become
rows of a table, whose last row stands for no label; vectors are mapped linearly, and zeros stand
for none.
"""

import math

import torch
from torch import Tensor, nn

from vademecum.arguments import number, whole

__all__ = ["Embedding"]


class Embedding(nn.Module):
    """Times, and labels or vectors, as one vector for each example.

    Args:
        width: How wide the vectors are, even.
        classes: How many labels there are, or None.
        context_width: How wide vectors of context are, or None.
        horizon: The largest time.
    """

    def __init__(
        self, width: int, *, classes: int | None, context_width: int | None, horizon: float
    ):
        super().__init__()
        whole("width", width, low=2)
        if classes is not None and context_width is not None:
            raise ValueError("classes must be None where context_width is given")
        self.horizon = number("horizon", horizon, above=0)
        self.waves, self.classes, self.context_width = (width + 1) // 2, classes, context_width
        self.time = nn.Sequential(
            nn.Linear(2 * self.waves, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.context: nn.Module | None = None
        if classes is not None:
            self.context = nn.Embedding(whole("classes", classes, low=1) + 1, width)
        elif context_width is not None:
            whole("context_width", context_width, low=1)
            self.context = nn.Linear(context_width, width, bias=False)

    @property
    def null(self) -> int | float | None:
        """The context that stands for none."""
        return self.classes if self.classes is not None else self._zero()

    def _zero(self) -> float | None:
        return None if self.context_width is None else 0.0

    def forward(self, x: Tensor, t: Tensor, context: Tensor | None) -> Tensor:
        """The vectors for examples x, whose dtype they have."""
        if not x.is_floating_point():
            raise ValueError(f"x must be floating point, got {x.dtype}")
        if t.shape != x.shape[:1]:
            raise ValueError(
                f"t must be {len(x)} times, one for each example, got {tuple(t.shape)}"
            )
        found = self.time(self._waves(t, x.dtype))
        if self.context is None:
            if context is not None:
                raise ValueError(
                    "context must be None: the network has no classes or context_width"
                )
            return found
        return found + self.context(self._context(context, x))

    def _waves(self, t: Tensor, dtype: torch.dtype) -> Tensor:
        place = torch.arange(self.waves, device=t.device, dtype=torch.float32)
        omega = torch.exp(place * (-math.log(1e4) / max(self.waves - 1, 1)))
        angles = (t.double() * (1000 / self.horizon)).float()[:, None] * omega
        return torch.cat([angles.sin(), angles.cos()], 1).to(dtype)

    def _context(self, context: Tensor | None, x: Tensor) -> Tensor:
        if self.classes is not None:
            if context is None:
                return torch.full((len(x),), self.classes, device=x.device)
            if context.is_floating_point() or context.shape != x.shape[:1]:
                raise ValueError(
                    f"context must be {len(x)} integers, the labels, got {context.dtype} of shape"
                    f" {tuple(context.shape)}"
                )
            return _labels(context, self.classes)
        assert self.context_width is not None
        if context is None:
            return x.new_zeros(len(x), self.context_width)
        if context.shape != (len(x), self.context_width):
            raise ValueError(
                f"context must have the shape {(len(x), self.context_width)}, got"
                f" {tuple(context.shape)}"
            )
        return context.to(x.dtype)


def _labels(context: Tensor, classes: int) -> Tensor:
    """Labels within the table; whether they are is looked at on the CPU alone, as for steps."""
    if context.device.type == "cpu" and context.numel() and not torch.compiler.is_compiling():
        low, high = (int(v) for v in torch.aminmax(context))
        if low < 0 or high > classes:
            raise ValueError(
                f"context must be labels from 0 to {classes - 1}, or {classes} for none, got"
                f" {low if low < 0 else high}"
            )
    return context.long()
