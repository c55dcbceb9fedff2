"""Pictures of this room: the error on its way back, and what forward and reverse mode cost."""

from functools import lru_cache
from typing import Annotated, Literal

import torch
from matplotlib.figure import Figure
from torch import nn

from vademecum.canvas import GREY, legend_beside, panels, plain_numbers
from vademecum.gradients import Tape, backprop
from vademecum.models import mlp
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness

__all__ = ["forward_against_reverse", "signal_by_layer"]

WIDTH, SIZES, DEPTHS = 64, [1, 2, 4, 8, 16], [1, 2, 3, 4, 5, 6]
UNITS = {"tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "ReLU": nn.ReLU, "GELU": nn.GELU}
UNITS["linear"] = nn.Identity
VARIANCES = {"Glorot": 1, "He": 2, "torch": 1 / 3}
"""Of the weights at the start, times the number of inputs."""


@picture(claims=("gradients.error_recursion", "gradients.backprop"))
def signal_by_layer(
    depth: Annotated[int, Range(2, 50)] = 30,
    activation: Literal["tanh", "sigmoid", "ReLU", "GELU", "linear"] = "tanh",
    initialisation: Literal["torch", "Glorot", "He", "orthogonal"] = "torch",
    gain: Annotated[float, Range(0.5, 3.0, 0.05)] = 1.0,
) -> Figure:
    """The signal on its way forward and back.

    A network with 64 units in every layer, before any training, classifies random inputs.
    Activations travel to the right; the error, the derivative of the loss in them, starts at the
    last layer and travels to the left. The gradient of a layer's weights is made of both, so that
    either can spoil it: look for the gain with which nothing vanishes or explodes.

    Knobs:
        depth: How many layers there are.
        activation: What each layer applies to its sums.
        initialisation: How the weights are drawn: with variance 1/(3n), as torch does by default,
            1/n (Glorot) or 2/n (He) for n inputs, or as an orthogonal matrix.
        gain: What all weights are multiplied by.
    """
    with own_randomness():
        net = untrained(depth, activation, initialisation, gain)
        x = torch.randn(100, WIDTH, dtype=torch.float64)
    norms = backprop(net, x, torch.arange(100) % 10).norms
    at, errors = range(1, depth + 1), [n.error for n in norms[1::2]]
    figure, axes = panels((8, 3.6), margins=(0.75, 1.8, 0.5, 0.3))
    forward, weights = [n.activation for n in norms[1::2]], [n.gradient for n in norms[::2]]
    axes.plot(at, forward, "^:", ms=3, lw=1, color=GREY, label="activations →")
    axes.plot(at, errors, "o-", ms=4, color="C0", label="← error")
    axes.plot(at, weights, "x--", ms=4, lw=1, color="C1", label="gradient of the weights")
    axes.set(xlabel="layer", ylabel="norm, all examples", yscale="log")
    axes.minorticks_off()
    axes.locator_params("x", integer=True)
    ratio = errors[0] / errors[-1]
    title = f"At the first layer the error is {ratio:.3g} times what it was at the last:"
    axes.set_title(f"{title} {ratio ** (1 / (depth - 1)):.3f} a layer")
    legend_beside(axes)
    return figure


def untrained(depth: int, activation: str, initialisation: str, gain: float) -> nn.Sequential:
    """A network as it is before training."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        linear = nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.float64)
        if initialisation == "orthogonal":
            nn.init.orthogonal_(linear.weight, gain)
        else:
            nn.init.normal_(linear.weight, 0, gain * (VARIANCES[initialisation] / WIDTH) ** 0.5)
        layers += [linear, UNITS[activation]()]
    return nn.Sequential(*layers)


@picture(
    claims=("gradients.autodiff_cost", "gradients.reverse_memory", "gradients.multiplication_order")
)
def forward_against_reverse(
    inputs: Annotated[int, Range(1, 16, 2, log=True)] = 16,
    outputs: Annotated[int, Range(1, 16, 2, log=True)] = 4,
    hidden: Annotated[int, Range(1, 6)] = 3,
) -> Figure:
    """Forward against reverse.

    The Jacobian of a small tanh network, by this room's own engine, which counts. Forward mode
    takes a pass for each input, reverse mode one for each output: where the loss is the only
    output, a single pass gives the whole gradient. But it must keep what the layers computed until
    the error comes back to them.

    Knobs:
        inputs: How many numbers the network takes.
        outputs: How many numbers it gives.
        hidden: How many hidden layers of 16 units there are.
    """
    facts = [
        ("inputs", inputs, SIZES, [work(n, outputs, hidden) for n in SIZES]),
        ("outputs", outputs, SIZES, [work(inputs, m, hidden) for m in SIZES]),
        ("hidden layers", hidden, DEPTHS, [stored(inputs, outputs, k) for k in DEPTHS]),
    ]
    margins = (1.05, 0.1, 0.5, 0.4)
    figure, (first, second, last) = panels((8, 3.4), 1, 3, margins=margins, gaps=(0.9, 0))
    for axes, (name, here, at, found) in zip((first, second, last), facts, strict=True):
        forward, reverse = zip(*found, strict=True)
        axes.plot(at, forward, "s--", ms=4, label="forward mode")
        axes.plot(at, reverse, "o-", ms=4, label="reverse mode")
        axes.axvline(here, color=GREY, lw=0.8)
        axes.set(xlabel=name, xticks=at, ylim=(0, None))
        if at is SIZES:
            axes.set(xscale="log", yscale="log", xticks=at, ylim=(100, 1e6))
            plain_numbers(axes.xaxis)
            plain_numbers(axes.yaxis, "{x:,.0f}")
    first.set_ylabel("operations, whole Jacobian")
    last.set_ylabel("numbers stored, one pass")
    first.legend(loc="upper left")
    forward, reverse = work(inputs, outputs, hidden)
    title = f"Passes: {inputs} forward or {outputs} reverse. "
    title += f"Operations: {forward:,} forward or {reverse:,} reverse."
    figure.suptitle(title)
    return figure


@lru_cache(64)
def record(inputs: int, outputs: int, hidden: int) -> Tape:
    """The tape of a tanh network with 16 units in every hidden layer; its weights are constants."""
    with own_randomness():
        net = mlp([inputs, *[16] * hidden, outputs], nn.Tanh)
    return Tape(net.requires_grad_(False), torch.ones(inputs))


@lru_cache(1024)
def work(inputs: int, outputs: int, hidden: int) -> list[int]:
    """The scalar operations that the Jacobian takes, in forward and in reverse mode."""
    tape = record(inputs, outputs, hidden)
    return [tape.jacobian(mode=mode).cost.work for mode in ("forward", "reverse")]


@lru_cache(1024)
def stored(inputs: int, outputs: int, hidden: int) -> list[int]:
    """The most numbers held at once beside the weights, in a forward and in a reverse pass."""
    tape = record(inputs, outputs, hidden)
    return [tape.push().cost.numbers, tape.pull(torch.ones(outputs)).cost.numbers]
