"""Going on where a run was: the newest whole checkpoint, if what is asked for is still the same."""

import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from torch.optim.lr_scheduler import LambdaLR

from vademecum.errors import UsageError
from vademecum.files import write_atomically
from vademecum.train._differences import changed_environment, environment, refuse_changes
from vademecum.train._ranks import Ranks, restarted
from vademecum.train._state import restore
from vademecum.train._training import Training
from vademecum.train.checkpoints import newest_checkpoint, open_checkpoint

__all__ = ["go_on", "insist_on_folder", "start_folder"]

_OWN = ("log.jsonl", "summary.json", "config.json")
"""Files that a run would overwrite."""

_RATES = ("lr", "initial_lr")

_KNOBS = {"lr", "initial_lr", "weight_decay"}
"""Of an optimiser's groups, besides its defaults; what else they hold may count the steps."""


def insist_on_folder(folder: Path, ranks: Ranks, *, resume: bool | Literal["auto"]) -> None:
    """Refuse a folder before anything in it is touched: one of another run, or one without a run.

    Raises:
        UsageError: If the folder holds a run, or files that would be overwritten, and no run is to
            go on; if one is to go on and there is none.
    """
    kept = folder / "checkpoints"
    steps = [*kept.glob("step-*"), *kept.glob(".step-*.old")]
    # A folder of checkpoints without any is that of a run that was killed before its first one.
    others = [kept / "best"] if kept.is_dir() else [folder / name for name in _OWN]
    found = [path for path in (*steps, *others) if path.exists()]
    lost, missing = ranks.any(ranks.main and bool(found), ranks.main and not steps)
    if not (resume or restarted()) and lost:
        what = f", where {found[0].relative_to(folder)} is" if found else ""
        raise UsageError(f"folder must hold no run unless that is resumed, got {folder}{what}")
    if resume is True and missing:
        why = "it is empty" if kept.is_dir() else "there is no such folder"
        raise UsageError(f"there must be a whole checkpoint in {kept} to go on from, but {why}")


def start_folder(folder: Path, training: Training) -> None:
    """Write down what the run was asked for.

    Raises:
        UsageError: If the folder cannot be written to.
    """
    text = json.dumps(training.configuration, indent=1) + "\n"
    try:
        write_atomically(folder / "config.json", text)
    except OSError as error:
        raise UsageError(f"folder must be writable, got {folder}: {error.strerror}") from error


def go_on(
    training: Training,
    folder: Path,
    ranks: Ranks,
    *,
    resume: bool | Literal["auto"],
    change: Iterable[str],
) -> None:
    """Make a run what it was when it was kept last, if it is to go on.

    A run that a scheduler has started anew goes on if it can. Warns of damaged checkpoints and of
    what bits may depend on.

    Raises:
        UsageError: If there is no whole checkpoint, it does not fit, or something else was asked
            for that is not named in `change`.
    """
    path, (there,) = folder / "checkpoints", ranks.any(any((folder / "checkpoints").glob("step-*")))
    if not (resume or restarted()) or not there:
        return
    checkpoint, lines = newest_checkpoint(path)
    if (name := ranks.first_text(checkpoint.path.name)) != checkpoint.path.name:
        checkpoint = open_checkpoint(path / name)
    refuse_changes(checkpoint.document["configuration"], training.configuration, change)
    fresh = _Rates(training)
    restore(training, checkpoint, ranks)
    minutes = training.configuration.get("minutes")
    if minutes is not None and minutes != checkpoint.document["configuration"].get("minutes"):
        training.steps = None  # to be measured anew
    if change:
        fresh.put_back(training)
    lines += changed_environment(checkpoint.document["environment"], environment(ranks))
    for line in lines if ranks.main else ():
        warnings.warn(line, stacklevel=5)


class _Rates:
    """The learning rates and other knobs of optimisers as they were asked for now."""

    def __init__(self, training: Training):
        self._groups = {
            player: [
                {k: group[k] for k in _KNOBS | o.defaults.keys() if k in group}
                for group in o.param_groups
            ]
            for player, o in training.optimizers.items()
        }
        self._bases = {player: list(s.base_lrs) for player, s in training.schedules.items()}

    def put_back(self, training: Training) -> None:
        """Go on with them, at the place in the schedule where the run is."""
        for player, optimizer in training.optimizers.items():
            schedule: Any = training.schedules[player]
            ours = isinstance(schedule, LambdaLR)  # others know best which rate comes next
            for group, asked in zip(optimizer.param_groups, self._groups[player], strict=True):
                group.update({k: v for k, v in asked.items() if ours or k not in _RATES})
            if ours:
                schedule.base_lrs = self._bases[player]
                factors = [factor(schedule.last_epoch) for factor in schedule.lr_lambdas]
                for group, factor in zip(optimizer.param_groups, factors, strict=True):
                    group["lr"] = group["initial_lr"] * factor
