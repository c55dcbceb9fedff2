"""How a flow bends the plane, layer by layer, until noise has the form of data."""

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal

import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor, nn

from vademecum.canvas import GREY, panels
from vademecum.data import moons
from vademecum.generative import MAF, Compose, PlanarFlow, RealNVP, SplineFlow
from vademecum.pictures import Range, picture
from vademecum.randomness import own_randomness

__all__ = ["a_flow_bends_the_plane"]

Kind = Literal["RealNVP", "SplineFlow", "MAF", "planar"]
Form = Literal["moons", "ring", "four points"]
_TWO: Any = {"transforms": 2, "hidden": (24, 24)}
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "RealNVP": lambda: RealNVP(2, **_TWO),
    "SplineFlow": lambda: SplineFlow(2, bins=6, bound=4.0, **_TWO),
    "MAF": lambda: MAF(2, activation=nn.Tanh, **_TWO),
    "planar": lambda: Compose([PlanarFlow(2), PlanarFlow(2)]),
}
"""What makes a layer of each kind: two bends, one for each coordinate where they take turns."""
STEPS, POINTS, REACH = 100, 220, 3.0


@picture(
    claims=(
        "generative.change_of_variables",
        "generative.flow_composition",
        "generative.realnvp_coupling",
        "generative.planar_flow_invertibility",
    ),
    plays="after",
)
def a_flow_bends_the_plane(
    after: Annotated[int, Range(0, 5, 1, unit="layers")] = 2,
    layers: Annotated[int, Range(1, 5, 1, unit="layers")] = 3,
    flow: Kind = "RealNVP",
    data: Form = "moons",
) -> Figure:
    """A flow bends the plane.

    To the left a square grid and normal noise; to the right what the first layers of a trained flow
    have made of both, over the data in grey. Lines never cross or tear: where they come close the
    density is high. Take the layers one by one. Planar layers bend along one direction each and
    need many; no flow cuts the thin bridge between two separate parts of the data.

    Knobs:
        after: After how many layers to look; no more than there are.
        layers: How many layers there are, of two bends each.
        flow: What a layer is.
        data: What the flow was trained on.
    """
    made, score = trained(flow, layers, data)
    now = min(after, layers)
    figure, (left, right) = panels((8.4, 4.2), 1, 2, margins=(0.45, 0.1, 0.55, 0.3), gaps=(0.4, 0))
    with own_randomness(1):
        noise = torch.randn(POINTS, 2)
    ticks, side = torch.linspace(-REACH, REACH, 13), torch.linspace(-REACH, REACH, 61)
    lines = torch.stack(torch.meshgrid(ticks, side, indexing="ij"), 2)
    _bent(left, lines[:, ::60], noise)
    left.set(xlim=(-3.6, 3.6), ylim=(-3.6, 3.6), xlabel="noise and a square grid")
    grey = examples(data)
    right.plot(grey[:, 0], grey[:, 1], ".", color=GREY, ms=3, alpha=0.6)
    _bent(right, lines, noise, lambda z: _through(made, z, now))
    right.set(xlim=(-3, 3), ylim=(-3, 3))
    right.set_xlabel(f"after {now} of {layers} layers; {score:.2f} nats a point in the end")
    return figure


def _bent(
    axes: Axes, lines: Tensor, noise: Tensor, to: Callable[[Tensor], Tensor] = lambda z: z
) -> None:
    for color, grid in (("C0", lines), ("C1", lines.flip(2))):
        moved = to(grid.reshape(-1, 2)).reshape(grid.shape).clamp(-20, 20)
        axes.add_collection(LineCollection(list(moved.numpy()), colors=color, lw=0.8, alpha=0.8))
    points = to(noise).numpy()
    axes.plot(points[:, 0], points[:, 1], ".", color="C2", ms=3)


@torch.no_grad()
def _through(flow: Any, z: Tensor, count: int) -> Tensor:
    """Noise after some layers, which a flow undoes from its last one."""
    for layer in list(reversed(flow.flows))[:count]:
        z = layer.inverse(z).value
    return z


@lru_cache(8)
def examples(data: str) -> Tensor:
    """Points in the plane, of about unit size."""
    source = torch.Generator().manual_seed(0)
    if data == "moons":
        x = moons(POINTS, noise=0.08, generator=source).x
        return ((x - x.mean(0)) / x.std(0)).float()
    noise = torch.randn(POINTS, 2, generator=source)
    if data == "ring":
        return 1.4 * noise / noise.norm(dim=1, keepdim=True) + 0.1 * noise.flip(0)
    corner = torch.randint(4, (POINTS,), generator=source)
    return torch.stack((corner % 2, corner // 2), 1) * 2.4 - 1.2 + 0.25 * noise


@lru_cache(64)
def trained(flow: str, layers: int, data: str) -> tuple[Compose, float]:
    """A flow after likelihood training on all points, and its log-likelihood a point."""
    x = examples(data)
    with own_randomness(0):
        made = Compose([LAYERS[flow]() for _ in range(layers)])
        adam = torch.optim.Adam(made.parameters(), 2e-2)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, STEPS)
        for _ in range(STEPS):
            adam.zero_grad()
            loss = -made.log_prob(x + 0.05 * torch.randn_like(x)).mean()
            loss.backward()
            adam.step()
            falling.step()
        with torch.no_grad():
            score = float(made.log_prob(x).mean())
    return made.requires_grad_(False), score
