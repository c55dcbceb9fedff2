"""Pictures of this room: linear regions while a network learns, and Barron's rate."""

from functools import cache, lru_cache
from typing import Annotated, Literal

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from vademecum.approximation import (
    barron_constant,
    barron_fit,
    draw_regions,
    input_plane,
    linear_regions,
    random_feature_fit,
    region_upper_bound,
)
from vademecum.canvas import GREY, legend_beside, panels, plain_numbers
from vademecum.data import moons, spirals
from vademecum.foundations import Ball
from vademecum.models import mlp
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness

__all__ = ["barron_rate", "regions_while_training"]

STEPS, COUNTED = 100, (0, 10, 25, 50, 100)
SQUARE = input_plane(low=(-1.2, -1.2), high=(1.2, 1.2))


@picture(claims=("approximation.region_upper_bound", "approximation.montufar_bound"), plays="step")
def regions_while_training(
    data: Literal["spirals", "moons"] = "spirals",
    depth: Annotated[int, Range(1, 4)] = 2,
    width: Annotated[int, Range(2, 12)] = 10,
    step: Annotated[int, Range(0, STEPS, 5)] = STEPS,
) -> Figure:
    """The linear regions of a network while it learns.

    On every polygon the network is one affine map; they are found exactly, not by sampling. The
    colour is the class that the network tells. The boundary between the classes is straight within
    a polygon, and bends only at walls.

    Knobs:
        data: The points to be told apart.
        depth: How many hidden layers there are.
        width: How many ReLUs each of them has.
        step: How many steps of Adam the network has made.
    """
    network = (data, depth, width)
    signed = nn.Sequential(trained(*network, step), nn.LeakyReLU(0.5))  # a wall between classes
    figure = Figure((8, 4.4))
    places = ((0.01, 0.02, 0.5, 0.87), (0.62, 0.56, 0.37, 0.4), (0.62, 0.12, 0.37, 0.36))
    plane, top, bottom = map(figure.add_axes, places)
    x, y = points(data)
    draw_regions(linear_regions(signed, SQUARE), plane, points=x, labels=y)
    plane.set_axis_off()
    title = f"{count(*network, step)} linear regions in this square\n"
    title += f"(no network of this shape has more than {region_upper_bound(2, [width] * depth):,})"
    plane.set_title(title, fontsize=9)
    seen = sorted({*COUNTED, step})
    counts = [count(*network, at) for at in seen]
    top.plot(seen, counts, "o-", ms=4)
    top.set(ylabel="regions", ylim=(0, 1.1 * max(counts)))
    bottom.plot(training(*network)[1], color="C1")
    bottom.set(xlabel="training step", ylabel="loss", ylim=(0, None))
    for axes in (top, bottom):
        axes.axvline(step, color=GREY, lw=0.8)
    return figure


@cache
def points(data: str) -> tuple[Tensor, Tensor]:
    """Two classes of points in the square from -1 to 1."""
    dice = torch.Generator().manual_seed(0)
    if data == "spirals":
        return spirals(160, noise=0.02, turns=0.9, generator=dice)
    x, y = moons(160, noise=0.1, generator=dice)
    return (x - torch.tensor([0.5, 0.25])) / 1.6, y


def initial(depth: int, width: int) -> nn.Sequential:
    """A network as it is before training."""
    with own_randomness(depth):
        net = mlp([2, *[width] * depth, 1])
        for layer in (m for m in net if isinstance(m, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.uniform_(layer.bias, -0.5, 0.5)
    return net


@lru_cache(64)
def training(data: str, depth: int, width: int) -> tuple[list[Tensor], list[float]]:
    """The parameters and the loss at each step while Adam trains a network."""
    x, y = points(data)
    net = initial(depth, width)
    adam = torch.optim.Adam(net.parameters(), lr=0.05, fused=True)
    thetas, losses = [], []
    for _ in range(STEPS + 1):
        thetas.append(nn.utils.parameters_to_vector(net.parameters()).detach())
        loss = nn.functional.binary_cross_entropy_with_logits(net(x)[:, 0], y.to(x))
        losses.append(loss.item())
        adam.zero_grad()
        loss.backward()
        adam.step()
    return thetas, losses


def trained(data: str, depth: int, width: int, step: int) -> nn.Sequential:
    """The network after so many steps."""
    net = initial(depth, width)
    nn.utils.vector_to_parameters(training(data, depth, width)[0][step], net.parameters())
    return net


@lru_cache(1024)
def count(data: str, depth: int, width: int, step: int) -> int:
    """The number of its linear regions in the square."""
    return len(linear_regions(trained(data, depth, width, step), SQUARE).maps)


@picture(claims=("approximation.barron_theorem", "approximation.barron_constant"))
def barron_rate(
    dimension: Annotated[int, Range(1, 20)] = 6,
    frequency: Annotated[int, Range(1, 16)] = 8,
    waves: Annotated[int, Range(1, 4)] = 1,
) -> Figure:
    """Barron's rate.

    Step units are added one at a time, each turned to what the others left over, to fit waves at
    400 points of the unit ball. Barron's constant C is the waves' frequency in any dimension, so
    that the promised error 2C/√m does not depend on it; the fit does far better. Units with random
    directions suffer from every dimension.

    Knobs:
        dimension: The dimension of the ball.
        frequency: How fast the waves go up and down.
        waves: How many waves are added up.
    """
    dice = torch.Generator().manual_seed(0)
    x = Ball(torch.zeros(dimension), 1.0).sample(400, generator=dice)
    omega = torch.randn(waves, dimension, generator=dice)
    omega = frequency * nn.functional.normalize(omega)
    y = (x @ omega.T + torch.arange(waves)).cos().mean(1)
    constant = barron_constant(torch.full((waves,), 1 / waves), omega)
    errors = barron_fit(x, y, 32, candidates=16, refinements=3, generator=dice).errors.sqrt()
    m = torch.arange(1, len(errors) + 1)
    some = 2 ** torch.arange(6)
    blind = []
    options = {"activation": nn.Sigmoid(), "scale": 1e4, "generator": dice}  # steep as a step
    for k in some.tolist() * 2:
        net = random_feature_fit(x, y, k, **options)
        blind.append((net(x)[:, 0] - y).square().mean().item())
    random = torch.tensor(blind).view(2, -1).mean(0).sqrt()
    figure, axes = panels((8, 3.6), margins=(0.75, 2.1, 0.5, 0.1))
    axes.plot(m, 2 * constant / m.sqrt(), "--", color=GREY, label="Barron's bound, 2C/√m")
    axes.plot(m, errors[0] / m.sqrt(), ":", color=GREY, label="1/√m from the first unit on")
    axes.plot(some, random, "s-", ms=4, color="C1", label="random units")
    axes.plot(m, errors, "o-", ms=3, color="C0", label="units chosen greedily")
    axes.set(xlabel="number of units m", ylabel="root mean squared error", xscale="log")
    axes.set(yscale="log", xticks=some.tolist(), ylim=(3e-4, 40))
    plain_numbers(axes.xaxis)
    plain_numbers(axes.yaxis)
    legend_beside(axes)
    return figure
