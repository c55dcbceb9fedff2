# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""How a network learns what to change: derivatives, and what they cost.

*Backpropagation* carries the error from the loss back through the layers, each of which multiplies
it by its own derivative. Where these factors are mostly below one the error *vanishes* on its way,
where they are above one it *explodes*, and a good initialisation holds the balance. The same chain
rule can be evaluated from the inputs on or from the outputs back: *forward mode* pays for every
input, *reverse mode* for every output, and with memory.
"""

import marimo

app = marimo.App(width="full", app_title="gradients")

with app.setup:
    import math
    from functools import cache

    import marimo as mo
    import torch
    from matplotlib.figure import Figure
    from torch import nn

    from vademecum.atlas.pictures import as_image
    from vademecum.gradients import Tape, backprop
    from vademecum.models import mlp

    GREY = "#7d8289"
    WIDTH, SIZES = 64, [1, 2, 4, 8, 16, 32]
    UNITS = {"tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "ReLU": nn.ReLU, "GELU": nn.GELU}
    UNITS["none (linear)"] = nn.Identity
    STARTS = {
        "Glorot, variance 1/n": nn.init.xavier_normal_,
        "He, variance 2/n": nn.init.kaiming_normal_,
        "torch's default, variance 1/(3n)": lambda w, generator: nn.init.kaiming_uniform_(
            w, a=math.sqrt(5), generator=generator
        ),
        "orthogonal": nn.init.orthogonal_,
    }


@app.cell(hide_code=True)
def _():
    mo.md(
        "### The signal on its way forward and back\n"
        f"A network with {WIDTH} units in every layer, before any training, classifies random"
        " inputs. Activations travel to the right; the error, the derivative of the loss in them,"
        " starts at the last layer and travels to the left. The gradient of a layer's weights is"
        " made of both, so that either can spoil it."
    )
    return


@app.cell(hide_code=True)
def _():
    depth = mo.ui.slider(2, 50, 1, value=30, label="layers", show_value=True)
    unit = mo.ui.dropdown([*UNITS], value="tanh", label="activation")
    start = mo.ui.dropdown([*STARTS], value=[*STARTS][2], label="initialisation")
    gain = mo.ui.slider(0.5, 3, 0.05, value=1.0, label="weights times", show_value=True)
    mo.hstack([depth, unit, start, gain], wrap=True, justify="start")
    return depth, gain, start, unit


@app.function
def draw_signal(depth: int, unit: str, start: str, gain: float) -> Figure:
    """Norms by layer: activations forward, errors backward, and the gradients of the weights."""
    dice = torch.Generator().manual_seed(0)
    layers = []
    for _ in range(depth):
        linear = nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.float64)
        STARTS[start](linear.weight, generator=dice)
        linear.weight.data *= gain
        layers += [linear, UNITS[unit]()]
    x = torch.randn(100, WIDTH, generator=dice, dtype=torch.float64)
    norms = backprop(nn.Sequential(*layers), x, torch.arange(100) % 10).norms
    at, errors = range(1, depth + 1), [n.error for n in norms[1::2]]
    figure = Figure((8, 3.6), layout="constrained")
    axes = figure.subplots()
    forward, weights = [n.activation for n in norms[1::2]], [n.gradient for n in norms[::2]]
    axes.plot(at, forward, "^:", ms=3, lw=1, color=GREY, label="activations →")
    axes.plot(at, errors, "o-", ms=4, color="C0", label="← error")
    axes.plot(at, weights, "x--", ms=4, lw=1, color="C1", label="gradient of the weights")
    axes.set(xlabel="layer", ylabel="norm, all examples", yscale="log")
    axes.minorticks_off()
    ratio = errors[0] / errors[-1]
    title = f"At the first layer the error is {ratio:.2g} times what it was at the last:"
    axes.set_title(f"{title} {ratio ** (1 / (depth - 1)):.3f} a layer", fontsize=10)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
    return figure


@app.cell(hide_code=True)
def _show_signal(depth, gain, start, unit):
    _knobs = (depth.value, unit.value, start.value, gain.value)
    _said = f"The norm of activations, of the backward error and of the gradients in {depth.value}"
    _said += f" layers of {unit.value} units, on a logarithmic scale."
    mo.Html(as_image(lambda: draw_signal(*_knobs), _said))
    return


@app.cell(hide_code=True)
def _():
    mo.md(
        "### Forward against reverse\n"
        "The Jacobian of a small tanh network, by this room's own engine, which counts. Forward"
        " mode takes a pass for each input, reverse mode one for each output: where the loss is the"
        " only output, a single pass gives the whole gradient. But it must keep what the layers"
        " computed until the error comes back to them."
    )
    return


@app.cell(hide_code=True)
def _():
    inputs = mo.ui.slider(steps=SIZES, value=16, label="inputs", show_value=True)
    outputs = mo.ui.slider(steps=SIZES, value=4, label="outputs", show_value=True)
    hidden = mo.ui.slider(1, 6, 1, value=3, label="hidden layers", show_value=True)
    mo.hstack([inputs, outputs, hidden], wrap=True, justify="start")
    return hidden, inputs, outputs


@app.function
@cache
def record(inputs: int, outputs: int, hidden: int) -> Tape:
    """The tape of a tanh network with 16 units in every hidden layer; its weights are constants."""
    sizes = [inputs, *[16] * hidden, outputs]
    return Tape(mlp(sizes, nn.Tanh).requires_grad_(False), torch.ones(inputs))


@app.function
@cache
def work(inputs: int, outputs: int, hidden: int) -> list[int]:
    """The scalar operations that the Jacobian takes, in forward and in reverse mode."""
    tape = record(inputs, outputs, hidden)
    return [tape.jacobian(mode=mode).cost.work for mode in ("forward", "reverse")]


@app.function
def stored(inputs: int, outputs: int, hidden: int) -> list[int]:
    """The most numbers held at once beside the weights, in a forward and in a reverse pass."""
    tape = record(inputs, outputs, hidden)
    return [tape.push().cost.numbers, tape.pull(torch.ones(outputs)).cost.numbers]


@app.function
def draw_costs(inputs: int, outputs: int, hidden: int) -> Figure:
    """Both modes against the numbers of inputs and outputs, and their memory against the depth."""
    figure = Figure((8, 3.4), layout="constrained")
    depths = list(range(1, 7))
    panels = [
        ("inputs", inputs, SIZES, [work(n, outputs, hidden) for n in SIZES]),
        ("outputs", outputs, SIZES, [work(inputs, m, hidden) for m in SIZES]),
        ("hidden layers", hidden, depths, [stored(inputs, outputs, k) for k in depths]),
    ]
    for axes, (name, here, at, found) in zip(figure.subplots(1, 3), panels, strict=True):
        forward, reverse = zip(*found, strict=True)
        axes.plot(at, forward, "s--", ms=4, label="forward mode")
        axes.plot(at, reverse, "o-", ms=4, label="reverse mode")
        axes.axvline(here, color=GREY, lw=0.8)
        axes.set(xlabel=name, xticks=at, ylim=(0, None))
        if at is SIZES:
            axes.set(xscale="log", yscale="log", xticks=at, ylim=(100, 1e6))
            axes.minorticks_off()
            axes.xaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_major_formatter("{x:,.0f}")
    first, _, last = figure.axes
    first.set_ylabel("scalar operations, whole Jacobian")
    last.set_ylabel("numbers stored, one pass")
    first.legend(loc="upper left", fontsize=8)
    forward, reverse = work(inputs, outputs, hidden)
    title = f"Passes: {inputs} forward or {outputs} reverse. "
    title += f"Operations: {forward:,} forward or {reverse:,} reverse."
    figure.suptitle(title, fontsize=10)
    return figure


@app.cell(hide_code=True)
def _show_costs(hidden, inputs, outputs):
    _knobs = (inputs.value, outputs.value, hidden.value)
    _said = "Operations for a Jacobian: forward mode grows with the inputs, reverse mode with the"
    _said += " outputs. What reverse mode stores grows with the hidden layers."
    mo.Html(as_image(lambda: draw_costs(*_knobs), _said))
    return


if __name__ == "__main__":
    app.run()
