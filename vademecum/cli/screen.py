"""What a command prints: Rich tables on a terminal, plain tab-separated lines into a pipe."""

import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["as_json", "field", "heading", "plain_warnings", "terminal", "table"]


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Let warnings be one line each for a while, without the place in the sources they are from."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"vade: {' '.join(str(message).split())}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def terminal() -> bool:
    """Whether somebody is watching."""
    return sys.stdout.isatty()


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = ()
) -> None:
    """Print rows under a header; the columns named in `right` hold numbers."""
    lines = [[str(cell) for cell in row] for row in rows]
    if not terminal():
        for line in [columns, *lines]:
            print("\t".join(" ".join(cell.split()) for cell in line))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    gap = 1 if len(columns) < 8 else 0  # besides the space of the box
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap, 0, 0))
    for name in columns:
        grid.add_column(name, justify="right" if name in right else "left")
    for line in lines:
        grid.add_row(*map(Text, line))  # Text, since [0] and LaTeX are no markup
    Console().print(grid)


def heading(text: str) -> None:
    """Print a line that stands out on a terminal."""
    print(f"\x1b[1m{text}\x1b[0m" if terminal() else text)


def field(name: str, text: str, *, width: int = 9) -> None:
    """Print an indented `name: text`, further lines under the first."""
    indent = "\n" + " " * (width + 2)
    print(f"  {name + ':':<{width}}{indent.join(text.splitlines())}")


def as_json(content: Any) -> None:
    """Print what a program will read."""
    print(json.dumps(content, indent=1, ensure_ascii=False))
