"""Pictures of this room: Lanczos' method, the tails of a mean, projections onto convex sets."""

import warnings
from functools import cache, lru_cache
from typing import Annotated, Any, Literal

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import binom
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from vademecum.canvas import GREY, legend_beside, panels, plain_numbers
from vademecum.foundations import (
    SpectralDensity,
    chebyshev_bound,
    clopper_pearson,
    eigsh,
    hoeffding_bound,
    markov_bound,
    project,
    spectral_density,
)
from vademecum.pictures import Range, picture

__all__ = ["lanczos_spectrum", "nearest_points", "tails_of_a_mean"]

N, FLOOR = 300, 1e-13  # below is rounding
CHANCES = {"fair coin": 0.5, "rare event": 0.1}


@picture(
    claims=("foundations.lanczos_residual_bound", "foundations.spectral_quadrature"), plays="steps"
)
def lanczos_spectrum(
    matrix: Literal["Hessian", "semicircle", "clusters"] = "Hessian",
    steps: Annotated[int, Range(2, 60)] = 16,
    probes: Annotated[int, Range(2, 20)] = 8,
) -> Figure:
    """Lanczos finds a spectrum.

    Each step is one product with a matrix of 300 rows. The outliers are found first, and the
    density settles long before single eigenvalues of the bulk do. No Ritz value is further from an
    eigenvalue (crosses) than its residual norm (dots).

    Knobs:
        matrix: As the Hessian of a network, with a bulk and outliers; random and symmetric, with
            Wigner's semicircle; or with four clusters of eigenvalues.
        steps: How many steps each run of Lanczos' method makes.
        probes: From how many random vectors the density is estimated.
    """
    a, exact = spectrum(matrix)
    low, high = exact.nodes.min().item(), exact.nodes.max().item()
    width = (high - low) / 60
    grid = torch.linspace(low - 6 * width, high + 6 * width, 400, dtype=a.dtype)
    margins = (0.85, 2.1, 0.5, 0.3)
    figure, (top, bottom) = panels((8, 4.6), 2, 1, margins=margins, gaps=(0, 0.15), sharex=True)
    top.fill_between(grid, exact(grid, width=width)[0], 1e-9, color=GREY, alpha=0.35, label="true")
    dice = torch.Generator().manual_seed(0)
    found = spectral_density(a, probes=probes, steps=steps, generator=dice)
    value, error = found(grid, width=width)
    top.plot(grid, value, color="C0", label=f"{probes} probes, {steps} steps each")
    top.fill_between(grid, (value - 2 * error).clamp(min=1e-9), value + 2 * error, alpha=0.2)
    top.set(ylabel="density", yscale="log", ylim=(3e-4, 20))
    theta, residuals = ritz_pairs(matrix, steps)
    off = (theta[:, None] - exact.nodes).abs().amin(1)
    bottom.plot(theta, residuals.clamp(min=FLOOR), "o", ms=5, label="residual norm")
    bottom.plot(theta, off.clamp(min=FLOOR), "x", ms=5, label="to the next eigenvalue")
    bottom.plot(exact.nodes[0], torch.full((N,), FLOOR / 30), "|", color=GREY, label="eigenvalues")
    bottom.set(xlabel="Ritz value", ylabel="error", yscale="log", ylim=(FLOOR / 90, 20))
    top.set_title(f"{int((residuals < 1e-3).sum())} of {steps} residual norms are below 0.001")
    for axes in (top, bottom):
        plain_numbers(axes.yaxis)
        legend_beside(axes)
    return figure


