"""What objectives give as losses, and how much each counts in the mean over a step's batch.

A loss is a mean over the examples of its micro-batch, or a pair (sum, count) where the terms are
others than examples, such as tokens of texts of different lengths. Sums and counts add up over
micro-batches and processes, means do not: so the gradient of a step is that of all its terms, each
with the same weight, however the batch was split.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vademecum.train._order import Part

__all__ = ["insist_on_players", "share"]


def share(player: str, loss: Any, part: Part) -> tuple[Tensor, int | Tensor]:
    """What a micro-batch adds to the loss of its step, and its count.

    With the shares $s_i$ and counts $n_i$ of all micro-batches and the number N of all examples,
    the loss of the step is the sum of the shares times N by the sum of the counts.

    Example:
        >>> part = Part(epoch=0, start=0, examples=torch.arange(3), whole=12, last=True)
        >>> share("model", torch.tensor(4.0), part), share("model", (torch.tensor(24.0), 8), part)
        ((tensor(1.), 3), (tensor(2.), 8))
    """
    value, count = loss if isinstance(loss, tuple) and len(loss) == 2 else (loss, None)
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.is_floating_point():
        given = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(loss)[:80]
        raise ValueError(
            f"the loss of {player!r} must be one number (a mean over examples) or a pair (sum,"
            f" count), got {given}"
        )
    value, n = value if value.ndim == 0 else value.reshape(()), len(part.examples)
    if not part.counts:
        return 0 * value, 0
    if n == part.whole:  # no other micro-batch to share with
        return (value if count is None else value / count), n
    if count is None:
        return value * (n / part.whole), n
    if isinstance(count, Tensor):
        count = count.detach().reshape(()).to(value.device, torch.float64)
    return value / part.whole, count


def insist_on_players(found: Any, players: tuple[str, ...]) -> Mapping[str, Any]:
    """What `losses` gave, if it has a loss for every player and for nobody else."""
    if not isinstance(found, Mapping):
        kind = type(found).__name__
        raise ValueError(f"losses must give a mapping from players to losses, got {kind}")
    if len(found) == len(players) == 1:  # whatever it is called
        return dict(zip(players, found.values(), strict=True))
    if found.keys() != set(players):
        raise ValueError(
            f"losses must give a loss for each player that has an optimizer, {', '.join(players)},"
            f" got {', '.join(map(str, found)) or 'none'}"
        )
    return found
