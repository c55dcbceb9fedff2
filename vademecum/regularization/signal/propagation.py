r"""The signals of any network, layer by layer, beside what mean-field theory predicts of them.

Forward, for the signal $h$ that each call gives: its second moment $\overline{h^2}$, its variance
and the correlation between examples; backward the same of the gradient in $h$. In a wide network
with random weights these follow maps of each layer (`_maps`), from the input to the output and
back; a network whose second moments vanish or explode, or whose correlations tend to 1, does not
train at first.

Predictions go on from predictions, along the code's own calls of torch, sums included, and from
what was measured where a call is not known. What is measured is exact; weights enter theory by
their mean square. One forward pass, and one backward pass without gradients of parameters.
"""

from collections.abc import Iterator
from contextlib import closing
from operator import itemgetter
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from vademecum.arguments import whole
from vademecum.models import (
    Output,
    Portions,
    batches,
    count_examples,
    map_tensors,
    twice_differentiable,
    unwrapped,
)
from vademecum.models.losses import Loss
from vademecum.randomness import given_back
from vademecum.regularization.signal._fresh_parameters import FreshCopies, mean_over_draws
from vademecum.regularization.signal._passes import Runner
from vademecum.regularization.signal._sums import PassRow, added, finished
from vademecum.regularization.signal.rows import SignalPropagation, SignalRow

__all__ = ["signal_propagation"]


def signal_propagation(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: Loss | None = None,
    output: Output = None,
    draws: int = 0,
    memory: int | None = None,
    generator: torch.Generator | None = None,
) -> SignalPropagation:
    """Measure signals and gradients at each call of each layer, and hold theory beside them.

    Args:
        model: Any module, taken in evaluation.
        x: Inputs, examples along the first axis; a `DataLoader` is streamed.
        y: Targets; without them one random Gaussian vector, the same for each example, goes back
            from the output in the place of the loss's gradient.
        loss: A function of output and targets; by default cross-entropy or squared error.
        output: What counts of what the model gives: a key, index, attribute or function of it; by
            default its `.logits` if it has such, else all of it.
        draws: How many times to draw parameters afresh, on a copy of the model, by the
            `reset_parameters` of its modules; the result has means over draws and their standard
            errors. 0 measures the model as it is.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest.
        generator: Where random numbers come from; torch's global generator by default.

    Returns:
        A row for each call of a module that calls no other, before its hooks, and for each sum and
        activation in the code of one that does. Modules that compute weights are none of these.

    Raises:
        ValueError: If there is a loss and no `y`, or `x` holds NaN.
        RuntimeError: If the model uses checkpoints, which compute calls again.

    References:
        Poole, Lahiri, Raghu, Sohl-Dickstein, Ganguli, Exponential expressivity in deep neural
        networks through transient chaos, NeurIPS, 2016. Schoenholz, Gilmer, Ganguli,
        Sohl-Dickstein, Deep information propagation, ICLR, 2017.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU())
        >>> _ = nn.init.eye_(model[0].weight)  # of mean square 1/4
        >>> found = signal_propagation(model, torch.tensor([[2.0, -2.0, 2.0, -2.0]]))
        >>> [round(row.forward.second_moment, 3) for row in found.rows]
        [4.0, 2.0]
        >>> [round(row.predicted.second_moment, 3) for row in found.rows]
        [4.0, 2.0]
    """
    model, draws = unwrapped(model), whole("draws", draws, low=0)
    if loss is not None and y is None and not isinstance(x, DataLoader):
        raise ValueError("y must be given where there is a loss, got None")
    if memory is not None:
        whole("memory", memory, low=1)
    with given_back(generator):
        if not draws:
            rows, cotangent = _measured(model, x, y, loss, output, memory, generator)
            return SignalPropagation(tuple(rows), 0, (), cotangent)
        copies = FreshCopies(model, generator)
        found = [
            _measured(copies.draw(), x, y, loss, output, memory, generator) for _ in range(draws)
        ]
        rows = mean_over_draws([each for each, _ in found])
        return SignalPropagation(tuple(rows), draws, copies.kept, found[0][1])


def _measured(
    model: nn.Module, x: Any, y: Any, loss: Any, output: Any, memory: int | None, generator: Any
) -> tuple[list[SignalRow], str]:
    runner = Runner(model, loss, output, generator)
    pieces = memory is not None or isinstance(x, DataLoader)
    if not pieces:
        return finished(runner.rows(x, y)), runner.cotangent
    total: list[PassRow] | None = None
    n = 0
    device = next((p.device for p in model.parameters()), None)
    with closing(batches(x, y, device=device)) as each:
        for some, targets in _parts(runner, each, memory):
            rows = runner.rows(some, targets, pieces=True)
            total = rows if total is None else added(total, rows)
            n += count_examples(some)
    if total is None:
        raise ValueError("x must hold batches, got an empty DataLoader")
    return finished(total, n if runner.weighted else 1), runner.cotangent


def _parts(runner: Runner, each: Any, memory: int | None) -> Iterator[tuple[Any, Any]]:
    """Batches in portions of two examples or more, for which there is room."""
    portions = memory and Portions(
        memory, fixed=0, passing=2.0, graph=_graph(runner), value=runner.value
    )
    for x, y in each:
        size = portions(x, y) if portions else None
        n = count_examples(x) if size else 0
        if size is None or size >= n:
            yield x, y
            continue
        count = max(1, min(-(-n // size), n // 2))
        for i in range(count):
            yield map_tensors((x, y), itemgetter(slice(i * n // count, (i + 1) * n // count)))


def _graph(runner: Runner) -> Any:
    def make(x: Any, y: Any) -> Any:
        with twice_differentiable():
            return runner.forward(x)[1]

    return make
