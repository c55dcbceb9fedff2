"""Checkpoints for anybody's own loop."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.runs import fingerprint, make_run, network, take_steps
from vademecum.train import load_checkpoint, save_checkpoint
from vademecum.train.checkpoints import (
    DamagedCheckpoint,
    Snapshot,
    open_checkpoint,
    write_checkpoint,
)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_the_simple_pair(tmp_path):
    run = take_steps(make_run(), 3)
    parts = {
        "optimizer": run.optimizers["model"],
        "average": run.averages["model"],
        "stopping": run.stopping,
    }
    path = save_checkpoint(tmp_path / "a", run.objective, **parts, step=3, extra={"x": (1, 2.5)})
    end = fingerprint(take_steps(run, 2))
    other = make_run(seed=5)
    loaded = load_checkpoint(
        path, other.objective, optimizer=other.optimizers["model"],
        average=other.averages["model"], stopping=other.stopping,
    )  # fmt: skip
    assert loaded == (3, {"x": (1, 2.5)})
    other.step = loaded.step
    assert fingerprint(take_steps(other, 2)) == end


def test_weights_alone_leave_random_numbers_alone(tmp_path):
    run = make_run()
    compiled: Any = torch.compile(run.objective, backend="eager")
    save_checkpoint(tmp_path / "a", compiled, optimizer=run.optimizers["model"])
    model = network()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    load_checkpoint(tmp_path / "a", model)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(model[0].weight, run.objective[0].weight)  # pyright: ignore


def test_what_a_checkpoint_lacks_is_told(tmp_path):
    run = make_run()
    save_checkpoint(tmp_path / "a", run.objective)
    with pytest.raises(ValueError, match="it has no optimizer for 'model'"):
        load_checkpoint(tmp_path / "a", run.objective, optimizer=run.optimizers["model"])
    with pytest.raises(ValueError, match="there must be a whole checkpoint in"):
        load_checkpoint(tmp_path / "b", run.objective)
    flip(tmp_path / "a" / "model.safetensors")
    with pytest.raises(ValueError, match=r"a is damaged: model.safetensors has another SHA-256"):
        load_checkpoint(tmp_path / "a", run.objective)


def test_another_torch_or_device_is_a_warning(tmp_path):
    run = make_run(everything=False)
    optimizer = run.optimizers["model"]
    path = save_checkpoint(tmp_path / "a", run.objective, optimizer=optimizer)
    found = open_checkpoint(path)
    found.document["environment"]["torch"] = "1.0"
    write_checkpoint(tmp_path, Snapshot(found.document, found.tensors), name="b")
    with pytest.warns(UserWarning, match=r"torch was 1.0 and is .* now: bits may differ"):
        load_checkpoint(tmp_path / "b", run.objective, optimizer=optimizer)


def test_damage_is_an_error_of_its_own(tmp_path):
    with pytest.raises(DamagedCheckpoint, match="it is no folder"):
        open_checkpoint(tmp_path / "none")