@cache
def spectrum(kind: str) -> tuple[Tensor, SpectralDensity]:
    """A symmetric matrix of 300 rows, and its eigenvalues as they are."""
    dice = torch.Generator().manual_seed(0)
    g = torch.randn(N, N, generator=dice, dtype=torch.float64)
    if kind == "Hessian":
        bulk = torch.linalg.svdvals(g[:194]) ** 2 / N
        lambdas = torch.cat([0.03 * g[0, :100], bulk, torch.linspace(4, 9, 6).double()])
    elif kind == "semicircle":
        lambdas = torch.linalg.eigvalsh(g + g.T) / (2 * N) ** 0.5
    else:
        lambdas = torch.tensor([0, 1, 1.6, 4]).double().repeat(N // 4) + 0.04 * g[0]
    q = torch.linalg.qr(g).Q
    matrix = q @ (lambdas[:, None] * q.T)
    return matrix, spectral_density(matrix, probes=N)


@lru_cache(256)
def ritz_pairs(kind: str, steps: int) -> tuple[Tensor, Tensor]:
    """Ritz values and residual norms after so many steps, converged or not."""
    limits = {"subspace": steps + 2, "max_iter": steps + 1, "tol": 1e-300}
    dice = torch.Generator().manual_seed(1)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        found = eigsh(spectrum(kind)[0], steps, degenerate=False, generator=dice, **limits)
    return found.values, found.residuals


@picture(
    claims=(
        "foundations.markov_inequality",
        "foundations.chebyshev_inequality",
        "foundations.hoeffding_inequality",
    ),
    plays="n",
)
def tails_of_a_mean(
    law: Literal["fair coin", "rare event", "uniform"] = "fair coin",
    n: Annotated[int, Range(1, 200)] = 30,
    repetitions: Annotated[int, Range(100, 10_000, 10, log=True)] = 10_000,
) -> Figure:
    """How far a mean strays.

    What can be promised of the mean of n numbers between 0 and 1 from its expectation (Markov),
    from its variance (Chebyshev, one-sided as by Cantelli), or from the range alone (Hoeffding),
    and what happens. Take more numbers: only the last keeps pace.

    Knobs:
        law: What each number is: 0 or 1 with equal chances, 1 with a chance of 0.1, or any number
            from 0 to 1.
        n: How many numbers the mean is taken of.
        repetitions: How many such means are drawn to measure how often one strays.
    """
    mean = CHANCES.get(law, 0.5)
    variance = mean * (1 - mean) if law in CHANCES else 1 / 12
    eps = torch.linspace(0.001, 0.5, 250, dtype=torch.float64)
    figure, axes = panels((8, 3.6), margins=(0.9, 1.9, 0.5, 0.1))
    axes.plot(eps, markov_bound(mean, mean + eps), ":", label="Markov")
    cantelli = chebyshev_bound(variance, eps, n, two_sided=False)
    axes.plot(eps, cantelli, "--", label="Chebyshev, one-sided")
    axes.plot(eps, hoeffding_bound(eps, n, two_sided=False), label="Hoeffding")
    if law in CHANCES:
        least = torch.ceil(n * (mean + eps) - 1e-9)
        axes.plot(eps, binom.sf(least.numpy() - 1, n, mean), color="C3", lw=1, label="exact")
    at = torch.linspace(0, 0.5, 21, dtype=torch.float64)
    hits = (means(law, n, repetitions) >= mean + at[:, None] - 1e-9).sum(1)
    at, hits = at[hits > 0], hits[hits > 0]  # the logarithm of none is not to be drawn
    share = hits.double() / repetitions
    low, high = clopper_pearson(hits, repetitions)
    bars = torch.stack([share - low, high - share]).numpy()
    words = f"measured, {repetitions} times\n(95 % intervals)"
    axes.errorbar(at, share, bars, fmt="o", ms=4, capsize=2, color="C4", label=words)
    axes.set(yscale="log", ylim=(1e-6, 2), xlabel="ε", ylabel="P(mean − expectation ≥ ε)")
    plain_numbers(axes.yaxis)
    legend_beside(axes)
    return figure


def means(law: str, n: int, count: int) -> Tensor:
    """So many means of n numbers each, from 0 to 1."""
    dice = torch.Generator().manual_seed(0)
    u = torch.rand(count, n, generator=dice, dtype=torch.float64)
    return (u < CHANCES[law] if law in CHANCES else u).double().mean(1)


@picture(claims=("foundations.projection_nearest", "foundations.convex_set"))
def nearest_points(
    radius: Annotated[float, Range(0.2, 1.8, 0.1)] = 1.0,
    distance: Annotated[float, Range(1.2, 2.0, 0.1)] = 2.0,
) -> Figure:
    """The nearest point of a set.

    Points on a circle, each joined with the nearest point (orange) of a convex set: there is one,
    and only one. The ℓ₁ ball and the simplex send many points to a corner, where a coordinate is
    exactly zero: that is why ℓ₁ penalties select. Take smaller sets to see more of them.

    Knobs:
        radius: How large the sets are.
        distance: How far from the centre the points are.
    """
    angle = torch.linspace(0, 2 * torch.pi, 73, dtype=torch.float64)[:-1]
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    diamond, square = torch.tensor([[1, 0, -1, 0], [1, 1, -1, -1]])
    sets: list[Any] = [("l1", "ℓ₁ ball", diamond, diamond.roll(1)), ("l2", "ℓ₂ ball", *circle.T)]
    sets += [("linf", "ℓ∞ ball", square, square.roll(1))]
    sets += [("simplex", "simplex", diamond[:2], 1 - diamond[:2])]
    figure, places = panels((8, 2.5), 1, 4, margins=(0.05, 0.05, 0.05, 0.5), gaps=(0.1, 0))
    for axes, (name, title, x, y) in zip(places, sets, strict=True):
        axes.fill(radius * x, radius * y, color="C2", alpha=0.3)
        zeros = draw_projections(axes, distance * circle, name, radius)
        axes.set_title(f"{title}\n{zeros} of {len(circle)} with a zero", fontsize=9)
    return figure


def draw_projections(axes: Axes, x: Tensor, name: Any, radius: float) -> int:
    """Join points with the nearest ones of a set, and count those with a coordinate of zero."""
    nearest = project(x, name, radius=radius)
    gap = torch.full_like(x, torch.nan)  # ends a line: one path for all
    axes.plot(*torch.stack([x, nearest, gap], 1).flatten(0, 1).T, "-", color=GREY, lw=0.6)
    axes.plot(*x.T, ".", ms=3, color="C0")
    axes.plot(*nearest.T, "o", ms=4, color="C1")
    axes.set(xlim=(-2.2, 2.2), ylim=(-2.2, 2.2), aspect="equal")
    axes.set_axis_off()
    return int((nearest.abs() < 1e-12).any(1).sum())
