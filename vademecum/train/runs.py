"""What a training run has come to, and its curves."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn

from vademecum.results import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Run", "draw_run"]

_POINTS = 500  # of a curve, beyond which means of neighbours are drawn


class Run(NamedTuple):
    """A training run that has ended."""

    objective: nn.Module
    """The objective, with the weights of the last step; with their average if there is one, and
    with the best ones if patience has ended the run."""
    steps: int
    """How many steps were taken."""
    epochs: float
    """How many times the data was gone through."""
    scores: dict[str, float]
    """What the last evaluation found."""
    best: float | None
    """The best score; None without one."""
    history: dict[str, Tensor]
    """What each step has found, by name, with NaN where nothing was measured: "step", "epoch",
    "loss", "norm" (of the gradient), "rate", "score.*" and "track.*"."""
    folder: Path | None
    """Where log and checkpoints are."""
    seconds: float
    """How long it took, without what was before a resumption."""
    stopped: str
    """Why it ended: "finished", "patience" or "signal"."""

    __repr__ = one_line


def draw_run(run: Run, axes: "Axes | None" = None) -> "Figure":
    """Draw the losses of a run over its steps, and below each thing that was measured meanwhile.

    Args:
        run: What `fit` gave.
        axes: Where to draw the losses alone; by default on a figure of its own, with the rest.

    Returns:
        The matplotlib figure, to show or save.

    Example:
        >>> from vademecum.train import Supervised, fit
        >>> run = fit(Supervised(torch.nn.Linear(1, 1)), (torch.ones(4, 1), torch.ones(4, 1)),
        ...     optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1), steps=3)
        >>> [line.get_label() for line in draw_run(run).axes[0].lines]
        ['loss']
    """
    from matplotlib.figure import Figure

    names = list(run.history)
    others = [name for name in names if name.startswith(("score.", "track."))]
    if axes is None:
        rows = 1 + len(others)
        size = (6, 1.2 + 2.0 * rows)
        panels = Figure(figsize=size, layout="constrained").subplots(
            rows, sharex=True, squeeze=False
        )
        axes = panels[0, 0]
        for panel, name in zip(panels[1:, 0], others, strict=True):
            _curve(panel, run.history["step"], run.history[name], name.partition(".")[2], "o-")
            panel.set(ylabel=name.partition(".")[2])
            panel.set(xlabel="step" if name == others[-1] else "")
    assert axes is not None
    losses = [name for name in names if name.startswith("loss")]
    for name in losses:
        _curve(axes, run.history["step"], run.history[name], name, "-")
    axes.set(ylabel="loss", xlabel="" if others else "step")
    if len(losses) > 1:
        axes.legend(frameon=False, fontsize="small")
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def _curve(axes: "Axes", steps: Tensor, values: Tensor, label: str, style: str) -> None:
    known = ~values.isnan()
    steps, values = steps[known].double(), values[known]
    if (size := len(values) // _POINTS) > 1:
        full = size * (len(values) // size)
        steps, values = (x[:full].view(-1, size).mean(1) for x in (steps, values))
    axes.plot(steps.tolist(), values.tolist(), style, ms=3, lw=1, label=label)
