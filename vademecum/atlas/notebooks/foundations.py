# /// script
# [tool.marimo.display]
# theme = "system"
# ///
"""The mathematics that every other room stands on.

A matrix with a million rows can still be *applied* to a vector, and that is enough: *Lanczos*'
method finds the ends of its spectrum after a handful of products, and the rest of it as a density.
*Concentration* says how far a mean strays from what it estimates, and with it how many examples are
enough. *Convexity* makes the nearest point of a set unique, and finding it a matter of a formula.
Entropy and divergences measure what an observation tells, and how wrong a belief is.
"""

import marimo

app = marimo.App(width="full", app_title="foundations")

with app.setup:
    import warnings
    from functools import cache
    from typing import Any

    import marimo as mo
    import torch
    from matplotlib.figure import Figure
    from scipy.stats import binom
    from sklearn.exceptions import ConvergenceWarning

    from vademecum.atlas.pictures import as_image
    from vademecum.foundations import (
        chebyshev_bound,
        clopper_pearson,
        eigsh,
        hoeffding_bound,
        markov_bound,
        project,
        spectral_density,
    )

    N, FLOOR = 300, 1e-13  # below is rounding
    GREY = "#7d8289"
    KINDS = ("Hessian: bulk and outliers", "random symmetric: semicircle", "clusters")
    COINS = {"fair coin": 0.5, "rare event, p = 0.1": 0.1}


@app.cell(hide_code=True)
def _():
    mo.md(
        "### Lanczos finds a spectrum\n"
        "Each step is one product with the matrix. First the outliers are found, and the density"
        " settles long before single eigenvalues of the bulk do."
    )
    return


@app.cell(hide_code=True)
def _():
    kind = mo.ui.dropdown(KINDS, value=KINDS[0], label="matrix")
    steps = mo.ui.slider(2, 60, 1, value=16, label="Lanczos steps", show_value=True)
    probes = mo.ui.slider(2, 20, 1, value=8, label="random probes", show_value=True)
    mo.hstack([kind, steps, probes], wrap=True, justify="start")
    return kind, probes, steps


