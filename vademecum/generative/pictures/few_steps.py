"""How few steps a diffusion needs: the error of DDIM against an exact mixture."""

import math
from functools import lru_cache
from typing import Annotated, Literal

import torch
from matplotlib.figure import Figure
from torch import Tensor

from vademecum.canvas import GREY, panels
from vademecum.generative.diffusion import NoiseSchedule, ddim_sample
from vademecum.generative.diffusion._step_lists import Spacing
from vademecum.generative.exact_mixtures import MixtureScore
from vademecum.pictures import Range, picture

__all__ = ["ddim_steps_against_quality"]

T, N = 200, 3000
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
WEIGHTS, MEANS, STDS = (0.3, 0.5, 0.2), (-1.5, 0.2, 1.4), (0.2, 0.35, 0.12)


@picture(claims=("generative.ddim", "generative.ddpm_sampling", "generative.noise_schedule"),
         plays="steps")  # fmt: skip
def ddim_steps_against_quality(
    steps: Annotated[int, Range(1, 128, 2, log=True)] = 8,
    eta: Annotated[float, Range(0.0, 1.0, 0.1)] = 0.0,
    schedule: Literal["linear", "cosine"] = "linear",
    spacing: Spacing = "even",
    order: Annotated[int, Range(1, 2)] = 1,
) -> Figure:
    """DDIM with few steps, and how wrong it is.

    The predictor is exact, so all error is that of the steps: on the left the samples beside the
    true density, on the right the Wasserstein distance between them for more and more steps, grey
    for plain DDIM without new noise and with as much as DDPM adds. With one step all samples fall
    on the mean; then twice as many steps halve the error. New noise makes it somewhat larger, and
    the cosine schedule smaller. With the second order and quadratic steps, 32 do better than 128.
    Samples with new noise are random, which shows below 0.02.

    Knobs:
        steps: How many of the 200 steps of the schedule are visited.
        eta: How much new noise each step adds.
        schedule: How the noise grows.
        spacing: Where the steps lie: even in t, closer near the data, or even in the log-SNR.
        order: 2 extrapolates the clean sample from the last two predictions.
    """
    figure, (left, right) = panels((8, 3.4), 1, 2, margins=(0.5, 0.15, 0.4, 0.5), gaps=(0.6, 0))
    x = _draws(steps, eta, schedule, spacing, order)
    grid = torch.linspace(-2.6, 2.4, 400)
    left.hist(x.numpy(), bins=60, range=(-2.6, 2.4), density=True, alpha=0.5)
    left.plot(grid.numpy(), _density(grid).numpy(), color="black", lw=1)
    left.set(title=f"{N} samples, {steps} steps", xlim=(-2.6, 2.4), ylim=(0, 1.1), yticks=[])
    for other in (0.0, 1.0):
        errors = [_error(_draws(k, other, schedule, "even", 1)) for k in COUNTS]
        right.plot(COUNTS, errors, color=GREY, lw=0.8)
        right.annotate(f"eta {other:g}", (COUNTS[-1], errors[-1]), fontsize="small", color=GREY)
    own = [_error(_draws(k, eta, schedule, spacing, order)) for k in COUNTS]
    right.plot(COUNTS, own, "o-", ms=3)
    right.plot([steps], [_error(x)], "o", ms=8, mfc="none", color="black")
    right.set(xscale="log", yscale="log", title=f"distance over steps, eta {eta:g}",
              ylim=(0.0004, 1.2), xlim=(0.9, 260))  # fmt: skip
    return figure


@lru_cache(256)
def _draws(steps: int, eta: float, schedule: str, spacing: Spacing, order: int) -> Tensor:
    """Samples that begin with the quantiles of the normal law, in order."""
    process = NoiseSchedule.linear(T) if schedule == "linear" else NoiseSchedule.cosine(T)
    law = torch.tensor(WEIGHTS), torch.tensor(MEANS)[:, None], torch.tensor(STDS).square()
    model = MixtureScore(*law, process=process)
    start = torch.special.ndtri((torch.arange(N) + 0.5) / N)[:, None]
    dice = torch.Generator().manual_seed(0)
    x = ddim_sample(
        model, (N, 1), schedule=process, steps=steps, spacing=spacing, order=order, eta=eta,
        start=start, generator=dice,
    )  # fmt: skip
    return x[:, 0].sort().values


def _density(x: Tensor) -> Tensor:
    parts = [
        w * torch.exp(-(((x - m) / s) ** 2) / 2) / (s * math.sqrt(2 * math.pi))
        for w, m, s in zip(WEIGHTS, MEANS, STDS, strict=True)
    ]
    return torch.stack(parts).sum(0)


def _error(x: Tensor) -> float:
    """The Wasserstein distance of samples from the mixture: between distribution functions."""
    grid = torch.linspace(-4, 4, 1601)
    parts = [
        w * torch.special.ndtr((grid - m) / s) for w, m, s in zip(WEIGHTS, MEANS, STDS, strict=True)
    ]
    found = torch.searchsorted(x, grid) / len(x)
    return float((found - torch.stack(parts).sum(0)).abs().mean() * 8)
