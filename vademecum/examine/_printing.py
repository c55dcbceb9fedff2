"""A dossier on a terminal: findings first, then each section with its measurements."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vademecum.examine.dossier import Dossier

__all__ = ["show"]


def show(dossier: "Dossier") -> None:
    """Print the findings and a table of all measurements."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for finding in dossier.findings:
        console.print(Text(f"{finding.text} {finding.advice}", style="bold"))
    for section in dossier.sections:
        console.print(Text(f"\n{section.name}: {section.status}", style="bold"))
        for line in (section.sentence, section.reason):
            if line:
                console.print(Text(line))
        table = Table(box=None, show_header=False, pad_edge=False)
        for each in section.measurements:
            if each.name != "tree":
                table.add_row(*map(Text, (f"  {each.name}", each.words(), each.method)))
        console.print(table)
