# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""Linear models: everything can be computed, and much of what networks do shows already.

*Ridge* regression shrinks all weights and the *lasso* sets many of them to zero; both trade a
little bias for less variance, and how much is best shows on data that were held back. A *deep
linear network* is still a linear map, but learns it mode by mode, strong ones first: depth changes
the way, not the destination. *Principal components* are what a linear autoencoder finds, the best
small description of the data.
"""

import marimo

app = marimo.App(width="full", app_title="linear")

with app.setup:
    from typing import Any

    import marimo as mo
    import torch
    from matplotlib.figure import Figure
    from sklearn.datasets import load_diabetes

    from vademecum.atlas.pictures import as_image
    from vademecum.data import load
    from vademecum.linear import (
        PCA,
        RidgeRegression,
        draw_modes,
        lasso_path,
        linear_network_flow,
    )

    GREY = "#7d8289"
    ALPHAS = torch.logspace(0.5, -3, 71, dtype=torch.float64)


@app.cell(hide_code=True)
def _():
    mo.md(
        "### Ridge and lasso paths\n"
        "Ten measurements of diabetes patients, standardised, predict how far the disease has come"
        " a year later; each line is the weight of one. Both minimise half the mean squared error"
        " plus the penalty, α‖w‖²/2 or α‖w‖₁. With few patients, much of it pays."
    )
    return


@app.cell(hide_code=True)
def _():
    log_alpha = mo.ui.slider(-3, 0.5, 0.05, value=-1.2, label="penalty, log₁₀ α", show_value=True)
    patients = mo.ui.slider(20, 300, 10, value=60, label="patients to learn from", show_value=True)
    mo.hstack([log_alpha, patients], wrap=True, justify="start")
    return log_alpha, patients


@app.function
def paths(patients: int):
    """The weights at every penalty, ridge and lasso, and their errors on the other patients."""
    table: Any = load_diabetes()
    order = torch.randperm(442, generator=torch.Generator().manual_seed(0))
    x, y = (torch.from_numpy(part)[order] for part in (table.data, table.target))
    x, y = ((v - v[:patients].mean(0)) / v[:patients].std(0) for v in (x, y))
    ridge = RidgeRegression(alphas=patients * ALPHAS).fit(x[:patients], y[:patients])
    lasso = lasso_path(x[:patients], y[:patients], alphas=ALPHAS)
    found = {}
    for name, w in (("ridge", ridge.coef_path_), ("lasso", lasso.coefs)):
        error = (x @ w.T - y[:, None]).square()
        found[name] = w, error[:patients].mean(0), error[patients:].mean(0)
    return table.feature_names, found


@app.function
def draw_paths(log_alpha: float, patients: int) -> Figure:
    """Weights and errors against the penalty, with the chosen one marked."""
    names, found = paths(patients)
    chosen = int((ALPHAS.log10() - log_alpha).abs().argmin())
    figure = Figure((8, 4.8), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True, sharey="row", height_ratios=(3, 2))
    for (top, bottom), (name, (w, train, held)) in zip(grid.T, found.items(), strict=True):
        for i, feature in enumerate(names):
            style = {"color": f"C{i % 5}", "ls": "-" if i < 5 else "--", "lw": 1.4}
            top.plot(ALPHAS, w[:, i], label=feature, **style)
        bottom.plot(ALPHAS, train, color=GREY, ls="--", label="training patients")
        bottom.plot(ALPHAS, held, color="C0", label="other patients\n(validation)")
        bottom.plot(ALPHAS[held.argmin()], held.min(), "o", color="C1", label="least")
        for axes in (top, bottom):
            axes.axvline(ALPHAS[chosen], color=GREY, lw=0.8)
        left = int((w[chosen].abs() > 1e-9).sum())
        title = f"{name}: {left} of {len(names)} weights are not zero,\nvalidation error"
        top.set_title(f"{title} {held[chosen]:.3f}", fontsize=9)
        bottom.set(xscale="log", xlabel="penalty α", ylim=(0.2, 1.2))
        bottom.minorticks_off()
        bottom.xaxis.set_major_formatter("{x:g}")
    grid[0, 0].set_ylabel("weight")
    grid[1, 0].set_ylabel("squared error\n(variance = 1)")
    for axes in grid[:, 1]:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
    return figure


@app.cell(hide_code=True)
def _show_paths(log_alpha, patients):
    _knobs = (log_alpha.value, patients.value)
    _said = f"Weights of ridge regression and lasso from {patients.value} patients against the"
    _said += " penalty, and below the error on these and on other patients."
    mo.Html(as_image(lambda: draw_paths(*_knobs), _said))
    return


@app.cell(hide_code=True)
def _():
    mo.md(
        "### A deep linear network learns mode by mode\n"
        "Gradient descent (dots) over the solution of its flow (lines). One layer learns all modes"
        " at one rate; more layers learn strong modes first, the more so the smaller they start."
        " The solution holds for weights that start balanced and aligned with the modes, which"
        " noise spoils."
    )
    return


@app.cell(hide_code=True)
def _():
    depth = mo.ui.slider(1, 4, 1, value=3, label="layers", show_value=True)
    small = mo.ui.slider(-3, -1, 0.25, value=-2, label="log₁₀ of initial scale", show_value=True)
    gap = mo.ui.slider(0, 0.25, 0.05, value=0.2, label="gap of singular values", show_value=True)
    noise = mo.ui.slider(0, 0.05, 0.005, value=0.01, label="initial noise", show_value=True)
    mo.hstack([depth, small, gap, noise], wrap=True, justify="start")
    return depth, gap, noise, small


@app.function
def horizon(s: float, start: float, depth: int) -> float:
    """When the flow has brought the mode of singular value s to 97 % of its strength."""
    a = torch.logspace(0, 1, 500, base=0.97 * s / start, dtype=torch.float64) * start
    return torch.trapezoid(1 / (depth * a ** (2 - 2 / depth) * (s - a)), a).item()


@app.function
def draw_learning(depth: int, small: float, gap: float, noise: float) -> Figure:
    """The strengths of the modes, predicted and measured."""
    s = 1 - gap * torch.arange(4, dtype=torch.float64)
    times = torch.linspace(0, horizon(s[-1].item(), 10**small, depth), 90, dtype=s.dtype)
    dice = torch.Generator().manual_seed(0)
    options = {"depth": depth, "strength": 10**small, "noise": noise, "generator": dice}
    flow = linear_network_flow(torch.diag(s), times, learning_rate=0.03, **options)
    figure = Figure((8, 3.4), layout="constrained")
    axes = figure.subplots()
    draw_modes(flow, axes)
    axes.set_title(axes.get_title(), fontsize=10)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
    return figure


@app.cell(hide_code=True)
def _show_learning(depth, gap, noise, small):
    _knobs = (depth.value, small.value, gap.value, noise.value)
    _said = f"Four modes of a linear network of depth {depth.value} rise as predicted by the"
    _said += " solution of the gradient flow, strong ones first if there is more than one layer."
    mo.Html(as_image(lambda: draw_learning(*_knobs), _said))
    return


@app.cell(hide_code=True)
def _():
    mo.md(
        "### Principal components of digits\n"
        "Written digits of 64 pixels, rebuilt from few numbers each: the mean digit and the"
        " directions in which digits vary most."
    )
    return


@app.cell(hide_code=True)
def _():
    kept = mo.ui.slider(1, 64, 1, value=8, label="components", show_value=True)
    first = mo.ui.slider(0, 300, 10, value=0, label="first digit shown", show_value=True)
    mo.hstack([kept, first], wrap=True, justify="start")
    return first, kept


@app.function
def draw_digits(kept: int, first: int) -> Figure:
    """Digits of the test set, and what so many components keep of them."""
    pca = PCA(kept).fit(load("digits").x.flatten(1))
    x = load("digits", split="test").x[first : first + 10].flatten(1)
    rebuilt = pca.inverse_transform(pca.transform(x))
    figure = Figure((8, 2.1), layout="constrained")
    for row, images in zip(figure.subplots(2, 10), (x, rebuilt), strict=True):
        for axes, image in zip(row, images, strict=True):
            axes.imshow(image.view(8, 8).numpy(), cmap="gray_r", vmin=0, vmax=1)
            axes.set_axis_off()
    share = pca.explained_variance_ratio_.sum()
    figure.suptitle(f"{kept} of 64 components keep {share:.1%} of the variance", fontsize=10)
    return figure


@app.cell(hide_code=True)
def _show_digits(first, kept):
    _knobs = (kept.value, first.value)
    _said = f"Ten written digits, and below them the same rebuilt from {kept.value} components."
    mo.Html(as_image(lambda: draw_digits(*_knobs), _said))
    return


if __name__ == "__main__":
    app.run()
