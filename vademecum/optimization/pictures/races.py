"""Gradient descent, the heavy ball and Nesterov's method side by side on a quadratic."""

import math
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

from vademecum.canvas import GREY, panels
from vademecum.optimization.momentum import HeavyBall, Nesterov
from vademecum.pictures import Range, picture

__all__ = ["race"]

START = (1.0, 1.0)
STYLES = {"descent": ("C0", "-"), "heavy ball": ("C1", "--"), "Nesterov": ("C2", "-.")}
LEAST = 1e-14
SHOWN = 80  # steps in the plane: what follows lies upon each other


class Run(NamedTuple):
    """The iterates of a method, what was tuned for it, and the theorem's bound of the gaps."""

    path: np.ndarray
    momentum: float
    bound: np.ndarray | None


@picture(
    claims=("optimization.heavy_ball", "optimization.heavy_ball_rate", "optimization.nesterov",
            "optimization.nesterov_strongly_convex", "optimization.stable_step"),
)  # fmt: skip
def race(
    conditioning: Annotated[float, Range(1, 1000, 10**0.25, log=True)] = 100.0,
    step: Annotated[float, Range(0.1, 2.5, 0.1)] = 0.7,
    iterations: Annotated[int, Range(25, 400, 2, log=True)] = 100,
    momentum: Literal["tuned", "0.9"] = "tuned",
) -> Figure:
    """Three methods race on a quadratic.

    Level lines of a bowl, from which three methods descend. Make it ill-conditioned: plain descent
    waits for the flat direction, and momentum shortens the wait to its square root. Lengthen the
    step: beyond 2 over the curvature plain descent climbs, while the heavy ball still holds. The
    thin lines are what theorems promise, where they apply: never below a run.

    Knobs:
        conditioning: The largest curvature over the smallest.
        step: The step size times the largest curvature.
        iterations: How many steps are made.
        momentum: The momentum that suits conditioning and step, or 0.9.
    """
    figure, (plane, gaps) = panels((8, 3.8), 1, 2, margins=(0.8, 0.15, 0.5, 0.4), gaps=(0.8, 0))
    curvatures = np.array([1.0, 1 / conditioning])
    fixed = 0.9 if momentum == "0.9" else None
    runs = {name: run(name, curvatures, step, iterations, fixed) for name in STYLES}
    draw_plane(plane, runs, curvatures)
    draw_gaps(gaps, runs, curvatures)
    ends = {name: gap(runs[name].path[-1], curvatures) for name in STYLES}
    told = ", ".join(f"{name} {value:.1g}" for name, value in ends.items())
    figure.suptitle(f"gap after {iterations} steps of {step:.3g} / L: {told}")
    return figure


def run(
    name: str, curvatures: np.ndarray, step: float, iterations: int, fixed: float | None
) -> Run:
    """A method at work, with the momentum that suits it."""
    mu, steps = step * curvatures.min(), np.arange(iterations + 1)
    square, size = float(np.square(START).sum()), gap(np.array(START), curvatures)
    x = nn.Parameter(torch.tensor(START, dtype=torch.float64))
    if name == "Nesterov":
        root = min(math.sqrt(mu), 1.0)
        beta = fixed if fixed is not None else (1 - root) / (1 + root)
        optimizer: HeavyBall | Nesterov = Nesterov([x], lr=step, momentum=beta)
        promised = (1 - root) ** steps * (size + curvatures.min() / 2 * square)
        holds = step <= 1 and fixed is None
    elif name == "heavy ball":
        worst = max((1 - math.sqrt(mu)) ** 2, (1 - math.sqrt(step)) ** 2)
        beta = fixed if fixed is not None else worst
        optimizer = HeavyBall([x], lr=step, momentum=beta)
        r = math.sqrt(beta)
        promised = size * (r**steps * (1 + steps * (1 + r))) ** 2
        holds = worst <= beta
    else:
        beta, factor = 0.0, max(abs(1 - mu), abs(1 - step))
        optimizer = HeavyBall([x], lr=step, momentum=0.0)
        promised, holds = size * factor ** (2 * steps), factor <= 1
    path = [x.detach().numpy().copy()]
    for _ in range(iterations):
        x.grad = torch.from_numpy(curvatures) * x.detach()
        optimizer.step()
        if isinstance(optimizer, Nesterov):
            with optimizer.iterates():
                path.append(x.detach().numpy().copy())
        else:
            path.append(x.detach().numpy().copy())
        if abs(path[-1]).max() > 1e6:  # it is lost
            break
    return Run(np.array(path), beta, promised if holds else None)


def gap(x: np.ndarray, curvatures: np.ndarray) -> float:
    """The value above the minimum, which is 0."""
    return float((curvatures * x**2).sum() / 2)


def draw_plane(axes: Axes, runs: dict[str, Run], curvatures: np.ndarray) -> None:
    """The paths over the level lines."""
    reach = 1.3
    side = np.linspace(-reach, reach, 50)
    height = np.sqrt(curvatures[0] * side**2 + curvatures[1] * side[:, None] ** 2)
    axes.contour(side, side, height, levels=8, colors=GREY, linewidths=0.4)
    for name, (color, line) in STYLES.items():
        path = runs[name].path[:SHOWN]
        lost = np.flatnonzero(abs(path).max(1) > 2 * reach)
        path = path[: lost[0] + 1] if len(lost) else path
        axes.plot(*path.T, line, lw=1, marker=".", ms=4, color=color, alpha=0.8)
    axes.plot(0, 0, "+", ms=10, color=GREY)
    axes.set(xlim=(-reach, reach), ylim=(-0.5, reach), xlabel="steep", ylabel="flat")


def draw_gaps(axes: Axes, runs: dict[str, Run], curvatures: np.ndarray) -> None:
    """The gaps over the steps, and thin the bounds."""
    for name, (color, line) in STYLES.items():
        found = runs[name]
        gaps = [max(gap(x, curvatures), LEAST) for x in found.path]
        words = f"{name}, momentum {found.momentum:.2g}" if found.momentum else name
        axes.semilogy(gaps, line, lw=1.6, color=color, label=words)
        if found.bound is not None:
            axes.semilogy(np.maximum(found.bound, LEAST), line, lw=0.6, color=color)
    axes.plot([], [], "-", lw=0.6, color=GREY, label="bounds")
    axes.set(ylim=(LEAST, 1e4), xlabel="steps", ylabel="gap")
    axes.legend(loc="lower left")
