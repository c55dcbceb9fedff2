"""The Lipschitz constant of a network between its bounds, against the size of the ball."""

from functools import lru_cache
from typing import Annotated, Literal

import torch
from matplotlib.figure import Figure
from torch import nn

from vademecum.canvas import GREY, panels, plain_numbers
from vademecum.models import mlp
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness
from vademecum.robustness import Lipschitz, lipschitz

__all__ = ["lipschitz_sandwich"]

_RADII = 10.0 ** torch.linspace(-2.5, 0.5, 9)
_UNITS = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}


@picture(claims=("robustness.lipschitz_product",))
def lipschitz_sandwich(
    depth: Annotated[int, Range(1, 5, 1, unit="hidden layers")] = 2,
    width: Annotated[int, Range(2, 32, 2, log=True, unit="units")] = 16,
    activation: Literal["relu", "tanh", "gelu"] = "relu",
    norm: Literal["l2", "linf", "l1"] = "l2",
) -> Figure:
    """The Lipschitz sandwich.

    How steep is a random network within a ball around a point? At least as steep as the steepest
    pair of points that was found, and at most what boxes around all Jacobians of the ball allow;
    for all inputs at most the product of the layers' norms. In a small ball the two meet; in a
    large one boxes forget how units depend on each other, and give way to the product. Add layers:
    the product grows with each of them, the network hardly so.

    Knobs:
        depth: How many hidden layers there are.
        width: How many units each has.
        activation: What units compute.
        norm: The norm of inputs and outputs.
    """
    balls, everywhere = _bounds(depth, width, activation, norm)
    figure, axes = panels((6.4, 3.8), margins=(0.95, 0.2, 0.55, 0.35))
    axes.axhline(float(everywhere.upper), color="C1", ls="--", lw=1.5, label="product of norms")
    axes.plot(_RADII, balls.upper, "C0s-", ms=4, lw=1.5, label="boxes around Jacobians")
    below = balls.lower.cummax(0).values  # what was found in a ball lies in all larger ones
    axes.plot(_RADII, below, "C2o-", ms=4, lw=1.5, label="steepest pair found")
    axes.fill_between(_RADII, below, balls.upper, color=GREY, alpha=0.15, lw=0)
    axes.set(xscale="log", yscale="log", xlabel="radius of the ball", ylabel="Lipschitz constant")
    decades = range(-2, 7)
    axes.set(ylim=(0.03, 2 * max(10.0, float(everywhere.upper))))
    axes.set_yticks([10.0**i for i in decades if 10**i < axes.get_ylim()[1] and i > -2])
    axes.set_xticks([0.01, 0.1, 1])
    plain_numbers(axes.xaxis)
    plain_numbers(axes.yaxis, "{x:,g}")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure


@lru_cache(64)
def _bounds(depth: int, width: int, activation: str, norm: str) -> tuple[Lipschitz, Lipschitz]:
    """The bounds for balls of all radii around one point, and those for all inputs."""
    generator = torch.Generator().manual_seed(0)
    with own_randomness():
        model = mlp([3, *[width] * depth, 3], _UNITS[activation], dtype=torch.float64)
    for p in model.parameters():
        drawn = torch.randn(p.shape, generator=generator, dtype=torch.float64)
        p.data = drawn * (1.5 / p.shape[1]) ** 0.5 if p.ndim == 2 else 0.1 * drawn
    x = torch.tensor([[0.3, -0.5, 0.2]], dtype=torch.float64)
    knobs = {"norm": norm, "box": None, "generator": generator}
    balls = lipschitz(model, x.expand(len(_RADII), -1), radius=_RADII.double(), **knobs)
    return balls, lipschitz(model, x, **knobs)
