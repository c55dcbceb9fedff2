"""Noise that becomes data: a diffusion run backwards, with the exact and with a learned score."""

import math
from functools import lru_cache
from typing import Annotated, Any, Literal

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from vademecum.canvas import GREY, panels
from vademecum.generative import (
    VPSDE,
    MixtureScore,
    annealed_langevin,
    fisher_divergence,
    probability_flow,
    reverse_sde_sample,
    score_matching_loss,
)
from vademecum.models import mlp
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness

__all__ = ["a_diffusion_runs_backwards"]

PROCESS = VPSDE(beta_min=0.2, beta_max=12.0)
POINTS, REACH, BATCH, STEPS = 300, 2.6, 512, {"briefly": 30, "longer": 500}
Density = Literal["ring", "spiral", "cross"]
Sampler = Literal["reverse SDE", "probability flow", "annealed Langevin"]


@picture(
    claims=(
        "generative.reverse_sde",
        "generative.annealed_langevin_versus_diffusion",
        "generative.denoising_score_matching",
        "generative.low_density_scores",
    ),
    plays="time",
)
def a_diffusion_runs_backwards(
    time: Annotated[float, Range(0.0, 1.0, 0.1)] = 0.1,
    density: Density = "ring",
    sampler: Sampler = "reverse SDE",
    trained: Literal["briefly", "longer"] = "longer",
) -> Figure:
    """A diffusion runs backwards.

    Points start as noise at time 1 and are data at time 0. To the left they follow the exact score,
    the arrows, of the noised density in grey; to the right that of a small network, trained to
    remove noise. Turn time back: first the outline appears, then the parts. The network errs most
    between the parts, where it saw no data, and the less it was trained the sooner that shows.

    Knobs:
        time: How far the points still have to go.
        density: What the data look like.
        sampler: What moves the points: the reverse diffusion, the flow without noise, or Langevin
            steps at falling levels of noise.
        trained: How long the network was trained.
    """
    exact, net = mixture(density), network(density, trained)
    figure, axes = panels((8.4, 4.3), 1, 2, margins=(0.4, 0.1, 0.35, 0.4), gaps=(0.35, 0))
    late = max(time, 0.02)  # where a network's score is still of use
    with own_randomness(2):
        s, e = map(float, PROCESS.marginal(torch.tensor(late)))
        seen = s * exact.sample(1000) + e * torch.randn(1000, 2)
    t = torch.full((1000,), late)
    for panel, model, name in zip(axes, (exact, net), ("exact", "learned"), strict=True):
        _background(panel, exact, late)
        _arrows(panel, model, late)
        x = moved(model, sampler, time).numpy()
        panel.plot(x[:, 0], x[:, 1], ".", color="C1", ms=3.5)
        off = float(fisher_divergence(model, seen, exact, t=t).value)
        size = float(exact(seen, t).square().sum(1).mean())
        error = "" if model is exact else f", off by {math.sqrt(off / size):.0%}"
        panel.set(xlim=(-REACH, REACH), ylim=(-REACH, REACH), title=f"{name} score{error}")
    return figure


@torch.no_grad()
def moved(model: Any, sampler: str, time: float) -> Tensor:
    """Where the points are at a time: always the same noise, in steps of a hundredth."""
    dice = torch.Generator().manual_seed(4)
    if time == 1:
        return PROCESS.sample_prior((POINTS, 2), generator=dice)
    end = max(time, 0.01)
    if sampler == "reverse SDE":
        return reverse_sde_sample(model, (POINTS, 2), process=PROCESS, steps=round(100 * (1 - end)),
                                  end=end, denoise=time == 0, generator=dice)  # fmt: skip
    start = PROCESS.sample_prior((POINTS, 2), generator=dice)
    if sampler == "probability flow":
        return probability_flow(model, start, process=PROCESS, end=end, tol=1e-3).x
    levels = torch.linspace(1, end, 2 + round(20 * (1 - end)))
    return annealed_langevin(model, start, process=PROCESS, levels=levels, per_level=5, eta=0.2,
                             generator=dice)  # fmt: skip


@lru_cache
def mixture(density: str) -> MixtureScore:
    """The data as a Gaussian mixture, whose score is known."""
    if density == "cross":
        thin = torch.tensor([[1.0, 0.94], [0.94, 1.0]])
        spread = torch.stack([thin, thin * torch.tensor([[1.0, -1.0], [-1.0, 1.0]])])
        means, variances = torch.zeros(2, 2), spread * 0.8
    elif density == "spiral":
        angle = torch.linspace(0.4, (3.4 * math.pi) ** 2, 40).sqrt()  # evenly along the arm
        means = (angle / 5.2)[:, None] * torch.stack([angle.cos(), angle.sin()], 1)
        variances = torch.full((40,), 0.012)
    else:
        angle = torch.arange(8) * math.pi / 4
        means = 1.7 * torch.stack([angle.cos(), angle.sin()], 1)
        variances = torch.full((8,), 0.02)
    k = len(means)
    return MixtureScore(torch.full((k,), 1 / k), means, variances, process=PROCESS,
                        predicts="score")  # fmt: skip


class Denoiser(nn.Module):
    """A network that predicts the noise in a point, and gives the score that follows from it.

    It corrects the noise that would be in a point of normal data, and sees waves of the point.
    """

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp([13, 64, 64, 2], nn.SiLU)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """The score."""
        scale, std = (value.to(x)[:, None] for value in PROCESS.marginal(t))
        waves = torch.cat([2 * x, 4 * x], 1)
        seen = torch.cat([x, waves.sin(), waves.cos(), t[:, None], scale, std], 1)
        return -(x + scale * self.net(seen) / std)


@lru_cache
def network(density: str, trained: str) -> Denoiser:
    """A network trained by denoising score matching, for about a second."""
    exact = mixture(density)
    with own_randomness(0):
        net, data = Denoiser(), exact.sample(8192)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
        decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS[trained])
        for _ in range(STEPS[trained]):
            loss = score_matching_loss(net, data[torch.randint(8192, (BATCH,))], process=PROCESS)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            decay.step()
    return net


@torch.no_grad()
def _background(axes: Axes, exact: MixtureScore, t: float) -> None:
    side = torch.linspace(-REACH, REACH, 60)
    grid = torch.cartesian_prod(side, side)
    height = exact.log_prob(grid, t=t).exp().view(60, 60).T
    top = float(height.max())
    axes.contourf(side.numpy(), side.numpy(), height.numpy(), colors=[GREY],
                  levels=[0.02 * top, top], alpha=0.15)  # fmt: skip
    axes.contourf(side.numpy(), side.numpy(), height.numpy(), colors=[GREY],
                  levels=[0.25 * top, top], alpha=0.25)  # fmt: skip


@torch.no_grad()
def _arrows(axes: Axes, model: Any, t: float) -> None:
    side = torch.linspace(-REACH + 0.2, REACH - 0.2, 11)
    at = torch.cartesian_prod(side, side)
    score = model(at, torch.full((len(at),), t))
    length = torch.linalg.vector_norm(score, dim=1, keepdim=True)
    arrow = (score / length.clamp(min=1e-9) * length.clamp(max=6).sqrt() / 2.5).numpy()
    x, y = at.T.numpy()
    axes.quiver(x, y, arrow[:, 0], arrow[:, 1], color="C0", angles="xy", scale_units="xy",
                scale=2.8, width=0.004)  # fmt: skip
