"""Training any model of the course for real: a loop that one can read, and that resumes exactly.

What needs torch loads when it is first used, so that the command line can list recipes at once.
"""

import importlib
from typing import TYPE_CHECKING, Any

from vademecum.train.recipes import RECIPES, Task

if TYPE_CHECKING:
    from vademecum.train.fitting import fit
    from vademecum.train.noise import ExampleNoise, example_noise
    from vademecum.train.runs import Run, draw_run
    from vademecum.train.saving import Loaded, load_checkpoint, save_checkpoint
    from vademecum.train.supervised import Supervised
    from vademecum.train.tokens import Tokens

__all__ = [
    # training
    "Run", "Supervised", "Tokens", "draw_run", "fit",
    # recipes
    "RECIPES", "Task",
    # checkpoints, also for loops of one's own
    "Loaded", "load_checkpoint", "save_checkpoint",
    # augmentation
    "ExampleNoise", "example_noise",
]  # fmt: skip

_PLACES = {
    "fitting": ("fit",),
    "noise": ("ExampleNoise", "example_noise"),
    "runs": ("Run", "draw_run"),
    "saving": ("Loaded", "load_checkpoint", "save_checkpoint"),
    "supervised": ("Supervised",),
    "tokens": ("Tokens",),
}


def __getattr__(name: str) -> Any:
    for module, names in _PLACES.items():
        if name in names:
            return getattr(importlib.import_module(f"vademecum.train.{module}"), name)
    raise AttributeError(f"module 'vademecum.train' has no attribute {name!r}")
