import importlib
import json
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from types import ModuleType

import pytest
import torch

import bench.__main__
import bench.harness
from bench.harness import Failed, PeerNotFoundError, Result, Row, Skipped, in_turn, measure
from vademecum.data import load

STEADY = bench.harness.STEADY


@pytest.fixture(autouse=True)
def _few_turns(monkeypatch):
    """No test waits for a median to settle."""
    monkeypatch.setattr(bench.harness, "STEADY", 0.0)


def _differs(a, b):
    assert a == b, "the answers differ"


def test_a_row_whose_answers_differ_is_not_timed(monkeypatch, capsys):
    monkeypatch.setattr(bench.harness, "_seconds", lambda _: pytest.fail("it was timed"))
    told = measure(Row("sum", lambda: 1, {"peer": lambda: 2}, _differs))
    assert isinstance(told, Failed)
    assert told.row == "sum"
    assert told.failed.startswith("AssertionError: the answers differ")
    assert "Traceback" in capsys.readouterr().err


def test_a_group_that_breaks_is_told_and_the_next_goes_on():
    first, broken, last = in_turn(_breaks(), [_row("after")])
    assert [row.name for row in (first, last) if isinstance(row, Row)] == ["before", "after"]
    assert isinstance(broken, Row)
    assert measure(broken) == Failed("breaks", "RuntimeError: out of ideas")


def _breaks():
    yield _row("before")
    raise RuntimeError("out of ideas\nfor today")


