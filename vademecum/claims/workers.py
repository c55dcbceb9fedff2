"""A pool of processes in which one can hang or crash without harming the others.

The standard process pool gives up altogether when a worker dies, cannot stop one that hangs, and
serves in the order of arrival. Here each of a few threads owns a process and talks to it through a
pipe: a call that outlasts its limits has its process killed and raises `TimeoutError`; a process
that dies of its own raises `ChildProcessError`; either way the next call gets a fresh process.
Processes start when they are first needed: afresh, with all imports before them, or forked from
multiprocessing's server, which may have imported everything already.
"""

import contextlib
import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from multiprocessing import get_all_start_methods, get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Call", "Closed", "Workers", "no_ctrl_c"]


class Closed(RuntimeError):
    """A call came after the shutdown."""


class _Limits(NamedTuple):
    cpu: int | None
    memory: int | None
    nice: int


class Call(Future):
    """A call that waits for a process, runs in one, or is done; the lowest rank is served first."""

    def __init__(self, task: tuple, key: str, rank: int):
        super().__init__()
        self.task, self.key, self.rank = task, key, rank
        self.process: Any = None  # while it runs
        self.stopped = False


class Workers(Executor):
    """An executor whose calls run in processes that can be killed one by one.

    Args:
        jobs: How many processes; as many as there are cores by default.
        limit: The seconds of wall time after which a call's process is killed.
        cpu: The seconds of CPU time that a call may take.
        memory: The bytes that a process may take beyond what it has when it starts (Linux).
        nice: By how much other processes go before.
        forked: Whether to fork processes from multiprocessing's server, where there is one.
    """

    def __init__(
        self,
        jobs: int | None = None,
        *,
        limit: float | None = None,
        cpu: int | None = None,
        memory: int | None = None,
        nice: int = 0,
        forked: bool = False,
    ):
        if jobs is not None and jobs < 1:
            raise ValueError(f"jobs must be at least 1, got {jobs}")
        if limit is not None and not limit > 0:
            raise ValueError(f"limit must be positive, got {limit}")
        forked = forked and "forkserver" in get_all_start_methods()
        self._context: Any = get_context("forkserver" if forked else "spawn")
        self._limit, self._limits = limit, _Limits(cpu, memory, nice)
        self._wake = threading.Condition()
        self._waiting: list[Call] = []
        self._homes: dict[str, int] = {}
        self._processes: dict[int, tuple[Any, Connection]] = {}
        self._closed = self._killed = False
        numbers = range(jobs or os.cpu_count() or 1)
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in numbers]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Call:
        """Schedule a call; the function must be importable by its module and name."""
        return self.ask(fn, args, kwargs)

    def ask(
        self, fn: Callable, args: tuple, kwargs: dict | None = None, *, key: str = "", rank: int = 0
    ) -> Call:
        """Schedule a call that waits behind those of lower rank.

        Args:
            fn: The function, importable by its module and name.
            args: Its arguments.
            kwargs: Its keyword arguments.
            key: Calls with the same key go to the same process unless another is idle.
            rank: The lowest is served first.
        """
        call = Call((fn, args, kwargs or {}), key, rank)
        with self._wake:
            if self._closed:
                raise Closed("the workers have been shut down")
            self._waiting.append(call)
            self._wake.notify()
        return call

    def stop(self, call: Call) -> None:
        """Forget a call that waits, or kill the process of one that runs."""
        if not call.cancel():
            with self._wake:
                call.stopped = True
                if call.process is not None:
                    call.process.kill()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop; with `cancel_futures` the calls under way are killed too."""
        with self._wake:
            self._closed, self._killed = True, self._killed or cancel_futures
            dropped, self._waiting = (self._waiting, []) if cancel_futures else ([], self._waiting)
            for process, _ in self._processes.values() if cancel_futures else ():
                process.kill()
            self._wake.notify_all()
        for call in dropped:
            call.cancel()
            call.set_running_or_notify_cancel()  # or who waits for several would wait for ever
        for thread in self._threads if wait else ():
            thread.join()

    def _work(self, number: int) -> None:
        no_ctrl_c()  # processes started here inherit it from birth
        while (call := self._next(number)) is not None:
            if call.set_running_or_notify_cancel():
                try:
                    answer = self._run(number, call)
                except BaseException as error:
                    call.set_exception(error)
                else:
                    call.set_result(answer)
        self._drop(number)

    def _drop(self, number: int) -> None:
        with self._wake:
            process, pipe = self._processes.pop(number, (None, None))
        if process is not None and pipe is not None:
            process.kill()
            process.join()
            pipe.close()

    def _next(self, number: int) -> Call | None:
        """The call that this thread takes up; None when there will be no more."""
        with self._wake:
            while not self._waiting and not self._closed:
                self._wake.wait()
            if not self._waiting:
                return None
            homes = self._homes
            call = min(self._waiting, key=lambda c: (c.rank, homes.get(c.key, number) != number))
            self._waiting.remove(call)
            if call.key:
                homes.setdefault(call.key, number)
            return call

    def _run(self, number: int, call: Call) -> Any:
        process, pipe = self._processes.get(number) or self._start(number)
        try:
            with self._wake:
                call.process = process
                if call.stopped:  # while the process started
                    process.kill()
            pipe.send(call.task)
            if not pipe.poll(self._limit):
                raise TimeoutError(f"no answer within {self._limit:g} seconds")
            done, value = pipe.recv()
        except BaseException as error:
            self._drop(number)
            if isinstance(error, EOFError | OSError) and not isinstance(error, TimeoutError):
                raise self._cause(process.exitcode) from None
            raise
        finally:
            with self._wake:
                call.process = None
        if call.stopped or isinstance(value, MemoryError):  # it is dead, or full
            self._drop(number)
        if done:
            return value
        raise value

    def _start(self, number: int) -> tuple[Any, Connection]:
        pipe, far_end = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(far_end, self._limits), daemon=True)
        process.start()
        far_end.close()  # so that the pipe ends when the process does
        with self._wake:
            self._processes[number] = process, pipe
            if self._killed:  # in the meantime
                process.kill()
        return process, pipe

    def _cause(self, code: int | None) -> Exception:
        if hasattr(signal, "SIGXCPU") and code == -signal.SIGXCPU:
            return TimeoutError(f"no answer within {self._limits.cpu} seconds of CPU time")
        return ChildProcessError(f"the worker process died (exit code {code})")


def no_ctrl_c() -> None:
    """Leave Ctrl-C to other threads, and to processes that were not started by this one."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _serve(pipe: Connection, limits: _Limits) -> None:
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    gc.freeze()  # a collection would copy what forked processes share
    _limit_memory(limits.memory)
    if limits.nice and hasattr(os, "nice"):
        os.nice(limits.nice)
    while True:
        try:
            fn, args, kwargs = pipe.recv()
            _limit_cpu(limits.cpu)
            answer = True, fn(*args, **kwargs)
        except EOFError:
            return
        except Exception as error:  # also of a function that cannot be imported here
            answer = False, MemoryError(str(error)) if _out_of_memory(error) else error
        pipe.send(answer)


def _leave_with_parent() -> None:
    """End in the midst of a call that nobody is there to stop."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error)  # torch's words


def _limit_memory(memory: int | None) -> None:
    if memory is not None:
        with contextlib.suppress(OSError):  # systems that do not tell
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            _limit("RLIMIT_AS", pages * os.sysconf("SC_PAGE_SIZE") + memory)


def _limit_cpu(cpu: int | None) -> None:
    if cpu is not None:
        _limit("RLIMIT_CPU", int(time.process_time()) + 1 + cpu)


def _limit(what: str, most: int) -> None:
    """Lower a limit of this process, unless whoever started it has set a lower one."""
    with contextlib.suppress(ImportError):  # systems without such limits
        import resource

        number = getattr(resource, what)
        hard = resource.getrlimit(number)[1]
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (soft, hard))
