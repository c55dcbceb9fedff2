"""Parameters drawn afresh, on a copy of a model, and means over such draws."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from vademecum.models import named_modules, tensor_places
from vademecum.randomness import own_randomness
from vademecum.regularization.signal.rows import SignalMoments, SignalPrediction, SignalRow

__all__ = ["fresh_copies", "mean_over_draws"]


def fresh_copies(
    model: nn.Module, draws: int, generator: torch.Generator | None
) -> Iterator[tuple[nn.Module, tuple[str, ...]]]:
    """A copy of a model again and again, each time with other parameters; and those it keeps.

    Modules draw theirs by `reset_parameters`, inner ones first, so that an outer one has the last
    word.
    """
    copy = deepcopy(model)
    reset = set[int]()
    steps: list[Callable[[], Any]] = []
    for _, module in reversed(list(named_modules(copy))):
        draw = getattr(module, "reset_parameters", None)
        if callable(draw):
            steps.append(draw)
            reset.update(id(p) for p in module.parameters(recurse=False))
    kept = tuple(name for name, p in tensor_places(copy, "parameters") if id(p) not in reset)
    for _ in range(draws):
        place = "cpu" if generator is None else generator.device
        seed = int(torch.randint(2**62, (), generator=generator, device=place))
        with own_randomness(seed), torch.no_grad():
            for draw in steps:
                draw()
        yield copy, kept


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
