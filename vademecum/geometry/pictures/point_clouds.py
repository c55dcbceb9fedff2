"""The points that a PointNet looks at."""

import math
from copy import deepcopy
from functools import lru_cache
from typing import Annotated, Literal

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn import functional as F

from vademecum.canvas import GREY, panels
from vademecum.geometry.sets import DeepSets, critical_set
from vademecum.models import mlp
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness

__all__ = ["critical_points"]

Shape = Literal["ring", "square", "cross", "spiral"]
SHAPES: tuple[Shape, ...] = ("ring", "square", "cross", "spiral")
PORTION = 20


@picture(claims=("geometry.pointnet",), plays="steps")
def critical_points(
    shape: Shape = "square",
    features: Literal[8, 16, 32, 64] = 32,
    points: Annotated[int, Range(20, 220, 20, unit="points")] = 160,
    steps: Annotated[int, Range(0, 60, PORTION, unit="steps")] = 40,
) -> Figure:
    """Which points of a cloud a PointNet depends on.

    A network of PointNet's form learns to tell four shapes apart: it takes the maximum of each
    feature over the points. Those that attain one are critical, the larger the more; on the right
    they are alone, and the network gives the same answer for them. There are never more than
    features, however many points there are.

    Knobs:
        shape: The shape that is looked at.
        features: How many features maxima are taken of.
        points: How many points the cloud has.
        steps: How many steps of training the network has had.
    """
    model = _trained(features, steps)[0]
    with own_randomness(7):
        cloud = _clouds(torch.tensor([SHAPES.index(shape)]), points)[0]
    found = critical_set(model, cloud[None])
    mask, wins = found.mask[0], found.wins[0]
    with torch.no_grad():
        answers = [model.eval()(c[None])[0].softmax(0) for c in (cloud, cloud[mask])]
    figure, axes = panels((7.2, 3.9), 1, 2, margins=(0.2, 0.2, 0.3, 0.6))
    named = f"{points} points", f"{int(mask.sum())} critical ones, of {features} at most"
    for axis, title, p, kept in zip(axes.flat, named, answers, (False, True), strict=True):
        if not kept:
            axis.scatter(*cloud[~mask].T, s=14, color=GREY, alpha=0.6, linewidths=0)
        axis.scatter(*cloud[mask].T, s=22 + 9 * wins[mask], color="#d9641e", linewidths=0)
        best = int(p.argmax())
        axis.set_title(f"{title}\n{SHAPES[best]}, probability {float(p[best]):.6f}")
        axis.set_xlim(-1.5, 1.5)
        axis.set_ylim(-1.5, 1.5)
        axis.set_aspect("equal")
        axis.axis("off")
    return figure


def _clouds(labels: Tensor, n: int) -> Tensor:
    """Clouds of n points of these shapes, with a little noise."""
    m = len(labels)
    t, side = torch.rand(m, n), torch.randint(4, (m, n))
    angle, along = 2 * math.pi * t, 2 * t - 1
    ring = torch.stack([angle.cos(), angle.sin()], 2)
    edge = torch.stack([along, torch.ones(m, n)], 2) * (side < 2)[..., None].mul(2).sub(1)
    square = torch.where((side % 2 == 0)[..., None], edge, edge.flip(2))
    cross = torch.stack([along, along * (side < 2).mul(2).sub(1)], 2)
    spiral = t.sqrt()[..., None] * torch.stack([(2 * angle).cos(), (2 * angle).sin()], 2)
    x = torch.stack([ring, square, cross, spiral])[labels, torch.arange(m)]
    return x + 0.03 * torch.randn(m, n, 2)


@lru_cache(32)
def _trained(features: int, steps: int) -> tuple[DeepSets, torch.optim.Optimizer]:
    """The network after so many steps, from where it was a portion before."""
    with own_randomness(100 + steps):
        if steps <= 0:
            net = DeepSets(mlp([2, 32, features]), nn.Linear(features, 4), aggregate="max")
            return net, torch.optim.Adam(net.parameters(), 0.01, fused=True)
        before = steps - 1 - (steps - 1) % PORTION
        net, descent = deepcopy(_trained(features, before))
        net.train()
        for _ in range(steps - before):
            labels = torch.randint(4, (16,))
            x = _clouds(labels, 64)
            descent.zero_grad()
            F.cross_entropy(net(x), labels).backward()
            descent.step()
    return net.eval(), descent
