"""Energies by depth, beside the spectral rate."""

from typing import TYPE_CHECKING

import torch

from vademecum.geometry.depth.smoothing import Oversmoothing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_oversmoothing"]

_MOST = 5  # components, the largest ones


def draw_oversmoothing(result: Oversmoothing, axes: "Axes | None" = None) -> "Figure":
    r"""Draw the share of energy over depth, on a logarithmic scale.

    Each component has a colour, the five with most nodes; a dashed line falls at its spectral rate,
    by $\rho^2$ a layer. Energies that are zero leave a gap.

    Args:
        result: What `oversmoothing` found.
        axes: Where to draw; on a figure of its own by default.

    Returns:
        The matplotlib figure, to show or save.

    Example:
        >>> from vademecum.geometry import PolynomialConv, oversmoothing
        >>> edge = torch.tensor([[0, 1], [1, 0]])
        >>> found = oversmoothing(PolynomialConv(2, 2, degree=1), (torch.randn(2, 2), edge))
        >>> draw_oversmoothing(found).axes[0].get_xlabel()
        'layer'
    """
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(5.6, 3.6), layout="constrained").subplots()
    sizes = result.component.bincount(minlength=len(result.rate)).cpu()
    share, rate = result.share.cpu(), result.rate.cpu()
    depth = torch.arange(len(share))
    shown = [c for c in sizes.argsort(descending=True, stable=True).tolist() if sizes[c] > 1]
    for i, c in enumerate(shown[:_MOST]):
        own = torch.where(share[:, c] > 0, share[:, c], torch.nan)
        name = f"{int(sizes[c])} nodes, rate {float(rate[c]):.3f}"
        axes.plot(depth, own, f"C{i}o-", markersize=3, label=name)
        axes.plot(depth, own[0] * rate[c] ** (2 * depth), f"C{i}--", linewidth=1)
    axes.set_yscale("log")
    axes.set_xlabel("layer")
    axes.set_ylabel(r"energy over $\Vert X \Vert^2$")
    if shown:
        axes.legend(fontsize=8)
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure
