"""The loss between two trained networks, along three paths."""

from functools import cache
from typing import Annotated

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.canvas import GREY, panels
from vademecum.data import load
from vademecum.generalization.connections import ModeConnectivity, mode_connectivity
from vademecum.models import mlp
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness

__all__ = ["paths_between_minima"]

EXAMPLES, STEPS, POINTS = 200, 60, 21
STYLES = {"line": ("-", "o"), "aligned": ("--", "s"), "curve": (":", "^")}


@picture(claims=("generalization.mode_connectivity",), plays="width")
def paths_between_minima(
    width: Annotated[int, Range(4, 64, 2, log=True, unit="units")] = 32,
    updates: Annotated[int, Range(20, 100, 20)] = 60,
    pair: Annotated[int, Range(1, 3)] = 1,
) -> Figure:
    """Paths between two minima.

    Two networks with two hidden layers learned the same 200 digits from different first weights. On
    the segment between them the loss climbs. With the units of the second in the order of the first
    one's (squares) the barrier falls, and the more the wider the layers are: four units have no
    order that would help. A curve whose bend is trained (triangles) goes around.

    Knobs:
        width: How many units each hidden layer has.
        updates: How many steps the bend of the curve was trained for.
        pair: Which two networks.
    """
    runs = {path: _walked(width, pair, path, 0) for path in ("line", "aligned")}
    runs["curve"] = _walked(width, pair, "curve", updates)
    figure, axes = panels((8.4, 3.8), 1, 2, margins=(0.7, 0.2, 0.6, 0.5), gaps=(0.9, 0.6))
    for name, run in runs.items():
        _drawn(axes[0], run, name, run.losses, f"{name}, barrier {run.barrier:.2g}")
        _drawn(axes[1], run, name, 100 * run.errors, name)
    axes[0].set_ylabel("loss")
    axes[1].set_ylabel("wrong answers, in %")
    axes[0].set_ylim(0, 3)
    axes[1].set_ylim(0, 100)
    axes[0].axhline(torch.tensor(10.0).log().item(), color=GREY, lw=0.6)
    axes[0].text(0.02, 2.34, "guessing", color=GREY, fontsize=8)
    for each in axes:
        each.set_xlabel("from one network to the other")
    axes[0].legend(loc="upper right")
    return figure


def _drawn(axes: Axes, run: ModeConnectivity, name: str, values: Tensor, label: str) -> None:
    line, mark = STYLES[name]
    axes.plot(run.t.tolist(), values.tolist(), line, marker=mark, ms=3.5, label=label)


@cache
def _networks(width: int, pair: int) -> tuple[nn.Module, nn.Module, Tensor, Tensor]:
    """Two networks after some steps of Adam on all examples."""
    data = load("digits")
    x, y = data.x.flatten(1).float()[:EXAMPLES], data.y[:EXAMPLES]
    found = []
    for seed in (2 * pair, 2 * pair + 1):
        with own_randomness(seed):
            model = mlp([x.shape[1], width, width, 10]).float()
        steps = torch.optim.Adam(model.parameters(), 0.01)
        for _ in range(STEPS):
            steps.zero_grad()
            F.cross_entropy(model(x), y).backward()
            steps.step()
        found.append(model)
    return found[0], found[1], x, y


@cache
def _walked(width: int, pair: int, path: str, updates: int) -> ModeConnectivity:
    a, b, x, y = _networks(width, pair)
    source = torch.Generator().manual_seed(0)
    return mode_connectivity(
        a, b, x, y, path=path, points=POINTS, updates=max(updates, 1), eta=0.03, batch=64,
        generator=source,
    )  # fmt: skip
