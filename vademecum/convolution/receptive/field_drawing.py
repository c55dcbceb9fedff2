"""A receptive field over the positions of the input: what can be seen, and how much it counts."""

from typing import TYPE_CHECKING

import torch

from vademecum.convolution.receptive.fields import ReceptiveField

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_receptive_field"]


def draw_receptive_field(result: ReceptiveField, axes: "Axes | None" = None) -> "Figure":
    """Draw the field, and where it was measured how strongly each position acts.

    Along one axis the effective field is a curve over bars of what is seen; along two it is an
    image within the outline of the field, and without it the positions that are seen. Of a field
    with three axes the middle slice along the first is drawn.

    Args:
        result: What `receptive_field` found.
        axes: Where to draw; on a figure of its own by default.

    Returns:
        The matplotlib figure, to show or save.

    Example:
        >>> from vademecum.convolution.receptive.fields import receptive_field
        >>> field = receptive_field(nn.Conv2d(1, 1, 3), torch.ones(1, 1, 9, 9))
        >>> figure = draw_receptive_field(field)
        >>> figure.axes[0].get_title()
        'size 3 x 3, stride 1 x 1'
    """
    from matplotlib.figure import Figure

    if axes is None:
        axes = Figure(figsize=(4.6, 4.2), layout="constrained").subplots()
    mask, effective = result.mask, result.effective
    while mask.ndim > 2:
        middle = int(mask.flatten(1).sum(1).argmax())
        mask, effective = mask[middle], None if effective is None else effective[middle]
    if mask.ndim == 2:
        _image(axes, mask, effective)
    else:
        _line(axes, mask, effective)
    size, stride = (" x ".join(f"{v:g}" for v in each) for each in (result.size, result.stride))
    axes.set_title(f"size {size}, stride {stride}", fontsize=9)
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def _image(axes: "Axes", mask: torch.Tensor, effective: torch.Tensor | None) -> None:
    shown = mask.double() if effective is None else effective
    axes.imshow(shown.numpy(), cmap="Greys", vmin=0, interpolation="nearest")
    if effective is not None and 0 < int(mask.sum()) < mask.numel():
        axes.contour(mask.double().numpy(), levels=[0.5], colors="#d9641e", linewidths=1)
    axes.set_xlabel("column")
    axes.set_ylabel("row")


def _line(axes: "Axes", mask: torch.Tensor, effective: torch.Tensor | None) -> None:
    places = torch.arange(len(mask))
    high = 1.0 if effective is None else float(effective.max()) or 1.0
    axes.bar(places.numpy(), (high * mask).numpy(), width=1.0, color="#7d8289", alpha=0.35)
    if effective is not None:
        axes.plot(places.numpy(), effective.numpy(), ".-", color="#d9641e", ms=3)
    axes.set_xlabel("position")
    axes.set_ylabel("seen" if effective is None else "share of the gradient")
