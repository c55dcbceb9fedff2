"""All that a run leaves behind in its folder, and what it shows meanwhile.

| file | what it holds |
|---|---|
| `config.json` | what the run was asked for |
| `log.jsonl` | what each step has found, a line each |
| `checkpoints/step-*` | what to go on from: the last ones |
| `checkpoints/best` | the run at its best score, with the weights that were judged |
| `summary.json`, `curves.svg` | how it ended |

Only the first of several processes writes.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from vademecum.arguments import number, whole
from vademecum.errors import UsageError
from vademecum.files import write_atomically
from vademecum.train._board import Board
from vademecum.train._journal import Journal
from vademecum.train._keeping import Keeping
from vademecum.train._ranks import Ranks
from vademecum.train._resuming import go_on, insist_on_folder, start_folder
from vademecum.train._screen import screen
from vademecum.train._signals import Signals
from vademecum.train._training import Training
from vademecum.train.checkpoints import BackgroundWriter
from vademecum.train.runs import Run, draw_run

__all__ = ["Records"]

Note = Callable[[Training, dict[str, float]], None]
_TOLD = ("steps", "epochs", "scores", "best", "seconds", "stopped")


class Records:
    """The records of a run, which goes on from a checkpoint if it is to.

    Args:
        stack: What closes them in the end.
        training: The run as it was set up.
        ranks: The processes.
        folder: Where to, or None to keep nothing.
        keep: How many checkpoints to keep.
        resume: Whether to go on from the newest checkpoint; "auto" does if there is one.
        change: What may be another than it was.
    """

    def __init__(
        self,
        stack: ExitStack,
        training: Training,
        ranks: Ranks,
        folder: str | Path | None,
        *,
        keep: int,
        resume: bool | Literal["auto"],
        change: Iterable[str],
    ):
        whole("keep", keep, low=1)
        self.folder = None if folder is None else Path(folder)
        self._training, self._ranks = training, ranks
        self._writer: BackgroundWriter | None = None
        self._own = self.folder if ranks.main else None
        if self.folder is not None:
            insist_on_folder(self.folder, ranks, resume=resume)
        if self._own is not None:
            path = self._own / "checkpoints"
            self._writer = stack.enter_context(BackgroundWriter(path, keep=keep))
        if self.folder is not None:
            go_on(training, self.folder, ranks, resume=resume, change=change)
        elif resume is True:
            raise UsageError("folder must be given to resume a run, got None")
        if self._own is not None:
            start_folder(self._own, training)
        log = None if self._own is None else self._own / "log.jsonl"
        self._journal = stack.enter_context(Journal(log, training.step))
        self._notes: list[Note] = [self._journal.note]

    def show(self, stack: ExitStack, batch_size: int, *, progress: bool, tensorboard: bool) -> None:
        """Show what steps find on the screen, and in TensorBoard."""
        if progress and self._ranks.main:
            self._notes.append(stack.enter_context(screen(self._training, batch_size)))
        if tensorboard and self._own is None and self._ranks.main:
            raise UsageError("folder must be given for tensorboard, got None")
        if tensorboard and self._own is not None:
            board = stack.enter_context(Board(self._own, self._training.step))
            self._notes.append(board.note)

    @contextmanager
    def kept(self, every: float, signals: Signals, settle: Callable[[], None]) -> Iterator[Keeping]:
        """What keeps the run after its steps; it is kept at the start and at the end as well.

        Args:
            every: Seconds from one checkpoint to the next.
            signals: What may ask for an end.
            settle: Takes note of the last step, if that was put off, or refuses it.
        """
        number("checkpoint_every", every, low=0)
        seconds = None if self.folder is None else every

        def flush() -> None:
            settle()
            self._journal.flush()

        keeping = Keeping(self._training, self._writer, seconds, signals, self._ranks, flush)
        keeping.save(self._training)
        yield keeping
        keeping.save(self._training)

    def note(self, training: Training, found: dict[str, float]) -> None:
        """Take note of what a step has found."""
        for note in self._notes:
            note(training, found)

    def ended(self, training: Training, stopped: str, seconds: float) -> Run:
        """What the run has come to, which is written down as well."""
        stopping = training.stopping
        run = Run(
            training.objective,
            training.step,
            training.step / training.per_epoch,
            training.scores,
            stopping.best if stopping is not None and stopping.best_step else None,
            self._journal.history(),
            self.folder,
            seconds,
            stopped,
        )
        if self._own is not None:
            _summarise(self._own, run)
        return run


def _summarise(folder: Path, run: Run) -> None:
    from vademecum.canvas import styled, svg

    told = {name: getattr(run, name) for name in _TOLD}
    told["scores"] = {k: x if math.isfinite(x) else None for k, x in run.scores.items()}
    told["best"] = None if run.best is None or math.isinf(run.best) else run.best
    write_atomically(folder / "summary.json", json.dumps(told, indent=1) + "\n")
    write_atomically(folder / "curves.svg", [svg(styled(lambda: draw_run(run)))])
