"""Receptive fields that grow with depth, stride and dilation."""

from functools import cache
from typing import Annotated, Literal

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

from vademecum.canvas import GREY, panels
from vademecum.convolution.receptive import ReceptiveField, receptive_field
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness

__all__ = ["growing_field"]

SIDE, WIDTH = 64, 3


@picture(
    claims=("convolution.receptive_field_recursion", "convolution.receptive_field_growth",
            "convolution.dilated_receptive_field", "convolution.receptive_field"),
    plays="depth",
)  # fmt: skip
def growing_field(
    depth: Annotated[int, Range(1, 6, unit="layers")] = 4,
    kernel: Literal[3, 5] = 3,
    strided: Annotated[int, Range(0, 3, unit="layers")] = 0,
    dilation: Literal["1", "2", "doubling"] = "1",
) -> Figure:
    """A receptive field grows.

    What the unit in the middle of the last layer can see of an image, framed, and how strongly each
    pixel acts on it, grey: the gradient is largest in the middle and fades towards the rim, so the
    effective field is smaller than the frame. Layers of stride 1 add a little each; strides make
    every later layer count double, and dilations that double make the field explode. Dilation 2 in
    every layer leaves holes.

    Knobs:
        depth: How many convolutions there are.
        kernel: The side of their kernels.
        strided: How many of them, from the first on, have stride 2.
        dilation: The distance of neighbouring taps, in all layers or doubling from layer to layer.
    """
    figure, (image, sizes) = panels((8, 3.8), 1, 2, margins=(0.6, 0.15, 0.5, 0.4), gaps=(0.9, 0))
    field = measured(depth, kernel, strided, dilation)
    draw_image(image, field)
    spans, widths = [], []
    for layers in range(1, depth + 1):
        one = measured(layers, kernel, strided, dilation)
        spans.append(one.size[0])
        widths.append(spread(one))
    places = range(1, depth + 1)
    sizes.plot(places, spans, "o-", label="field")
    sizes.plot(places, widths, "s-", label="effective: a deviation to either side")
    sizes.set(
        xlabel="layers",
        ylabel="pixels along a side",
        xlim=(0.5, 6.5),
        ylim=(0, 1.25 * max(*spans, *widths)),
    )
    sizes.axhline(SIDE, color=GREY, lw=0.8, ls=":")
    sizes.legend(loc="upper left", bbox_to_anchor=(0.02, 0.98))
    seen = int(field.mask.sum())
    figure.suptitle(
        f"a field of {field.size[0]} x {field.size[1]}, of which the image holds {seen} pixels;"
        f" it moves by {field.stride[0]:g}"
    )
    return figure


@cache
def measured(depth: int, kernel: int, strided: int, dilation: str) -> ReceptiveField:
    """The field of a random network of so many layers."""
    layers: list[nn.Module] = []
    with own_randomness(0):
        for i in range(depth):
            d = 2**i if dilation == "doubling" else int(dilation)
            step = 2 if i < strided else 1
            maps = WIDTH if i else 1
            conv = nn.Conv2d(maps, WIDTH, kernel, step, d * (kernel - 1) // 2, d)
            nn.init.kaiming_normal_(conv.weight)
            nn.init.zeros_(conv.bias)  # pyright: ignore[reportArgumentType]
            layers += [conv, nn.Tanh()]
        return receptive_field(nn.Sequential(*layers), torch.randn(1, 1, SIDE, SIDE))


def spread(field: ReceptiveField) -> float:
    """Two standard deviations of the effective field along the rows."""
    assert field.effective is not None
    weights, places = field.effective.sum(1), torch.arange(SIDE)
    mean = (weights * places).sum()
    return 2 * float((weights * (places - mean) ** 2).sum().sqrt())


def draw_image(axes: Axes, field: ReceptiveField) -> None:
    """The effective field, framed by the theoretical one."""
    assert field.effective is not None
    shown = (field.effective / field.effective.max()).sqrt()  # or the rim would not be seen
    axes.imshow(shown.numpy(), cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
    places = field.mask.nonzero()
    low, high = places.min(0).values - 0.5, places.max(0).values + 0.5
    corners = [(low[1], low[0]), (high[1], low[0]), (high[1], high[0]), (low[1], high[0])]
    axes.plot(*zip(*[*corners, corners[0]], strict=True), color="C1", lw=1.5)
    axes.set(xlabel="column", ylabel="row", xlim=(-0.5, SIDE - 0.5), ylim=(SIDE - 0.5, -0.5))
