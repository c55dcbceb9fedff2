"""A dossier in a folder: one page, the numbers as JSON, a picture for each section."""

from pathlib import Path
from typing import TYPE_CHECKING

from vademecum.examine._page import page
from vademecum.files import write_atomically

if TYPE_CHECKING:
    from vademecum.examine.dossier import Dossier

__all__ = ["save"]


def save(dossier: "Dossier", folder: Path) -> Path:
    """Write `index.html`, `dossier.json` and `figures/NAME.svg`, and say where the page is."""
    for section in dossier.sections:
        if section.figure is not None:
            write_atomically(folder / "figures" / f"{section.name}.svg", section.figure)
    write_atomically(folder / "dossier.json", dossier.to_json(figures=False))
    write_atomically(folder / "index.html", page(dossier))
    return folder / "index.html"
