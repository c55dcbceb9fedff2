"""Differences of convex functions: why two maxout units are enough."""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vademecum.approximation import dc_split, pwl_to_maxout
from vademecum.approximation.claims._networks import piecewise_linear
from vademecum.approximation.claims.maxout import Function, excess, kinked
from vademecum.claims import at_least, at_most, claim, equals
from vademecum.models import mlp


def unswapped(model: nn.Sequential, x: Tensor) -> tuple[Function, Function, float]:
    """The parts that signed weights give: their difference is right, but they are not convex."""

    def carry(x: Tensor) -> tuple[Tensor, Tensor]:
        u, v = x, torch.zeros_like(x)
        for layer in model:
            if isinstance(layer, nn.Linear):
                u, v = layer(u), v @ layer.weight.T
            else:
                u, v = torch.maximum(u, v), v
        return u, v

    return lambda x: carry(x)[0], lambda x: carry(x)[1], 0.0


@claim(
    by="sampling",
    sources=("A-070", "B-199"),
    budget=0.5,
    full={"n": 10_000, "sets": 20},
    short=r"f \text{ piecewise linear} \Rightarrow f = g - h,\ g, h \text{ convex and piecewise"
    r" linear}",
)
def dc_decomposition(split: Callable[..., Any] = dc_split, n: int = 1000, sets: int = 3):
    r"""Piecewise-linear functions are differences of convex ones.

    Every continuous piecewise-linear $f : \mathbb{R}^n \to \mathbb{R}$ is a difference $g - h$ of
    two polyhedral, that is convex piecewise-linear, functions. In one dimension split the changes
    of slope by their sign. In a ReLU network propagate pairs: $W (g - h) + b$ becomes
    $(W^+ g + W^- h + b) - (W^+ h + W^- g)$ with $W = W^+ - W^-$, $W^\pm \ge 0$, and
    $(u - v)_+ = \max(u, v) - v$.

    The difference is compared at random points, and convexity on random chords.

    Knobs:
        split: The function of a network and inputs that gives $g$ and $h$.
        n: How many points and chords are drawn.
        sets: How many functions and networks are drawn.
    """
    for k in range(sets):
        x, y = kinked(10)
        two = pwl_to_maxout(x, y)
        yield equals("difference of two hinges", two(x[:, None]), y, tol=0.0, set=k)
        for part, name in zip(two, "gh", strict=True):
            chords = (x[:-1, None], x[1:, None], torch.full((9,), 0.5))
            change = part.A[:, 0].diff(prepend=part.A[:1, 0])
            yield at_least("change of slope of a hinge", change, 0.0, tol=0.0, set=k, part=name)
            above = excess(part, *chords)
            yield at_most("height of a hinge above a chord", above, 0.0, tol=0.0, set=k, part=name)
        model = mlp([2, 12, 9, 2])
        x = 3 * torch.randn(n, 2)
        g, h, _ = split(model, x)
        yield equals("difference of the network's parts", g(x) - h(x), model(x), set=k)
        near = torch.lerp(x, x.flip(0), torch.rand(n, 1))  # chords of all lengths
        for part, name in ((g, "g"), (h, "h")):
            above = excess(part, x, near, torch.rand(n))
            yield at_most("height of a part above a chord", above, 0.0, set=k, part=name)
    for kind, (model, x) in piecewise_linear().items():
        g, h, gap = dc_split(model, x)
        yield equals("difference of the network's parts", g(x) - h(x), model(x), network=kind)
        off = (g(x) - h(x) - model(x)).abs().max()
        yield equals("largest difference, as stated", gap, off, tol=1e-12, network=kind)
        x = x[torch.randint(len(x), (200,))] + torch.randn(200, *x.shape[1:])
        for part, name in ((g, "g"), (h, "h")):
            middle = part((x[::2] + x[1::2]) / 2) - (part(x[::2]) + part(x[1::2])) / 2
            yield at_most("height of a part above a chord", middle, 0.0, network=kind, part=name)


dc_decomposition.foil(
    "signed weights keep the difference and lose convexity: negative ones must swap the parts",
    refuted_by="height of a part above a chord",
    split=unswapped,
)


def envelope(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The lower convex hull of points in increasing order, as the points that it passes through."""
    kept: list[int] = []
    for i in range(len(x)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(i)
    return x[kept], y[kept]


@claim(
    by="sampling",
    sources=("A-071", "B-200"),
    budget=0.5,
    full={"n": 200_001},
    short=r"\{\max_j (\langle \theta_j, x \rangle + b_j) - \max_j (\langle \eta_j, x \rangle +"
    r" c_j)\} \text{ is dense}",
)
def two_maxout(units: Literal[1, 2] = 2, n: int = 4001):
    r"""Two maxout units are universal, one is not.

    Differences of two $k$-hinges, $k$ free, approximate every continuous function on a compact set
    as closely as one likes, because piecewise-linear functions are dense and are differences of
    maxima of affine functions. One maxout unit does not suffice: it is convex.

    Checked for the interpolant of $\sin$ on $[0, 2 \pi]$ with $m$ pieces, whose error is at most
    $\frac{h^2}{8}$, $h = \frac{2 \pi}{m}$, and is $(1 - \cos \frac h2) |\sin|$ in the middle of a
    piece; quoted beyond. A convex $g$ with
    $|g - \sin| \le \varepsilon$ has
    $1 - \varepsilon \le g(\frac\pi2) \le \frac12 (g(0) + g(\pi)) \le \varepsilon$, so
    $\varepsilon \ge \frac12$; the best one is the convex envelope, lifted by half its distance.

    Knobs:
        units: How many maxout units there are.
        n: At how many points of $[0, 2 \pi]$ the error is measured.
    """
    grid = torch.linspace(0, 2 * math.pi, n)
    for pieces in (10, 30, 100):
        x = torch.linspace(0, 2 * math.pi, pieces + 1)
        two = pwl_to_maxout(x, x.sin())
        with torch.no_grad():
            value = two(grid[:, None])
            if units == 1:
                one = pwl_to_maxout(*envelope(x, x.sin())).g
                value = one(grid[:, None])
                value = value + (grid.sin() - value).max() / 2
            middle = (x[1:] + x[:-1]) / 2
            off = two(middle[:, None]) - middle.sin()
        h = 2 * math.pi / pieces
        yield at_most(
            "error against the sine", (value - grid.sin()).abs(), h * h / 8, pieces=pieces
        )
        chord = middle.sin() * (math.cos(h / 2) - 1)
        yield equals("error in the middle of a piece", off, chord, pieces=pieces)
        yield at_least("pieces of the smaller unit", min(len(part.b) for part in two), pieces // 2,
                       pieces=pieces)  # fmt: skip


two_maxout.foil(
    "one unit is convex, and a half away from the sine",
    refuted_by="error against the sine",
    units=1,
)
