r"""How often mistake-driven units see their examples, and when they stop.

Several units learn side by side from the same $n$ examples. A unit stops after an epoch in which it
made no mistake ($y_i f(x_i) \le 0$): nothing would change any more. Where the examples cannot be
separated that never happens, so a unit also stops once its mean loss in an epoch,
$\frac1n \sum_i \max\{0, -y_i f(x_i)\}$ at the time each example was shown, has failed
`n_iter_no_change` times in a row to improve on the best so far by `tol`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from sklearn.utils import check_random_state
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.estimators import warn_unconverged

__all__ = ["Training", "corrections", "learn"]


class Training(NamedTuple):
    """How the units learnt."""

    n_iter: int
    """The number of epochs."""
    mistakes: Tensor
    """How many each unit made in all epochs."""
    converged: bool
    """Whether every unit had stopped by itself."""


def corrections(y: Any, scores: Any) -> Any:
    """The step of each unit for each example: its target at a mistake, and a tie is one, else 0."""
    return y * (y * scores <= 0)


def learn(
    epoch: Callable[[Tensor | None, Tensor], tuple[Tensor, Tensor]],
    n: int,
    units: int,
    *,
    max_iter: Any,
    tol: Any,
    n_iter_no_change: Any,
    shuffle: bool,
    random_state: Any,
) -> Training:
    """Run epochs until every unit has stopped.

    Args:
        epoch: Shows all examples once to some units. Called with the order (None for the given
            one) and the indices of the units that still learn; returns for each of them the number
            of mistakes and the summed loss.
        n: How many examples there are.
        units: How many units learn.
        max_iter: The most epochs; a warning says how many mistakes were made in the last one.
        tol: The least improvement of the mean loss; None to stop only after a flawless epoch.
        n_iter_no_change: How many epochs without improvement are borne.
        shuffle: Whether each epoch has an order of its own.
        random_state: The source of the orders.

    Raises:
        ValueError: If `max_iter`, `tol` or `n_iter_no_change`, as a user gave them, are no such.
    """
    whole("max_iter", max_iter, low=1)
    whole("n_iter_no_change", n_iter_no_change, low=1)
    least = -math.inf if tol is None else number("tol", tol, infinite=True)
    rng = check_random_state(random_state)
    total = torch.zeros(units, dtype=torch.int64)
    best = torch.full((units,), math.inf, dtype=torch.float64)
    stale, mistakes = torch.zeros_like(total), total
    active = torch.arange(units)
    for n_iter in range(1, max_iter + 1):
        order = torch.from_numpy(rng.permutation(n)) if shuffle else None
        mistakes, loss = epoch(order, active)
        loss = loss.double() / n
        total[active] += mistakes
        stale[active] = torch.where(loss > best[active] - least, stale[active] + 1, 0)
        best[active] = torch.minimum(best[active], loss)
        active = active[(mistakes > 0) & (stale[active] < n_iter_no_change)]
        if not len(active):
            return Training(n_iter, total, True)
    left = int(mistakes.sum())
    warn_unconverged(f"max_iter={max_iter} reached with {left} mistakes in the last epoch")
    return Training(max_iter, total, False)
