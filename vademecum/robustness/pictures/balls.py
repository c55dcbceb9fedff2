"""Which balls around points a network is certain of, which it is fooled in, and which are open."""

from functools import lru_cache
from typing import Annotated, Literal

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon
from torch import Tensor, nn

from vademecum.canvas import GREY, panels
from vademecum.models import mlp
from vademecum.pictures import Range, picture
from vademecum.robustness import crown_bounds, interval_bounds, pgd

__all__ = ["certified_and_attacked_balls"]

_STATES = (
    ("certified", "C2", "-"),
    ("fooled", "C1", "-"),
    ("neither", GREY, ":"),
)


@picture(claims=("robustness.interval_bounds", "robustness.pgd"), plays="radius")
def certified_and_attacked_balls(
    radius: Annotated[float, Range(0.04, 0.4, 0.02)] = 0.16,
    norm: Literal["linf", "l2", "l1"] = "l2",
    bounds: Literal["intervals", "linear functions", "better slopes"] = "linear functions",
) -> Figure:
    """A decision boundary with certified and attacked balls.

    A network was trained to tell two moons apart. Around each of a few points stands the ball of
    the radius: bounds prove that the class is the same all over it, an attack found a point of the
    other class (a dot), or neither. Enlarge the balls: proofs are lost before attacks succeed, and
    in between nobody knows. Intervals prove least; linear functions of the input more, and with
    better slopes a little more again.

    Knobs:
        radius: The radius of the balls.
        norm: Their norm, and so their shape.
        bounds: How the bounds are computed.
    """
    model = _trained()
    x, y = (t[:24] for t in _moons(7))
    knobs = {"norm": norm, "radius": radius, "box": None}
    spec = torch.where(y == 1, 1.0, -1.0)[:, None, None] * torch.tensor([[[-1.0, 1.0]]])
    if bounds == "intervals":
        found = interval_bounds(model, x, spec=spec, **knobs)
    else:
        steps = 10 if bounds == "better slopes" else 0
        found = crown_bounds(model, x, spec=spec, max_iter=steps, **knobs)
    attack = pgd(model, x, y, steps=20, restarts=2, generator=torch.Generator().manual_seed(0),
                 **knobs)  # fmt: skip
    certified = found.lower[:, 0] > 0
    state = torch.where(certified, 0, torch.where(attack.fooled, 1, 2))
    figure, axes = panels((6.4, 4.1), margins=(0.55, 0.15, 0.5, 0.35))
    _boundary(axes, model)
    for i, (name, colour, style) in enumerate(_STATES):
        chosen = (state == i).nonzero()[:, 0].tolist()
        label = f"{name}: {len(chosen)}"
        for at in chosen or [None]:
            corners = _ball(norm, radius) + (x[at] if at is not None else torch.nan)
            patch = Polygon(corners.numpy(), closed=True, fill=False, ec=colour, ls=style, lw=1.6)
            patch.set_label(label if at is None or at == chosen[0] else "_")
            axes.add_patch(patch)
    won = attack.x[attack.fooled]
    axes.plot(*won.T, ".", color="C1", ms=5)
    for kind, mark in ((0, "o"), (1, "s")):
        axes.plot(*x[y == kind].T, mark, color=GREY, ms=4)
    axes.set(xlim=(-1.6, 2.6), ylim=(-1.15, 1.6), aspect="equal", xlabel="$x_1$", ylabel="$x_2$")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure


def _ball(norm: str, radius: float) -> Tensor:
    """The outline of a ball."""
    if norm == "l2":
        turns = torch.linspace(0, 2 * torch.pi, 61)
        return radius * torch.stack([turns.cos(), turns.sin()], 1)
    square = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    diamond = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    return radius * (square if norm == "linf" else diamond)


def _boundary(axes: Axes, model: nn.Module) -> None:
    s, t = torch.linspace(-1.6, 2.6, 141), torch.linspace(-1.15, 1.65, 101)
    grid = torch.cartesian_prod(s, t)
    with torch.no_grad():
        gap = model(grid).diff(dim=1).view(141, 101).T
    axes.contourf(s, t, gap, levels=[-1e9, 0, 1e9], colors=["C0", "C3"], alpha=0.13)
    axes.contour(s, t, gap, levels=[0], colors=[GREY], linewidths=1.2)


def _moons(seed: int, n: int = 400) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    turn = torch.pi * torch.rand(n, generator=generator)
    y = torch.arange(n) % 2
    upper = torch.stack([turn.cos(), turn.sin()], 1)
    x = torch.where(y[:, None] == 0, upper, torch.tensor([1.0, 0.5]) - upper)
    return x + 0.12 * torch.randn(n, 2, generator=generator), y


@lru_cache(1)
def _trained() -> nn.Sequential:
    """A network of two hidden layers that tells the moons apart."""
    x, y = _moons(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = mlp([2, 24, 24, 2], dtype=torch.float32)
    adam = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=1e-3)
    for _ in range(200):
        adam.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        adam.step()
    return model.requires_grad_(False)
