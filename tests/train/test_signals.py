"""SIGTERM, SIGUSR1 and Ctrl-C end a run after its step, with a checkpoint; workers ignore them."""

import os
import signal
import time
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset

from tests.train.fitted import assert_same, fitted, network, points
from vademecum.train._signals import SIGNALS, Signals

NAMES = [signal.Signals(number).name for number in SIGNALS]


class Signalled(type(network())):
    """Gets a signal in the middle of a step."""

    def __init__(self, number: int, at: int = 5, group: bool = False):
        super().__init__(network().model)
        self.number, self.at, self.step, self.group = number, at, -1, group

    def before_step(self, step: int) -> None:
        self.step = step

    def losses(self, batch: Any) -> Any:
        if self.step == self.at:
            os.kill(os.getpid(), self.number)
        return super().losses(batch)


@pytest.mark.parametrize("number", SIGNALS, ids=NAMES)
def test_the_step_ends_and_the_run_is_kept(number, tmp_path):
    before = {s: signal.getsignal(s) for s in SIGNALS}
    run = fitted(Signalled(number), folder=tmp_path, checkpoint_every=1000)
    assert (run.stopped, run.steps) == ("signal", 6)
    assert {path.name for path in (tmp_path / "checkpoints").glob("step-*")} >= {"step-00000006"}
    assert {s: signal.getsignal(s) for s in SIGNALS} == before
    assert_same(fitted(folder=tmp_path, resume=True), fitted())


def test_a_signal_in_the_last_step_does_not_undo_it():
    assert fitted(Signalled(signal.SIGTERM, at=11)).steps == 12


def test_a_second_interrupt_does_not_wait():
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.raised
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


class Watched(Dataset[Any]):
    """Data that tells which process has read it."""

    def __init__(self) -> None:
        self.x, self.y = points(60)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        return (self.x[i], torch.tensor(os.getpid())), self.y[i]


class Killing(type(network())):
    """Sends every signal to the processes that read its data, and to nobody else."""

    def losses(self, batch: Any) -> Any:
        (x, readers), y = batch
        for reader in readers.unique().tolist():
            assert reader != os.getpid()
            for number in SIGNALS:
                os.kill(reader, number)
        return super().losses((x, y))


def nothing(_: int) -> None:
    """What a worker does at its start if it does not ignore signals."""


@pytest.mark.parametrize("without", ["", "ignore_signals", "withheld_signals"])
def test_workers_ignore_signals(without, monkeypatch):
    """They are born with signals withheld, and ignore them later; either is enough."""
    from vademecum.train import _batches

    if without:
        instead = nothing if without == "ignore_signals" else nullcontext
        monkeypatch.setattr(_batches, without, instead)
    run = fitted(Killing(network().model), Watched(), workers=2, steps=20)
    assert (run.stopped, run.steps) == ("finished", 20)
    assert_same(run, fitted(data=points(60), steps=20))


@pytest.mark.slow
def test_workers_are_gone_afterwards():
    import multiprocessing

    fitted(Killing(network().model), Watched(), workers=2, steps=20)
    deadline = time.monotonic() + 30
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not multiprocessing.active_children()
