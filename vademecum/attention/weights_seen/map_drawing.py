"""Attention maps side by side: a row for each layer, a column for each head."""

from typing import TYPE_CHECKING

from vademecum.attention.weights_seen.whole_maps import AttentionMaps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_attention"]

_GAP = 0.08  # between maps, as a part of a map


def draw_attention(result: AttentionMaps, axes: "Axes | None" = None) -> "Figure":
    """Draw the maps of the first example, by head and layer.

    Queries run downwards and keys to the right; the largest weight of each map is the darkest.

    Args:
        result: What `attention_maps` found.
        axes: Where to draw; on a figure of its own by default.

    Returns:
        The matplotlib figure, to show or save.

    Example:
        >>> from vademecum.attention import TransformerEncoder, attention_maps
        >>> figure = draw_attention(attention_maps(TransformerEncoder(8, 2), torch.randn(1, 5, 8)))
        >>> len(figure.axes[0].images)  # six layers of two heads
        12
    """
    from matplotlib.figure import Figure

    heads = max(each.shape[1] for each in result.weights)
    layers = len(result.weights)
    if axes is None:
        size = (1.6 + 1.1 * heads, 0.6 + 1.1 * layers)
        axes = Figure(figsize=size, layout="constrained").subplots()
    for row, weights in enumerate(result.weights):
        for column, shown in enumerate(weights[0].detach().cpu()):
            right, low = column + 1 - _GAP, row + 1 - _GAP
            axes.imshow(
                shown.numpy(), cmap="Blues", vmin=0, vmax=float(shown.max()) or 1,
                interpolation="nearest", extent=(column, right, low, row),
            )  # fmt: skip
    middle = (1 - _GAP) / 2
    axes.set(xlim=(0, heads - _GAP), ylim=(layers - _GAP, 0), aspect="equal", xlabel="head")
    axes.set_xticks([i + middle for i in range(heads)], [str(i) for i in range(heads)])
    axes.set_yticks([i + middle for i in range(layers)], [n or "the model" for n in result.names])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure
