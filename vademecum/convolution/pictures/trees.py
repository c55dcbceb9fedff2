"""WaveNet's tree: which samples an output is made of, layer by layer."""

import math
from typing import Annotated, Literal

import torch
from matplotlib.figure import Figure
from torch import nn

from vademecum.canvas import GREY, panels
from vademecum.convolution.causal import CausalConv1d
from vademecum.convolution.receptive import receptive_field
from vademecum.pictures import Range, picture

__all__ = ["dilated_tree"]

Edge = tuple[tuple[int, int], tuple[int, int]]


@picture(
    claims=("convolution.wavenet_context", "convolution.dilated_receptive_field",
            "convolution.causal_convolution", "convolution.parallel_depth"),
    plays="layers",
)  # fmt: skip
def dilated_tree(
    layers: Annotated[int, Range(1, 6, unit="layers")] = 4,
    kernel: Literal[2, 3] = 2,
    dilation: Literal["doubling", "none"] = "doubling",
    blocks: Annotated[int, Range(1, 2)] = 1,
) -> Figure:
    """WaveNet's dilated tree.

    Time runs to the right, layers lie above each other, and every unit sees a few units of the
    layer below, none of them later. The units that the last output is made of are coloured. With
    dilations that double, every layer doubles what is seen, and no sample is seen twice if the
    kernel is 2; without them each layer adds one. A second block of layers starts again at 1 and
    adds as much as the first.

    Knobs:
        layers: How many layers a block has.
        kernel: How many taps a layer has.
        dilation: Whether the distance of taps doubles from layer to layer, or is 1.
        blocks: How many blocks there are.
    """
    rates = [2**i if dilation == "doubling" else 1 for i in range(layers)] * blocks
    span = 1 + sum((kernel - 1) * d for d in rates)
    length = max(span + 2, 20)
    figure, axes = panels((8, 3.4), margins=(0.6, 0.15, 0.5, 0.4))
    tree, others = edges(rates, kernel, length)
    axes.plot(*one_line(others), color=GREY, lw=0.3, alpha=0.4)
    axes.plot(*one_line(tree), color="C1", lw=1.2)
    nodes = sorted({node for edge in tree for node in edge})
    axes.plot(*zip(*nodes, strict=True), "o", color="C1", ms=4 if length < 80 else 2)
    axes.set(xlabel="time", ylabel="layer", xlim=(-1, length), ylim=(-0.4, len(rates) + 0.4))
    axes.set_yticks(range(len(rates) + 1))
    axes.locator_params("x", integer=True)
    with torch.device("meta"):
        net = nn.Sequential(*(CausalConv1d(1, 1, kernel, dilation=d) for d in rates))
    seen = int(receptive_field(net, (1, length), unit=length - 1).mask.sum())
    figure.suptitle(f"{len(rates)} layers: the last output sees {seen} samples")
    return figure


def one_line(edges: list[Edge]) -> tuple[list[float], list[float]]:
    """Connections as one line with gaps, which takes a fraction of the bytes of many."""
    points = [end for a, b in edges for end in (a, b, (math.nan, math.nan))]
    return [float(x) for x, _ in points], [float(y) for _, y in points]


def edges(rates: list[int], kernel: int, length: int) -> tuple[list[Edge], list[Edge]]:
    """The connections of the last output, and all the others."""
    tree, others, needed = list[Edge](), list[Edge](), {length - 1}
    for layer in range(len(rates), 0, -1):
        below = set[int]()
        for t in range(length):
            for source in (t - k * rates[layer - 1] for k in range(kernel)):
                if source >= 0:
                    (tree if t in needed else others).append(((source, layer - 1), (t, layer)))
                    below |= {source} if t in needed else set()
        needed = below
    return tree, others
