"""The deep-learning course as one library that checks itself.

Each topic of the course is a room, `vademecum.<room>`, in the order in which a course teaches them.
Rooms load when first used, so that `import vademecum` costs next to nothing.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

ROOMS = (
    *("foundations", "connectionism", "linear", "approximation", "gradients", "optimization"),
    *("convolution", "recurrence", "attention", "language", "geometry", "regularization"),
    *("generalization", "kernels", "bayes", "generative", "robustness", "tooling"),
)
"""The finished rooms, in the order of the course; a room imports only rooms before it."""

_LAZY = (*ROOMS, "claims", "data", "examine", "figures", "models", "testing", "train")

__all__ = ["ROOMS", "__version__"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"vademecum.{name}")
    raise AttributeError(f"module 'vademecum' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_LAZY])
