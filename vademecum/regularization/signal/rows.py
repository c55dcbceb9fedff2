"""What an instrument of signals found: a row for each call, with what theory predicts beside it."""

from typing import NamedTuple

from vademecum.results import one_line

__all__ = ["SignalMoments", "SignalPrediction", "SignalPropagation", "SignalRow"]


class SignalMoments(NamedTuple):
    """Moments of a signal over examples and entries, with standard errors.

    Example:
        >>> from vademecum.regularization import signal_propagation
        >>> x = torch.tensor([[3.0, 4.0], [4.0, -3.0]])
        >>> signal_propagation(nn.Identity(), x).rows[0].forward.second_moment  # 25 / 2
        12.5
    """

    second_moment: float
    """The mean square of all entries."""
    variance: float
    """The second moment less the square of the mean of all entries."""
    correlation: float | None
    """The mean cosine between the signals of two examples; None for one example."""
    second_moment_error: float | None
    """The standard error of the second moment: over examples, or over draws if there were any."""
    variance_error: float | None
    """That of the variance."""
    correlation_error: float | None
    """That of the correlation; None for two examples, which are one pair."""

    __repr__ = one_line


class SignalPrediction(NamedTuple):
    """What mean-field theory predicts of a signal.

    Example:
        >>> from vademecum.regularization import signal_propagation
        >>> layer = nn.Linear(3, 4)
        >>> with torch.no_grad():
        ...     _ = layer.weight.fill_(0.5), layer.bias.fill_(1.0)
        >>> row = signal_propagation(layer, torch.ones(2, 3)).rows[0]
        >>> round(row.predicted.second_moment, 4)  # 3 / 4 + 1: weights are taken for independent
        1.75
    """

    second_moment: float
    """The second moment."""
    variance: float
    """The variance."""
    correlation: float | None
    """The correlation between examples; None for one example."""

    __repr__ = one_line


class SignalRow(NamedTuple):
    """One call of a module, or a sum or an activation in the code of one that calls others.

    Example:
        >>> from vademecum.regularization import signal_propagation
        >>> row = signal_propagation(nn.ReLU(), torch.tensor([[1.0, -1.0], [2.0, -3.0]])).rows[0]
        >>> row.dead, row.saturated
        (0.5, 0.5)
    """

    name: str
    """The first place of the module in the model, empty for the model itself."""
    kind: str
    """The name of its class; of a sum or an activation in its code that of the function."""
    call: int
    """Which call of this module, or which of these operations in its code: 0, 1, ..."""
    shape: tuple[int, ...]
    """The shape of what it gave, the first tensor if there were several."""
    forward: SignalMoments
    """The moments of what it gave."""
    backward: SignalMoments | None
    """The moments of the gradient in what it gave; None where no gradient came back."""
    dead: float | None
    """Of an activation, the share of units that give the same for every example; None for one."""
    saturated: float | None
    """Of an activation, the share of entries where its slope is below 1/100 in size."""
    predicted: SignalPrediction | None
    """What theory predicts of the signal."""
    predicted_backward: SignalPrediction | None
    """What theory predicts of the gradient."""
    note: str
    """Empty, or "no prediction" with the name of what theory does not know."""

    __repr__ = one_line


class SignalPropagation(NamedTuple):
    """The signals of a network, call by call, forward and backward.

    Example:
        >>> from vademecum.regularization import signal_propagation
        >>> model = nn.Sequential(nn.Flatten(), nn.Softmax(1))
        >>> print(signal_propagation(model, torch.eye(2)).table(backward=False))
        call           second moment   predicted correlation   predicted  dead saturated
        0 Flatten                0.5         0.5           0           0     -         -
        1 Softmax            0.30339           -     0.64805           -     -         -
        no prediction: Softmax '1'
    """

    rows: tuple[SignalRow, ...]
    """The rows in the order of the calls."""
    draws: int
    """How many times parameters were drawn afresh, on a copy; 0 for the model as it is."""
    kept: tuple[str, ...]
    """The parameters that were not, since their module has no `reset_parameters`."""
    cotangent: str
    """What went back: "loss" for its gradient, "random" for one Gaussian vector for all examples,
    "none" where the output does not depend on anything that can be differentiated."""

    __repr__ = one_line

    def table(self, *, backward: bool = True) -> str:
        """The rows as text.

        Args:
            backward: Whether the gradients' moments are to be columns, too.
        """
        labels = [f"{r.name} {r.kind}".strip() + f" ({r.call})" * (r.call > 0) for r in self.rows]
        wide = max(14, *map(len, labels))
        head = ["second moment", "predicted", "correlation", "predicted"]
        head += ["gradient", "predicted"] * backward
        lines = [f"{'call':{wide}} " + " ".join(f"{h:>11}" for h in head) + "  dead saturated"]
        for label, r in zip(labels, self.rows, strict=True):
            guess = r.predicted
            cells = [r.forward.second_moment, guess and guess.second_moment]
            cells += [r.forward.correlation, guess and guess.correlation]
            if backward:
                both = (r.backward, r.predicted_backward)
                cells += [each and each.second_moment for each in both]
            columns = " ".join(
                f"{_cell(c):>{max(11, len(h))}}" for c, h in zip(cells, head, strict=True)
            )
            lines.append(
                f"{label:{wide}} {columns} {_cell(r.dead, 2):>5} {_cell(r.saturated, 2):>9}"
            )
        notes = dict.fromkeys(f"{r.note} {r.name!r}" for r in self.rows if r.note)
        lines += list(notes)
        if self.draws:
            lines.append(f"mean of {self.draws} draws of parameters, on a copy")
        if self.kept:
            lines.append(f"not drawn afresh: {', '.join(self.kept)}")
        return "\n".join(lines)


def _cell(value: float | None, digits: int = 5) -> str:
    return "-" if value is None else f"{value:.{digits}g}"
