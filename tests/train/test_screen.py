"""What is shown of a run: plain lines in a pipe, a bar on a terminal."""

import sys
from types import ModuleType
from typing import Any

import pytest

from tests.train.fitted import assert_same, fitted
from vademecum.train import _screen as shown


@pytest.fixture
def clock(monkeypatch):
    times = iter(range(10**6))
    monkeypatch.setattr(shown, "monotonic", lambda: float(next(times)))


def test_lines_in_a_pipe(capsys, clock):
    run = fitted(progress=True, steps=23, evaluate=lambda o: {"accuracy": 0.5}, evaluate_every=12)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    # one at the first step, one every ten seconds, one for each evaluation; a second a step
    assert [int(line.split()[1]) for line in lines] == [1, 11, 12, 22, 23]
    loss = run.history["loss"][11]
    assert lines[2] == (f"step 12 of 23, loss {loss:.4g}, accuracy 0.5, 8 examples/s, 0:00:11 left")
    assert "accuracy" not in lines[0]


def test_a_batch_is_no_larger_than_the_data(capsys, clock):
    fitted(progress=True, batch_size=1000, steps=1)
    assert ", 50 examples/s, " in capsys.readouterr().err


def test_nothing_unless_it_is_asked_for(capsys):
    fitted(steps=2)
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("FORCE_COLOR", "1")
    fitted(progress=True, steps=3)
    err = capsys.readouterr().err
    assert "━" in err
    assert "step 3 of 3" in err
    assert "examples/s" in err


def test_watching_changes_nothing(capsys):
    assert_same(fitted(progress=True), fitted())


def test_minutes_without_an_end_yet(capsys, clock, monkeypatch):
    from vademecum.train import _looks as looks

    times: Any = iter(range(10**6))
    monkeypatch.setattr(looks, "monotonic", lambda: float(next(times)))
    fitted(progress=True, minutes=1.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("step 1 of ?, ")
    assert lines[0].endswith("? left")
    assert "of ?" not in lines[-1]


class FakeWriter:
    """What TensorBoard's writer is told."""

    made: list["FakeWriter"] = []

    def __init__(self, folder: str, purge_step: int):
        self.folder, self.purge_step, self.scalars, self.closed = folder, purge_step, [], False
        self.made.append(self)

    def add_scalar(self, name: str, x: float, step: int) -> None:
        self.scalars.append((name, x, step))

    def close(self) -> None:
        self.closed = True


def test_tensorboard_has_the_curves(tmp_path, monkeypatch):
    module: Any = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = FakeWriter
    monkeypatch.setitem(sys.modules, module.__name__, module)
    run = fitted(folder=tmp_path, tensorboard=True, steps=3, evaluate=lambda o: {"a": 0.5})
    (writer,) = FakeWriter.made
    assert writer.folder == str(tmp_path / "tensorboard")
    assert (writer.purge_step, writer.closed) == (1, True)
    losses = [(x, step) for name, x, step in writer.scalars if name == "loss"]
    assert losses == [(x, step) for step, x in enumerate(run.history["loss"].tolist(), 1)]
    assert ("score/a", 0.5, 3) in writer.scalars


def test_tensorboard_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match="tensorboard needs the package of that name: pip install"):
        fitted(folder=tmp_path, tensorboard=True)
