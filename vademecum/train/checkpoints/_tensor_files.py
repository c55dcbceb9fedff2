"""Files in the format safetensors: written with errors of the disk as such, read by value."""

import os
import re
from pathlib import Path
from types import ModuleType

from torch import Tensor

from vademecum.errors import UsageError
from vademecum.train.checkpoints._manifest import DamagedCheckpoint

__all__ = ["load_tensors", "safetensors_module", "save_tensors"]


def safetensors_module() -> ModuleType:
    """The package safetensors, or a line that says how to install it."""
    try:
        import safetensors.torch
    except ImportError as error:
        raise UsageError(
            'checkpoints need the package safetensors: pip install "vademecum[data]"'
        ) from error
    return safetensors


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors into a file.

    Raises:
        OSError: If the disk is full or must not be written to.
    """
    safetensors = safetensors_module()
    try:
        safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    except safetensors.SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        code = int(number[1]) if number else 0
        raise OSError(code, os.strerror(code) if code else str(error)) from error


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, in memory of their own.

    In that of the file they would be aligned in another way, and sums of numbers that are aligned
    in another way are rounded in another way.

    Raises:
        DamagedCheckpoint: If it is no such file.
    """
    safetensors = safetensors_module()
    try:
        return {name: x.clone() for name, x in safetensors.torch.load_file(path).items()}
    except (safetensors.SafetensorError, KeyError, RuntimeError) as error:
        raise DamagedCheckpoint(f"{path.name} is no file of safetensors: {error}") from error
