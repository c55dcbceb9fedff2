"""Second moments and correlations of signals by depth, measured and predicted."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vademecum.regularization.signal.rows import SignalMoments, SignalPropagation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_signal"]

_NAMED = 24  # rows that have room for their names


def draw_signal(result: SignalPropagation, axes: "Axes | None" = None) -> "Figure":
    """Draw second moments of signals and gradients by depth, and correlations below them.

    Marks are what was measured, with bars of two standard errors; lines are what theory predicts,
    and break off where it knows nothing.

    Args:
        result: What `signal_propagation` found.
        axes: Where to draw the second moments alone; by default on a figure of its own, with the
            correlations.

    Returns:
        The matplotlib figure, to show or save.

    Example:
        >>> from vademecum.regularization import signal_propagation
        >>> model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        >>> figure = draw_signal(signal_propagation(model, torch.randn(5, 8)))
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['second moment', 'correlation']
    """
    from matplotlib.figure import Figure

    below = None
    if axes is None:
        panels = Figure(figsize=(6.4, 5.2), layout="constrained").subplots(2, 1, sharex=True)
        axes, below = panels
    assert axes is not None
    _draw(axes, result, 0)
    axes.set_yscale("log")
    axes.set_ylabel("second moment")
    axes.legend(fontsize=8)
    if below is not None:
        _draw(below, result, 2)
        below.set_ylabel("correlation")
    last = axes if below is None else below
    last.set_xlabel("call")
    if len(result.rows) <= _NAMED:
        labels = [f"{r.name} {r.kind}".strip() for r in result.rows]
        last.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7)
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def _draw(axes: Any, result: SignalPropagation, column: int) -> None:
    """The marks and the line of signals, and of gradients, for one of their moments."""
    rows = result.rows
    for i, (name, found, guesses) in enumerate((
        ("signal", [r.forward for r in rows], [r.predicted for r in rows]),
        ("gradient", [r.backward for r in rows], [r.predicted_backward for r in rows]),
    )):  # fmt: skip
        values = _column(found, column, positive=column == 0)
        errors = _column([f and f[3:] for f in found], column)
        bars = [
            0.0 if e != e else 2 * min(e, 0.499 * abs(v))
            for e, v in zip(errors, values, strict=True)
        ]
        line = _column(guesses, column, positive=column == 0)
        axes.errorbar(range(len(rows)), values, bars, fmt=f"C{i}{'os'[i]}", markersize=3,
                      linewidth=1, label=f"{name}, measured")  # fmt: skip
        axes.plot(
            range(len(rows)), line, f"C{i}{('-', '--')[i]}", linewidth=1, label=f"{name}, predicted"
        )


def _column(
    found: Sequence[SignalMoments | Any | None], column: int, *, positive: bool = False
) -> list[float]:
    """One number of each row, NaN where there is none; what is zero has no logarithm."""
    values = [None if f is None else f[column] for f in found]
    nan = float("nan")
    return [nan if v is None or (positive and v <= 0) else float(v) for v in values]
