"""When a run is kept: at its start and end, every so many seconds, on a signal, and at its best.

All processes agree on it after a step, since each must give its share. The log is on the disk
before the checkpoint is, so that a run that goes on finds all lines up to there.
"""

import time
from collections.abc import Callable

from vademecum.train._looks import with_averages
from vademecum.train._ranks import Ranks
from vademecum.train._signals import Signals
from vademecum.train._state import capture
from vademecum.train._training import Training
from vademecum.train.checkpoints import BackgroundWriter

__all__ = ["Keeping"]


class Keeping:
    """Keeps a run in a folder, if there is one.

    Args:
        training: The run as it starts.
        writer: What writes checkpoints, in the first process; None in others.
        every: Seconds from one checkpoint to the next; None without a folder.
        signals: What may have asked for an end.
        ranks: The processes.
        flush: Writes the rest of the log.
    """

    def __init__(
        self,
        training: Training,
        writer: BackgroundWriter | None,
        every: float | None,
        signals: Signals,
        ranks: Ranks,
        flush: Callable[[], None],
    ):
        self._writer, self._every, self._signals = writer, every, signals
        self._ranks, self._flush = ranks, flush
        self._due, self._best = 0.0, _best(training)
        self._kept = training.step if training.step else -1

    def __call__(self, training: Training) -> bool:
        """Keep it if it is time, and say whether somebody asked for an end."""
        due = self._every is not None and time.monotonic() >= self._due
        end, due = self._ranks.any(self._signals.raised, due)
        if _best(training) != self._best:  # first, or a kill in between would lose it for good
            self._best = _best(training)
            with with_averages(training):  # by which it was judged
                self._submit(training, best=True)
        if due:
            self.save(training)
        return end

    def save(self, training: Training) -> None:
        """Keep it now, unless this step is kept already."""
        if training.step != self._kept:
            self._submit(training, best=False)
            self._kept = training.step
            self._due = time.monotonic() + (self._every or 0.0)

    def _submit(self, training: Training, *, best: bool) -> None:
        if self._every is None:
            return
        self._flush()
        snapshot = capture(training, self._ranks)
        if self._writer is not None and snapshot is not None:
            self._writer.submit(snapshot, best=best)


def _best(training: Training) -> int:
    """The evaluation that was the best so far."""
    return 0 if training.stopping is None else training.stopping.best_step
