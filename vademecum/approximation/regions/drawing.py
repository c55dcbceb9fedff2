r"""Pictures of linear regions: the tessellation that a network makes of a plane through its inputs.

Each region is one polygon, drawn as it was found, and coloured by

* the **class**: the output that is largest at the region's centre (for a single output, its sign),
* the **gradient**: the norm of the network's derivative along the plane, constant on a region,
* or **nothing** but a hue that tells neighbours apart.

Polygons are exact. Where a region is crossed by the boundary between two classes, all of it has the
colour of its centre. Colours are light and opaque and walls are dark, so that a picture looks the
same on any ground; the more regions there are the thinner are the walls.
"""

from typing import TYPE_CHECKING, cast

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from vademecum.approximation.regions.polygons import Regions
from vademecum.arguments import choice, floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.path import Path

__all__ = ["draw_regions"]


def draw_regions(
    regions: Regions,
    axes: "Axes | None" = None,
    *,
    colour: str = "class",
    points: Float[Tensor, " n *shape"] | None = None,
    labels: Shaped[Tensor, " n"] | None = None,
) -> "Figure":
    """Draw the linear regions of a network on a plane, with data on top.

    Args:
        regions: What `linear_regions` found.
        axes: Where to draw; on a figure of its own by default.
        colour: What the colour of a region shows: "class", "gradient" or "nothing".
        points: Inputs to mark, at their orthogonal projections onto the plane.
        labels: Their classes.

    Returns:
        The matplotlib figure, to show or save.

    Example:
        >>> from vademecum.approximation.regions import input_plane, linear_regions
        >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> found = linear_regions(model, input_plane())
        >>> figure = draw_regions(found, colour="gradient", points=torch.zeros(1, 2))
        >>> figure.axes[0].get_title() == f"{len(found.maps)} linear regions"
        True
    """
    from matplotlib import colormaps
    from matplotlib.collections import PathCollection
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    choice("colour", colour, ("class", "gradient", "nothing"))
    spots = None if points is None else _project(regions, points)
    if labels is not None and (spots is None or len(labels) != len(spots)):
        raise ValueError(f"labels must be one for each point, got {len(labels)}")
    if axes is None:
        axes = Figure(figsize=(6.0, 5.4), layout="constrained").subplots()
    light = {"class": 0.4 + 0.6 * colormaps["tab10"](range(10)),
             "gradient": colormaps["viridis"](range(90, 256)),
             "nothing": colormaps["Pastel1"](range(9))}[colour]  # fmt: skip
    shades, which = _shade(regions, colour).unique(return_inverse=True)
    patches = PathCollection(
        [_outline(regions, which == i) for i in range(len(shades))],
        array=shades.cpu().numpy(),
        cmap=ListedColormap(light),
        clim=None if colour == "gradient" else (0, len(light) - 1),
        edgecolors="0.15",
        linewidths=min(0.8, max(0.1, 12 * len(regions.maps) ** -0.5)),
    )
    axes.add_collection(patches)
    if colour == "gradient":
        axes.figure.colorbar(patches, ax=axes, label="norm of the gradient along the plane")
    if spots is not None:
        shades = {} if labels is None else {"c": labels.cpu().numpy(), "cmap": "tab10",
                                            "vmin": 0, "vmax": 9}  # fmt: skip
        axes.scatter(*spots.T.cpu().numpy(), s=14, edgecolors="k", linewidths=0.5, **shades)
    (s0, t0), (s1, t1) = regions.plane.low, regions.plane.high
    axes.set(xlim=(s0, s1), ylim=(t0, t1), xlabel="s", ylabel="t", aspect="equal")
    axes.set_title(f"{len(regions.maps)} linear regions")
    return cast(Figure, axes.get_figure(root=True))


def _outline(regions: Regions, chosen: Tensor) -> "Path":
    """Some of the polygons as one path: files and viewers are quicker with few long ones."""
    from matplotlib.path import Path

    corners, sizes = regions.corners[chosen], regions.sizes[chosen, None]
    corners = torch.cat([corners, corners[:, :1]], 1)
    place = torch.arange(corners.shape[1], device=sizes.device).expand(len(corners), -1)
    move, line, close = int(Path.MOVETO), int(Path.LINETO), int(Path.CLOSEPOLY)
    codes = torch.where(place == 0, move, torch.where(place == sizes, close, line))
    kept = place <= sizes
    return Path(corners[kept].cpu().numpy(), codes[kept].cpu().numpy())


def _shade(regions: Regions, colour: str) -> Tensor:
    if colour == "gradient":
        return regions.gradient_norms
    if colour == "nothing":
        return torch.arange(len(regions.maps)) % 9
    ones = torch.ones_like(regions.centres[:, :1])
    output = (regions.maps @ torch.cat([ones, regions.centres], 1)[..., None])[..., 0]
    return output.argmax(1) if output.shape[1] > 1 else (output[:, 0] > 0).long()


def _project(regions: Regions, points: Tensor) -> Tensor:
    """The coordinates (s, t) of the points' projections."""
    plane = regions.plane
    flat = floats("points", points).double().flatten(1)
    if points.shape[1:] != plane.origin.shape:
        raise ValueError(
            f"points must be inputs of shape {tuple(plane.origin.shape)},"
            f" got {tuple(points.shape[1:])}"
        )
    basis = torch.stack([plane.u, plane.v]).double().flatten(1)
    return torch.linalg.lstsq(basis.T, (flat - plane.origin.double().flatten()).T).solution.T
