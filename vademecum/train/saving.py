"""Checkpoints for anybody's own loop: everything that goes on, saved whole and read back exactly.

They are folders of files in the formats safetensors and JSON, with the SHA-256 of each file, and
the same that `fit` writes. No pickle is read or written.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from vademecum.arguments import whole
from vademecum.models import unwrapped
from vademecum.optimization import PolyakAveraging
from vademecum.regularization import EarlyStopping
from vademecum.results import one_line
from vademecum.train._differences import changed_environment, environment
from vademecum.train._ranks import Ranks
from vademecum.train._state import capture, restore
from vademecum.train._training import Training
from vademecum.train.checkpoints import find_checkpoint, write_checkpoint

__all__ = ["Loaded", "load_checkpoint", "save_checkpoint"]

Kind = TypeVar("Kind")


class Loaded(NamedTuple):
    """What a checkpoint says besides what was put back."""

    step: int
    """How many steps had been taken."""
    extra: Any
    """What was given as `extra` when it was saved."""

    __repr__ = one_line


def save_checkpoint(
    path: str | Path,
    model: nn.Module,
    *,
    optimizer: Optimizer | Mapping[str, Optimizer] | None = None,
    schedule: LRScheduler | Mapping[str, LRScheduler] | None = None,
    scaler: GradScaler | None = None,
    average: PolyakAveraging | Mapping[str, PolyakAveraging] | None = None,
    stopping: EarlyStopping | None = None,
    step: int = 0,
    extra: Any = None,
) -> Path:
    """Write a folder with all that training goes on from, or leave what was there.

    Names are those of the plain module, whatever was put around it, and tied weights are written
    once; `safetensors.torch.load_model` reads the file `model.safetensors` in it. Where all
    generators of random numbers are is part of it. Of several processes all must call it, and the
    first one writes.

    Args:
        path: The folder; one that is there is replaced.
        model: Any module.
        optimizer: What moves its parameters; several by their names.
        schedule: The schedule of each.
        scaler: What scales losses in float16.
        average: The averages of each.
        stopping: What knows the best weights so far.
        step: How many steps were taken.
        extra: Tensors, numbers and texts in dicts and lists.

    Raises:
        ValueError: If a parameter is not finite, or something cannot be saved.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> model = nn.Linear(2, 1)
        >>> optimizer = torch.optim.Adam(model.parameters())
        >>> with TemporaryDirectory() as folder:
        ...     path = save_checkpoint(f"{folder}/a", model, optimizer=optimizer, step=3)
        ...     load_checkpoint(path, model, optimizer=optimizer)
        Loaded(step=3, extra=None)
    """
    training = _training(model, optimizer, schedule, scaler, average, stopping, whole("step", step))
    training.kept = {"extra": extra}
    path, ranks = Path(path), _ranks(model)
    snapshot = capture(training, ranks)
    if snapshot is not None:
        write_checkpoint(path.parent, snapshot, name=path.name)
    ranks.any(False)  # the others wait until it is written
    return path


def load_checkpoint(
    path: str | Path,
    model: nn.Module,
    *,
    optimizer: Optimizer | Mapping[str, Optimizer] | None = None,
    schedule: LRScheduler | Mapping[str, LRScheduler] | None = None,
    scaler: GradScaler | None = None,
    average: PolyakAveraging | Mapping[str, PolyakAveraging] | None = None,
    stopping: EarlyStopping | None = None,
) -> Loaded:
    """Put back what a checkpoint holds, or leave all as it is.

    With an optimiser, training is to go on: then the generators of random numbers are put back,
    too. Without one nothing but the model changes. Another version of torch or another device
    gives a warning that bits may differ.

    Args:
        path: A checkpoint, a folder of which to take the newest, or the folder of a run of `fit`;
            damaged ones are passed over with a warning.
        model: A module with the same tensors.
        optimizer: What moves its parameters; several by their names.
        schedule: The schedule of each.
        scaler: What scales losses in float16.
        average: The averages of each.
        stopping: What knows the best weights so far.

    Raises:
        ValueError: If there is no whole checkpoint, or it does not fit; it names the first
            difference.
    """
    training = _training(model, optimizer, schedule, scaler, average, stopping, 0)
    checkpoint, damaged = find_checkpoint(path)
    ranks = _ranks(model)
    lines = [*damaged]
    if training.optimizers:
        lines += changed_environment(checkpoint.document["environment"], environment(ranks))
    restore(training, checkpoint, ranks, all=False, generators=bool(training.optimizers))
    for line in lines:
        warnings.warn(line, stacklevel=2)
    return Loaded(training.step, training.kept.get("extra"))


def _training(
    model: nn.Module,
    optimizer: Any,
    schedule: Any,
    scaler: GradScaler | None,
    average: Any,
    stopping: EarlyStopping | None,
    step: int,
) -> Training:
    return Training(
        objective=unwrapped(model),
        optimizers=_by_name(optimizer),
        schedules=_by_name(schedule),
        scaler=scaler or GradScaler("cpu", enabled=False),
        averages=_by_name(average),
        stopping=stopping,
        seed=0,
        per_epoch=1,
        steps=None,
        step=step,
    )


def _by_name(given: Kind | Mapping[str, Kind] | None) -> dict[str, Kind]:
    if given is None:
        return {}
    return dict(given) if isinstance(given, Mapping) else {"model": given}


def _ranks(model: nn.Module) -> Ranks:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    if dist.is_available() and dist.is_initialized():
        return Ranks(dist.get_rank(), dist.get_world_size(), device)
    return Ranks(device=device)
