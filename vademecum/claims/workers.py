"""A pool of processes in which one can hang or crash without harming the others.

The standard process pool gives up altogether when a worker dies, and cannot stop one that hangs.
Here each of a few threads owns a process and talks to it through a pipe: a call that outlasts
`limit` seconds has its process killed and raises `TimeoutError`; a process that dies of its own
raises `ChildProcessError`; either way the next call gets a fresh process.
"""

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["Workers"]


class Workers(Executor):
    """An executor whose calls run in processes that can be killed one by one.

    Args:
        jobs: How many processes; as many as there are cores by default.
        limit: The seconds of wall time after which a call's process is killed.
    """

    def __init__(self, jobs: int | None = None, *, limit: float | None = None):
        if jobs is not None and jobs < 1:
            raise ValueError(f"jobs must be at least 1, got {jobs}")
        if limit is not None and not limit > 0:
            raise ValueError(f"limit must be positive, got {limit}")
        self._threads = ThreadPoolExecutor(jobs or os.cpu_count() or 1, initializer=_ignore_ctrl_c)
        self._context = get_context("spawn")
        self._own = threading.local()
        self._processes: set[Any] = set()
        self._limit = limit
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Schedule a call; the function must be importable by its module and name."""
        return self._threads.submit(self._call, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop; with `cancel_futures` the calls under way are killed too."""
        if cancel_futures:
            self._closed = True
            self._kill()
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            self._kill()

    def _kill(self) -> None:
        for process in list(self._processes):
            process.kill()

    def _call(self, fn: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        process, pipe = self._worker()
        try:
            pipe.send((fn, args, kwargs))
            if not pipe.poll(self._limit):
                raise TimeoutError(f"no answer within {self._limit:g} seconds")
            done, value = pipe.recv()
        except BaseException as error:
            self._discard(process, pipe)
            if isinstance(error, EOFError | OSError) and not isinstance(error, TimeoutError):
                died = f"the worker process died (exit code {process.exitcode})"
                raise ChildProcessError(died) from None
            raise
        if done:
            return value
        raise value

    def _worker(self) -> tuple[Any, Connection]:
        if getattr(self._own, "worker", None) is None:
            if self._closed:
                raise RuntimeError("the workers have been shut down")
            pipe, far_end = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(far_end,), daemon=True)
            process.start()
            far_end.close()  # so that the pipe ends when the process does
            self._processes.add(process)
            self._own.worker = process, pipe
            if self._closed:  # in the meantime
                process.kill()
        return self._own.worker

    def _discard(self, process: Any, pipe: Connection) -> None:
        process.kill()
        process.join()
        pipe.close()
        self._processes.discard(process)
        self._own.worker = None


def _ignore_ctrl_c() -> None:
    """Leave Ctrl-C to the main thread; processes started here inherit the mask from birth."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _serve(pipe: Connection) -> None:
    while True:
        try:
            fn, args, kwargs = pipe.recv()
            answer = True, fn(*args, **kwargs)
        except EOFError:
            return
        except Exception as error:  # also of a function that cannot be imported here
            answer = False, error
        pipe.send(answer)
