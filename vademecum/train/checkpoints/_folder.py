"""Checkpoints in a folder: written whole or not at all, found by their step, thinned out.

A checkpoint is a folder of files in the format safetensors, `state.json` and a manifest. It is made
under a hidden name and renamed once all of it is on the disk, so whoever finds `step-00000500`
finds all of it. Whatever the moment at which a process is killed, the one before is still there.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import torch
from torch import Tensor

from vademecum.errors import UsageError
from vademecum.train.checkpoints._manifest import (
    MANIFEST,
    DamagedCheckpoint,
    parsed_json,
    seal,
    sync_folder,
    verify,
)
from vademecum.train.checkpoints._nested import tensor_names
from vademecum.train.checkpoints._tensor_files import (
    load_tensors,
    safetensors_module,
    save_tensors,
)

__all__ = [
    "Checkpoint",
    "Snapshot",
    "find_checkpoint",
    "newest_checkpoint",
    "open_checkpoint",
    "prepare_folder",
    "rotate",
    "write_checkpoint",
]

_STATE = "state.json"
_TENSORS = ".safetensors"
_STEP = re.compile(r"step-(\d{8,})")
_HIDDEN = re.compile(r"\.(step-\d{8,}|best)\.[0-9a-f]{32}(\.old)?")


class Snapshot(NamedTuple):
    """What a checkpoint holds, on the CPU and shared with nobody.

    Attributes:
        document: What goes into `state.json`.
        tensors: Tensors by the name of their file, without its ending, and by their own names.
        finite: Files and names of those tensors without which it is not worth writing if they are
            not finite; masks may have infinities.
    """

    document: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]]
    finite: Sequence[tuple[str, str]] = ()


class Checkpoint(NamedTuple):
    """A checkpoint that was read and found whole.

    Attributes:
        path: Its folder.
        document: What `state.json` says.
        tensors: Tensors by the name of their file, without its ending, and by their own names.
    """

    path: Path
    document: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]]

    @property
    def step(self) -> int:
        """How many steps had been taken."""
        return self.document["step"]


def write_checkpoint(folder: str | Path, snapshot: Snapshot, *, name: str | None = None) -> Path:
    """Write a checkpoint into a folder of them, or leave that as it was.

    Args:
        folder: Where the checkpoints of a run are.
        snapshot: What to write; its document has the entry "step".
        name: What to call it; after its step by default. One of that name is replaced.

    Raises:
        ValueError: If parameters, moments or averages are not finite.
        OSError: If the disk is full or must not be written to.
    """
    _refuse_not_finite(snapshot)
    final = Path(folder) / (name or f"step-{snapshot.document['step']:08d}")
    temporary = final.with_name(f".{final.name}.{uuid4().hex}")
    try:
        temporary.mkdir(parents=True)
        for file, tensors in snapshot.tensors.items():
            save_tensors(tensors, temporary / f"{file}{_TENSORS}")
        text = json.dumps(snapshot.document, indent=1, allow_nan=False)
        (temporary / _STATE).write_text(text, encoding="utf-8")
        seal(temporary)
        _put_in_place(temporary, final)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(
            error.errno, f"the checkpoint {final.name} cannot be written ({reason}); those before"
            " it are as they were", str(final.parent),
        ) from error  # fmt: skip
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return final


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint, all of whose files are what was written.

    Raises:
        DamagedCheckpoint: If they are not.
    """
    path = Path(path)
    names = verify(path)
    if _STATE not in names:
        raise DamagedCheckpoint(f"{_STATE} is missing")
    try:
        text = (path / _STATE).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedCheckpoint(f"{_STATE} is no text") from error
    document = parsed_json(_STATE, text)
    tensors = {}
    for name in names:
        if name.endswith(_TENSORS):
            tensors[name.removesuffix(_TENSORS)] = load_tensors(path / name)
        elif name != _STATE:
            raise DamagedCheckpoint(f"{name} is no file of a checkpoint")
    _insist_on_form(document, tensors)
    return Checkpoint(path, document, tensors)


