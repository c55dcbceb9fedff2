"""The loop: batches come, every player takes a step, and now and then somebody looks.

A step goes through the micro-batches of its batch. Losses that are there at once are differentiated
at once; those that are functions wait for their player's turn, when earlier players have moved.
What looks are (evaluations, instruments, the pace) and what keeps (checkpoints) is not known here.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from vademecum.train._losses import insist_on_players
from vademecum.train._order import Part
from vademecum.train._training import Training
from vademecum.train._turns import Means, MicroBatch, Turn

__all__ = ["Look", "run", "take_step"]

Found = dict[str, float]
Look = Callable[[Training], Found]


def run(
    training: Training,
    batches: Iterator[Sequence[MicroBatch]],
    means: Means,
    *,
    looks: Sequence[Look],
    note: Callable[[Training, Found], None],
    keep: Callable[[Training], bool],
) -> str:
    """Train until all steps are done, and say why it ended.

    Args:
        training: The run as it is, which changes.
        batches: The micro-batches of each step, from the next one on.
        means: What steps are made with.
        looks: Functions that are called after each step and may find something.
        note: Takes what was found in a step.
        keep: Keeps the run after a step if it is time, and says whether somebody asked for an end.
    """
    ended = "finished"
    while not training.finished:
        if training.stopping is not None and training.stopping.stopped:
            ended = "patience"
            break
        found = take_step(training, next(batches), means)
        training.step += 1
        for look in looks:
            found |= look(training)
        means.late.then(partial(note, training), found)
        if keep(training):
            ended = "signal"
            break
    means.late.settle()
    return ended


def take_step(training: Training, batches: Sequence[MicroBatch], means: Means) -> Found:
    """A step of each player on one batch, and what was found on the way."""
    if before := getattr(type(training.objective), "before_step", None):
        before(training.objective, training.step)
    turns = {player: Turn(player, training, means) for player in training.optimizers}
    waiting: dict[str, list[tuple[Part, Any]]] = {player: [] for player in turns}
    for part, batch in batches:
        losses = insist_on_players(means.paid(partial(means.losses, batch)), tuple(turns))
        ready = [player for player, loss in losses.items() if not callable(loss)]
        for player, loss in losses.items():
            if callable(loss):
                waiting[player].append((part, loss))
            else:
                turns[player].add(part, loss, shared=player != ready[-1])
    found: Found = {}
    for player, turn in turns.items():
        for part, loss in waiting[player]:
            turn.add(part, means.paid(loss))
        ending = f".{player}" if len(turns) > 1 else ""
        found |= {f"{name}{ending}": x for name, x in turn.end(batches).items()}
    if any(turn.free for turn in turns.values()):  # or nothing was scaled
        training.scaler.update()
    means.sharing.equal_buffers()
    return found
