"""Checkpoints: folders of safetensors and JSON that are whole or not there."""

from vademecum.train.checkpoints._background import BackgroundWriter
from vademecum.train.checkpoints._folder import (
    Checkpoint,
    Snapshot,
    find_checkpoint,
    newest_checkpoint,
    open_checkpoint,
    prepare_folder,
    rotate,
    write_checkpoint,
)
from vademecum.train.checkpoints._manifest import DamagedCheckpoint

__all__ = [
    "BackgroundWriter", "Checkpoint", "DamagedCheckpoint", "Snapshot", "find_checkpoint",
    "newest_checkpoint", "open_checkpoint", "prepare_folder", "rotate", "write_checkpoint",
]  # fmt: skip
