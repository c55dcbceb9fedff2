"""Curvature of small networks: the edge of stability, and the spectrum of a Hessian."""

from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.canvas import GREY, legend_beside, panels
from vademecum.foundations import SpectralDensity, spectral_density
from vademecum.gradients import hessian
from vademecum.models import mlp
from vademecum.optimization import SharpnessHistory, SharpnessTracker, gauss_newton
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness

__all__ = ["edge_of_stability", "hessian_spectrum"]

STEPS, EVERY = 500, 20
SMALL = 1e-4  # of the largest density, below which nothing is drawn


class Run(NamedTuple):
    """A network's training run."""

    losses: Tensor
    history: SharpnessHistory


@picture(claims=("optimization.stable_step", "optimization.curvature_threshold"))
def edge_of_stability(
    eta: Annotated[float, Range(0.04, 0.24, 0.02)] = 0.12,
    momentum: Annotated[float, Range(0.0, 0.6, 0.2)] = 0.0,
    units: Annotated[int, Range(8, 32, 8)] = 24,
) -> Figure:
    """The edge of stability.

    A tanh network learns a curve by gradient descent on all data. Its sharpness, the largest
    curvature of the loss, rises beyond what the steps bear, 2/η without momentum. There a quadratic
    would diverge. Here the loss leaps up, lands where it is flatter, and falls on: the sharpness
    stays near the edge, wherever the step size has put that.

    Knobs:
        eta: The step size.
        momentum: The share of the last step that is made again, with which steps bear more.
        units: How many units each of the two hidden layers has.
    """
    run = trained(eta, momentum, units)
    steps, values = run.history.steps, run.history.values
    bears = float(run.history.thresholds[0])
    figure, (top, bottom) = panels(
        (8, 4.4), 2, 1, margins=(0.75, 1.9, 0.5, 0.35), gaps=(0, 0.2), sharex=True
    )
    top.plot(range(1, STEPS + 1), run.losses, lw=1, label="loss")
    top.set(yscale="log", ylabel="loss", ylim=(1e-4, 2))
    top.minorticks_off()
    bottom.plot(steps, values, "o-", ms=3, lw=1, label="sharpness")
    bottom.axhline(bears, ls="--", lw=1, color="C1", label=f"{bears * eta:g}/η = {bears:.3g}")
    bottom.set(xlabel="step", ylabel="largest curvature", xlim=(0, STEPS))
    bottom.set_ylim(0, 1.25 * max(min(bears, 60.0), float(values.max())))
    rises = int((run.losses[1:] > run.losses[:-1]).sum())
    ends = f"at the end it is {float(run.losses[-1]):.2g}, the sharpness {float(values[-1]):.3g}"
    ends = ends if run.losses[-1].isfinite() else "then it is lost"
    top.set_title(f"The loss rises in {rises} of {STEPS} steps; {ends}")
    legend_beside(top)
    legend_beside(bottom)
    return figure


@lru_cache(64)
def trained(eta: float, momentum: float, units: int) -> Run:
    """Descent on a Chebyshev polynomial, with a look at the sharpness now and then."""
    x = torch.linspace(-1, 1, 20)[:, None]
    y = 8 * x**4 - 8 * x**2 + 1
    with own_randomness():
        net = mlp([1, units, units, 1], nn.Tanh)
    optimizer = torch.optim.SGD(net.parameters(), lr=eta, momentum=momentum)
    source = torch.Generator().manual_seed(0)
    tracker = SharpnessTracker(
        net, x, y, preconditioner=optimizer, every=EVERY, tol=1e-2, generator=source
    )
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        tracker.step()
        losses.append(loss.detach())
    return Run(torch.stack(losses), tracker.history)


@picture(claims=("optimization.hessian_bounds", "foundations.spectral_quadrature"), plays="steps")
def hessian_spectrum(
    steps: Annotated[int, Range(0, 200, 20)] = 60,
    classes: Annotated[int, Range(2, 6)] = 4,
    matrix: Literal["Hessian", "Gauss-Newton"] = "Hessian",
    probes: Annotated[int, Range(2, 16)] = 8,
) -> Figure:
    """The spectrum of a Hessian.

    A network with two hidden layers learns to tell clouds of points apart. Nearly all directions
    are flat: most eigenvalues are close to zero, and a few stand out, about as many as there are
    classes. Negative ones say that the loss is not convex; the Gauss-Newton matrix, which leaves
    out the curvature of the network itself, has none. The density comes from products with random
    vectors, the marks are the eigenvalues.

    Knobs:
        steps: How many steps of training there have been.
        classes: How many clouds there are.
        matrix: The Hessian of the loss, or its part that Gauss and Newton kept.
        probes: From how many random vectors the density is estimated.
    """
    values, found, loss = spectrum(steps, classes, matrix, probes)
    low, high = float(values.min()), float(values.max())
    width = max((high - low) / 60, found.resolution / 4)
    grid = torch.linspace(low - 5 * width, high + 5 * width, 500)
    density, error = found(grid, width=width)
    least = SMALL * float(density.max())
    figure, axes = panels((8, 3.8), margins=(0.85, 1.75, 0.5, 0.35))
    axes.fill_between(grid, (density - error).clamp(min=least / 10), density + error, alpha=0.3)
    axes.plot(grid, density.clamp(min=least / 10), lw=1.2, label="density")
    axes.plot(
        values, torch.full_like(values, 2 * least), "|", ms=9, color=GREY, label="eigenvalues"
    )
    axes.set(yscale="log", xlabel="curvature", ylabel="density", ylim=(least, None))
    axes.minorticks_off()
    out = int((values > high / 10).sum())
    axes.set_title(
        f"Of {len(values)} eigenvalues {out} are above a tenth of the largest, {high:.3g};"
        f" the loss is {loss:.2g}"
    )
    legend_beside(axes)
    return figure


@lru_cache(256)
def spectrum(
    steps: int, classes: int, matrix: str, probes: int
) -> tuple[Tensor, SpectralDensity, float]:
    """The eigenvalues of a small network's curvature, their density from probes, the loss."""
    H, values, loss = curvature(steps, classes, matrix)
    source = torch.Generator().manual_seed(0)
    found = spectral_density(H, probes=probes, steps=40, generator=source, symmetry_tol=1e-3)
    return values, found, loss


@lru_cache(256)
def curvature(steps: int, classes: int, matrix: str) -> tuple[Tensor, Tensor, float]:
    """The matrix in full, which is small, all its eigenvalues, and the loss."""
    net, x, y = classifier(steps, classes)
    H = (hessian if matrix == "Hessian" else gauss_newton)(net, x, y).dense()
    return H, torch.linalg.eigvalsh(H), float(F.cross_entropy(net(x), y).detach())


@lru_cache(64)
def classifier(steps: int, classes: int) -> tuple[nn.Module, Tensor, Tensor]:
    """A network that has been trained for so many steps, with its data."""
    with own_randomness():
        y = torch.arange(120) % classes
        angle = 2 * torch.pi * y / classes
        x = torch.stack([angle.cos(), angle.sin()], 1) + 0.3 * torch.randn(120, 2)
        net = mlp([2, 10, 10, classes], nn.Tanh)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    return net, x, y
