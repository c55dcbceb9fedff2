"""A Gaussian process before and after data."""

from functools import lru_cache
from typing import Annotated, Literal

import torch
from matplotlib.figure import Figure
from torch import Tensor

from vademecum.canvas import GREY, panels
from vademecum.kernels import (
    ArcCosineKernel,
    GaussianProcess,
    Kernel,
    LinearKernel,
    MaternKernel,
    RBFKernel,
)
from vademecum.pictures import Range, picture

__all__ = ["gaussian_process"]

GRID = torch.linspace(-3, 3, 121)[:, None].double()
SEEN = torch.tensor([-2.3, -1.6, -0.5, 0.1, 0.7, 2.2]).double()[:, None]
VALUES = torch.tensor([-0.6, 0.5, 1.1, 0.4, -0.3, 0.9]).double()
LINES = 5

Covariance = Literal["Gaussian", "Matern 1/2", "Matern 5/2", "rectifiers", "linear"]


@picture(
    claims=(
        "kernels.gaussian_process",
        "kernels.gp_regression_mean",
        "kernels.gp_regression_variance",
    ),
    plays="noise",
)
def gaussian_process(
    kernel: Covariance = "Gaussian",
    lengthscale: Annotated[float, Range(0.2, 3.2, 2, log=True)] = 0.8,
    noise: Annotated[float, Range(0.01, 1.28, 2, log=True)] = 0.08,
    points: Annotated[int, Range(1, 6)] = 5,
) -> Figure:
    """A Gaussian process before and after it has seen data.

    Left: five functions drawn from the prior, and the band of two standard deviations that holds 95
    per cent of the values at each input. Right: the same process given the points, its mean (thick)
    and draws from what is left. Without noise the band closes on the points; away from them
    it opens again to the prior, the sooner the smaller the lengthscale (which the last two kernels
    do not have). Matern functions of order 1/2 are rough, those of a layer of rectifiers bend.

    Knobs:
        kernel: The covariance of the values at two inputs.
        lengthscale: The distance over which values stay alike.
        noise: The standard deviation of the noise in the points.
        points: How many points are given.
    """
    figure, (left, right) = panels((8.4, 3.7), 1, 2, margins=(0.55, 0.15, 0.5, 0.3), gaps=(0.5, 0))
    for axes, seen, title in ((left, 0, "prior"), (right, points, "posterior")):
        mean, std, drawn = _process(kernel, lengthscale, noise, seen)
        x = GRID[:, 0]
        label = "two standard deviations"
        axes.fill_between(x, mean - 2 * std, mean + 2 * std, color="C0", alpha=0.15, label=label)
        axes.plot(x, drawn, "-", color="C0", lw=0.8, alpha=0.7)
        axes.plot(x, mean, "-", color="C1", lw=2.2, label="mean")
        if seen:
            axes.errorbar(
                SEEN[:seen, 0], VALUES[:seen], yerr=2 * noise, fmt="o", color=GREY, ms=4, lw=1,
                label="data",
            )  # fmt: skip
        axes.set(xlabel="input", title=title, xlim=(-3, 3), ylim=(-3.5, 3.5))
        axes.legend(loc="lower right")
    return figure


@lru_cache(maxsize=64)
def _process(
    name: Covariance, lengthscale: float, noise: float, seen: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, standard deviations and draws on the grid."""
    process = GaussianProcess(_kernel(name, lengthscale), noise=noise, learn=False, random_state=0)
    if seen:
        process.fit(_features(name, SEEN[:seen]), VALUES[:seen])
    x = _features(name, GRID)
    mean, std = process.predict(x, return_std=True)
    return mean, std, process.sample_y(x, LINES, random_state=3)


def _kernel(name: Covariance, lengthscale: float) -> Kernel:
    kernels: dict[str, Kernel] = {
        "Gaussian": RBFKernel(lengthscale=lengthscale),
        "Matern 1/2": MaternKernel(nu=0.5, lengthscale=lengthscale),
        "Matern 5/2": MaternKernel(nu=2.5, lengthscale=lengthscale),
        "rectifiers": 0.5 * ArcCosineKernel(order=1),
        "linear": 0.5 * LinearKernel(),
    }
    return kernels[name]


def _features(name: Covariance, x: Tensor) -> Tensor:
    """The input, beside a constant where the kernel would pass through the origin."""
    return torch.cat([x, torch.ones_like(x)], 1) if name in ("rectifiers", "linear") else x
