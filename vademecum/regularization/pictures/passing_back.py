"""What batch normalisation passes back of a gradient."""

from typing import Annotated

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from vademecum.canvas import GREY, panels
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness

__all__ = ["normalised_gradient"]


@picture(
    claims=("regularization.batch_norm_gradient", "regularization.batch_norm_smoothing"),
    plays="stretch",
)
def normalised_gradient(
    examples: Annotated[int, Range(2, 40)] = 12,
    push: Annotated[float, Range(-1.5, 1.5, 0.25)] = 1.0,
    stretch: Annotated[float, Range(-1.5, 1.5, 0.25)] = -1.0,
    spread: Annotated[float, Range(0.5, 2, 2, log=True)] = 1.0,
) -> Figure:
    """What batch normalisation passes back of a gradient.

    A dot for each example of a batch: to the left the gradient that arrives at the output of one
    unit, over that output. What pushes all outputs one way, or stretches them, is the line of
    regression, and none of it passes: only the bars do, what is left beside the line. To the right
    they arrive at the inputs, over the spread of these; hollow is what would if mean and deviation
    were constants. Push and stretch as you like: the dots to the right stay. With 2 examples
    nothing comes back, and inputs twice as wide get half the gradient.

    Knobs:
        examples: How many examples the batch has.
        push: The mean of the gradient that arrives, in units of what is irregular in it.
        stretch: Its slope over the outputs, likewise.
        spread: The standard deviation of the inputs, before they are normalised.
    """
    z, g, back = _passed(examples, push, stretch, spread)
    outputs = (z - z.mean()) / z.std(correction=0)
    figure, axes = panels((8.4, 4.0), 1, 2, margins=(0.7, 0.2, 0.6, 0.5), gaps=(0.8, 0.6))
    _arriving(axes[0], outputs.numpy(), g.numpy())
    _returning(axes[1], z.numpy(), g.numpy() / spread, back.numpy())
    whole = float(g.square().sum())
    mean = float(g.sum() ** 2 / examples) / whole
    along = float((g * outputs).sum() ** 2 / examples) / whole
    rest = max(1 - mean - along, 0.0)
    axes[0].set_title(f"of its square: push {mean:.0%}, stretch {along:.0%}, rest {rest:.0%}")
    over = float(back.norm() / g.norm())
    axes[1].set_title(f"length {over:.2f} of that which arrived")
    return figure


def _passed(m: int, push: float, stretch: float, spread: float) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, the gradient that arrives at the outputs, and the one that torch gives the inputs."""
    with own_randomness(3):
        z, g = torch.randn(2, 40, dtype=torch.float64)[:, :m]
    z = spread * (z - z.mean()) / z.std(correction=0)
    layer = nn.BatchNorm1d(1, eps=1e-30, dtype=torch.float64)
    z = z.requires_grad_()
    outputs = layer(z[:, None])[:, 0]
    if m > 2:  # what is irregular: beside the line, and of mean square 1
        u = outputs.detach()
        g = g - g.mean() - (g * u).mean() * u
        g = g / g.square().mean().sqrt()
    g = push + stretch * outputs.detach() + (g if m > 2 else 0.0)
    (back,) = torch.autograd.grad(outputs, z, g)
    return z.detach(), g, back


def _arriving(axes: Axes, outputs: np.ndarray, g: np.ndarray) -> None:
    slope, height = (outputs * g).mean(), g.mean()
    ends = np.array([outputs.min() - 0.3, outputs.max() + 0.3])
    axes.axhline(0, color=GREY, lw=0.6)
    axes.plot(ends, height + slope * ends, color="C1", ls="--", label="push and stretch: lost")
    axes.vlines(outputs, height + slope * outputs, g, color="C0", label="what is left: passes")
    axes.plot(outputs, g, "o", color="C0", ms=5)
    axes.set_xlabel("output of the unit, normalised")
    axes.set_ylabel("gradient that arrives")
    axes.set_ylim(-6, 8)
    axes.set_xlim(-3.2, 3.2)
    axes.legend(loc="upper right")


def _returning(axes: Axes, z: np.ndarray, constant: np.ndarray, back: np.ndarray) -> None:
    axes.axhline(0, color=GREY, lw=0.6)
    axes.plot(z, constant, "o", mfc="none", color=GREY, ms=5, label="were statistics constants")
    axes.vlines(z, 0, back, color="C0")
    axes.plot(z, back, "o", color="C0", ms=5, label="gradient")
    axes.set_xlabel("input of the unit")
    axes.set_ylabel("gradient in the inputs")
    axes.set_xlim(-5, 5)
    axes.set_ylim(-9, 12)
    axes.legend(loc="upper right")
