"""The loss on a plane of parameters, drawn as contours."""

from typing import TYPE_CHECKING

from vademecum.generalization.planes.sections import LossPlane

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_loss_plane"]

_LEVELS = 14


def draw_loss_plane(result: LossPlane, axes: "Axes | None" = None) -> "Figure":
    """Draw the contours of the loss, with the network in the middle and the shares in the title.

    Args:
        result: What `loss_plane` found.
        axes: Where to draw; on a figure of its own by default.

    Returns:
        The matplotlib figure, to show or save. Levels are equally far apart in the logarithm of
        the loss where it is positive.

    Example:
        >>> from vademecum.generalization import loss_plane
        >>> found = loss_plane(nn.Linear(2, 1), torch.eye(2), torch.zeros(2, 1), points=5)
        >>> draw_loss_plane(found).axes[0].get_xlabel()
        'along the first direction'
    """
    import numpy as np
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(5.0, 4.2), layout="constrained").subplots()
    steps, losses = result.steps.cpu().numpy(), result.losses.cpu().numpy().T
    losses = np.where(np.isfinite(losses), losses, np.nan)
    low, high = float(np.nanmin(losses)), float(np.nanmax(losses))
    log = 0 < low < high
    levels = np.geomspace(low, high, _LEVELS) if log else np.linspace(low, high or 1.0, _LEVELS)
    levels = np.unique(levels) if high > low else np.array([low, low + 1])
    drawn = axes.contourf(
        steps, steps, losses, levels, cmap="viridis", norm=LogNorm(low, high) if log else None
    )
    axes.contour(steps, steps, losses, levels, colors="w", linewidths=0.4)
    axes.plot(0, 0, "r+", ms=9)
    axes.set_xlabel("along the first direction")
    axes.set_ylabel("along the second direction")
    if result.sharpness_share == result.sharpness_share:
        axes.set_title(
            f"shows {result.sharpness_share:.1%} of the sharpness,"
            f" {result.trace_share:.1%} of the trace",
            fontsize="medium",
        )
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.colorbar(drawn, ax=axes, label="loss", format="%.2g")
    return figure
