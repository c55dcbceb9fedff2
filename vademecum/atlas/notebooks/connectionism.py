# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Networks began with units that say yes or no.

A *perceptron* learns to separate two classes by correcting one mistake at a time, and Novikov's
theorem bounds how many it can make: the wider the gap between the classes, the fewer. *Cover*
counted which labellings a single unit can realise at all. *Willshaw* and *Hopfield* networks
remember: shown a damaged pattern, they fall back to the one they stored, as long as they were not
asked to store too many.
"""

import marimo

app = marimo.App(width="full", app_title="connectionism")

with app.setup:
    import marimo as mo
    import torch
    from matplotlib.figure import Figure
    from torch.nn.functional import interpolate

    from vademecum.atlas.pictures import as_image
    from vademecum.connectionism import (
        HopfieldNetwork,
        capacity_curve,
        draw_capacity,
        overlap,
        perceptron_path,
    )
    from vademecum.data import load, separable

    SIDE = 24


@app.cell(hide_code=True)
def _():
    mo.md(
        "### A perceptron learns\n"
        "Drag the margin between the classes: halve it, and the bound on the mistakes quadruples."
        " The points are seen in the plane of the planted direction (horizontal) and the learned"
        " one."
    )
    return


@app.cell(hide_code=True)
def _():
    margin = mo.ui.slider(0.02, 0.5, 0.02, value=0.06, label="margin γ", show_value=True)
    dimension = mo.ui.slider(2, 40, 2, value=20, label="dimension", show_value=True)
    progress = mo.ui.slider(0, 100, 5, value=50, label="learning done, %", show_value=True)
    mo.hstack([margin, dimension, progress], wrap=True, justify="start")
    return dimension, margin, progress


@app.function
def learn(margin: float, dimension: int):
    """Two hundred points with this margin, and every update of the rule on them."""
    dice = torch.Generator().manual_seed(3)
    points = separable(200, dimension, margin=margin, generator=dice, dtype=torch.float64)
    return points, perceptron_path(points.x, points.y)


@app.function
def draw_perceptron(margin: float, dimension: int, progress: int) -> Figure:
    """The boundary after some of the corrections, and their number against Novikov's bound."""
    points, path = learn(margin, dimension)
    updates = len(path.examples)
    done = round(updates * progress / 100)
    figure = Figure((8, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_boundary(left, points, path.weights[done])
    left.set_title(f"after {done} of {updates} corrections", fontsize=10)
    bound = points.x.norm(dim=1).max().item() ** 2 / margin**2
    right.plot(range(updates + 1), range(updates + 1), drawstyle="steps-post", label="mistakes")
    right.plot(done, done, "o", color="C1", label="now")
    right.axhline(bound, ls="--", color="C2", label=f"Novikov's bound {bound:.0f}")
    right.set(xlabel="corrections", ylabel="mistakes", yscale="symlog", ylim=(0, 4 * bound))
    right.legend(loc="lower right", frameon=False, fontsize=8)
    return figure


@app.function
def draw_boundary(axes, points, w: torch.Tensor) -> None:
    """The plane of the planted direction and of what else there is in w, where w is all of it."""
    along = w @ points.w
    rest = w - along * points.w
    up = rest / rest.norm() if rest.norm() > 1e-12 else torch.zeros_like(rest)
    for label, mark in ((1, "o"), (-1, "s")):
        chosen = points.x[points.y == label]
        axes.plot(chosen @ points.w, chosen @ up, mark, ms=3, label=f"class {label:+d}")
    if w.norm() > 0:
        end = 1.2 * torch.stack([-rest.norm(), along]) / w.norm()
        axes.plot(*torch.stack([-end, end]).T, "-", color="#7d8289", label="boundary")
    axes.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", xticks=[], yticks=[])
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)


@app.cell(hide_code=True)
def _show_perceptron(dimension, margin, progress):
    knobs = (margin.value, dimension.value, progress.value)
    said = "Two classes of points, the learned boundary, and the mistakes below Novikov's bound"
    mo.Html(as_image(lambda: draw_perceptron(*knobs), f"{said}, at a margin of {margin.value}."))
    return


@app.cell(hide_code=True)
def _():
    mo.md(
        "### A Hopfield network completes a digit\n"
        "Store more digits, flip more of the pixels, and watch it fail."
    )
    return


@app.cell(hide_code=True)
def _():
    stored = mo.ui.slider(2, 200, 2, value=10, label="digits stored", show_value=True)
    flipped = mo.ui.slider(0, 50, 2, value=26, label="pixels flipped, %", show_value=True)
    rule = mo.ui.dropdown(["pseudo-inverse", "hebbian"], value="pseudo-inverse", label="rule")
    mo.hstack([stored, flipped, rule], wrap=True, justify="start")
    return flipped, rule, stored


@app.function
def digits(count: int) -> torch.Tensor:
    """So many written digits, enlarged, in black (+1) and white (-1)."""
    large = interpolate(load("digits").x[:count], size=(SIDE, SIDE), mode="bicubic")
    return torch.where(large.flatten(1) > 0.5, 1.0, -1.0)


@app.function
def draw_completion(stored: int, flipped: int, rule: str) -> Figure:
    """A corrupted digit, sweep by sweep, with its energy."""
    patterns = digits(stored)
    net = HopfieldNetwork(patterns, rule=rule)
    dice = torch.Generator().manual_seed(0)
    flips = torch.rand(net.n, generator=dice) < flipped / 100
    start = torch.where(flips, -patterns[1], patterns[1])
    path = [start, *partial_sweep(net, start, dice)]
    end = net.retrieve(path[-1], generator=dice)
    path.append(end.states)
    figure = Figure((8, 2.3), layout="constrained")
    for k, (axes, x) in enumerate(zip(figure.subplots(1, 5), path, strict=True)):
        axes.imshow(x.view(SIDE, SIDE).numpy(), cmap="gray_r", vmin=-1, vmax=1)
        axes.set(xticks=[], yticks=[])
        axes.set_xlabel(
            f"energy {float(net.energy(x)):.0f}\noverlap {float(overlap(x, patterns[1])):.2f}"
        )
        axes.set_title(
            "start" if k == 0 else "at rest" if k == 4 else f"{25 * k} % answered", fontsize=9
        )
    return figure


@app.function
def partial_sweep(
    net: HopfieldNetwork, x: torch.Tensor, dice: torch.Generator
) -> list[torch.Tensor]:
    """The states after a quarter, a half and three quarters of the units have answered."""
    states, x = [], x.clone()
    for count, i in enumerate(torch.randperm(net.n, generator=dice)[: 3 * net.n // 4].tolist(), 1):
        field = net.fields(x)[i]
        x[i] = x[i] if field == 0 else field.sign()
        if count % (net.n // 4) == 0:
            states.append(x.clone())
    return states


@app.cell(hide_code=True)
def _show_completion(flipped, rule, stored):
    choice = (stored.value, flipped.value, rule.value)
    seen = f"A digit with {flipped.value} % of its pixels flipped falls towards one of"
    said_so = f"{seen} {stored.value} stored ones, its energy falling at each step."
    mo.Html(as_image(lambda: draw_completion(*choice), said_so))
    return


@app.cell(hide_code=True)
def _():
    mo.md(
        "### How much it can remember\n"
        "With random patterns and Hebb's rule, memory collapses near 0.138 patterns a unit:"
        " the more units, the more sharply."
    )
    return


@app.cell(hide_code=True)
def _():
    units = mo.ui.slider(50, 500, 50, value=300, label="units n", show_value=True)
    noise = mo.ui.slider(0, 40, 5, value=0, label="bits flipped at the start, %", show_value=True)
    mo.hstack([units, noise], wrap=True, justify="start")
    return noise, units


@app.function
def draw_curve(units: int, noise: int) -> Figure:
    """The overlap after retrieval against the load, and the theory."""
    loads = [0.03 * k for k in range(1, 9)]
    dice = torch.Generator().manual_seed(0)
    options = {"trials": 3, "probes": 10, "generator": dice}
    curve = capacity_curve(units, loads, noise=noise / 100, **options)
    figure = Figure((8, 3.2), layout="constrained")
    draw_capacity(curve, figure.subplots())
    return figure


@app.cell(hide_code=True)
def _show_curve(noise, units):
    setting = (units.value, noise.value)
    words = f"The overlap after retrieval with {units.value} units collapses near a load of 0.138."
    mo.Html(as_image(lambda: draw_curve(*setting), words))
    return


if __name__ == "__main__":
    app.run()
