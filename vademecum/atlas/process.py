"""What a long-lived process with many threads has to settle with Python and the C library."""

import builtins
import contextlib
import ctypes
import gc
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing import spawn
from typing import Any

__all__ = ["give_back_memory", "no_threads_left", "parse_in_turn", "spawn_as_now"]

_M_ARENA_MAX = -8  # of glibc's mallopt


def parse_in_turn() -> None:
    """Let one thread at a time build syntax trees, where Python cannot bear more.

    Before 3.13 threads that do so at once confuse each other's recursion counts: "SystemError: AST
    constructor recursion depth mismatch". Every notebook session has a thread that parses.
    """
    if sys.version_info >= (3, 13) or hasattr(builtins.compile, "in_turn"):
        return
    plain, turn = builtins.compile, threading.RLock()

    def compile(*args: Any, **kwargs: Any) -> Any:
        with turn:
            return plain(*args, **kwargs)

    compile.in_turn = True  # type: ignore[attr-defined]
    builtins.compile = compile  # type: ignore[assignment]


def spawn_as_now() -> None:
    """Start all later processes as if it were now, whatever `__main__` has become by then.

    They begin with what `__main__` was made from. But a notebook's session puts a module of its own
    in that place, and empties it when it ends.
    """
    known = spawn.get_preparation_data("")
    spawn.get_preparation_data = lambda name: known | {"name": name}


@contextlib.contextmanager
def no_threads_left(seconds: float = 10.0) -> Iterator[None]:
    """Give threads that were started inside the time to end.

    One that draws a picture while Python is being taken down would crash it.
    """
    before = set(threading.enumerate())
    try:
        yield
    finally:
        end = time.monotonic() + seconds
        while set(threading.enumerate()) - before and time.monotonic() < end:
            time.sleep(0.02)  # some may be about to start, and cannot be joined yet


def give_back_memory(every: float = 15.0) -> None:
    """Return freed memory to the system from time to time, where the C library can.

    Sessions leave small holes all over the heap, and glibc keeps an arena for each thread.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, 2)
        trim = library.malloc_trim

        def tidy() -> None:
            while True:
                threading.Event().wait(every)
                gc.collect()
                trim(0)

        threading.Thread(target=tidy, daemon=True, name="tidy").start()
