"""The folder of a run of `vade train`: a new one for each, or the last one to go on in."""

import os
from itertools import count
from pathlib import Path

from vademecum.cli.training_options import Options
from vademecum.errors import UsageError

__all__ = ["claimed_folder", "remove_empty", "run_folder"]


def run_folder(recipe: str, options: Options) -> Path:
    """Where the run goes: a new folder, or with --resume the last one of this recipe."""
    if options.out is not None:
        return options.out
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("several processes need a folder that all of them know: --out FOLDER")
    names = (Path("runs") / (recipe if i == 1 else f"{recipe}-{i}") for i in count(1))
    last = None
    for folder in names:
        if not folder.exists():
            return last or folder if options.resume else folder
        last = folder
    raise AssertionError


def claimed_folder(recipe: str, options: Options) -> Path:
    """The folder of the run; a new one is made, so that nobody else takes it meanwhile."""
    while True:
        folder = run_folder(recipe, options)
        if options.out is not None or options.resume:
            return folder
        try:
            folder.mkdir(parents=True)
        except FileExistsError:  # somebody else was faster
            continue
        return folder


def remove_empty(folder: Path) -> None:
    """Leave no folder behind of a run that could not begin."""
    for place in (folder, folder.parent):
        if not place.is_dir() or any(place.iterdir()):
            return
        place.rmdir()
