"""How far training leaves the regime in which a network is linear in its parameters."""

from functools import lru_cache
from typing import Annotated

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from vademecum.canvas import GREY, panels, plain_numbers
from vademecum.kernels import empirical_ntk, ntk_drift
from vademecum.kernels.pictures._runs import GRID, STEPS, Activation, Run, points, trained
from vademecum.pictures import Range, picture

__all__ = ["leaving_the_lazy_regime"]


@picture(
    claims=(
        "kernels.lazy_training_ratio",
        "kernels.ntk_constancy",
        "kernels.ntk_drift_rate",
        "kernels.linearised_network",
    )
)
def leaving_the_lazy_regime(
    width: Annotated[int, Range(4, 1024, 2, log=True, unit="units")] = 32,
    scale: Annotated[float, Range(0.25, 8.0, 2, log=True)] = 1.0,
    activation: Activation = "tanh",
) -> Figure:
    """How far training leaves the lazy regime.

    A network learns seven points. To the left, how far its parameters and its tangent kernel have
    moved since the start, and how far its outputs are from those of its linearisation, which keeps
    its kernel. A wide network moves little, and so does one whose outputs are multiplied by a large
    number: both train as though they were linear. Narrow the network or lower the scale: it learns
    features, its kernel turns, and to the right its function leaves that of the linear one.

    Knobs:
        width: How many hidden units there are.
        scale: What outputs, less those at the start, are multiplied by; step sizes are divided by
            its square.
        activation: What hidden units compute.
    """
    run, linear = trained(width, activation, scale, centred=True), _linear(width, activation, scale)
    figure, (left, right) = panels((8.4, 3.7), 1, 2, margins=(0.7, 0.15, 0.5, 0.3), gaps=(0.75, 0))
    drift = [ntk_drift(K, None, run.kernels[0]).relative for K in run.kernels[1:]]
    size = points()[1].square().mean().sqrt()
    apart = (run.curves - linear)[1:].square().mean(1).sqrt() / size
    left.plot(STEPS[1:], drift, "C0o-", ms=4, lw=1.2, label="tangent kernel")
    left.plot(STEPS[1:], run.moved[1:], "C1s-", ms=4, lw=1.2, label="parameters")
    left.plot(STEPS[1:], apart, "C2^-", ms=4, lw=1.2, label="outputs, from the linear network's")
    left.set(xscale="log", yscale="log", xlabel="steps", ylabel="relative distance")
    left.set(ylim=(1e-4, 10))
    left.set_xticks([1, 4, 16, 64, 256])
    plain_numbers(left.xaxis)
    left.legend(loc="upper left")
    _functions(right, run, linear)
    return figure


def _functions(axes: Axes, run: Run, linear: Tensor) -> None:
    x, y = points()
    grid = GRID[:, 0]
    axes.axhline(0, color=GREY, lw=1.2, ls=":", label="at the start")
    axes.plot(grid, run.curves[-1], "-", color="C0", lw=1.8, label="network")
    axes.plot(grid, linear[-1], "--", color="C1", lw=1.8, label="linear network")
    axes.plot(x[:, 0], y, "o", color="C2", ms=6, label="examples")
    axes.set(xlim=(-1.6, 1.6), ylim=(-3, 3), xlabel="x", ylabel="f(x) at the end")
    axes.legend(loc="lower right", ncols=2)


@lru_cache(64)
def _linear(width: int, activation: str, scale: float) -> Tensor:
    """The linearised network's function on the grid at `STEPS` of the same gradient descent."""
    x, y = points()
    run = trained(width, activation, scale, centred=True)
    K = empirical_ntk(run.start, torch.cat([x, GRID]), x, outputs="trace")
    f, found = torch.zeros(len(K)), []
    for step in range(STEPS[-1] + 1):
        if step in STEPS:
            found.append(f[len(x) :])
        f = f - run.eta * K @ (f[: len(x)] - y)
    return torch.stack(found)
