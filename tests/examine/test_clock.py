"""Time that is shared, by a clock that stands still unless it is told otherwise."""

import math

import pytest
import torch
from torch import nn

from vademecum.examine._clock import Clock, OutOfTime, _growth


class Time:
    """Seconds that pass when one says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_shares_and_checks():
    time = Time()
    clock = Clock(10.0, now=time)
    part = clock.spend(0.3)
    assert part.left() == pytest.approx(3.0)
    time.now = 4.0
    assert clock.left() == 6.0
    assert part.left() == pytest.approx(-1.0)
    clock.check()
    with pytest.raises(OutOfTime):
        part.check()
    assert clock.spend(0.5).left() == 3.0
    time.now = 11.0
    assert clock.spend(1.0).left() == 0.0


def test_work_that_a_gpu_has_not_done_yet_is_waited_for(monkeypatch):
    """Python goes on while a GPU works: a second for each example, which only a wait shows."""
    time, begun = Time(), [0]

    def wait():
        time.now, begun[0] = time.now + begun[0], 0

    def work(size: int) -> None:
        begun[0] += size

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", wait)
    assert Clock(1000.0, now=time).affordable(work, 2, 500, times=10) == 80
    seen = []
    for size in Clock(40.0, now=time).portions(10, 1000):
        work(size)
        seen.append(size)
    assert seen == [10, 24]
    seen = []
    for size in Clock(40.0, now=time).stages((10, 20, 40)):
        work(size)
        seen.append(size)
    assert seen == [10, 20]


@pytest.mark.parametrize(
    ("seconds", "cost", "sizes"),
    [
        (math.inf, 1.0, [10, 1000]),
        (100.0, 0.0, [10, 1000]),
        (1.0, 1.0, [10]),  # the first one in any case
        (40.0, 1.0, [10, 24]),  # of 30 seconds left eight tenths
        (14.0, 1.0, [10]),  # a third more is not worth it
    ],
)
def test_portions_grow_to_a_fixed_end(seconds, cost, sizes):
    time = Time()
    clock, seen = Clock(seconds, now=time), []
    for size in clock.portions(10, 1000):
        seen.append(size)
        time.now += cost * size
    assert seen == sizes
    assert bool(clock.cut) == (sizes[-1] < 1000)
    assert not clock.cut or clock.cut == f"{sizes[-1]} of 1000 examples"


@pytest.mark.parametrize(
    ("costs", "sizes"),
    [
        ({10: 10.0, 16: 10.6}, [10, 16]),  # of 9.4 s left 7.52 count, less than the last one took
        ({10: 2.0, 112: 4.04, 868: 19.16}, [10, 112, 868]),  # 112 + (19.168 - 4.04) / 0.02
        ({10: 2.0, 112: 1.0}, [10, 112, 1000]),  # a first call that was slow
        ({10: 2.0, 112: 22.4}, [10, 112]),  # as much as in proportion
    ],
)
def test_portions_of_work_that_has_a_cost_of_its_own(costs, sizes):
    time = Time()
    clock, seen = Clock(30.0, now=time), []
    for size in clock.portions(10, 1000):
        seen.append(size)
        time.now += costs.get(size, 0.0)
    assert seen == sizes


def test_portions_are_never_more_than_there_are():
    clock = Clock(1.0, now=Time())
    assert list(clock.portions(16, 5)) == [5]
    assert clock.cut == ""


def test_portions_of_quadratic_cost():
    time = Time()
    clock, seen = Clock(180.0, now=time), []
    for size in clock.portions(10, 1000, power=2.0):
        seen.append(size)
        time.now += size**2 / 5
    assert seen == [10, 25]  # sqrt(0.8 * 160 / 20) = 2.53


def test_stages_are_a_fixed_sequence():
    time = Time()
    clock, seen = Clock(100.0, now=time), []
    for size in clock.stages((10, 30, 90)):
        seen.append(size)
        time.now += size
    assert seen == [10, 30]
    assert clock.cut == "30 of 90 iterations"
    assert list(Clock(math.inf).stages((1, 2))) == [1, 2]


def test_a_stage_that_is_enough_cuts_nothing():
    time = Time()
    clock = Clock(100.0, now=time)
    for size in clock.stages((10, 1000)):
        time.now += size
        break
    assert clock.cut == ""


@pytest.mark.parametrize(
    ("seconds", "size"),
    [(1000.0, 500), (20.0, 10), (math.inf, 500), (245.0, 166)],
)
def test_affordable(seconds, size):
    time = Time()
    clock = Clock(seconds, now=time)

    def work(m: int) -> None:
        time.now += 0.3 + 0.01 * m

    found = clock.affordable(work, 10, 500, times=100)
    assert found == pytest.approx(size, abs=3)
    assert bool(clock.cut) == (found < 500)


def test_calls_of_modules_ask_the_clock():
    time, model = Time(), nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    clock = Clock(1.0, now=time)
    with clock.watching():
        model(torch.ones(1, 2))
        time.now = 2.0
        with pytest.raises(OutOfTime):
            model(torch.ones(1, 2))
    model(torch.ones(1, 2))
    assert not model._forward_pre_hooks
    assert not model[0]._forward_pre_hooks


def test_a_portion_that_is_no_larger_is_not_begun():
    """There is time for one and a half times as much as one: that is one."""
    time = Time()
    clock, seen = Clock(3.0, now=time), []
    for size in clock.portions(1, 100):
        seen.append(size)
        time.now += size
    assert seen == [1]
    assert clock.cut == "1 of 100 examples"


@pytest.mark.parametrize(
    ("took", "sizes", "cut"),
    [
        (0.0, [1, 16], ""),
        (10.0, [1, 3], "3 of 16 ways"),
        (1.0, [1, 16], ""),
        (40.0, [1], "1 of 16"),
    ],
)
def test_work_that_goes_on_from_what_was_done_before(took, sizes, cut):
    """Of 30 s four fifths are for two ways more of 10 s each, not for eight times as many."""
    time = Time()
    clock, seen = Clock(30.0, now=time), [0]
    for size in clock.portions(1, 16, what="ways", took=took):
        time.now += took * (size - max(seen[-1], 1))
        seen.append(size)
    assert seen[1:] == sizes
    assert clock.cut.startswith(cut)
    assert bool(clock.cut) == bool(cut)
    assert clock.left() > 0


def test_all_that_was_done_before_counts_of_work_that_goes_on():
    """A way of 1 s, 16 of half a second, which leave 12 s: four fifths of them are for 19 more."""
    time = Time()
    clock, seen = Clock(20.0, now=time), [1]
    for size in clock.portions(1, 1000, what="ways", took=1.0):
        time.now += 0.5 * (size - seen[-1])
        seen.append(size)
    assert seen[1:] == [1, 17, 36]


@pytest.mark.parametrize(
    ("before", "now", "limit", "factor"),
    [
        ((1.0, 3.0), (2.0, 5.0), 13.0, 3.0),  # 2 s for each, on a line: 4 more in 8 s
        ((1.0, 1.0), (2.0, 10.0), 20.0, 2.0),  # dearer than in proportion, by an accident
        ((1.0, 10.0), (2.0, 10.0), 20.0, 1 + 8.0),  # for nothing: an eighth of 5 s each
        ((1.0, 1.0), (2.0, 4.0), 0.0, 0.0),
    ],
)
def test_how_much_more_work_fits_into_a_time(before, now, limit, factor):
    assert _growth(before, now, limit) == pytest.approx(factor)
