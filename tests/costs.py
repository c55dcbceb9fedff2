"""CPU seconds of the tests of each room, printed at the end of a run; a room too dear fails it.

What a test and its fixtures spend, processes that they start and wait for included, counts for the
folder it lies in: `tests/linear/...` and the doctests of `vademecum/linear/...` for `linear`. CPU
time does not depend on how busy the machine is, as wall time does. Workers of xdist send theirs
along with each report. Tests that bear the mark `gpu` count for `gpu`, which has no limit: they
compile kernels, for which nobody waits on a machine without a GPU.
"""

import os
import time
from collections import defaultdict
from pathlib import PurePosixPath

import pytest

from vademecum import ROOMS

ALLOWED = 100.0  # CPU seconds for the tests of a room
SLACK = 3.0  # for slower machines, and tests that are still to be made cheaper


def pytest_addoption(parser):
    parser.addoption(
        "--cpu-limit",
        type=float,
        default=SLACK * ALLOWED,
        help="CPU seconds that the tests of a room may take; with several seeds there is no limit",
    )


def spent() -> float:
    """The CPU seconds of this process, and of its children that have ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def room_of(nodeid: str) -> str:
    """The folder below `tests` or `vademecum` that a test counts for.

    Example:
        >>> room_of("tests/linear/test_lasso.py::test_path"), room_of("tests/test_docs.py::test_x")
        ('linear', 'the rest')
    """
    parts = PurePosixPath(nodeid.partition("::")[0]).parts
    return parts[1] if len(parts) > 2 else "the rest"


class Costs:
    """Adds up what tests spend, in one process or over the workers of xdist."""

    def __init__(self, limit: float):
        self.limit, self.mark = limit, spent()
        self.totals: defaultdict[str, float] = defaultdict(float)

    def too_dear(self) -> list[str]:
        return [room for room in ROOMS if self.totals.get(room, 0.0) > self.limit]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid, location):
        self.mark = spent()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        now = spent()
        report.cpu_seconds, self.mark = now - self.mark, now
        report.cpu_room = "gpu" if item.get_closest_marker("gpu") else room_of(item.nodeid)
        return report

    def pytest_runtest_logreport(self, report):
        room = getattr(report, "cpu_room", room_of(report.nodeid))
        self.totals[room] += getattr(report, "cpu_seconds", 0.0)

    def pytest_sessionfinish(self, session):
        if self.too_dear() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        if not self.totals:
            return
        order = sorted(self.totals, key=self.totals.__getitem__, reverse=True)
        each = ", ".join(f"{room} {self.totals[room]:.0f}" for room in order)
        terminalreporter.write_line(f"CPU seconds by room: {each}")
        for room in self.too_dear():
            terminalreporter.write_line(
                f"FAILED the tests of {room} took {self.totals[room]:.1f} CPU seconds, more than"
                f" {self.limit:g}: make them cheaper (--durations=20 tells which are dear)",
                red=True,
            )


def pytest_configure(config):
    several = "-" in str(config.getoption("seeds", "0"))
    limit = float("inf") if several else config.getoption("cpu_limit")
    config.pluginmanager.register(Costs(limit), "costs")
