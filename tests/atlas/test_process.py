"""What the server settles with Python before it starts threads."""

import sys
import threading
import time
from multiprocessing import spawn
from types import ModuleType

import pytest

from vademecum.atlas.process import no_threads_left, spawn_as_now
from vademecum.claims import Workers


def test_processes_start_after_a_notebook_has_left_an_empty_main(monkeypatch):
    monkeypatch.setattr(spawn, "get_preparation_data", spawn.get_preparation_data)
    empty = ModuleType("__main__")
    empty.__dict__.clear()

    def answer() -> int:
        workers = Workers(1, limit=60)
        try:
            return workers.submit(abs, -3).result()
        finally:
            workers.shutdown(cancel_futures=True)

    before = sys.modules["__main__"]
    spawn_as_now()
    try:
        sys.modules["__main__"] = empty
        assert answer() == 3
        monkeypatch.undo()
        with pytest.raises(AttributeError, match="__spec__"):  # what would happen otherwise
            answer()
    finally:
        sys.modules["__main__"] = before


def test_threads_get_the_time_to_end():
    done = threading.Event()
    with no_threads_left():
        threading.Timer(0.2, done.set).start()
    assert done.is_set()
    endless = threading.Thread(target=threading.Event().wait, daemon=True)
    begun = time.monotonic()
    with no_threads_left(0.3):
        endless.start()
    assert 0.3 <= time.monotonic() - begun < 5
