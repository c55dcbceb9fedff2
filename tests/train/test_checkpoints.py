"""Checkpoints in a folder: whole or not there, found, replaced and thinned out."""

import json
import os
import resource
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.train.runs import make_run, take_steps
from vademecum.errors import UsageError
from vademecum.train._state import capture, restore
from vademecum.train.checkpoints import (
    BackgroundWriter,
    Snapshot,
    _background,
    newest_checkpoint,
    open_checkpoint,
    prepare_folder,
    rotate,
    write_checkpoint,
)
from vademecum.train.checkpoints._nested import join, split


def snapshot(step: int = 0) -> Snapshot:
    run = make_run()
    run.step = step
    found = capture(run)
    assert found is not None
    return found


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def flip(path: Path, place: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_nested_states_come_back_exactly():
    tensors: dict[str, torch.Tensor] = {}
    value = {
        "a": [1, 0.1, -0.0, float("inf"), None, True, "text", (2, [3])],
        3: {"$x": torch.ones(2), "b/c": torch.zeros(1)},
        "z": [torch.tensor(1 + 2j, dtype=torch.complex128), torch.ones(2, dtype=torch.complex64)],
        "b": {},
        "large": 2**70,
    }
    document = json.loads(json.dumps(split(value, "", tensors.__setitem__)))
    assert repr(join(document, tensors)) == repr(value)


def test_numbers_of_numpy_come_back_as_those_of_python():
    value = [np.int64(3), np.float64(0.1), np.float32("inf"), np.bool_(True), np.str_("text")]
    found = join(split(value, "", {}.__setitem__), {})
    assert repr(found) == "[3, 0.1, inf, True, 'text']"


def test_counters_and_conjugates_come_back():
    tensors: dict[str, torch.Tensor] = {}
    z = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex128)
    value = {"count": Counter({"a": 2, 3: 1}), "z": z.conj()}
    found = join(split(value, "", tensors.__setitem__), tensors)
    assert found["count"] == value["count"]
    assert found["count"]["unknown"] == 0  # which a dict would not say
    assert found["z"].equal(z.conj().resolve_conj())


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"$complex": "w"}, r"must be pairs of float64, got \(2,\)"),
        ({"$tensor": "w", "other": 1}, r"the mark \$tensor has others beside it"),
        ({"$tensor": "v"}, "the tensor 'v' is missing"),
        ({"$float": "1"}, r"the mark \$float holds str"),
        ({"$tuple": {}}, r"the mark \$tuple holds dict"),
        ({"$pairs": [[1, 2, 3]]}, r"the mark \$pairs holds list"),
    ],
)
def test_documents_of_others_are_refused(document, message):
    with pytest.raises(ValueError, match=message):
        join(document, {"w": torch.ones(2)})


def test_keys_whose_names_are_the_same_are_refused():
    with pytest.raises(ValueError, match="to be saved, got dict in state"):
        split({1: torch.ones(1), "1": torch.zeros(1)}, "state", {}.__setitem__)


def test_a_checkpoint_is_a_folder_of_safetensors_and_json(tmp_path):
    path = write_checkpoint(tmp_path / "new" / "folder", snapshot(500))
    assert path.name == "step-00000500"
    assert {Path(name).suffix for name in names(path)} == {".safetensors", ".json"}
    assert names(path.parent) == ["step-00000500"]
    assert open_checkpoint(path).step == 500


def test_a_damaged_newest_one_is_reported_and_the_one_before_is_used(tmp_path):
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, snapshot(step))
    flip(tmp_path / "step-00000003" / "model.safetensors")
    (tmp_path / "step-00000002" / "manifest.json").unlink()
    found, lines = newest_checkpoint(tmp_path)
    assert found.step == 1
    assert lines == [
        "step-00000003 is damaged and was passed over: model.safetensors has another SHA-256 than"
        " its manifest says",
        "step-00000002 is damaged and was passed over: manifest.json is missing",
    ]


def test_no_checkpoint_at_all_is_told(tmp_path):
    with pytest.raises(UsageError, match="but there is no such folder"):
        newest_checkpoint(tmp_path / "none")
    with pytest.raises(UsageError, match="but it is empty"):
        newest_checkpoint(tmp_path)
    (tmp_path / "step-00000001").mkdir()
    with pytest.raises(UsageError, match=r"step-00000001 is damaged .* manifest.json is missing"):
        newest_checkpoint(tmp_path)


def test_old_ones_are_deleted_but_never_the_last_good_one(tmp_path):
    for step in range(5):
        write_checkpoint(tmp_path, snapshot(step))
    rotate(tmp_path, keep=3)
    assert names(tmp_path) == ["step-00000002", "step-00000003", "step-00000004"]
    flip(tmp_path / "step-00000004" / "random.safetensors")
    (tmp_path / "step-00000003" / "model.safetensors").write_bytes(b"")
    rotate(tmp_path, keep=1)
    assert newest_checkpoint(tmp_path)[0].step == 2
    write_checkpoint(tmp_path, snapshot(5))
    rotate(tmp_path, keep=1)
    assert names(tmp_path) == ["step-00000005"]


