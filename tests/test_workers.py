"""Processes that can be killed one by one: limits, ranks, homes."""

import os
import threading
import time

import pytest

from vademecum.claims import Workers


@pytest.fixture
def one():
    with_one = Workers(1, limit=20.0, cpu=2, memory=1 << 30)
    yield with_one
    with_one.shutdown(cancel_futures=True)


def spin():
    while True:
        pass


def eat(gigabytes):
    return len(bytearray(gigabytes << 30))


def test_a_call_that_takes_too_much_ends_and_the_next_is_served(one):
    assert one.submit(abs, -3).result() == 3
    first = one.submit(os.getpid).result()
    with pytest.raises(MemoryError):
        one.submit(eat, 2).result()
    assert one.submit(os.getpid).result() == first
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


def test_the_lowest_rank_goes_first(one):
    order = []
    one.submit(time.sleep, 0.5)
    calls = [one.ask(abs, (-n,), rank=n) for n in (3, 1, 2)]
    for call in calls:
        call.add_done_callback(lambda call: order.append(call.result()))
    calls[0].rank = 0
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
        assert two.ask(os.getpid, (), key="a").result(20)
    finally:
        two.shutdown(cancel_futures=True)


def test_shutting_down_ends_what_waits_and_what_runs():
    workers = Workers(1)
    running, waiting = workers.submit(time.sleep, 60), workers.submit(abs, 1)
    while not running.running():
        time.sleep(0.01)
    workers.shutdown(cancel_futures=True)
    assert waiting.cancelled()
    assert isinstance(running.exception(), ChildProcessError)
    with pytest.raises(RuntimeError, match="shut down"):
        workers.submit(abs, 1)
    assert threading.active_count() < 20


def test_shutting_down_in_peace_lets_calls_end():
    with Workers(1) as workers:
        found = [workers.submit(abs, -n) for n in range(3)]
    assert [call.result() for call in found] == [0, 1, 2]
