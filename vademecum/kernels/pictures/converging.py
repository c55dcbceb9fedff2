"""Tangent kernels of random networks, which become one as they widen."""

import math
from functools import lru_cache
from typing import Annotated

import torch
from matplotlib.figure import Figure
from torch import Tensor

from vademecum.canvas import GREY, panels, plain_numbers
from vademecum.kernels import empirical_ntk, infinite_width, ntk_parametrize
from vademecum.kernels.pictures._runs import ACTIVATIONS, Activation
from vademecum.models import mlp
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness

__all__ = ["kernels_of_wide_networks"]

NETS = 6
WIDTHS = (4, 32, 256)
ANGLES = torch.linspace(-math.pi, math.pi, 61)


@picture(
    claims=("kernels.ntk_limit", "kernels.nngp_recursion", "kernels.arc_cosine_kernel"),
    plays="width",
)
def kernels_of_wide_networks(
    width: Annotated[int, Range(4, 512, 2, log=True, unit="units")] = 32,
    depth: Annotated[int, Range(1, 2)] = 1,
    activation: Activation = "ReLU",
) -> Figure:
    """Kernels of random networks converge as these widen.

    The tangent kernel between a point of the circle and all others, for six random networks (thin
    lines) and the infinite one (thick), which follows from the architecture alone. Widen them: the
    lines close in on the limit, by the root of the width, which to the right is a straight line
    (dashed: of slope one half). Deeper networks need more units for the same spread.

    Knobs:
        width: How many units each hidden layer has.
        depth: How many hidden layers there are.
        activation: What hidden units compute.
    """
    figure, (left, right) = panels((8.4, 3.7), 1, 2, margins=(0.65, 0.15, 0.5, 0.3), gaps=(0.75, 0))
    limit, found = _limit(depth, activation), _kernels(width, depth, activation)
    top = float(limit.max())
    for i, K in enumerate(found):
        label = "random networks" if i == 0 else None
        left.plot(ANGLES, K / top, "-", color="C0", lw=0.8, alpha=0.8, label=label)
    left.plot(ANGLES, limit / top, "-", color="C1", lw=2.4, label="infinite width")
    left.set(xlabel="angle", ylabel="kernel over the limit at 0")
    left.set(xlim=(-math.pi, math.pi), ylim=(-0.6, 2.2))
    left.set_xticks([-math.pi, 0, math.pi], ["−π", "0", "π"])
    left.legend(loc="upper right")
    spreads = [_spread(m, depth, activation) for m in WIDTHS]
    right.plot(WIDTHS, spreads, "o-", color="C0", ms=4, lw=1.2, label="root mean square")
    right.plot([width], [_spread(width, depth, activation)], "o", color="C0", ms=9)
    level = math.exp(sum(math.log(s * m**0.5) for s, m in zip(spreads, WIDTHS, strict=True)) / 3)
    line = [level / m**0.5 for m in WIDTHS]
    right.plot(WIDTHS, line, "--", color=GREY, lw=1, label="slope one half")
    right.set(xscale="log", yscale="log", xlabel="width", ylabel="distance from the limit")
    right.set(xlim=(3, 700), ylim=(0.02, 1))
    right.set_xticks([4, 16, 64, 256])
    plain_numbers(right.xaxis)
    right.legend(loc="lower left")
    return figure


def _circle() -> Tensor:
    return math.sqrt(2) * torch.stack([ANGLES.cos(), ANGLES.sin()], 1)


@lru_cache(16)
def _limit(depth: int, activation: str) -> Tensor:
    with own_randomness():
        net = mlp([2, *[2] * depth, 1], ACTIVATIONS[activation])
    limit = infinite_width(net, weight_variance=2.0, bias_variance=0.1)
    middle = _circle()[len(ANGLES) // 2, None]
    return limit.ntk(middle, _circle())[0]


@lru_cache(64)
def _kernels(width: int, depth: int, activation: str) -> Tensor:
    """The kernel of each network between angle 0 and all others."""
    middle, found = _circle()[len(ANGLES) // 2, None], []
    with own_randomness(width):
        for _ in range(NETS):
            net = mlp([2, *[width] * depth, 1], ACTIVATIONS[activation])
            ntk_parametrize(net, weight_variance=2.0, bias_variance=0.1)
            with torch.no_grad():
                for p in net.parameters():
                    p.normal_()
            found.append(empirical_ntk(net, middle, _circle(), outputs="trace")[0])
    return torch.stack(found)


def _spread(width: int, depth: int, activation: str) -> float:
    limit = _limit(depth, activation)
    gap = _kernels(width, depth, activation) - limit
    return float(gap.square().mean().sqrt() / limit.max())
