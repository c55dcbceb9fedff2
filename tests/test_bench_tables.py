"""Which rows the kept table of a bench holds after a run, and of what machine it is."""

import json
import sys
from types import ModuleType

import pytest

import bench.__main__
import bench.harness
from bench.harness import Row, in_turn
from vademecum.data import DataNotFoundError


@pytest.fixture(autouse=True)
def _few_turns(monkeypatch):
    """No test waits for a median to settle."""
    monkeypatch.setattr(bench.harness, "STEADY", 0.0)


def _row(name):
    return Row(name, lambda: 1, {"peer": lambda: 1}, lambda *_: None, rounds=1)


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Runs the command on rows of our own; what is kept then, by name."""
    module = ModuleType("bench.linear")
    monkeypatch.setitem(sys.modules, "bench.linear", module)
    monkeypatch.setattr(bench.__main__, "RESULTS", tmp_path)

    def run(rows, *arguments):
        module.__dict__["rows"] = lambda device: iter(rows)
        monkeypatch.setattr(sys, "argv", ["bench", "linear", *arguments])
        assert bench.__main__.main() == 0
        kept = json.loads((tmp_path / "linear.json").read_text())["rows"]
        return {row["row"]: row["peer"] for row in kept}

    return run


def test_what_is_skipped_leaves_what_was_kept_of_it(measured, capsys):
    assert list(measured([_row("a"), _row("b")])) == ["a", "b"]
    assert list(measured(in_turn(_missing(), [_row("a")]))) == ["a", "b"]
    printed = capsys.readouterr().out
    assert "skipped missing: apt install it\n" in printed
    assert "rows of linear were skipped" in printed
    assert list(measured([_row("a")])) == ["a"]  # all there is now


def test_some_rows_take_their_places_in_the_table(measured):
    measured([_row("a"), _row("b"), _row("c")])
    rows = [_row("a"), Row("b", lambda: 1, {"other": lambda: 1}, lambda *_: None)]
    assert measured(rows, "--only", "b") == {"a": "peer", "b": "other", "c": "peer"}


def test_a_run_that_is_cut_off_keeps_what_it_measured(measured, tmp_path):
    def cut():
        yield _row("a")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(cut())
    assert [row["row"] for row in json.loads((tmp_path / "linear.json").read_text())["rows"]] == [
        "a"
    ]


def test_only_a_whole_run_replaces_a_table_from_elsewhere(measured, tmp_path, capsys):
    elsewhere = {"environment": {"processor": "abacus"}, "rows": [{"row": "b", "peer": "beads"}]}
    (tmp_path / "linear.json").write_text(json.dumps(elsewhere))
    assert measured([_row("a")], "--only", "a") == {"b": "beads"}
    assert measured(in_turn(_missing(), [_row("a")])) == {"b": "beads"}
    assert capsys.readouterr().out.count("is from elsewhere: none of these rows was kept") == 2
    assert measured([_row("a")]) == {"a": "peer"}
    assert "elsewhere" not in capsys.readouterr().out


@pytest.mark.parametrize(("torch_version", "kept"), [(None, ["a", "b"]), ("0.1", ["a"])])
def test_a_package_installed_since_leaves_the_table_and_another_version_does_not(
    measured, tmp_path, torch_version, kept
):
    path = tmp_path / "linear.json"
    measured([_row("a")])
    table = json.loads(path.read_text())
    versions = table["environment"]["versions"]
    del versions["scipy"]
    versions |= {"gone since": "1.0"} | ({"torch": torch_version} if torch_version else {})
    path.write_text(json.dumps(table))
    assert list(measured([_row("b")], "--only", "b")) == kept
    after = json.loads(path.read_text())["environment"]["versions"]
    assert "gone since" in after
    assert ("scipy" in after) == (torch_version is None)


def _missing():
    raise DataNotFoundError("apt install it\n  looked in /nowhere")
    yield
