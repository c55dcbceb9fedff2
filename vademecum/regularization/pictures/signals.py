"""Signals and gradients of a deep network, beside what theory predicts for its width and gain."""

from functools import lru_cache
from typing import Annotated, Literal

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

from vademecum.canvas import legend_beside, panels
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness
from vademecum.regularization import SignalPropagation, SignalRow, signal_propagation

__all__ = ["signals_by_depth"]

EXAMPLES = 8
ACTIVATIONS = {"ReLU": nn.ReLU, "tanh": nn.Tanh, "GELU": nn.GELU, "none": nn.Identity}


@picture(claims=("regularization.variance_matched_init", "regularization.he_init"))
def signals_by_depth(
    depth: Annotated[int, Range(4, 40, 4, unit="layers")] = 20,
    width: Annotated[int, Range(16, 512, 2, log=True, unit="units")] = 256,
    activation: Literal["ReLU", "tanh", "GELU", "none"] = "ReLU",
    gain: Annotated[float, Range(0.6, 2.4, 0.2)] = 1.4,
) -> Figure:
    """Signals and gradients by depth, predicted and measured.

    Weights have the standard deviation gain over the root of the width. With ReLU a gain of 1.4,
    the root of two, keeps signals and gradients at their size; less, and both vanish, more, and
    they explode, by a factor at each layer: straight lines here. Below, examples become alike as
    they go up, with tanh up to a gain of 1; beyond that they are torn apart, and gradients explode.
    In a narrow network marks stray from the lines of theory.

    Knobs:
        depth: How many layers there are.
        width: How many units each has.
        activation: What follows each layer.
        gain: The factor of the weights.
    """
    found = _measured(depth, width, activation, gain)
    figure, (above, below) = panels((6.8, 5.0), 2, margins=(1.0, 1.6, 0.5, 0.3), sharex=True)
    rows = [row for row in found.rows if row.kind == "Linear"]
    for i, name in enumerate(("signal", "gradient")):
        _draw(above, rows, i, name, 0)
        _draw(below, rows, i, name, 2)
    above.set_yscale("log")
    low, high = above.get_ylim()
    above.set_ylim(min(low, 0.05), max(high, 20))
    above.set_ylabel("second moment")
    below.set(xlabel="layer", ylabel="correlation of examples", ylim=(-0.15, 1.05))
    below.xaxis.get_major_locator().set_params(integer=True)
    legend_beside(above, fontsize=8)
    return figure


def _draw(axes: Axes, rows: list[SignalRow], i: int, name: str, column: int) -> None:
    place, nan = range(1, len(rows) + 1), float("nan")
    measured = [(row.backward if i else row.forward) for row in rows]
    guesses = [(row.predicted_backward if i else row.predicted) for row in rows]
    marks = [nan if m is None or m[column] is None else float(m[column] or 0) for m in measured]
    axes.plot(place, marks, f"C{i}{'os'[i]}", markersize=4, label=f"{name}, measured")
    line = [nan if g is None or g[column] is None else float(g[column] or 0) for g in guesses]
    axes.plot(place, line, f"C{i}{('-', '--')[i]}", linewidth=1.2, label=f"{name}, predicted")


@lru_cache(128)
def _measured(depth: int, width: int, activation: str, gain: float) -> SignalPropagation:
    with own_randomness(0):
        layers: list[nn.Module] = []
        for _ in range(depth):
            layer = nn.Linear(width, width, bias=False)
            nn.init.normal_(layer.weight, std=gain / width**0.5)
            layers += [layer, ACTIVATIONS[activation]()]
        model = nn.Sequential(*layers)
        common = torch.randn(width)
        x = (common + torch.randn(EXAMPLES, width)) / 2**0.5  # with correlation one half
        return signal_propagation(model, x)