def test_one_of_the_same_name_is_replaced(tmp_path):
    write_checkpoint(tmp_path, snapshot(1), name="best")
    flip(tmp_path / "best" / "state.json")
    write_checkpoint(tmp_path, snapshot(7), name="best")
    assert open_checkpoint(tmp_path / "best").step == 7
    assert names(tmp_path) == ["best"]


def test_what_a_killed_process_left_is_cleared_away(tmp_path):
    write_checkpoint(tmp_path, snapshot(3))
    write_checkpoint(tmp_path, snapshot(2), name="best")
    hidden = f".best.{32 * 'a'}"
    (tmp_path / "best").rename(tmp_path / f"{hidden}.old")  # killed between the two renames
    (tmp_path / f".step-00000004.{32 * 'b'}").mkdir()
    (tmp_path / ".notes").mkdir()
    prepare_folder(tmp_path)
    assert names(tmp_path) == [".notes", "best", "step-00000003"]
    assert open_checkpoint(tmp_path / "best").step == 2


@pytest.mark.parametrize("file", ["model", "optimizer", "average"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_one_that_is_not_finite_is_never_written(file, value, tmp_path):
    write_checkpoint(tmp_path, snapshot(1))
    run = take_steps(make_run(), 2)
    found = capture(run)
    assert found is not None
    next(t for t in found.tensors[file].values() if t.ndim).view(-1)[-1] = value
    with pytest.raises(ValueError, match=f"must be finite, and .* in {file} is not"):
        write_checkpoint(tmp_path, found)
    assert names(tmp_path) == ["step-00000001"]


# Disks


def test_a_full_disk_leaves_what_was_there(tmp_path):
    write_checkpoint(tmp_path, snapshot(1))
    run = make_run(nn.Linear(300, 300))
    run.step = 2
    large = capture(run)
    assert large is not None
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OSError, match=r"step-00000002 cannot be written \(File too large\)"):
            write_checkpoint(tmp_path, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert names(tmp_path) == ["step-00000001"]
    assert newest_checkpoint(tmp_path)[0].step == 1


def test_no_space_for_the_manifest(tmp_path, monkeypatch):
    write_checkpoint(tmp_path, snapshot(1))

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"cannot be written \(No space left on device\); those bef"):
        write_checkpoint(tmp_path, snapshot(2))
    assert names(tmp_path) == ["step-00000001"]


def test_a_folder_that_cannot_be_written_to_is_told_before_training(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be written to .*: Not a directory"):
        BackgroundWriter(tmp_path / "file" / "checkpoints")

    def denied(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(UsageError, match=r"cannot be written to .*: Read-only file system"):
        BackgroundWriter(tmp_path)


def test_without_safetensors_the_line_that_installs_it_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(UsageError, match=r'pip install "vademecum\[data\]"'):
        BackgroundWriter(tmp_path)


# Writing in the background


def test_writing_overlaps_with_training_and_snapshots_are_copies(tmp_path, monkeypatch):
    ready, write = threading.Event(), _background.write_checkpoint

    def slow(*arguments, **options):
        assert ready.wait(20)
        return write(*arguments, **options)

    monkeypatch.setattr(_background, "write_checkpoint", slow)
    run = take_steps(make_run(), 2)
    weights = [p.clone() for p in run.objective.parameters()]
    found = capture(run)
    assert found is not None
    with BackgroundWriter(tmp_path) as writer:
        writer.submit(found)
        take_steps(run, 2)  # which goes on although nothing is written yet
        assert not names(tmp_path)
        ready.set()
    other = make_run()
    restore(other, newest_checkpoint(tmp_path)[0])
    assert all(map(torch.equal, weights, other.objective.parameters()))


def test_the_writer_keeps_some_and_the_best(tmp_path):
    with BackgroundWriter(tmp_path, keep=2) as writer:
        for step in range(4):
            writer.submit(snapshot(step))
            if step == 1:
                writer.submit(snapshot(step), best=True)
    assert names(tmp_path) == ["best", "step-00000002", "step-00000003"]
    assert open_checkpoint(tmp_path / "best").step == 1


def test_what_goes_wrong_in_the_background_comes_out(tmp_path):
    bad = snapshot(1)
    bad.tensors["model"]["0.weight"].fill_(float("nan"))
    writer = BackgroundWriter(tmp_path)
    writer.submit(bad)
    with pytest.raises(ValueError, match=r"must be finite, and 0.weight in model is not"):
        writer.submit(snapshot(2))
    writer.submit(snapshot(3))
    writer.wait()
    with pytest.raises(ValueError, match=r"0.weight"), writer:
        writer.submit(bad)
    assert names(tmp_path) == ["step-00000003"]
