"""Pictures of this room: a perceptron at work, and what a Hopfield network remembers."""

from functools import cache, lru_cache
from typing import Annotated, Literal

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import interpolate

from vademecum.canvas import GREY, legend_beside, panels, plain_numbers
from vademecum.connectionism import (
    HopfieldNetwork,
    PerceptronPath,
    capacity_curve,
    draw_capacity,
    overlap,
    perceptron_path,
)
from vademecum.data import Separable, load, separable
from vademecum.pictures import Range, picture

__all__ = ["completed_digit", "memory_collapses", "perceptron_learns"]

SIDE = 24


@picture(
    claims=("connectionism.novikov_bound", "connectionism.perceptron_update"), plays="progress"
)
def perceptron_learns(
    margin: Annotated[float, Range(0.02, 0.5, 0.02)] = 0.06,
    dimension: Annotated[int, Range(2, 40, 2)] = 20,
    progress: Annotated[int, Range(0, 100, 5, unit="%")] = 50,
) -> Figure:
    """A perceptron learns.

    It goes through 200 points again and again and corrects one mistake at a time. Halve the margin
    between the classes, and Novikov's bound on the mistakes quadruples. The points are seen in the
    plane of the planted direction (horizontal) and the learned one.

    Knobs:
        margin: How far from the planted boundary the points are at least, in the unit ball.
        dimension: The dimension of the points.
        progress: How much of the learning is done.
    """
    points, path = learn(margin, dimension)
    updates = len(path.examples)
    done = round(updates * progress / 100)
    margins = (0.1, 0.2, 0.5, 0.3)
    figure, (left, right) = panels((8, 3.4), 1, 2, margins=margins, gaps=(1.7, 0))
    draw_boundary(left, points, path.weights[done], path.weights[-1])
    left.set_title(f"after {done} of {updates} corrections")
    bound = points.x.norm(dim=1).max().item() ** 2 / margin**2
    right.plot(range(updates + 1), range(updates + 1), drawstyle="steps-post", label="mistakes")
    right.plot(done, done, "o", color="C1", label="now")
    right.axhline(bound, ls="--", color="C2", label=f"Novikov's bound {bound:.0f}")
    right.set(xlabel="corrections", ylabel="mistakes", yscale="symlog", ylim=(0, 4 * bound))
    right.set_xlim(-0.3, 1.05 * max(updates, 8))
    plain_numbers(right.yaxis)
    right.locator_params("x", integer=True)
    right.legend(loc="lower right")
    return figure


@lru_cache(64)
def learn(margin: float, dimension: int) -> tuple[Separable, PerceptronPath]:
    """Two hundred points with this margin, and every update of the rule on them."""
    dice = torch.Generator().manual_seed(3)
    points = separable(200, dimension, margin=margin, generator=dice, dtype=torch.float64)
    return points, perceptron_path(points.x, points.y)


def draw_boundary(axes: Axes, points: Separable, w: Tensor, last: Tensor) -> None:
    """The plane of the planted direction and w, or the last weights as long as w is zero."""
    along = w @ points.w
    rest = w - along * points.w
    seen = rest if w.any() else last - (last @ points.w) * points.w
    up = torch.nn.functional.normalize(seen, dim=0)
    for label, mark, name in ((1, "o", "class +1"), (-1, "s", "class −1")):
        chosen = points.x[points.y == label]
        axes.plot(chosen @ points.w, chosen @ up, mark, ms=3, label=name)
    if w.any():
        end = 1.2 * torch.stack([-rest.norm(), along]) / w.norm()
        axes.plot(*torch.stack([-end, end]).T, "-", color=GREY, label="boundary")
    axes.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", xticks=[], yticks=[])
    legend_beside(axes)


@picture(claims=("connectionism.hopfield_network", "connectionism.hopfield_energy"))
def completed_digit(
    stored: Annotated[int, Range(2, 200, 2)] = 10,
    flipped: Annotated[int, Range(0, 50, 2, unit="%")] = 26,
    rule: Literal["pseudo-inverse", "hebbian"] = "pseudo-inverse",
) -> Figure:
    """A Hopfield network completes a digit.

    The units answer one after the other, and the energy falls until nothing changes. Store more
    digits or flip more of the pixels, and watch it fail; Hebb's rule, which takes digits for random
    patterns, fails with a handful.

    Knobs:
        stored: How many digits of 576 pixels the network remembers.
        flipped: How many of the pixels are flipped at the start.
        rule: How the couplings are made from the digits.
    """
    net, digit = memory(stored, rule), digits()[1]
    dice = torch.Generator().manual_seed(0)
    start = torch.where(torch.rand(net.n, generator=dice) < flipped / 100, -digit, digit)
    path = [start, *partial_sweep(net, start, dice)]
    path.append(net.retrieve(path[-1], generator=dice).states)
    titles = ("start", "25 % answered", "50 % answered", "75 % answered", "at rest")
    figure, places = panels((8, 2.2), 1, 5, margins=(0.05, 0.05, 0.45, 0.25), gaps=(0.1, 0))
    for axes, x, title in zip(places, path, titles, strict=True):
        axes.imshow(x.view(SIDE, SIDE).numpy(), cmap="gray_r", vmin=-1, vmax=1)
        energy, alike = float(net.energy(x)), float(overlap(x, digit))
        words = f"energy {round(energy)}\noverlap {alike:.2f}".replace("-", "−")
        axes.set(xticks=[], yticks=[], xlabel=words)
        axes.spines[:].set_visible(True)
        axes.set_title(title, fontsize=9)
    return figure


@cache
def digits() -> Tensor:
    """Two hundred written digits, enlarged, in black (+1) and white (-1)."""
    large = interpolate(load("digits").x[:200], size=(SIDE, SIDE), mode="bicubic")
    return torch.where(large.flatten(1) > 0.5, 1.0, -1.0)


@lru_cache(32)
def memory(stored: int, rule: str) -> HopfieldNetwork:
    """A network that has stored so many digits."""
    return HopfieldNetwork(digits()[:stored], rule=rule)


def partial_sweep(net: HopfieldNetwork, x: Tensor, dice: torch.Generator) -> list[Tensor]:
    """The states after a quarter, a half and three quarters of the units have answered."""
    w, states, x = net.weights, [], x.clone()
    for count, i in enumerate(torch.randperm(net.n, generator=dice)[: 3 * net.n // 4].tolist(), 1):
        field = w[i] @ x
        x[i] = x[i] if field == 0 else field.sign()
        if count % (net.n // 4) == 0:
            states.append(x.clone())
    return states


@picture(claims=("connectionism.hopfield_capacity", "connectionism.hopfield_overlap"))
def memory_collapses(
    units: Annotated[int, Range(50, 400, 50)] = 200,
    flipped: Annotated[int, Range(0, 40, 5, unit="%")] = 0,
) -> Figure:
    """How much a Hopfield network can remember.

    With random patterns and Hebb's rule, memory collapses near 0.138 patterns a unit: the more
    units, the more sharply. Started further from a pattern, it finds back only below a smaller
    load.

    Knobs:
        units: How many units the network has.
        flipped: How many bits of a pattern are flipped at the start.
    """
    loads = (0.04, 0.08, 0.12, 0.16, 0.2, 0.24)
    dice = torch.Generator().manual_seed(0)
    options = {"trials": 3, "probes": 10, "generator": dice}
    curve = capacity_curve(units, loads, noise=flipped / 100, **options)
    figure, axes = panels((8, 3.2), margins=(0.7, 1.6, 0.5, 0.3))
    draw_capacity(curve, axes)
    legend_beside(axes)
    return figure
