"""The orbit of an input under a group, with the error of a network on each of its points."""

from typing import TYPE_CHECKING

from torch import Tensor

from vademecum.geometry.groups.actions import ImageAction
from vademecum.geometry.groups.deviations import EquivarianceError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_orbit"]

_MOST = 16  # pictures that are still large enough to see
_GAP, _WORDS = 0.12, 0.32  # between pictures and below each, as parts of a picture


def draw_orbit(result: EquivarianceError, axes: "Axes | None" = None) -> "Figure":
    """Draw the moved witness, element by element, each with its error there, the worst framed.

    Images are shown as such, the first channel in shades of grey unless there are three; signals
    are curves. Of other inputs, errors alone are drawn, from the largest to the smallest.

    Args:
        result: What `equivariance_error` or `invariance_error` found.
        axes: Where to draw; on a figure of its own by default.

    Returns:
        The matplotlib figure, to show or save.

    Example:
        >>> from vademecum.geometry import Group, invariance_error
        >>> found = invariance_error(nn.Flatten(), torch.rand(1, 1, 5, 5), group=Group.dihedral(4))
        >>> len(draw_orbit(found).axes[0].images)
        8
    """
    from matplotlib.figure import Figure

    x = result.witness
    shown = isinstance(x, Tensor) and x.ndim in (2, 3, 4) and len(x) == 1 and not x.is_complex()
    columns, rows = _table(result) if shown else (4, 3)
    if axes is None:
        size = (1.4 * columns + 0.2, (1 + _WORDS) * 1.4 * rows + 0.2)
        axes = Figure(figsize=size, layout="constrained").subplots()
    if shown:
        _draw_points(result, axes, columns, rows)
    else:
        _draw_errors(result, axes)
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def _drawn(result: EquivarianceError) -> list[int]:
    """The places of elements that are shown: the first ones, and the worst in any case."""
    places = list(range(len(result.elements)))[:_MOST]
    worst = result.elements.index(result.element)
    return places if worst in places else [*places[:-1], worst]


def _table(result: EquivarianceError) -> tuple[int, int]:
    count = len(_drawn(result))
    columns = count if count <= 3 else 4
    return columns, -(-count // columns)


def _draw_points(result: EquivarianceError, axes: "Axes", columns: int, rows: int) -> None:
    errors, high = result.errors, 1 + _WORDS
    each = errors[:, int(errors.argmax()) % errors.shape[1]]  # those of the witness
    for i, place in enumerate(_drawn(result)):
        g = result.elements[place]
        left, top = i % columns * (1 + _GAP), i // columns * high
        point = result.action(g, result.witness)[0]
        if point.ndim == 2:  # an image without channels, or a signal whose points come first
            flat = isinstance(result.action, ImageAction)
            along = getattr(result.action, "axis", 1) - 1
            point = point[None] if flat else point.movedim(along, 0)
        _draw_point(point, axes, left, top)
        words = f"{result.group.name(g)[:14]}\n{float(each[place]):.2g}"
        worst = g == result.element and result.error > 0
        axes.text(left + 0.5, top + 1.02, words, ha="center", va="top", fontsize=8,
                  weight="bold" if worst else "normal")  # fmt: skip
        if worst:
            box = [left, left + 1, left + 1, left, left], [top, top, top + 1, top + 1, top]
            axes.plot(*box, color="C1", lw=2)
    axes.set(xlim=(-0.03, columns * (1 + _GAP)), ylim=(rows * high, -0.03), aspect="equal")
    axes.axis("off")


def _draw_point(x: Tensor, axes: "Axes", left: float, top: float) -> None:
    x = x.detach().cpu().double()
    if x.ndim == 3:
        shown = x.movedim(0, -1) if len(x) == 3 else x[0]
        low, high = float(shown.min()), float(shown.max())
        shown = (shown - low) / (high - low or 1)
        extent = (left, left + 1, top + 1, top)
        axes.imshow(shown.numpy(), cmap="gray", interpolation="nearest", extent=extent)
        return
    curves = x if x.ndim == 2 else x[:, None]
    low, high = float(curves.min()), float(curves.max())
    heights = top + 0.95 - 0.9 * (curves - low) / (high - low or 1)
    across = [left + 0.05 + 0.9 * i / max(1, len(x) - 1) for i in range(len(x))]
    axes.plot(across, heights.numpy(), ".-", ms=3, lw=0.8, color="C0")


def _draw_errors(result: EquivarianceError, axes: "Axes") -> None:
    each = result.errors.amax(1)
    order = each.argsort(descending=True)
    axes.bar(range(len(each)), each[order].numpy(), color="C0")
    axes.set(ylabel="relative error", xlabel="elements")
    if len(each) <= _MOST:
        names = [result.group.name(result.elements[int(i)])[:10] for i in order]
        axes.set_xticks(range(len(each)), names, rotation=60, ha="right", fontsize=8)
