"""Progress bars for long work: Rich's, on standard error, and only where they are asked for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["ticking"]


@contextmanager
def ticking(what: str, total: int | None, *, progress: bool) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of things done since; it moves the bar, if there is one.

    Args:
        what: What is counted, in plain words.
        total: How many there will be, at most; None if that is unknown.
        progress: Whether to show a progress bar on standard error.

    Example:
        >>> with ticking("examples", 3, progress=False) as tick:
        ...     tick(2)
    """
    if not progress:
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)
