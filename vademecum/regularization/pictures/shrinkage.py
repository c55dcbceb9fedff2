"""Weight decay and early stopping side by side on one quadratic."""

from typing import Annotated

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vademecum.canvas import GREY, panels
from vademecum.pictures import Range, picture
from vademecum.regularization.quadratic_shrinkage import (
    equivalent_stopping_time,
    gd_closed_form,
    spectral_shrinkage,
)

__all__ = ["decay_and_stopping"]

TILT = np.pi / 6  # of the steep direction, so that neither is an axis
DOTS = 40  # steps that are drawn one by one


@picture(
    claims=("regularization.spectral_shrinkage", "regularization.gd_closed_form",
            "regularization.early_stopping_l2", "regularization.norm_constraint"),
)  # fmt: skip
def decay_and_stopping(
    conditioning: Annotated[float, Range(1, 100, 10**0.25, log=True)] = 10.0,
    decay: Annotated[float, Range(0.00390625, 8, 2, log=True)] = 0.25,
    step: Annotated[float, Range(0.05, 1.8, 0.05)] = 0.2,
    angle: Annotated[float, Range(0.0, 90.0, 5.0)] = 50.0,
) -> Figure:
    """Weight decay and early stopping on one quadratic.

    Two ways from 0 to the minimum of a bowl: its minima with less and less weight decay, and the
    steps of gradient descent. Move the decay: the square slides along the one, and the dot, after
    1 over step size and decay, along the other. Both go along steep directions first, and stay near
    each other. To the right is what they leave of a direction, by its curvature: the same where
    that is small against the decay, and 0.63 against 0.5 where it equals it. With steps beyond 1
    descent overshoots in the steep direction, which no decay ever does.

    Knobs:
        conditioning: The largest curvature over the smallest; the largest is 1.
        decay: The weight decay.
        step: The step size of gradient descent.
        angle: Where the minimum lies, in degrees from the steep direction.
    """
    figure, (plane, shares) = panels((8, 3.9), 1, 2, margins=(0.6, 0.15, 0.5, 0.4), gaps=(0.7, 0))
    lam = torch.tensor([1.0, 1 / conditioning], dtype=torch.float64)
    Q = torch.tensor([[np.cos(TILT), -np.sin(TILT)], [np.sin(TILT), np.cos(TILT)]])
    H, direction = (Q * lam) @ Q.T, np.deg2rad(angle)
    H = (H + H.T) / 2
    minimum = Q @ torch.tensor([np.cos(direction), np.sin(direction)])
    t = max(1, round(equivalent_stopping_time(decay, eta=step)))
    draw_plane(plane, H, minimum, decay, step, t)
    draw_shares(shares, lam.numpy(), decay, step, t)
    figure.suptitle(f"decay {decay:.3g}, and {t} step{'s' * (t > 1)} of size {step:.3g}")
    return figure


def draw_plane(axes: Axes, H: torch.Tensor, end: torch.Tensor, mu: float, eta: float, t: int):
    """The two ways over the level lines."""
    side = np.linspace(-0.6, 1.35, 60)
    points = np.stack(np.meshgrid(side, side), -1) - end.numpy()
    height = np.sqrt(np.einsum("xyi,ij,xyj->xy", points, H.numpy(), points))
    axes.contour(side, side, height, levels=10, colors=GREY, linewidths=0.4)
    ways = [spectral_shrinkage(H, end, decay=m).theta for m in np.logspace(3, -5, 120).tolist()]
    axes.plot(*torch.stack(ways).numpy().T, "-", lw=1.6, color="C0", label="less and less decay")
    times = torch.cat([torch.arange(DOTS), torch.logspace(np.log10(DOTS), 5, 200).long()])
    path = gd_closed_form(H, end, times, eta=eta).numpy()
    axes.plot(*path.T, "--", lw=1, color="C1", marker=".", ms=4, markevery=range(DOTS),
              label="gradient descent")  # fmt: skip
    here = spectral_shrinkage(H, end, decay=mu).theta.numpy()
    there = gd_closed_form(H, end, t, eta=eta).numpy()
    axes.plot(*np.stack([here, there]).T, ":", lw=1, color=GREY)
    axes.plot(*here, "s", ms=8, color="C0")
    axes.plot(*there, "o", ms=8, color="C1")
    axes.plot(0, 0, "x", ms=8, color=GREY)
    axes.plot(*end.numpy(), "+", ms=12, color=GREY)
    axes.set(xlim=(side[0], side[-1]), ylim=(side[0], side[-1]))
    axes.set_aspect("equal")
    axes.legend(loc="lower right")


def draw_shares(axes: Axes, lam: np.ndarray, mu: float, eta: float, t: int) -> None:
    """What both leave of a direction over its curvature, and marks at the two curvatures."""
    grid = np.logspace(-4, 0, 200)
    decayed, stopped = grid / (grid + mu), 1 - (1 - eta * grid) ** t
    axes.semilogx(grid, decayed, "-", lw=1.6, color="C0", label="decay")
    axes.semilogx(grid, stopped, "--", lw=1.6, color="C1", label="early stopping")
    axes.semilogx(lam, lam / (lam + mu), "s", ms=7, color="C0")
    axes.semilogx(lam, 1 - (1 - eta * lam) ** t, "o", ms=7, color="C1")
    axes.axvline(mu, lw=0.8, ls=":", color=GREY)
    axes.set(xlim=(1e-4, 1.3), ylim=(-0.03, 1.9 if eta > 1 else 1.1))
    axes.set(xlabel="curvature of a direction (dotted: the decay)", ylabel="what is left of it")
    axes.legend(loc="upper left")
