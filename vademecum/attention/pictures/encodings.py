"""Encodings of positions, and how alike positions are by them."""

from typing import Annotated, Literal

import torch
from matplotlib.figure import Figure
from torch import Tensor

from vademecum.attention import sinusoidal_encoding
from vademecum.canvas import GREY, panels
from vademecum.pictures import Range, picture

__all__ = ["position_encodings"]


@picture(claims=("attention.sinusoidal_encoding", "attention.encoding_shift_rotation"))
def position_encodings(
    n: Annotated[int, Range(4, 64, 2, log=True)] = 32,
    T: Annotated[int, Range(20, 100, 20)] = 60,
    base: Annotated[float, Range(10.0, 100_000.0, 10, log=True)] = 10_000.0,
    frequencies: Literal["in pairs", "one each", "as printed"] = "in pairs",
) -> Figure:
    """Encodings of positions, and their inner products.

    In pairs of a sine and a cosine, encodings are alike by distance alone: the inner products are
    constant along the diagonals, and all curves on the right are one. Give each feature a frequency
    of its own, and this is gone; with the exponent that several sheets print, frequencies grow
    instead of falling, and neighbours have nothing in common. A smaller base repeats itself sooner.

    Knobs:
        n: How many features a position has.
        T: How many positions there are.
        base: The ratio that the frequencies span.
        frequencies: Whether a sine and the next cosine share a frequency, each feature has its own,
            or these grow, as printed.
    """
    p = _encodings(T, n, base, frequencies)
    alike = p @ p.T / (n / 2)
    figure, axes = panels((9, 3.0), 1, 3, margins=(0.6, 0.15, 0.5, 0.4), gaps=(0.7, 0))
    colours = {"cmap": "RdBu_r", "vmin": -1, "vmax": 1, "interpolation": "nearest"}
    axes[0].imshow(p.numpy(), aspect="auto", **colours)
    axes[0].set(xlabel="feature", ylabel="position", title="encodings")
    axes[1].imshow(alike.numpy(), aspect="auto", **colours)
    axes[1].set(xlabel="position", title="inner products over n/2")
    for part, style in ((0.25, "-"), (0.5, "--"), (0.75, ":")):
        s = int(part * T)
        axes[2].plot(torch.arange(T) - s, alike[s], style, label=f"of position {s}")
    axes[2].axhline(0, color=GREY, linewidth=0.5)
    axes[2].set(xlabel="offset", ylim=(-1.1, 2.1), title="by offset")
    axes[2].legend(loc="upper right")
    return figure


def _encodings(T: int, n: int, base: float, frequencies: str) -> Tensor:
    if frequencies == "in pairs":
        return sinusoidal_encoding(T, n, base=base, dtype=torch.float64)
    k = torch.arange(n, dtype=torch.float64)
    omega = base ** ((k if frequencies == "as printed" else -k) / n)
    angles = torch.arange(T)[:, None] * omega
    return torch.where(k % 2 == 0, angles.sin(), angles.cos())
