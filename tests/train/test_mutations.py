"""Two thousand damaged checkpoints: none is accepted, none crashes or blocks."""

import random
import shutil
import time
from pathlib import Path

import pytest

from tests.train.mutations import ACCIDENTS, FORGERIES, Mutation, reseal
from tests.train.runs import cosine, fingerprint, make_run, take_steps
from vademecum.errors import UsageError
from vademecum.train._differences import refuse_changes
from vademecum.train._state import capture, restore
from vademecum.train._training import Training
from vademecum.train.checkpoints import newest_checkpoint, write_checkpoint

EACH = 118  # times 17 kinds of damage is 2,006


def configured() -> Training:
    run = make_run(schedule=cosine)
    run.configuration = {"lr": 0.1}
    return run


def resume(run: Training, folder: Path) -> None:
    checkpoint, _ = newest_checkpoint(folder)
    refuse_changes(checkpoint.document["configuration"], run.configuration)
    restore(run, checkpoint)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    run = take_steps(configured(), 2)
    found = capture(run)
    assert found is not None
    return write_checkpoint(tmp_path_factory.mktemp("whole"), found)


@pytest.mark.parametrize("mutation", [*ACCIDENTS, *FORGERIES], ids=lambda m: m.__name__)
def test_mutated_checkpoints_are_refused(mutation: Mutation, whole, tmp_path):
    run = configured()
    before, longest = fingerprint(run), 0.0
    for seed in range(EACH):
        folder = tmp_path / str(seed)
        shutil.copytree(whole, folder / whole.name)
        mutation(folder / whole.name, random.Random(seed))
        start = time.process_time()
        with pytest.raises(
            UsageError, match=r"is damaged|does not fit|none of ours|in the checkpoint"
        ):
            resume(run, folder)
        longest = max(longest, time.process_time() - start)
        shutil.rmtree(folder)
    assert fingerprint(run) == before
    assert longest < 1


def test_the_whole_one_is_accepted(whole, tmp_path):
    shutil.copytree(whole, tmp_path / whole.name)
    run = configured()
    resume(run, tmp_path)
    reseal(tmp_path / whole.name)  # so what is refused above is not refused for its seal
    resume(run, tmp_path)
    assert run.step == 2
