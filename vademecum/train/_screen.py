"""What somebody sees who watches a run: a bar on a terminal, lines elsewhere, on standard error.

Both show the loss, the last scores, examples a second and the time that is left. They are renewed
when enough time has passed and not at each step, so that they cost next to nothing.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from vademecum.train._training import Training

__all__ = ["screen"]

Tell = Callable[[Training, dict[str, float]], None]
_BAR, _LINE = 0.1, 10.0
"""Seconds between two looks of a bar, and between two lines."""


@contextmanager
def screen(training: Training, batch_size: int) -> Iterator[Tell]:
    """A function to call with what each step has found.

    Args:
        training: The run.
        batch_size: How many examples a step takes.
    """
    if sys.stderr.isatty():
        with _bar(training, batch_size) as tell:
            yield tell
    else:
        yield _Teller(training, batch_size, _LINE, lambda _, text: _print(text))


class _Teller:
    """Puts what was found into words, when it is time or something new was measured."""

    def __init__(
        self,
        training: Training,
        batch_size: int,
        every: float,
        show: Callable[[Training, str], Any],
    ):
        self._batch_size, self._every, self._show = batch_size, every, show
        self._begun, self._first = monotonic(), training.step
        self._due = 0.0

    def __call__(self, training: Training, found: dict[str, float]) -> None:
        now = monotonic()
        measured = any(name.startswith(("score.", "track.")) for name in found)
        if now < self._due and not measured and not training.finished:
            return
        self._due = now + self._every
        each = max(now - self._begun, 1e-9) / (training.step - self._first)
        words = [f"{name} {x:.4g}" for name, x in found.items() if name.startswith("loss")]
        words += [f"{name} {x:.4g}" for name, x in training.scores.items()]
        words += [f"{name[6:]} {x:.4g}" for name, x in found.items() if name.startswith("track.")]
        words.append(f"{self._batch_size / each:,.0f} examples/s")
        left = "?" if training.steps is None else _clock((training.steps - training.step) * each)
        steps = "?" if training.steps is None else f"{training.steps}"
        self._show(training, f"step {training.step} of {steps}, {', '.join(words)}, {left} left")


@contextmanager
def _bar(training: Training, batch_size: int) -> Iterator[Tell]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    words = TextColumn("{task.description}", markup=False)
    columns = (BarColumn(bar_width=20), TimeElapsedColumn(), words)
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("starting", total=training.steps, completed=training.step)

        def show(training: Training, text: str) -> None:
            bar.update(task, total=training.steps, completed=training.step, description=text)

        yield _Teller(training, batch_size, _BAR, show)


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds.

    Example:
        >>> _clock(3671)
        '1:01:11'
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
