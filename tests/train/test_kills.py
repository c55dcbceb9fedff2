"""Runs that are killed at any moment and resumed end with the bits of one that was left alone."""

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from tests.train.forks import ONLY_FRESH, alone, ends, fork, start_together
from tests.train.objectives import Regression, data, tell, told, train, weights
from vademecum.train.checkpoints import newest_checkpoint

pytestmark = ONLY_FRESH
ENDED = 75
STEPS = 24
EVENTS = {"open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.scandir"}


def scored(objective: Any) -> dict[str, float]:
    return {"error": float(objective(data()[0][:5]).square().mean())}


def options(folder: Path | None, **more: Any) -> dict[str, Any]:
    return {
        "optimizer": lambda parameters: torch.optim.AdamW(parameters, lr=0.05),
        "batch_size": 8, "steps": STEPS, "schedule": "cosine", "average": 0.9, "clip": 0.5,
        "evaluate": scored, "evaluate_every": 6, "score": "error", "accumulate": 2,
        "folder": folder, "checkpoint_every": 0.0, **more,
    }  # fmt: skip


class Deadly(Regression):
    """Kills its process at some event: the files that are opened, renamed, deleted, and losses."""

    def __init__(self, events: int, seed: int = 0):
        super().__init__(noisy=True, seed=seed)
        self.left = events

    def watch(self) -> None:
        sys.addaudithook(lambda name, _: self.count() if name in EVENTS else None)

    def count(self) -> None:
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)

    def losses(self, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        self.count()
        return super().losses(batch)


def lines(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]


def until_finished(
    start: Callable[[int], list[int]], draw: random.Random, kills: int, high: int | None = None
) -> int:
    """Start a run again and again, killed at random events for some times; how often it was."""
    high, killed = high or max(110, 900 // kills), 0
    while True:
        codes = start(draw.randrange(3, high) if killed < kills else 0)
        if not any(codes):
            return killed
        assert any(code in (-signal.SIGKILL, ENDED) for code in codes), codes
        killed += 1


def uninterrupted(folder: Path, given: Any = None) -> Tensor:
    """The end of a run that is left alone; here, so that the others find all modules loaded."""
    return weights(train(Regression(noisy=True), given, **options(folder / "whole")).objective)


def killed_alone(folder: Path, kills: int, seed: int) -> int:
    draw = random.Random(seed)

    def start(events: int) -> list[int]:
        def work() -> None:
            begun = any((folder / "run" / "checkpoints").glob("step-*"))
            objective = Deadly(events, seed=draw.randrange(1, 100) if begun else 0)
            objective.watch()
            run = train(objective, **options(folder / "run", resume="auto"))
            told(folder / "resumed", weights(run.objective))

        return [alone(work)]

    return until_finished(start, draw, kills)


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_at_any_moment(kills, tmp_path):
    whole = uninterrupted(tmp_path)
    assert killed_alone(tmp_path, kills, seed=kills) == kills
    assert torch.equal(tell(tmp_path / "resumed"), whole)
    assert lines(tmp_path / "run") == list(range(1, STEPS + 1))


@pytest.mark.slow
def test_one_process_of_two_is_killed(tmp_path):
    draw = random.Random(1)

    def start(events: int) -> list[int]:
        victim = draw.randrange(2)

        def work() -> None:
            own = int(os.environ["RANK"])
            objective = Deadly(events if own == victim else 0)
            objective.watch()
            asked = options(tmp_path / name, resume="auto", accumulate=1, batch_size=10)
            run = train(objective, **asked)
            told(tmp_path / f"{name}-{own}", weights(run.objective))

        return ends(start_together(2, work))

    name = "whole"
    assert start(0) == [0, 0]
    name = "run"
    assert until_finished(start, draw, 6, high=10) == 6  # the second one opens hardly any file
    found = [tell(tmp_path / f"{n}-{r}") for n in ("whole", "run") for r in range(2)]
    assert all(torch.equal(found[0], other) for other in found[1:])


class Examples(Dataset):
    """Examples that processes of their own read."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        x, y = data()
        return x[i], y[i]


class Asked(Regression):
    """Sends a signal to its whole group of processes, workers included, in some step."""

    def __init__(self, passes: int, number: int):
        super().__init__(noisy=True)
        self.left, self.number = passes, number

    def losses(self, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        self.left -= 1
        if not self.left:
            os.killpg(0, self.number)
        return super().losses(batch)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")
@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_signals_to_all_while_workers_read(times, tmp_path):
    draw = random.Random(times)
    whole = uninterrupted(tmp_path, given=Examples())
    numbers = [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGTERM]

    def start(passes: int) -> list[int]:
        def work() -> None:
            os.setpgid(0, 0)
            objective = Asked(passes and 1 + passes % 2, draw.choice(numbers))
            asked = options(tmp_path / "run", resume="auto", workers=4, checkpoint_every=1e9)
            run = train(objective, Examples(), **asked)
            if run.stopped == "signal":
                assert newest_checkpoint(tmp_path / "run" / "checkpoints")[0].step == run.steps
                raise SystemExit(ENDED)
            told(tmp_path / "resumed", weights(run.objective))

        return ends([fork(work)])

    assert until_finished(start, draw, times) == times
    assert torch.equal(tell(tmp_path / "resumed"), whole)
    assert lines(tmp_path / "run") == list(range(1, STEPS + 1))
