"""The vanishing-gradient view: how norms change from layer to layer, forward and back.

Root mean squares per entry are drawn rather than norms, so that wide and narrow layers compare.
"""

from typing import TYPE_CHECKING

from torch import Tensor

from vademecum.gradients.backpropagation import Backprop

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_backprop"]


def draw_backprop(result: Backprop, axes: "Axes | None" = None) -> "Figure":
    """Draw activations, error vectors and gradients over the layers, on a logarithmic scale.

    Args:
        result: What `backprop` found.
        axes: Where to draw; on a figure of its own by default.

    Returns:
        The matplotlib figure, to show or save. Zeros are left out.

    Example:
        >>> from vademecum.gradients.backpropagation import backprop
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
        >>> figure = draw_backprop(backprop(model, torch.ones(4, 2), torch.ones(4, 1)))
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['activation', 'error', 'gradient']
    """
    from matplotlib.figure import Figure

    if axes is None:
        size = min(max(5.0, 0.45 * len(result.layers)), 24.0), 3.6
        axes = Figure(figsize=size, layout="constrained").subplots()
    curves = {
        "activation": [[trace.activation] for trace in result.layers],
        "error": [[trace.error] for trace in result.layers],
        "gradient": [list(trace.gradients.values()) for trace in result.layers],
    }
    for (name, groups), mark in zip(curves.items(), "os^", strict=True):
        points = [(i, _rms(tensors)) for i, tensors in enumerate(groups) if tensors]
        points = [(i, size) for i, size in points if size > 0]
        axes.plot([i for i, _ in points], [s for _, s in points], f"{mark}-", ms=4, label=name)
    axes.set_yscale("log")
    labels = [f"{trace.name} {type(trace.layer).__name__}" for trace in result.layers]
    axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize=7)
    axes.set_ylabel("root mean square")
    axes.set_title(f"loss {float(result.loss):.4g}", fontsize=9)
    axes.legend(frameon=False, fontsize="small")
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def _rms(tensors: list[Tensor]) -> float:
    total = sum(float(t.detach().abs().square().sum()) for t in tensors)
    return (total / max(1, sum(t.numel() for t in tensors))) ** 0.5