def newest_checkpoint(folder: str | Path) -> tuple[Checkpoint, list[str]]:
    """The newest whole checkpoint of a folder, and a line on each newer one that is damaged.

    Raises:
        UsageError: If there is none.
    """
    folder, damaged = Path(folder), []
    for path in _by_age(folder):
        try:
            return open_checkpoint(path), damaged
        except DamagedCheckpoint as error:
            damaged.append(f"{path.name} is damaged and was passed over: {error}")
    there = "; ".join(damaged) or ("it is empty" if folder.is_dir() else "there is no such folder")
    raise UsageError(f"there must be a whole checkpoint in {folder} to go on from, but {there}")


def find_checkpoint(path: str | Path) -> tuple[Checkpoint, list[str]]:
    """A checkpoint, the newest of a folder of them, or the newest of a run; and what is damaged.

    Raises:
        UsageError: If there is none that is whole.
    """
    path = Path(path)
    if (path / MANIFEST).exists():
        try:
            return open_checkpoint(path), []
        except DamagedCheckpoint as error:
            raise UsageError(f"the checkpoint {path} is damaged: {error}") from error
    inside = path / "checkpoints"
    return newest_checkpoint(inside if inside.is_dir() else path)


def rotate(folder: str | Path, *, keep: int) -> None:
    """Delete old checkpoints, as long as the newest one is whole.

    Args:
        folder: Where they are.
        keep: How many to keep; damaged ones do not count.
    """
    kept = 0
    for path in _by_age(Path(folder)):
        if kept >= keep:
            _delete(path)
            continue
        try:
            verify(path, hashes=not kept)
            kept += 1
        except DamagedCheckpoint:
            continue


def prepare_folder(folder: str | Path) -> Path:
    """Make the folder of a run's checkpoints, without what a killed process left half done.

    Raises:
        UsageError: If it cannot be written to.
    """
    folder = Path(folder)
    safetensors_module()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in list(folder.iterdir()):
            if not (found := _HIDDEN.fullmatch(path.name)):
                continue
            if found[2] and not (folder / found[1]).exists():
                path.rename(folder / found[1])  # killed between the two renames
            else:
                _delete(path)
        probe = folder / f".probe.{uuid4().hex}"
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        raise UsageError(f"checkpoints cannot be written to {folder}: {error.strerror}") from error
    return folder


def _by_age(folder: Path) -> Iterator[Path]:
    """Checkpoints by their steps, newest first."""
    found = {int(m[1]): folder / m[0] for m in map(_STEP.fullmatch, _entries(folder)) if m}
    return iter([found[step] for step in sorted(found, reverse=True)])


def _entries(folder: Path) -> list[str]:
    return [entry.name for entry in os.scandir(folder)] if folder.is_dir() else []


def _put_in_place(temporary: Path, final: Path) -> None:
    """Rename a finished folder; one of that name first steps aside, and comes back after a kill."""
    aside = temporary.with_name(f"{temporary.name}.old")
    if final.exists():
        final.rename(aside)
    try:
        temporary.rename(final)
    except OSError:
        if aside.exists():
            aside.rename(final)
        raise
    sync_folder(final.parent)
    _delete(aside)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _refuse_not_finite(snapshot: Snapshot) -> None:
    """A checkpoint with NaN in it would be no help, and would push out one that is."""
    for file, name in snapshot.finite:
        tensor = snapshot.tensors[file][name]
        tensor = tensor.float() if tensor.element_size() == 1 else tensor  # eight bits know no NaN
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"a checkpoint must be finite, and {name} in {file} is not")


def _insist_on_form(document: Any, tensors: dict[str, dict[str, Tensor]]) -> None:
    """Refuse what was never written by us, although all its hashes are right."""
    kinds = {"step": int, "configuration": dict, "environment": dict, "state": dict}
    if not isinstance(document, dict) or set(document) != {*kinds}:
        raise DamagedCheckpoint(f"{_STATE} must have the entries {', '.join(kinds)}")
    for name, kind in kinds.items():
        if type(document[name]) is not kind or (kind is int and document[name] < 0):
            raise DamagedCheckpoint(f"{name} in {_STATE} is no {kind.__name__} of ours")
    if not {"torch", "device", "processes"} <= {*document["environment"]}:
        raise DamagedCheckpoint(f"environment in {_STATE} does not say where it was made")
    for file in sorted({*document["state"], *tensors}):
        told = {*tensor_names(document["state"].get(file))}
        if wrong := sorted(told ^ {*tensors.get(file, ())}):
            raise DamagedCheckpoint(f"{wrong[0]} is either in {_STATE} or in {file}, not in both")
