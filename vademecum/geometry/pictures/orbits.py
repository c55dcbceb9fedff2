"""The orbit of an image, with the error of a network in each position."""

from functools import lru_cache
from typing import Literal

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from vademecum.canvas import panels
from vademecum.geometry import (
    Group,
    GroupConv2d,
    GroupPool,
    ImageAction,
    draw_orbit,
    invariance_error,
    symmetrize,
)
from vademecum.pictures import picture
from vademecum.randomness import own_randomness

__all__ = ["orbit_of_an_image"]

Letter = Literal["F", "S", "T", "X"]
Net = Literal["plain", "p4", "p4m", "averaged"]
Turns = Literal["quarter turns", "turns and reflections", "eighths of a turn"]
_LETTERS = {
    "F": "11111 10000 10000 11110 10000 10000 10000",
    "S": "01111 10000 10000 01110 00001 00001 11110",
    "T": "11111 00100 00100 00100 00100 00100 00100",
    "X": "1000001 0100010 0010100 0001000 0010100 0100010 1000001",
}
_GROUPS = {
    "quarter turns": Group.cyclic(4),
    "turns and reflections": Group.dihedral(4),
    "eighths of a turn": Group.cyclic(8),
}
_SIZE, _CHANNELS = 31, 8  # so large that no letter is cut off when it turns


@picture(claims=("geometry.invariance_equivariance", "geometry.group_convolution"))
def orbit_of_an_image(
    letter: Letter = "F", network: Net = "plain", group: Turns = "turns and reflections"
) -> Figure:
    """An image in all positions, and what a network makes of it.

    Below each position stands its name and the error: how much the answer of a random network
    changes, as a part of its length; the largest is framed. Plain convolutions mind every turn.
    Those on p4 mind reflections, but no quarter turns; those on p4m mind neither, up to rounding,
    and nor does a network that is averaged over the group. Turns by 45 degrees are interpolated,
    which is no symmetry for any of them. A letter that looks the same after a turn shows no error
    there, whatever the network.

    Knobs:
        letter: What the image shows.
        network: Plain convolutions, convolutions on p4 or p4m, or plain ones averaged over the
            group.
        group: Which positions there are.
    """
    mine = _GROUPS[group]
    net = _network("plain" if network == "averaged" else network)
    if network == "averaged":
        net = symmetrize(net, mine, action=ImageAction(mine))
    found = invariance_error(net, _image(letter), group=mine)
    high = 2.4 if mine.order == 4 else 4.3
    figure, axes = panels((6.4, high), margins=(0.1, 0.1, 0.05, 0.4))
    draw_orbit(found, axes)
    which = "averaged" if network == "averaged" else f"{network} convolutions"
    moved = "" if found.exact else ", of which the interpolation has its part"
    figure.suptitle(f"{which}: errors up to {found.error:.2g}{moved}")
    return figure


def _image(letter: str) -> Tensor:
    """A letter in the middle of the image, each of its dots 3 x 3 pixels."""
    dots = torch.tensor([[float(dot) for dot in row] for row in _LETTERS[letter].split()])
    dots = dots.repeat_interleave(3, 0).repeat_interleave(3, 1)
    h, w = dots.shape
    image = torch.zeros(1, 1, _SIZE, _SIZE)
    top, left = (_SIZE - h) // 2, (_SIZE - w) // 2
    image[0, 0, top : top + h, left : left + w] = dots
    return image


@lru_cache
def _network(kind: str) -> nn.Module:
    with own_randomness(4):
        tail = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(_CHANNELS, 4, bias=False))
        if kind == "plain":
            first, second = (nn.Conv2d(c, _CHANNELS, 5, bias=False) for c in (1, _CHANNELS))
            return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), *tail)
        on = "p4m" if kind == "p4m" else "p4"
        lift = GroupConv2d(1, _CHANNELS, 5, group=on, lifting=True, bias=False)
        layer = GroupConv2d(_CHANNELS, _CHANNELS, 5, group=on, bias=False)
        return nn.Sequential(lift, nn.ReLU(), layer, nn.ReLU(), GroupPool(on), *tail)
