"""A generator that finds modes, and loses them again."""

import math
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from vademecum.canvas import GREY, panels
from vademecum.generative import GAN, ModeCoverage, mode_coverage, wasserstein_1
from vademecum.models import mlp
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness

__all__ = ["modes_collapse_and_recover"]

MODES, RADIUS, STD = 8, 2.0, 0.2
STEPS, EVERY, SHOWN = 200, 10, 240
"""Steps of a run, how often it is looked at, and how many examples are drawn then."""


Objective = Literal["saturating", "non-saturating", "wasserstein"]
Word = Literal["none", "clip", "gradient-penalty"]


class Run(NamedTuple):
    """What a generator gave while it learnt, every few steps."""

    examples: Tensor
    coverage: list[ModeCoverage]
    distances: list[float]
    """To a sample of the data, of the same size."""


@picture(
    claims=("generative.mode_collapse", "generative.wgan_critic", "generative.gradient_penalty"),
    plays="step",
)
def modes_collapse_and_recover(
    objective: Literal["saturating", "non-saturating", "wasserstein"] = "non-saturating",
    constraint: Literal["none", "clip", "gradient-penalty"] = "none",
    step: Annotated[int, Range(0, STEPS, EVERY, unit="steps")] = STEPS,
) -> Figure:
    """Modes that collapse and recover.

    The data are eight modes on a ring (circles: three deviations). A small generator hops from mode
    to mode while its opponent follows, and forgets those that it had: the lines on the right count
    the modes that it covers and measure its Wasserstein distance from the data. Play the steps,
    then bound the slope of the opponent, and see whether modes stay. Grey points belong to no mode.

    Knobs:
        objective: What the players are paid.
        constraint: What bounds the slope of the discriminator.
        step: How many steps both players have taken.
    """
    run = _trained(objective, constraint)
    now = step // EVERY
    figure, (plane, path) = panels((8, 3.9), 1, 2, margins=(0.4, 0.6, 0.5, 0.4), gaps=(0.7, 0))
    _draw_plane(plane, run.examples[now], run.coverage[now])
    times = [EVERY * i for i in range(len(run.coverage))]
    path.step(times, [found.covered for found in run.coverage], where="post", lw=1.5)
    path.set(xlabel="step", ylim=(0, MODES + 0.4), title="modes covered (steps), distance (dashed)")
    path.axvline(step, color=GREY, lw=0.8)
    right = path.twinx()
    right.plot(times, run.distances, "--", color="#d9641e", lw=1.2)
    right.set_ylim(0, 1.05 * max(run.distances))
    right.spines["right"].set_visible(True)
    found = run.coverage[now]
    title = f"{found.covered} of {MODES} modes, {found.junk:.0%} nowhere near one"
    plane.set_title(title)
    return figure


def _draw_plane(axes: Axes, x: Tensor, found: ModeCoverage) -> None:
    around = torch.linspace(0, 2 * math.pi, 40)
    for i, (a, b) in enumerate(_means().tolist()):
        rim = a + 3 * STD * around.cos(), b + 3 * STD * around.sin()
        axes.plot(*(t.numpy() for t in rim), color=GREY, lw=0.6)
        own = x[found.assignment == i].numpy()
        axes.plot(own[:, 0], own[:, 1], ".", ms=4, color=f"C{i % 5}")
    rest = x[found.assignment < 0].numpy()
    axes.plot(rest[:, 0], rest[:, 1], ".", ms=3, color=GREY, alpha=0.6)
    axes.set(xlim=(-3.4, 3.4), ylim=(-3.4, 3.4), aspect="equal")


def _means() -> Tensor:
    angle = torch.arange(MODES) * 2 * math.pi / MODES
    return RADIUS * torch.stack([angle.cos(), angle.sin()], 1)


def _data(n: int) -> Tensor:
    return _means()[torch.randint(MODES, (n,))] + STD * torch.randn(n, 2)


@lru_cache(9)
def _trained(objective: Objective, word: Word) -> Run:
    """A run of both players by Adam, a step each in turn: about a second on one core."""
    with own_randomness(0):
        G, D = mlp([2, 32, 32, 2]), mlp([2, 32, 32, 1], lambda: nn.LeakyReLU(0.2))
        constraint = None if word == "none" else word
        gan = GAN(G, D, latent_dim=2, objective=objective, constraint=constraint,
                  clip_at=0.1, penalty=1.0)  # fmt: skip
        descents = {
            name: torch.optim.Adam(net.parameters(), 5e-3, betas=(0.5, 0.9), foreach=False)
            for name, net in (("discriminator", D), ("generator", G))
        }
        codes, data, seen = torch.randn(SHOWN, 2), _data(SHOWN), []
        for step in range(STEPS + 1):
            if step % EVERY == 0:
                with torch.no_grad():
                    seen.append(G(codes))
            x = _data(96)
            for player, descent in descents.items():
                descent.zero_grad()
                gan.losses(x, players=(player,))[player].backward()
                descent.step()
                if player == "discriminator" and constraint == "clip":
                    gan.clip()
    variances = torch.full((MODES,), STD**2)
    covered = [mode_coverage(x, _means(), variances, least=6) for x in seen]
    distances = [float(wasserstein_1(x, data).distance) for x in seen]
    return Run(torch.stack(seen), covered, distances)
