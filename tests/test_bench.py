import subprocess
import sys
from itertools import cycle
from pathlib import Path

import pytest

import bench.harness
from bench.harness import Row, measure


def _differs(a, b):
    assert a == b, "the answers differ"


def test_a_row_whose_answers_differ_is_not_timed():
    with pytest.raises(AssertionError, match="the answers differ"):
        measure(Row("sum", lambda: 1, {"peer": lambda: 2}, _differs))


def test_the_ratio_is_the_median_over_turns_against_the_fastest_peer(monkeypatch):
    # The machine slows down fourfold from one turn to the next: the ratios do not notice.
    speed = [1, 1, 1, 4, 4, 4, 16, 16, 16]
    base = cycle([2.0, 3.0, 10.0])  # ours, near, far
    times = iter([s * next(base) for s in speed])
    monkeypatch.setattr(bench.harness, "_seconds", lambda _: next(times))
    peers = {"near": lambda: 1, "far": lambda: 1}
    result = measure(Row("sum", lambda: 1, peers, _differs, rounds=3))
    assert result.peer == "near"
    assert result.ratio == 1.5
    assert result.peers["far"]["ratio"] == 5.0
    assert result.ours_s == 8.0


def test_peak_memory_sees_what_a_call_allocates():
    # The counter belongs to the process, so the call gets one in which nothing else happens.
    code = "from bench.harness import _peak_megabytes as p; print(p(lambda: b'x' * 50_000_000))"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    ).stdout.strip()
    if answer == "None":
        pytest.skip("this system does not tell the peak memory")
    assert 45 < float(answer) < 80
