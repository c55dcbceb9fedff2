"""The test error of least squares as features are added, theory over measurement."""

from functools import cache
from typing import Annotated

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vademecum.canvas import GREY, panels, plain_numbers
from vademecum.generalization.interpolation_threshold import (
    DoubleDescent,
    double_descent,
    double_descent_risk,
)
from vademecum.pictures import Range, picture

__all__ = ["second_descent"]

FITS = 60  # training sets behind a dot
DOTS = 14  # sizes of models on each side of the threshold
TOP = 30.0  # of the axis; the peak is infinite


@picture(claims=("generalization.double_descent", "generalization.bias_variance"), plays="n")
def second_descent(
    n: Annotated[int, Range(10, 60, 5)] = 30,
    noise: Annotated[float, Range(0.0, 1.0, 0.1)] = 0.2,
    features: Annotated[int, Range(20, 300, 20)] = 240,
    decay: Annotated[float, Range(0.0, 2.0, 0.25)] = 0.0,
) -> Figure:
    """Double descent, theory over measurement.

    Least squares on more and more features: the line is the formula of Belkin, Hsu and Xu, the dots
    are means of fits. The error first falls or rises as it always did, is infinite where the number
    of features reaches that of the examples (dotted), and then falls a second time, although the
    training error has been zero ever since. With features that are all alike the best model is the
    largest; let their coefficients decay and the classical valley returns, with more noise it
    moves to the left. Add examples: near the threshold more data make the error worse.

    Knobs:
        n: The number of training examples.
        noise: The standard deviation of the noise in the targets; the signal's is 1.
        features: How many features there are in all.
        decay: The power with which coefficients fall from feature to feature.
    """
    figure, (errors, parts) = panels((8, 3.9), 1, 2, margins=(0.6, 0.15, 0.5, 0.4), gaps=(0.7, 0))
    found = measured(n, noise, features, decay)
    beta = coefficients(features, decay)
    p = torch.arange(features + 1)
    risk = double_descent_risk(p, beta, n=n, noise=noise)
    draw_errors(errors, p.numpy(), risk.numpy(), found)
    draw_parts(parts, beta, n, noise)
    best = int(risk.argmin())
    figure.suptitle(f"best of all: {best} of {features} features, error {float(risk[best]):.2f}")
    return figure


def coefficients(features: int, decay: float) -> torch.Tensor:
    """Coefficients of norm 1 that fall as a power."""
    beta = torch.arange(1, features + 1, dtype=torch.float64) ** -decay
    return beta / beta.norm()


@cache
def measured(n: int, noise: float, features: int, decay: float) -> DoubleDescent:
    """Fits at some sizes of models, away from where their mean says nothing."""
    below = np.linspace(0, max(n - 4, 0), DOTS)
    above = np.geomspace(n + 4, features, DOTS) if features > n + 4 else []
    sizes = sorted({round(s) for s in (*below, *above) if s <= features})
    return double_descent(
        sizes, coefficients(features, decay), n=n, noise=noise, repeats=FITS,
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip


def draw_errors(axes: Axes, p: np.ndarray, risk: np.ndarray, found: DoubleDescent) -> None:
    """The formula, the means of fits and their training errors."""
    axes.plot(p, np.minimum(risk, 2 * TOP), "-", lw=1.4, color="C0", label="test error, theory")
    means, errors = found.simulated.numpy(), 2 * found.standard_error.numpy()
    axes.errorbar(found.p, means, errors, fmt="o", ms=4, lw=1, color="C0", label="measured")
    axes.plot(found.p, found.training, "s", ms=3, color="C1", label="training error, measured")
    axes.axvline(found.n, lw=0.8, ls=":", color=GREY)
    axes.set_yscale("symlog", linthresh=0.1, linscale=0.5)
    axes.set(xlim=(-0.02 * p[-1], 1.02 * p[-1]), ylim=(-0.02, TOP))
    axes.set(xlabel="features (dotted: examples)", ylabel="squared error")
    axes.set_yticks([0, 0.1, 1, 10])
    plain_numbers(axes.yaxis)
    axes.legend(loc="upper right")


def draw_parts(axes: Axes, beta: torch.Tensor, n: int, noise: float) -> None:
    """What the expected error is made of."""
    p = np.arange(len(beta) + 1)
    squares = np.r_[0, beta.square().cumsum(0).numpy()]
    hidden = squares[-1] - squares
    lost = np.where(p > n, squares * (1 - n / np.maximum(p, 1)), 0.0)
    spread = double_descent_risk(p.tolist(), beta, n=n, noise=noise).numpy() - lost
    spread = np.minimum(spread - hidden - noise**2, 2 * TOP)
    axes.plot(p, hidden, "-", color="C2", label="features left out")
    axes.plot(p, lost, "-", color="C3", label="signal lost to the shortest solution")
    axes.plot(p, spread, "-", color="C4", label="what noise and left-out features cause")
    axes.axhline(noise**2, ls="--", lw=1, color=GREY, label="noise")
    axes.axvline(n, lw=0.8, ls=":", color=GREY)
    axes.set(xlim=(-0.02 * p[-1], 1.02 * p[-1]), ylim=(-0.05, 3))
    axes.set(xlabel="features", ylabel="parts of the expected error")
    axes.legend(loc="upper right")
