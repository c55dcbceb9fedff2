"""Ending a long run on Ctrl-C or SIGTERM without losing what it has found."""

import signal
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

__all__ = ["Interrupts"]

Item = TypeVar("Item")


class Interrupts:
    """A context in which SIGINT and SIGTERM end `until`'s iteration, and nothing else.

    They are kept in mind while an item is worked on, so that no file is left half written; `signum`
    is the number of the first one, or 0.
    """

    def __init__(self) -> None:
        self.signum = 0
        self._waiting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():  # others get no signals
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def until(self, items: Iterator[Item]) -> Iterator[Item]:
        """Yield the items until they or our patience end."""
        while not self.signum:
            try:
                self._waiting = True
                item = next(items)
            except (StopIteration, KeyboardInterrupt):
                return
            finally:
                self._waiting = False
            yield item

    def _note(self, signum: int, _: object) -> None:
        self.signum = self.signum or signum
        if self._waiting:
            self._waiting = False  # let what unwinds now unwind in peace
            raise KeyboardInterrupt