def test_a_failing_row_stands_in_the_table_that_is_kept(monkeypatch, capsys, tmp_path):
    module = ModuleType("bench.linear")
    wrong = Row("wrong", lambda: 1, {"peer": lambda: 2}, _differs)
    module.__dict__["rows"] = lambda device: iter([wrong, _row("right")])
    monkeypatch.setitem(sys.modules, "bench.linear", module)
    monkeypatch.setattr(bench.__main__, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench", "linear"])
    assert bench.__main__.main() == 1
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split()[:2] == ["wrong", "failed:"]
    assert "the answers differ" in first
    assert second.startswith("right ")
    rows = json.loads((tmp_path / "linear.json").read_text())["rows"]
    assert rows[0]["row"] == "wrong"
    assert "the answers differ" in rows[0]["failed"]
    assert rows[1]["peer"] == "peer"


def test_the_ratio_is_the_median_over_turns_against_the_fastest_peer(monkeypatch):
    # The machine slows down fourfold from one turn to the next: the ratios do not notice.
    speed = [1, 1, 1, 4, 4, 4, 16, 16, 16]
    base = cycle([2.0, 3.0, 10.0])  # ours, near, far
    times = iter([s * next(base) for s in speed])
    monkeypatch.setattr(bench.harness, "_seconds", lambda _: next(times))
    peers = {"near": lambda: 1, "far": lambda: 1}
    result = measure(Row("sum", lambda: 1, peers, _differs, rounds=3))
    assert isinstance(result, Result)
    assert result.peer == "near"
    assert result.ratio == 1.5
    assert result.peers["far"]["ratio"] == 5.0
    assert result.ours_s == 8.0


@pytest.mark.parametrize(("turns", "rounds", "spent", "enough"), [
    (4, 5, 9.0, False), (5, 5, 4.9, False), (5, 5, 5.0, True), (100, 5, 4.9, False),
    (101, 5, 4.9, True), (9, 9, 59.0, True), (1, 1, 4.9, False),
])  # fmt: skip
def test_rows_of_short_calls_take_more_turns(monkeypatch, turns, rounds, spent, enough):
    """Those that are asked for, and five seconds' worth or 101."""
    monkeypatch.setattr(bench.harness, "STEADY", STEADY)
    assert bench.harness._enough(turns, rounds, spent, 60.0) is enough


@pytest.mark.parametrize(
    ("turns", "rounds", "spent", "enough"),
    [(2, 9, 61.0, False), (3, 9, 61.0, True), (3, 9, 59.0, False), (1, 1, 61.0, True)],
)
def test_the_budget_ends_what_takes_long_after_three_turns(turns, rounds, spent, enough):
    assert bench.harness._enough(turns, rounds, spent, 60.0) is enough


@pytest.mark.parametrize(("once", "calls"), [(2.9, 2), (3.1, 1)])
def test_a_call_of_up_to_three_seconds_is_timed_on_its_second_run(monkeypatch, once, calls):
    taken = []
    monkeypatch.setattr(bench.harness, "_once", lambda call: taken.append(1) or once)
    bench.harness._seconds(lambda: None)
    assert len(taken) == calls


def test_the_ratio_of_memory_is_above_one_where_we_take_less():
    ratio = bench.harness._memory_ratio
    assert ratio(20.0, 60.0) == 3
    assert ratio(0.0, 60.0) == 60  # less than a megabyte is one
    assert ratio(9.0, 1.0) is ratio(None, 60.0) is ratio(60.0, None) is None


@pytest.mark.parametrize("size", [50_000_000, 10_000])
def test_peak_memory_sees_what_a_call_allocates(size):
    """Also where it takes what others have freed in small pieces, which stays with the process."""
    # The counter belongs to the process, so the call gets one in which nothing else happens.
    code = f"""
from bench.harness import _peak_megabytes
fill = lambda: [b"x" * {size} for _ in range({50_000_000 // size})]
freed, last = fill(), b"x" * {size}
del freed
print(_peak_megabytes(fill))
"""
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


class _Elsewhere:
    """A peer in a process of its own."""

    def __call__(self) -> int:
        return 1

    def peak_megabytes(self) -> float:
        return 123.0


def test_a_peer_in_another_process_says_its_own_memory():
    result = measure(Row("sum", lambda: 1, {"there": _Elsewhere()}, _differs, rounds=1))
    assert isinstance(result, Result)
    assert result.peer_mb == 123.0


# Missing data and peers


@pytest.fixture
def nothing_installed(monkeypatch, tmp_path):
    """A machine on which no data set is to be found, nor fetched."""
    from vademecum.data import sources

    monkeypatch.setattr(sources.Source, "folders", lambda self: [tmp_path])
    monkeypatch.setattr(sources, "cache_folder", lambda name: None)
    monkeypatch.setattr(sources, "fetch", _no_network)


def _no_network(*_, **__):
    from vademecum.data._download import DownloadError

    raise DownloadError("no network")


def _row(name):
    return Row(name, lambda: 1, {"peer": lambda: 1}, _differs, rounds=1)


def _fashion():
    yield _row("before")
    load("fashion_mnist")
    yield _row("never")


def _lacks_a_peer():
    importlib.import_module("a_peer_nobody_has.part")
    yield _row("never")


def test_groups_that_lack_something_are_skipped_with_what_installs_it(nothing_installed):
    first, data, peer, last = in_turn(_fashion(), _lacks_a_peer(), [_row("after")])
    assert [row.name for row in (first, last) if isinstance(row, Row)] == ["before", "after"]
    assert isinstance(data, Skipped)
    assert data.what == "fashion"
    assert data.hint.startswith("fashion_mnist was not found: apt install dataset-fashion-mnist")
    assert peer == Skipped(
        "lacks_a_peer",
        "a_peer_nobody_has was not found: pip install --no-deps -r bench/peers.txt",
    )


def test_a_row_that_finds_its_peer_missing_when_called_is_skipped():
    row = Row("late", lambda: 1, {"peer": lambda: importlib.import_module("nobody")}, _differs)
    assert measure(row) == Skipped(
        "late", "nobody was not found: pip install --no-deps -r bench/peers.txt"
    )


def test_a_row_whose_peer_lacks_its_own_environment_is_skipped_with_the_line_that_makes_it():
    def absent():
        raise PeerNotFoundError("nt was not found: make .venv-nt/ready")

    assert measure(Row("there", lambda: 1, {"nt": absent}, _differs)) == Skipped(
        "there", "nt was not found: make .venv-nt/ready"
    )


def test_what_is_missing_of_ours_is_an_error():
    def broken():
        importlib.import_module("vademecum.nowhere")
        yield _row("never")

    with pytest.raises(ModuleNotFoundError, match=r"vademecum\.nowhere"):
        list(in_turn(broken()))


@pytest.mark.parametrize("room", ["connectionism", "linear", "gradients"])
def test_no_room_dies_without_fashion_mnist(nothing_installed, room):
    """The first thing each room yields is a row, or says what to install."""
    first = next(iter(in_turn(bench.__main__._rows(room, torch.device("cpu")))))
    assert isinstance(first, Skipped)
    assert "apt install dataset-fashion-mnist" in first.hint
