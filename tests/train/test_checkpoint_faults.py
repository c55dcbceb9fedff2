"""Checkpoints at the worst moments: failing disks, kills in between, folders of somebody else's."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch

from tests.train.runs import make_run
from tests.train.test_checkpoints import names, snapshot
from vademecum.train._state import capture
from vademecum.train.checkpoints import (
    BackgroundWriter,
    DamagedCheckpoint,
    Snapshot,
    find_checkpoint,
    open_checkpoint,
    prepare_folder,
    rotate,
    write_checkpoint,
)
from vademecum.train.checkpoints._manifest import parsed_json, seal


def test_what_stops_training_is_told_and_not_what_the_writer_met_meanwhile(tmp_path):
    bad = snapshot(1)
    bad.tensors["model"]["0.weight"].fill_(float("nan"))

    def train() -> None:
        with BackgroundWriter(tmp_path) as writer:
            writer.submit(bad)
            raise KeyError("the reason")

    with pytest.raises(KeyError, match="the reason"):
        train()


def test_one_that_had_stepped_aside_goes_when_its_successor_is_there(tmp_path):
    path = write_checkpoint(tmp_path, snapshot(2), name="best")
    shutil.copytree(path, tmp_path / f".best.{32 * 'a'}.old")  # killed after the second rename
    prepare_folder(tmp_path)
    assert names(tmp_path) == ["best"]
    assert open_checkpoint(path).step == 2


def test_one_that_had_stepped_aside_comes_back_if_its_successor_cannot_come(tmp_path, monkeypatch):
    path = write_checkpoint(tmp_path, snapshot(2), name="best")
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if target == path and not self.name.endswith(".old"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="those before it are as they were"):
        write_checkpoint(tmp_path, snapshot(3), name="best")
    assert names(tmp_path) == ["best"]
    assert open_checkpoint(path).step == 2


def test_all_is_on_the_disk_before_it_has_its_name_and_the_name_afterwards(tmp_path, monkeypatch):
    events: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def synced(handle: int) -> None:
        events.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        fsync(handle)

    def renamed(self: Path, target: Path) -> Path:
        events.append("renamed")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    made = write_checkpoint(tmp_path, snapshot(2))
    files = [name for name in names(made) if name != "manifest.json"]
    *before, folder, moved, after = events
    assert before == [*files, "manifest.json"]
    assert folder.startswith(".step-00000002.")
    assert (moved, after) == ("renamed", tmp_path.name)


@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_numbers_of_eight_bits_must_be_finite_as_well(value, tmp_path):
    whole = snapshot(1)
    narrow = torch.tensor([0.5, value]).to(torch.float8_e5m2)
    document = {**whole.document, "state": {"model": {"w": {"$tensor": "w"}}}}
    given = Snapshot(document, {"model": {"w": narrow}}, [("model", "w")])
    if value == 1:
        found = open_checkpoint(write_checkpoint(tmp_path, given)).tensors["model"]["w"]
        assert found.view(torch.uint8).equal(narrow.view(torch.uint8))
    else:
        with pytest.raises(ValueError, match="must be finite, and w in model is not"):
            write_checkpoint(tmp_path, given)


def with_state(**state: object) -> Snapshot:
    found = capture(make_run())
    assert found is not None
    return Snapshot({**found.document, "state": state}, {"model": {"w": torch.ones(2)}})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (with_state(model={}), "w is either in state.json or in model, not in both"),
        (
            with_state(model=[{"$tensor": "w"}, {"$tensor": "v"}]),
            "v is either in state.json or in model, not in both",
        ),
        (
            with_state(model={"$tensor": "w"}, rest={"$complex": "z"}),
            "z is either in state.json or in rest, not in both",
        ),
    ],
)
def test_tensors_and_document_must_tell_of_each_other(given, message, tmp_path):
    path = write_checkpoint(tmp_path, given)
    with pytest.raises(DamagedCheckpoint, match=message):
        open_checkpoint(path)


def test_files_of_somebody_else_are_refused(tmp_path):
    path = write_checkpoint(tmp_path, snapshot(1))
    (path / "manifest.json").unlink()
    (path / "notes.txt").write_text("mine")
    seal(path)
    with pytest.raises(DamagedCheckpoint, match=r"notes\.txt is no file of a checkpoint"):
        open_checkpoint(path)


def test_a_checkpoint_is_found_by_its_own_folder_by_that_of_all_and_by_that_of_the_run(tmp_path):
    folder = tmp_path / "checkpoints"
    path = write_checkpoint(folder, snapshot(1))
    write_checkpoint(folder, snapshot(123_456_789))
    assert find_checkpoint(path)[0].step == 1
    assert find_checkpoint(folder)[0].step == 123_456_789
    assert find_checkpoint(tmp_path)[0].step == 123_456_789


def test_links_go_and_not_what_they_lead_to(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    folder = prepare_folder(tmp_path / "checkpoints")
    (folder / f".best.{32 * 'a'}").symlink_to(tmp_path / "elsewhere")
    prepare_folder(folder)
    assert names(folder) == []
    assert names(tmp_path / "elsewhere") == ["file"]


def test_a_link_is_no_checkpoint(tmp_path):
    path = write_checkpoint(tmp_path, snapshot(1))
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(DamagedCheckpoint, match="it is no folder"):
        open_checkpoint(tmp_path / "link")


def test_a_link_is_no_file_of_a_checkpoint_although_it_leads_to_the_same_bytes(tmp_path):
    path = write_checkpoint(tmp_path, snapshot(1))
    (path / "state.json").rename(tmp_path / "moved")
    (path / "state.json").symlink_to(tmp_path / "moved")
    with pytest.raises(DamagedCheckpoint, match=r"state\.json cannot be opened"):
        open_checkpoint(path)


def test_a_manifest_says_the_same_but_was_written_by_another(tmp_path):
    path = write_checkpoint(tmp_path, snapshot(1))
    manifest = path / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text())))
    with pytest.raises(DamagedCheckpoint, match=r"manifest\.json is not as it was written"):
        open_checkpoint(path)


def test_one_that_has_grown_does_not_count_among_those_to_keep(tmp_path):
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, snapshot(step))
    with (tmp_path / "step-00000002" / "state.json").open("a") as file:
        file.write(" ")
    rotate(tmp_path, keep=2)
    assert names(tmp_path) == [f"step-{step:08d}" for step in (1, 2, 3)]


def test_texts_may_be_nested_fifty_times():
    assert parsed_json("it", 50 * "[" + 50 * "]")
    with pytest.raises(DamagedCheckpoint, match="it is nested more than 50 times"):
        parsed_json("it", 51 * "[" + 51 * "]")


def test_a_manifest_is_a_mebibyte_at_most(tmp_path):
    path = write_checkpoint(tmp_path, snapshot(1))
    (path / "manifest.json").write_text(" " * (2**20 + 1))
    with pytest.raises(DamagedCheckpoint, match=r"manifest\.json is too large"):
        open_checkpoint(path)


def test_steps_are_not_negative(tmp_path):
    given = with_state(model={"$tensor": "w"})
    given.document["step"] = -1
    path = write_checkpoint(tmp_path, given, name="best")
    with pytest.raises(DamagedCheckpoint, match=r"step in state\.json is no int of ours"):
        open_checkpoint(path)
