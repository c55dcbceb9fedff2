"""Processes that can be killed one by one: limits, ranks, homes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from vademecum.claims import Workers, workers


@pytest.fixture
def one():
    with_one = Workers(1, limit=300.0, cpu=2, memory=1 << 30)
    yield with_one
    with_one.shutdown(cancel_futures=True)


def spin():
    while True:
        pass


def eat(gigabytes):
    return len(bytearray(gigabytes << 30))


def eat_tensors(gigabytes):
    return len(torch.zeros(gigabytes << 30, dtype=torch.uint8))


def until_there(path):
    while not Path(path).exists():
        time.sleep(0.01)


def lower_hard_limit():
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (1000, 1000))


def test_a_call_that_takes_too_much_ends_and_the_next_is_served(one):
    assert one.submit(abs, -3).result() == 3
    first = one.submit(os.getpid).result()
    for greedy in (eat, eat_tensors):
        with pytest.raises(MemoryError):
            one.submit(greedy, 2).result()
        full, first = first, one.submit(os.getpid).result()
        assert first != full
    with pytest.raises(TimeoutError, match="within 2 seconds of CPU time"):
        one.submit(spin).result()
    assert one.submit(os.getpid).result() != first


def test_a_call_can_be_stopped_while_it_waits_and_while_it_runs(one):
    assert one.submit(abs, -3).result() == 3  # the process is there
    running, waiting, last = one.submit(time.sleep, 60), one.submit(abs, -1), one.submit(abs, -2)
    while not running.running() or running.process is None:
        time.sleep(0.01)
    one.stop(waiting)
    one.stop(running)
    assert waiting.cancelled()
    with pytest.raises(ChildProcessError, match="died"):
        running.result()
    assert last.result() == 2
    one.stop(last)  # does nothing


def test_a_call_can_be_stopped_while_its_process_starts(one):
    starting = one.submit(time.sleep, 600)
    while not starting.running():
        time.sleep(0.001)
    one.stop(starting)
    with pytest.raises(ChildProcessError, match="died"):
        starting.result()
    assert one.submit(abs, -2).result() == 2


def test_who_stops_an_answer_that_has_come_harms_no_other_call(one, monkeypatch):
    start = one._start

    def starting(number):
        process, pipe = start(number)
        return process, Late(pipe, lambda: one.stop(first))

    monkeypatch.setattr(one, "_start", starting)
    first = one.submit(abs, -1)
    assert first.result() == 1
    monkeypatch.undo()
    assert one.submit(abs, -2).result() == 2


class Late:
    """A pipe that does something more when an answer has come."""

    def __init__(self, pipe, then):
        self.send, self.poll, self.pipe, self.then = pipe.send, pipe.poll, pipe, then

    def recv(self):
        answer = self.pipe.recv()
        self.then()
        return answer


def test_limits_that_were_set_before_stay(one):
    one.submit(lower_hard_limit).result()
    assert one.submit(abs, -2).result() == 2


def test_systems_without_limits(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    workers._limit("RLIMIT_CPU", 1)


def test_processes_end_with_the_one_that_started_them():
    code = (
        "import os, time\n"
        "from vademecum.claims import Workers\n"
        "workers = Workers(1)\n"
        "print(workers.submit(os.getpid).result(), flush=True)\n"
        "workers.submit(time.sleep, 600).result()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert not psutil.wait_procs([child], timeout=120)[1]


def test_the_lowest_rank_goes_first(one, tmp_path):
    order = []
    one.submit(until_there, tmp_path / "signal")
    calls = [one.ask(abs, (-n,), rank=n) for n in (3, 1, 2)]
    for call in calls:
        call.add_done_callback(lambda call: order.append(call.result()))
    calls[0].rank = 0
    (tmp_path / "signal").touch()
    for call in calls:
        call.result()
    one.shutdown()
    assert order == [3, 1, 2]


def test_calls_with_a_key_stay_where_they_were_unless_another_is_idle():
    two = Workers(2)
    try:
        home = {key: two.ask(os.getpid, (), key=key).result() for key in "ab"}
        for key in "ab" * 3:
            found = two.ask(os.getpid, (), key=key).result()
            assert found in home.values()
        busy = two.ask(time.sleep, (60,), key="a")
        while not busy.running():
            time.sleep(0.01)
        assert two.ask(os.getpid, (), key="a").result()
    finally:
        two.shutdown(cancel_futures=True)


def test_shutting_down_ends_what_waits_and_what_runs():
    crew = Workers(1)
    running, waiting = crew.submit(time.sleep, 60), crew.submit(abs, 1)
    while not running.running():
        time.sleep(0.01)
    crew.shutdown(cancel_futures=True)
    assert waiting.cancelled()
    assert isinstance(running.exception(), ChildProcessError)
    with pytest.raises(RuntimeError, match="shut down"):
        crew.submit(abs, 1)
    assert not any(thread.is_alive() for thread in crew._threads)


def test_shutting_down_in_peace_lets_calls_end():
    with Workers(1) as crew:
        found = [crew.submit(abs, -n) for n in range(3)]
    assert [call.result() for call in found] == [0, 1, 2]
