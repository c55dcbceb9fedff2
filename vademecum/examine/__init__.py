"""The dossier of any network: what each instrument of the course says of it, within a time.

`examine` measures, `Dossier` holds what was found, `compare` lays two of them side by side. Names
load when first used: whoever only reads a dossier, or starts a process that examines, needs no
room.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vademecum.examine.comparison import Comparison, Difference, compare
    from vademecum.examine.dossier import Dossier, Finding, Measurement, Section
    from vademecum.examine.examining import examine

__all__ = [
    "Comparison", "Difference", "Dossier", "Finding", "Measurement", "Section", "compare",
    "examine",
]  # fmt: skip

_HOMES = {
    "examining": ("examine",),
    "dossier": ("Dossier", "Finding", "Measurement", "Section"),
    "comparison": ("Comparison", "Difference", "compare"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"vademecum.examine.{home}"), name)
    raise AttributeError(f"module 'vademecum.examine' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
