"""The loss along a path between two networks, drawn."""

from typing import TYPE_CHECKING

from vademecum.generalization.connections.paths import ModeConnectivity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_mode_connectivity"]


def draw_mode_connectivity(result: ModeConnectivity, axes: "Axes | None" = None) -> "Figure":
    """Draw the loss along a path, and the line between its ends that a barrier stands on.

    Args:
        result: What `mode_connectivity` found.
        axes: Where to draw, such as where another path is; on a figure of its own by default.

    Returns:
        The matplotlib figure, to show or save.

    Example:
        >>> from vademecum.generalization import mode_connectivity
        >>> a, b = nn.Linear(1, 1), nn.Linear(1, 1)
        >>> found = mode_connectivity(a, b, torch.ones(1, 1), torch.zeros(1, 1))
        >>> draw_mode_connectivity(found).axes[0].get_ylabel()
        'loss'
    """
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(5.0, 3.6), layout="constrained").subplots()
    kind = "curve" if result.bend is not None else "line"
    kind = "aligned line" if result.alignment is not None else kind
    (line,) = axes.plot(
        result.t.tolist(),
        result.losses.tolist(),
        ".-",
        label=f"{kind}, barrier {result.barrier:.2g}",
    )
    ends = [float(result.losses[0]), float(result.losses[-1])]
    axes.plot([0, 1], ends, "--", color=line.get_color(), lw=0.8)
    axes.set_xlabel("from one network to the other")
    axes.set_ylabel("loss")
    axes.legend(frameon=False, fontsize="small")
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure
