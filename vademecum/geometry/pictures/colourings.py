"""Two graphs, coloured step by step."""

import math
from functools import lru_cache
from typing import Annotated, Any, Literal

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vademecum.canvas import GREY, panels
from vademecum.geometry.colour_refinement import colours_by_round, weisfeiler_leman
from vademecum.pictures import Range, picture

__all__ = ["graph_colours"]

Pair = Literal[
    "two trees", "star and path", "hexagon and triangles", "prism and its twist", "marked hexagons"
]
Points = list[tuple[float, float]]
Pairs = list[tuple[int, int]]
SHADES = ("#2f7ed8", "#d9641e", "#2a9d63", "#b5539c", "#8a7a1f", "#5c9ead", "#c0504d", "#6c6f9d",
          "#9aa33b", "#3d6b8e", "#a06a42", "#7d8289")  # fmt: skip


@picture(claims=("geometry.wl_test", "geometry.wl_incompleteness"), plays="rounds")
def graph_colours(
    pair: Pair = "two trees", rounds: Annotated[int, Range(0, 4, 1, unit="rounds")] = 2
) -> Figure:
    """Weisfeiler-Leman colours two graphs, round by round.

    In each round nodes of one colour part if their neighbours' colours do, counted. Below, how
    often each colour occurs: as soon as the two differ, the graphs are different. The trees have
    the same degrees and take a second round. All nodes of a hexagon and of two triangles stay
    alike for ever, and so do those of the two prisms; a single marked node makes the difference.

    Knobs:
        pair: Which graphs are coloured.
        rounds: How many rounds there were.
    """
    (points, edges, _), (others, links, _) = _graphs(pair)
    history, verdict = _coloured(pair)
    names = history[min(rounds, len(history) - 1)]
    figure, axes = panels((7.2, 4.6), 2, 2, gaps=(0.5, 0.4), height_ratios=[2.4, 1],
                          margins=(0.7, 0.2, 0.5, 0.5))  # fmt: skip
    top, below = axes
    n, most = len(points), int(names.max()) + 1
    for axis, bars, where, lines, own in (
        (top[0], below[0], points, edges, names[:n]), (top[1], below[1], others, links, names[n:]),
    ):  # fmt: skip
        _draw_graph(axis, where, lines, own.tolist())
        counts = torch.bincount(own, minlength=most).tolist()
        bars.bar(range(most), counts, color=[SHADES[c % len(SHADES)] for c in range(most)])
        bars.set_xticks(range(most))
        bars.set_xlim(-0.6, 7.6)
        bars.set_yticks(range(0, n + 1, 2))
        bars.set_ylim(0, n + 0.5)
        bars.set_xlabel("colour")
    below[0].set_ylabel("nodes")
    figure.suptitle(_said(rounds, len(history) - 1, verdict))
    return figure


def _said(rounds: int, stable: int, different_at: int | None) -> str:
    passed = f"after {rounds} round{'s' if rounds != 1 else ''}"
    if different_at is not None and rounds >= different_at:
        return f"{passed}: different, since round {different_at}"
    state = "stable, and it cannot tell" if rounds >= stable else "not told apart yet"
    return f"{passed}: {state}"


def _draw_graph(axis: Axes, points: Points, edges: Pairs, colours: list[int]) -> None:
    for a, b in edges:
        (x, y), (u, v) = points[a], points[b]
        axis.plot([x, u], [y, v], color=GREY, lw=1.2, zorder=1)
    for (x, y), colour in zip(points, colours, strict=True):
        axis.scatter(x, y, s=230, color=SHADES[colour % len(SHADES)], zorder=2)
        axis.text(x, y, str(colour), ha="center", va="center_baseline", color="white", fontsize=9)
    low, high = (tuple(map(f, zip(*points, strict=True))) for f in (min, max))
    reach = max(1.25, (high[1] - low[1]) / 2 + 0.25, ((high[0] - low[0]) / 2 + 0.4) / 1.4)
    x, y = ((a + b) / 2 for a, b in zip(low, high, strict=True))
    axis.set_xlim(x - 1.4 * reach, x + 1.4 * reach)
    axis.set_ylim(y - reach, y + reach)
    axis.set_aspect("equal")
    axis.axis("off")


@lru_cache(8)
def _coloured(pair: Pair) -> tuple[list[Any], int | None]:
    given, colours = [], []
    for points, edges, marked in _graphs(pair):
        one = torch.tensor(edges).T
        given.append((torch.cat([one, one.flip(0)], 1), len(points)))
        colours.append(torch.tensor([int(i == marked) for i in range(len(points))]))
    history = colours_by_round(*given, colours=tuple(colours))
    return history, weisfeiler_leman(*given, colours=tuple(colours)).different_at


def _ring(n: int, x: float = 0.0, y: float = 0.0, r: float = 1.0) -> Points:
    angles = [2 * math.pi * i / n + math.pi / 2 for i in range(n)]
    return [(x + r * math.cos(a), y + r * math.sin(a)) for a in angles]


def _cycle(n: int, start: int = 0) -> Pairs:
    return [(start + i, start + (i + 1) % n) for i in range(n)]


def _graphs(pair: Pair) -> list[tuple[Points, Pairs, int]]:
    """Points, edges and a marked node (or -1), of either graph."""
    triangles = [*_ring(3, -0.9, 0, 0.75), *_ring(3, 0.9, 0, 0.75)]
    hexagon = (_ring(6), _cycle(6)), (triangles, [*_cycle(3), *_cycle(3, 3)])
    if pair == "star and path":
        star = ([(0.0, 0.0), *_ring(3)], [(0, 1), (0, 2), (0, 3)])
        graphs = star, ([(float(i), 0.0) for i in range(4)], [(0, 1), (1, 2), (2, 3)])
    elif pair == "two trees":
        line = [(float(i), 0.0) for i in range(6)]
        path = [(i, i + 1) for i in range(5)]
        graphs = ([*line, (1.0, 1.0)], [*path, (1, 6)]), ([*line, (2.0, 1.0)], [*path, (2, 6)])
    elif pair == "prism and its twist":
        inner = [*_ring(3, r=1.0), *_ring(3, r=0.45)]
        prism = (inner, [*_cycle(3), *_cycle(3, 3), (0, 3), (1, 4), (2, 5)])
        graphs = prism, (_ring(6), [*_cycle(6), (0, 3), (1, 4), (2, 5)])
    else:
        graphs = hexagon
    marked = 0 if pair == "marked hexagons" else -1
    return [(*graph, marked) for graph in graphs]
