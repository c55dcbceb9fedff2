"""The eigenvalues of a linear recurrent unit on their ring, and what they remember."""

import math
from typing import Annotated, Literal

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Wedge

from vademecum.canvas import GREY, panels, plain_numbers
from vademecum.pictures import Range, picture
from vademecum.recurrence import lru_init, memory_length

__all__ = ["eigenvalue_ring"]

STEPS = 60


@picture(claims=("recurrence.lru_initialisation", "recurrence.eigenvalue_time_scale"))
def eigenvalue_ring(
    r_min: Annotated[float, Range(0.0, 0.95, 0.05)] = 0.5,
    r_max: Annotated[float, Range(0.5, 1.0, 0.05)] = 1.0,
    max_phase: Annotated[float, Range(0.0, 2.0, 0.125, unit="π")] = 1.0,
    m: Annotated[int, Range(8, 64, 2, log=True)] = 32,
    by: Literal["area", "modulus"] = "area",
) -> Figure:
    """Eigenvalues on their ring, and what they remember.

    Each dot on the left is an eigenvalue of a linear recurrent unit as it is drawn at first. Its
    distance from the circle says how long its channel remembers, on the right: an input fades to
    1/e within the time scale τ. Its angle says how fast the channel oscillates: below are the
    answers of the fastest, the middle and the slowest one to an impulse. Move the inner edge to 0.9
    and short memories go; with small phases the answers stop to swing; drawn by modulus, more
    eigenvalues lie inside.

    Knobs:
        r_min: The inner edge of the ring, at most the outer one.
        r_max: Its outer edge.
        max_phase: The largest phase.
        m: How many eigenvalues there are.
        by: What is uniform: the area of the ring, or the modulus.
    """
    inner = min(r_min, r_max)
    source = torch.Generator().manual_seed(5)
    drawn = lru_init(m, r_min=inner, r_max=r_max, max_phase=max_phase * math.pi, by=by,
                     generator=source, dtype=torch.float64)  # fmt: skip
    order = drawn.eigenvalues.abs().argsort()
    values = drawn.eigenvalues[order]
    tau = memory_length(values)
    colours = matplotlib.colormaps["viridis_r"](
        np.clip((tau.log10().numpy() + 0.5) / 3.5, 0.05, 0.95)
    )
    figure, grid = panels((8, 4.4), 2, 2, margins=(0.45, 0.2, 0.5, 0.35), gaps=(0.7, 0.75))
    ring = figure.add_subplot(grid[0, 0].get_gridspec()[:, 0])
    for axes in grid[:, 0]:
        axes.remove()
    _ring(ring, values.numpy(), colours, inner, r_max, 180 * max_phase)
    _fading(grid[0, 1], tau.numpy(), colours)
    chosen = [0, m // 2, m - 1]
    _answers(grid[1, 1], values[chosen].numpy(), tau[chosen].numpy(), colours[chosen])
    return figure


def _ring(
    axes: Axes, values: np.ndarray, colours: np.ndarray, inner: float, outer: float, degrees: float
) -> None:
    around = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(around), np.sin(around), color=GREY, lw=1)
    sector = Wedge((0, 0), outer, 0, degrees, width=outer - inner, color=GREY, alpha=0.15, lw=0)
    axes.add_patch(sector)
    axes.scatter(np.real(values), np.imag(values), c=colours, s=18, zorder=3)
    axes.set(xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), aspect="equal", xticks=(-1, 0, 1),
             yticks=(-1, 0, 1), xlabel="real part", title="Eigenvalues λ")  # fmt: skip


def _fading(axes: Axes, tau: np.ndarray, colours: np.ndarray) -> None:
    t = np.geomspace(0.3, 1000, 28)
    for time, colour in zip(tau, colours, strict=True):
        axes.plot(t, np.exp(-t / time), color=colour, lw=0.8)
    axes.axhline(math.exp(-1), color=GREY, lw=0.8, ls="--")
    axes.set(xscale="log", xlim=(0.3, 1000), ylim=(0, 1.02), xlabel="steps ago")
    plain_numbers(axes.xaxis)
    axes.set_title(f"What is left of an input; median τ = {np.median(tau):.3g} steps")


def _answers(axes: Axes, values: np.ndarray, tau: np.ndarray, colours: np.ndarray) -> None:
    t = np.arange(STEPS)
    for value, time, colour in zip(values, tau, colours, strict=True):
        label = f"τ = {time:.3g}"
        axes.plot(t, np.real(value**t), color=colour, lw=1.2, marker=".", ms=3, label=label)
    axes.set(
        xlim=(-1, STEPS), ylim=(-1.05, 1.6), yticks=(-1, 0, 1), xlabel="steps after the impulse"
    )
    axes.set_title("Real part of the answer, $\\mathrm{Re}\\,\\lambda^t$")
    axes.legend(loc="upper right", ncols=3)
