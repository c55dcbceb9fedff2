"""The loss on a plane of parameters, and what of its curvature the plane shows."""

from functools import cache
from typing import Annotated, Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.canvas import GREY, panels
from vademecum.data import moons
from vademecum.generalization.planes import LossPlane, loss_plane
from vademecum.gradients import hessian
from vademecum.models import mlp
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness
from vademecum.regularization import rescale_units

__all__ = ["plane_of_parameters"]

UNITS, STEPS, POINTS, LEVELS, SHOWN = 12, 120, 25, 13, 40


@picture(
    claims=("generalization.sharpness", "generalization.sharpness_not_invariant"), plays="scale"
)
def plane_of_parameters(
    directions: Literal["random", "sharpest"] = "random",
    scale: Annotated[float, Range(1.0, 8.0, 2, log=True)] = 1.0,
    extent: Annotated[float, Range(0.25, 2.0, 2, log=True)] = 1.0,
) -> Figure:
    """A plane of the loss, and its curvature.

    To the left the loss around a trained network (the cross), to the right the largest eigenvalues
    of its Hessian as dots, and the two that the plane has as lines. Random directions look flat:
    they miss the few sharp ones, and the title says how much they show. Take the sharpest two, and
    the same minimum is a narrow valley. Scale the first layer up and the second down: the function
    stays, the dots move and the sharpest plane with them, but the random one, whose directions are
    as long as the weights, does not.

    Knobs:
        directions: Which two directions span the plane.
        scale: What the first layer is multiplied by and the second divided by.
        extent: How far the plane goes: in lengths of the weights, or for the sharpest directions
            in plain units.
    """
    found, eigenvalues = _seen(directions, scale, extent)
    figure, axes = panels((8.5, 4.0), 1, 2, margins=(0.8, 0.2, 0.6, 0.5), gaps=(0.9, 0.6))
    _contours(axes[0], found)
    _spectrum(axes[1], found, eigenvalues)
    axes[0].set_title(
        f"shows {found.sharpness_share:.1%} of the sharpness, {found.trace_share:.1%} of the trace"
    )
    axes[1].set_title(f"sharpness {found.sharpness:.3g}")
    return figure


@cache
def _trained() -> tuple[nn.Module, Tensor, Tensor]:
    """Two moons and a small network that divides them."""
    with own_randomness(1):
        data = moons(80, noise=0.15)
        x, y = data.x.double(), (data.y > 0).long()
        model = mlp([2, UNITS, UNITS, 2]).double()
    weights = list(model.parameters())
    speeds = [torch.zeros_like(w) for w in weights]
    for _ in range(STEPS):  # heavy balls, by hand: the first optimiser of a process loads for 1 s
        slopes = torch.autograd.grad(F.cross_entropy(model(x), y), weights)
        with torch.no_grad():
            for w, v, g in zip(weights, speeds, slopes, strict=True):
                w.sub_(v.mul_(0.9).add_(g + 1e-3 * w, alpha=0.2))
    return model, x, y


@cache
def _scaled(scale: float) -> tuple[nn.Module, np.ndarray]:
    """The same function with other weights, and the largest eigenvalues of its Hessian."""
    model, x, y = _trained()
    factors = torch.full((UNITS,), scale, dtype=torch.float64)
    other = rescale_units(model, x[:1], scales={"0": factors}).model
    eigenvalues = torch.linalg.eigvalsh(hessian(other, x, y).dense().detach())
    return other, eigenvalues.flip(0)[:SHOWN].numpy()


@cache
def _seen(directions: str, scale: float, extent: float) -> tuple[LossPlane, np.ndarray]:
    (_, x, y), (model, eigenvalues) = _trained(), _scaled(scale)
    kind = "random" if directions == "random" else "hessian"
    source = torch.Generator().manual_seed(3)
    found = loss_plane(model, x, y, directions=kind, extent=extent, points=POINTS, generator=source)
    return found, eigenvalues


def _contours(axes: Axes, found: LossPlane) -> None:
    steps, losses = found.steps.numpy(), found.losses.numpy().T
    low, high = float(losses.min()), float(losses.max())
    levels = np.geomspace(low, high, LEVELS)
    axes.contourf(steps, steps, losses, levels, norm=LogNorm(low, high), cmap="viridis", alpha=0.8)
    lines = axes.contour(steps, steps, losses, levels[1:-1:2], colors=GREY, linewidths=0.7)
    axes.clabel(lines, fmt="%.2g", fontsize=7)
    axes.plot(0, 0, "+", color="#d9641e", ms=11, mew=2)
    axes.set_xlabel("along the first direction")
    axes.set_ylabel("along the second direction")


def _spectrum(axes: Axes, found: LossPlane, eigenvalues: np.ndarray) -> None:
    positive = np.maximum(eigenvalues, 1e-6)
    axes.plot(1 + np.arange(len(positive)), positive, "o", ms=4, label="the whole Hessian")
    values = torch.linalg.eigvalsh((found.curvature + found.curvature.T) / 2).flip(0).tolist()
    for i, value in enumerate(values):
        label = "on the plane" if i == 0 else None
        axes.axhline(max(value, 1e-6), color="C1", ls="--" if i else "-", label=label)
    axes.set_yscale("log")
    axes.set_ylim(1e-4, 1e4)
    axes.set_xlabel("eigenvalue, from the largest")
    axes.set_ylabel("curvature")
    axes.legend(loc="upper right")
