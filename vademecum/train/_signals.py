"""Signals that ask for an end: kept in mind until the step is done, and not heard by workers.

SIGTERM comes from a scheduler that needs the machine, SIGUSR1 from one that warns in time, SIGINT
from Ctrl-C. A terminal and many schedulers send them to worker processes, too, which must not die
of them: the main process would die of that before it has saved anything. So workers are born with
these signals withheld, and ignore them from then on.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Signals", "ignore_signals", "withheld_signals"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Signals:
    """A context in which these signals are noted in `raised`, and do nothing else.

    A second Ctrl-C is let through, for whoever cannot wait for the step to end.
    """

    def __init__(self) -> None:
        self.raised = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():  # others get no signals
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, signum: int, _: object) -> None:
        if self.raised and signum == signal.SIGINT:
            raise KeyboardInterrupt
        self.raised = True


def ignore_signals(_: int = 0) -> None:
    """Ignore them from now on, in a worker process."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def withheld_signals() -> Iterator[None]:
    """Let them wait; processes that start meanwhile never get them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
