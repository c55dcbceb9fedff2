"""What three approximations of a posterior predict of a function of one variable."""

from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from vademecum.bayes import (
    deep_ensemble,
    laplace,
    posterior,
    posterior_predictive,
    sample,
)
from vademecum.canvas import GREY, panels
from vademecum.gradients import functional
from vademecum.models import mlp
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness

__all__ = ["predictive_bands"]

Kind = Literal["laplace", "ensemble", "chains"]
_GRID = torch.linspace(-2.5, 2.5, 121)[:, None]
_NAMES = {"laplace": "Laplace", "ensemble": "deep ensemble", "chains": "chains"}


class _Band(NamedTuple):
    """The mean, the deviation over the draws, and that of an answer."""

    mean: np.ndarray
    spread: np.ndarray
    std: np.ndarray


@picture(claims=("bayes.posterior_predictive",))
def predictive_bands(
    examples: Annotated[int, Range(4, 40, 4)] = 12,
    noise: Annotated[float, Range(0.05, 0.45, 0.1)] = 0.15,
    gap: Annotated[float, Range(0.0, 1.5, 0.5)] = 1.0,
) -> Figure:
    """What posteriors predict where there are no data.

    Dots were drawn from the dashed curve with noise; a network with 8 hidden units learnt them. The
    line is the average over its weights, the dark band two standard deviations of the function over
    them, the light one those of an answer, with the noise. All three agree at the dots. Widen the
    gap: in it and beyond the ends the dark band should open. Laplace's normal law around one
    minimum and the chains open it, five networks that were trained alike are often too sure.

    Knobs:
        examples: How many examples there are.
        noise: The standard deviation of the noise, which is known.
        gap: How wide the hole in the middle of the inputs is.
    """
    figure, axes = panels((9.6, 3.6), 1, 3, margins=(0.6, 0.2, 0.6, 0.5), gaps=(0.4, 0.6))
    x, y = _data(examples, noise, gap)
    grid = _GRID[:, 0].numpy()
    kinds: tuple[Kind, ...] = ("laplace", "ensemble", "chains")
    for axis, kind in zip(axes, kinds, strict=True):
        band = _band(kind, examples, noise, gap)
        for wide, alpha in ((band.std, 0.2), (band.spread, 0.4)):
            axis.fill_between(grid, band.mean - 2 * wide, band.mean + 2 * wide, color="C0",
                              alpha=alpha, linewidth=0)  # fmt: skip
        axis.plot(grid, _truth(_GRID)[:, 0].numpy(), "--", color=GREY)
        axis.plot(grid, band.mean, color="C0")
        axis.plot(x[:, 0].numpy(), y[:, 0].numpy(), "o", color="C1", markersize=4)
        axis.set(ylim=(-2.6, 2.6), xlim=(-2.5, 2.5), xlabel="input")
        axis.set_title(f"{_NAMES[kind]}: {float(2 * band.spread[60]):.2f} at 0")
    axes[0].set_ylabel("answer")
    return figure


def _truth(x: Tensor) -> Tensor:
    return (2 * x).sin()


def _data(n: int, noise: float, gap: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    side = torch.linspace(0, 1, n // 2)
    half = gap / 2 + 0.1 + (1.8 - gap / 2) * side
    x = torch.cat([-half, half])[:, None]
    return x, _truth(x) + noise * torch.randn(x.shape, generator=generator)


def _net() -> nn.Module:
    return mlp([1, 8, 1], nn.Tanh)


@lru_cache(maxsize=64)
def _band(kind: Kind, n: int, noise: float, gap: float) -> _Band:
    x, y = _data(n, noise, gap)
    knobs: Any = {"likelihood": "gaussian", "noise": noise}
    with own_randomness(0):
        if kind == "ensemble":
            made = deep_ensemble(_net, x, y, members=5, epochs=60, batch_size=n, learning_rate=0.1)
            found = posterior_predictive(made, None, _GRID, **knobs)
        else:
            energy = posterior(_net(), x, y, likelihood="gaussian", noise=noise, prior=2.0)
            start = _minimum(energy)
            if kind == "laplace":
                net = _net()
                f = functional(net)
                with torch.no_grad():
                    for name, value in f.unravel(start[0]).items():
                        f.parameters[name].copy_(value)
                options: Any = {"subset": "all", "structure": "full", "prior": 2.0}
                found = posterior_predictive(laplace(net, x, y, **knobs, **options), None, _GRID,
                                             **knobs)  # fmt: skip
            else:
                step = 0.25 * noise / n**0.5  # an eighth of what the steepest direction allows
                chains = sample(energy, start, kernel="hmc", draws=10, thin=3, warmup=0,
                                eta=step, mass=1.0, leapfrogs=18, max_rhat=1e9)  # fmt: skip
                found = posterior_predictive(chains, _net(), _GRID, **knobs)
    return _Band(*(t[:, 0].numpy() for t in (found.mean, found.spread, found.std)))


def _minimum(energy: Any) -> Tensor:
    """Weights near minima of the energy, from 16 starts, the lowest first."""
    theta = torch.randn(16, energy.size)
    theta.requires_grad_()
    steps = torch.optim.Adam([theta], lr=0.1)
    for _ in range(120):
        theta.grad = energy.gradient(theta.detach())
        steps.step()
    theta = theta.detach()
    return theta[energy(theta).argsort()]
