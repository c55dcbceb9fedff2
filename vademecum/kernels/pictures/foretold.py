"""What the tangent kernel at the start says of the training that follows."""

from functools import lru_cache, partial
from typing import Annotated

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from vademecum.canvas import GREY, panels, plain_numbers
from vademecum.kernels import empirical_ntk, ntk_predict
from vademecum.kernels.pictures._runs import GRID, STEPS, Activation, Run, points, trained
from vademecum.pictures import Range, picture

__all__ = ["training_foretold"]


@picture(
    claims=("kernels.ntk_predictor", "kernels.ntk_limit", "kernels.function_space_flow"),
    plays="steps",
)
def training_foretold(
    width: Annotated[int, Range(4, 1024, 2, log=True, unit="units")] = 64,
    steps: Annotated[int, Range(1, 256, 2, log=True)] = 256,
    activation: Activation = "tanh",
) -> Figure:
    """The tangent kernel foretells training.

    A network with one hidden layer learns seven points by gradient descent (solid). Its tangent
    kernel before the first step foretells all of training by a formula (dashed): the function at
    each step, to the left, and the loss, to the right. Play the steps, then widen the network: at
    1024 units both lines are one, and at 4 training soon goes its own way, since the kernel moves.

    Knobs:
        width: How many hidden units there are.
        steps: How many steps of gradient descent were made.
        activation: What the hidden units compute.
    """
    run, (curves, losses) = trained(width, activation), foretold(width, activation)
    figure, (left, right) = panels((8.4, 3.7), 1, 2, margins=(0.65, 0.15, 0.5, 0.3), gaps=(0.75, 0))
    i = STEPS.index(steps)
    _functions(left, run, curves[i], i)
    after = range(1, len(run.losses))
    right.plot(after, run.losses[1:], "-", color="C0", lw=1.6, label="network")
    right.plot(after, losses[1:], "--", color="C1", lw=1.6, label="foretold by its kernel")
    right.plot([steps], run.losses[steps], "o", color="C0", ms=6)
    right.plot([steps], losses[steps], "s", color="C1", ms=5)
    right.set(xscale="log", yscale="log", xlabel="steps", ylabel="loss")
    right.set(xlim=(0.9, 290), ylim=(0.02, 30))
    plain_numbers(right.xaxis)
    right.set_xticks([1, 4, 16, 64, 256])
    right.legend(loc="lower left")
    return figure


def _functions(axes: Axes, run: Run, curve: Tensor, i: int) -> None:
    x, y = points()
    grid = GRID[:, 0]
    axes.plot(grid, run.curves[0], ":", color=GREY, lw=1.2, label="at the start")
    axes.plot(grid, run.curves[i], "-", color="C0", lw=1.8, label="network")
    axes.plot(grid, curve, "--", color="C1", lw=1.8, label="foretold by its kernel")
    axes.plot(x[:, 0], y, "o", color="C2", ms=6, label="examples")
    axes.set(xlim=(-1.6, 1.6), ylim=(-3, 3), xlabel="x", ylabel="f(x)")
    axes.legend(loc="lower right", ncols=2)


@lru_cache(64)
def foretold(width: int, activation: str) -> tuple[Tensor, Tensor]:
    """The function on the grid at `STEPS`, and the loss after each step."""
    x, y = points()
    run = trained(width, activation)
    kernel = partial(empirical_ntk, run.start, outputs="trace")
    f0 = lambda z: run.start(z).detach()[:, 0]  # noqa: E731
    at = torch.cat([x, GRID])
    found = ntk_predict(kernel, x, y, at, t=run.eta * torch.arange(len(run.losses)), f0=f0).mean
    losses = (found[:, : len(x)] - y).square().sum(1) / 2
    return found[list(STEPS), len(x) :], losses
