# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""What networks can represent, and how many units it takes.

A ReLU network is *piecewise linear*: it divides space into convex cells, on each of which it is one
affine map, and training moves the walls between them to where the data need them. With every layer
there can be many times more cells, which is what depth buys. *Barron's theorem* says what width
buys: with units that are chosen for the function, the error falls like one over the square root of
their number, in any dimension.
"""

import marimo

app = marimo.App(width="full", app_title="approximation")

with app.setup:
    from copy import deepcopy
    from functools import cache

    import marimo as mo
    import torch
    from matplotlib.figure import Figure
    from torch import nn

    from vademecum.approximation import (
        barron_constant,
        barron_fit,
        draw_regions,
        input_plane,
        linear_regions,
        random_feature_fit,
        region_upper_bound,
    )
    from vademecum.atlas.pictures import as_image
    from vademecum.data import moons, spirals
    from vademecum.foundations import Ball
    from vademecum.models import mlp

    GREY = "#7d8289"
    STEPS = [3 * k * k for k in range(8)]
    SQUARE = input_plane(low=(-1.2, -1.2), high=(1.2, 1.2))


@app.cell(hide_code=True)
def _():
    mo.md(
        "### The linear regions of a network while it learns\n"
        "On every polygon the network is one affine map; they are found exactly, not by sampling."
        " The colour is the class that the network tells. The boundary between the classes is"
        " straight within a polygon, and bends only at walls."
    )
    return


@app.cell(hide_code=True)
def _():
    data = mo.ui.dropdown(["spirals", "moons"], value="spirals", label="data")
    depth = mo.ui.slider(1, 4, 1, value=2, label="hidden layers", show_value=True)
    width = mo.ui.slider(2, 12, 1, value=10, label="ReLUs in each", show_value=True)
    step = mo.ui.slider(steps=STEPS, value=STEPS[-1], label="training step", show_value=True)
    mo.hstack([data, depth, width, step], wrap=True, justify="start")
    return data, depth, step, width


@app.function
@cache
def points(data: str):
    """Two classes of points in the square from -1 to 1."""
    dice = torch.Generator().manual_seed(0)
    if data == "spirals":
        return spirals(160, noise=0.02, turns=0.9, generator=dice)
    x, y = moons(160, noise=0.1, generator=dice)
    return (x - torch.tensor([0.5, 0.25])) / 1.6, y


@app.function
@cache
def training(data: str, depth: int, width: int):
    """The network and the number of its regions now and then while Adam trains it; all losses."""
    x, y = points(data)
    dice = torch.Generator().manual_seed(depth)
    net = mlp([2, *[width] * depth, 1])
    for layer in (m for m in net if isinstance(m, nn.Linear)):
        nn.init.kaiming_normal_(layer.weight, generator=dice)
        nn.init.uniform_(layer.bias, -0.5, 0.5, generator=dice)
    adam = torch.optim.Adam(net.parameters(), lr=0.03, foreach=False)
    nets, counts, losses = {}, [], []
    for step in range(STEPS[-1] + 1):
        if step in STEPS:
            nets[step] = deepcopy(net)
            counts.append(len(linear_regions(net, SQUARE).maps))
        loss = nn.functional.binary_cross_entropy_with_logits(net(x)[:, 0], y.to(x))
        losses.append(loss.item())
        adam.zero_grad()
        loss.backward()
        adam.step()
    return nets, counts, losses


@app.function
def draw_training(data: str, depth: int, width: int, step: int) -> Figure:
    """The tessellation under the data, and beside it the number of regions and the loss by step."""
    nets, counts, losses = training(data, depth, width)
    signed = nn.Sequential(nets[step], nn.LeakyReLU(0.5))  # has a wall where the classes meet
    figure = Figure((8, 4.4), layout="constrained")
    plane, top, bottom = figure.subplot_mosaic("AB;AC", width_ratios=(5, 3)).values()
    x, y = points(data)
    draw_regions(linear_regions(signed, SQUARE), plane, points=x, labels=y)
    plane.set_axis_off()
    title = f"{counts[STEPS.index(step)]} linear regions in this square\n"
    title += f"(no network of this shape has more than {region_upper_bound(2, [width] * depth):,})"
    plane.set_title(title, fontsize=9)
    top.plot(STEPS, counts, "o-", ms=4)
    top.set(ylabel="regions", ylim=(0, None))
    bottom.plot(losses, color="C1")
    bottom.set(xlabel="training step", ylabel="loss", ylim=(0, None))
    for axes in (top, bottom):
        axes.axvline(step, color=GREY, lw=0.8)
    return figure


@app.cell(hide_code=True)
def _show_training(data, depth, step, width):
    _knobs = (data.value, depth.value, width.value, step.value)
    _said = f"The linear regions of a ReLU network with {depth.value} hidden layers of"
    _said += f" {width.value} units after {step.value} training steps, under the {data.value}."
    mo.Html(as_image(lambda: draw_training(*_knobs), _said))
    return


@app.cell(hide_code=True)
def _():
    mo.md(
        "### Barron's rate\n"
        "Step units are added one at a time, each turned to what the others left over, to fit waves"
        " at 400 points of the unit ball. Barron's constant C is the waves' frequency in any"
        " dimension, so that the promised error 2C/√m does not depend on it; the fit does far"
        " better. Units with random directions suffer from every dimension."
    )
    return


@app.cell(hide_code=True)
def _():
    dimension = mo.ui.slider(1, 20, 1, value=6, label="dimension", show_value=True)
    frequency = mo.ui.slider(1, 16, 1, value=8, label="frequency", show_value=True)
    waves = mo.ui.slider(1, 4, 1, value=1, label="waves", show_value=True)
    mo.hstack([dimension, frequency, waves], wrap=True, justify="start")
    return dimension, frequency, waves


@app.function
def draw_rates(dimension: int, frequency: float, waves: int) -> Figure:
    """The error against the number of units: greedy, random, and the bound."""
    dice = torch.Generator().manual_seed(0)
    x = Ball(torch.zeros(dimension), 1.0).sample(400, generator=dice)
    omega = torch.randn(waves, dimension, generator=dice)
    omega = frequency * nn.functional.normalize(omega)
    y = (x @ omega.T + torch.arange(waves)).cos().mean(1)
    constant = barron_constant(torch.full((waves,), 1 / waves), omega)
    errors = barron_fit(x, y, 64, candidates=16, refinements=3, generator=dice).errors.sqrt()
    m = torch.arange(1, len(errors) + 1)
    some = 2 ** torch.arange(7)
    blind = []
    options = {"activation": nn.Sigmoid(), "scale": 1e4, "generator": dice}  # steep as a step
    for k in some.tolist() * 3:
        net = random_feature_fit(x, y, k, **options)
        blind.append((net(x)[:, 0] - y).square().mean().item())
    random = torch.tensor(blind).view(3, -1).mean(0).sqrt()
    figure = Figure((8, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(m, 2 * constant / m.sqrt(), "--", color=GREY, label="Barron's bound, 2C/√m")
    axes.plot(m, errors[0] / m.sqrt(), ":", color=GREY, label="1/√m from the first unit on")
    axes.plot(some, random, "s-", ms=4, color="C1", label="random units")
    axes.plot(m, errors, "o-", ms=3, color="C0", label="units chosen greedily")
    axes.set(xlabel="number of units m", ylabel="root mean squared error", xscale="log")
    axes.set(yscale="log", xticks=some.tolist(), ylim=(1e-3, 40))
    axes.minorticks_off()
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
    return figure


@app.cell(hide_code=True)
def _show_rates(dimension, frequency, waves):
    _knobs = (dimension.value, frequency.value, waves.value)
    _said = f"The error of networks of step units in dimension {dimension.value} against their"
    _said += " number: random units, units chosen greedily, and Barron's bound above both."
    mo.Html(as_image(lambda: draw_rates(*_knobs), _said))
    return


if __name__ == "__main__":
    app.run()
