"""Writing checkpoints while training goes on.

The loop waits for the copy to the CPU alone, which is made before; a thread does the rest: it looks
whether all is finite, writes, and deletes old ones. One checkpoint is written at a time. What goes
wrong comes out in the loop, at the next checkpoint or at the end, and no step is lost before that:
the last whole checkpoint stays.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from vademecum.train.checkpoints._folder import (
    Snapshot,
    prepare_folder,
    rotate,
    write_checkpoint,
)

__all__ = ["BackgroundWriter"]


class BackgroundWriter:
    """A context in which checkpoints are written in a thread; at its end all of them are.

    Args:
        folder: Where the checkpoints of a run are.
        keep: How many to keep.

    Raises:
        UsageError: If the folder cannot be written to, or safetensors is not installed.
    """

    def __init__(self, folder: str | Path, *, keep: int = 2):
        self.folder, self.keep = prepare_folder(folder), keep
        self._thread = ThreadPoolExecutor(1, "checkpoints")
        self._last: Future[None] | None = None

    def __enter__(self) -> "BackgroundWriter":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self._thread.shutdown()

    def submit(self, snapshot: Snapshot, *, best: bool = False) -> None:
        """Write a checkpoint once the one before is written.

        Args:
            snapshot: What to write.
            best: Whether it is the best so far, which has a place of its own.

        Raises:
            OSError: If the one before could not be written.
            ValueError: If the one before was not finite.
        """
        self.wait()
        self._last = self._thread.submit(self._write, snapshot, best)

    def wait(self) -> None:
        """Wait until the last checkpoint is on the disk.

        Raises:
            OSError: If it could not be written.
            ValueError: If it was not finite.
        """
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def _write(self, snapshot: Snapshot, best: bool) -> None:
        write_checkpoint(self.folder, snapshot, name="best" if best else None)
        if not best:
            rotate(self.folder, keep=self.keep)