@app.function
@cache
def spectrum(kind: str):
    """A symmetric matrix of 300 rows, and its eigenvalues as they are."""
    dice = torch.Generator().manual_seed(0)
    g = torch.randn(N, N, generator=dice, dtype=torch.float64)
    if kind == KINDS[0]:
        bulk = torch.linalg.svdvals(g[:194]) ** 2 / N
        lambdas = torch.cat([0.03 * g[0, :100], bulk, torch.linspace(4, 9, 6).double()])
    elif kind == KINDS[1]:
        lambdas = torch.linalg.eigvalsh(g + g.T) / (2 * N) ** 0.5
    else:
        lambdas = torch.tensor([0, 1, 1.6, 4]).double().repeat(N // 4) + 0.04 * g[0]
    q = torch.linalg.qr(g).Q
    matrix = q @ (lambdas[:, None] * q.T)
    return matrix, spectral_density(matrix, probes=N)


@app.function
def ritz_pairs(matrix: torch.Tensor, steps: int):
    """All that the Krylov space knows after so many steps, converged or not."""
    limits = {"subspace": steps + 2, "max_iter": steps + 1, "tol": 1e-300}
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        dice = torch.Generator().manual_seed(1)
        return eigsh(matrix, steps, degenerate=False, generator=dice, **limits)


@app.function
def draw_spectrum(kind: str, steps: int, probes: int) -> Figure:
    """The density by quadrature over the true one, and how good each Ritz value is."""
    matrix, exact = spectrum(kind)
    dice = torch.Generator().manual_seed(0)
    found = spectral_density(matrix, probes=probes, steps=steps, generator=dice)
    low, high = exact.nodes.min().item(), exact.nodes.max().item()
    width = (high - low) / 60
    grid = torch.linspace(low - 6 * width, high + 6 * width, 400, dtype=matrix.dtype)
    figure = Figure((8, 4.6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    top.fill_between(grid, exact(grid, width=width)[0], 1e-9, color=GREY, alpha=0.35, label="true")
    value, error = found(grid, width=width)
    top.plot(grid, value, color="C0", label=f"{probes} probes, {steps} steps each")
    top.fill_between(grid, (value - 2 * error).clamp(min=1e-9), value + 2 * error, alpha=0.2)
    top.set(ylabel="density", yscale="log", ylim=(3e-4, 20))
    theta, _, residuals, *_ = ritz_pairs(matrix, steps)
    off = (theta[:, None] - exact.nodes).abs().amin(1)
    bottom.plot(theta, residuals.clamp(min=FLOOR), "o", ms=5, label="residual norm")
    bottom.plot(theta, off.clamp(min=FLOOR), "x", ms=5, label="to the next eigenvalue")
    bottom.plot(exact.nodes[0], torch.full((N,), FLOOR / 30), "|", color=GREY, label="eigenvalues")
    bottom.set(xlabel="Ritz value", ylabel="error", yscale="log", ylim=(FLOOR / 90, 20))
    done = int((residuals < 1e-3).sum())
    top.set_title(f"{done} of {steps} residual norms are below 0.001", fontsize=10)
    for axes in (top, bottom):
        axes.minorticks_off()
        axes.yaxis.set_major_formatter("{x:g}")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
    return figure


@app.cell(hide_code=True)
def _show_spectrum(kind, probes, steps):
    _knobs = (kind.value, steps.value, probes.value)
    _said = f"The density of 300 eigenvalues estimated after {steps.value} Lanczos steps over the"
    _said += " true one, and below the residual norm of each Ritz value, smallest for outliers."
    mo.Html(as_image(lambda: draw_spectrum(*_knobs), _said))
    return


@app.cell(hide_code=True)
def _():
    mo.md(
        "### How far a mean strays\n"
        "What can be promised of the mean of n numbers between 0 and 1 from its expectation"
        " (Markov), from its variance (Chebyshev, one-sided as by Cantelli), or from the range"
        " alone (Hoeffding), and what happens. Only the last keeps pace with more numbers."
    )
    return


@app.cell(hide_code=True)
def _():
    law = mo.ui.dropdown([*COINS, "uniform"], value="fair coin", label="law")
    count = mo.ui.slider(1, 200, 1, value=30, label="numbers n", show_value=True)
    runs = mo.ui.slider(2, 4, 0.5, value=4, label="repetitions, log₁₀", show_value=True)
    mo.hstack([law, count, runs], wrap=True, justify="start")
    return count, law, runs


@app.function
def means(law: str, n: int, runs: int) -> torch.Tensor:
    """So many means of n numbers each, from 0 to 1."""
    dice = torch.Generator().manual_seed(0)
    u = torch.rand(runs, n, generator=dice, dtype=torch.float64)
    return (u < COINS[law] if law in COINS else u).double().mean(1)


@app.function
def draw_tails(law: str, n: int, runs: float) -> Figure:
    """How often a mean is too large by epsilon: bounds, the exact tail, and trials."""
    mean = COINS.get(law, 0.5)
    variance = mean * (1 - mean) if law in COINS else 1 / 12
    eps = torch.linspace(0.001, 0.5, 250, dtype=torch.float64)
    figure = Figure((8, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.plot(eps, markov_bound(mean, mean + eps), ":", label="Markov")
    cantelli = chebyshev_bound(variance, eps, n, two_sided=False)
    axes.plot(eps, cantelli, "--", label="Chebyshev, one-sided")
    axes.plot(eps, hoeffding_bound(eps, n, two_sided=False), label="Hoeffding")
    if law in COINS:
        least = torch.ceil(n * (mean + eps) - 1e-9)
        axes.plot(eps, binom.sf(least.numpy() - 1, n, mean), color="C3", lw=1, label="exact")
    trials = round(10**runs)
    at = torch.linspace(0, 0.5, 21, dtype=torch.float64)
    hits = (means(law, n, trials) >= mean + at[:, None] - 1e-9).sum(1)
    at, hits = at[hits > 0], hits[hits > 0]  # the logarithm of none is not to be drawn
    share = hits.double() / trials
    low, high = clopper_pearson(hits, trials)
    bars = torch.stack([share - low, high - share]).numpy()
    words = f"measured, {trials} times\n(95 % intervals)"
    axes.errorbar(at, share, bars, fmt="o", ms=4, capsize=2, color="C4", label=words)
    axes.set(yscale="log", ylim=(1e-6, 2), xlabel="ε", ylabel="P(mean − expectation ≥ ε)")
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
    return figure


@app.cell(hide_code=True)
def _show_tails(count, law, runs):
    _knobs = (law.value, count.value, runs.value)
    _said = f"How often the mean of {count.value} numbers ({law.value}) exceeds its expectation by"
    _said += " epsilon, below the bounds of Markov, Chebyshev and Hoeffding."
    mo.Html(as_image(lambda: draw_tails(*_knobs), _said))
    return


@app.cell(hide_code=True)
def _():
    mo.md(
        "### The nearest point of a set\n"
        "The ℓ₁ ball and the simplex send many points to a corner, where coordinates are exactly"
        " zero: that is why ℓ₁ penalties select."
    )
    return


@app.cell(hide_code=True)
def _():
    radius = mo.ui.slider(0.2, 1.8, 0.1, value=1.0, label="radius", show_value=True)
    mo.hstack([radius], justify="start")
    return (radius,)


@app.function
def draw_projections(radius: float) -> Figure:
    """Points on two circles, joined with their projections onto four sets in the plane."""
    angle = torch.linspace(0, 2 * torch.pi, 37, dtype=torch.float64)[:-1]
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    around = torch.cat([2 * circle, 1.2 * circle])
    diamond, square = torch.tensor([[1, 0, -1, 0], [1, 1, -1, -1]])
    sets: list[Any] = [("l1", "ℓ₁ ball", diamond, diamond.roll(1)), ("l2", "ℓ₂ ball", *circle.T)]
    sets += [("linf", "ℓ∞ ball", square, square.roll(1))]
    sets += [("simplex", "simplex", diamond[:2], 1 - diamond[:2])]
    figure = Figure((8, 2.6), layout="constrained")
    for axes, (name, title, x, y) in zip(figure.subplots(1, 4), sets, strict=True):
        axes.fill(radius * x, radius * y, color="C2", alpha=0.3)
        nearest = project(around, name, radius=radius)
        axes.plot(*torch.stack([around, nearest]).permute(2, 0, 1), "-", color=GREY, lw=0.6)
        axes.plot(*around.T, ".", ms=3, color="C0")
        axes.plot(*nearest.T, "o", ms=4, color="C1")
        zeros = int((nearest.abs() < 1e-12).any(1).sum())
        axes.set_title(f"{title}\n{zeros} of {len(nearest)} with a zero", fontsize=9)
        axes.set(xlim=(-2.2, 2.2), ylim=(-2.2, 2.2), aspect="equal")
        axes.set_axis_off()
    return figure


@app.cell(hide_code=True)
def _show_projections(radius):
    _said = f"Points and their projections onto the l1, l2, linf ball of radius {radius.value:.1f}"
    mo.Html(as_image(lambda: draw_projections(radius.value), f"{_said} and onto the simplex."))
    return


if __name__ == "__main__":
    app.run()
