"""Parameters drawn afresh, on a copy of a model, and means over such draws."""

import math
import statistics
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from vademecum.models import named_modules, tensor_places
from vademecum.randomness import own_randomness, source
from vademecum.regularization.signal.rows import SignalMoments, SignalPrediction, SignalRow

__all__ = ["FreshCopies", "mean_over_draws"]


class FreshCopies:
    """A copy of a model, whose parameters are drawn again and again.

    Modules draw theirs by `reset_parameters`, inner ones first, so that an outer one has the last
    word.

    Attributes:
        kept: The parameters that no module draws.
    """

    def __init__(self, model: nn.Module, generator: torch.Generator | None):
        self._copy, self._generator = deepcopy(model), generator
        self._steps: list[Callable[[], Any]] = []
        drawn = set[int]()
        for _, module in reversed(list(named_modules(self._copy))):
            draw = getattr(module, "reset_parameters", None)
            if callable(draw):
                self._steps.append(draw)
                drawn.update(id(p) for p in module.parameters(recurse=False))
        places = tensor_places(self._copy, "parameters")
        self.kept = tuple(name for name, p in places if id(p) not in drawn)

    def draw(self) -> nn.Module:
        """The copy, with other parameters."""
        seed = int(torch.randint(2**62, (), **source(self._generator, "cpu")))
        with own_randomness(seed), torch.no_grad():
            for draw in self._steps:
                draw()
        return self._copy


def mean_over_draws(found: list[list[SignalRow]]) -> list[SignalRow]:
    """The rows of all draws as one, with standard errors over draws."""
    if len({tuple((r.name, r.kind) for r in rows) for rows in found}) > 1:
        raise ValueError("model must make the same calls for each draw of its parameters")
    return [_mean(rows) for rows in zip(*found, strict=True)]


def _mean(rows: Sequence[SignalRow]) -> SignalRow:
    first = rows[0]
    return first._replace(
        forward=_moments([r.forward for r in rows]),
        backward=_moments([r.backward for r in rows]),
        dead=_average([r.dead for r in rows])[0],
        saturated=_average([r.saturated for r in rows])[0],
        predicted=_predictions([r.predicted for r in rows]),
        predicted_backward=_predictions([r.predicted_backward for r in rows]),
    )


def _moments(found: Sequence[SignalMoments | None]) -> Any:
    there = [m for m in found if m is not None]
    if len(there) < len(found):
        return None
    columns = [_average([m[i] for m in there]) for i in range(3)]
    return SignalMoments(*(mean for mean, _ in columns), *(error for _, error in columns))  # type: ignore[arg-type]


def _predictions(found: Sequence[SignalPrediction | None]) -> Any:
    there = [p for p in found if p is not None]
    if len(there) < len(found):
        return None
    return SignalPrediction(*(_average([p[i] for p in there])[0] for i in range(3)))  # type: ignore[arg-type]


def _average(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """The mean and its standard error; None if there is one value that is none."""
    there = [v for v in values if v is not None]
    if len(there) < len(values):
        return None, None
    error = statistics.stdev(there) / math.sqrt(len(there)) if len(there) > 1 else None
    return statistics.fmean(there), error
