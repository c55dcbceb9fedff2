"""The log of a run: a line of JSON for each step, in `log.jsonl`, and the same in memory.

A run that goes on from a checkpoint at step s first drops all lines beyond s, and one that was cut
off in the middle, so that no step is there twice. Numbers that are not finite are null.
"""

import json
import math
import time
from array import array
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from vademecum.files import write_atomically
from vademecum.train._training import Training

__all__ = ["Journal", "read_log"]

_SECONDS = 1.0  # that lines may wait in memory before they are written


class Journal:
    """The log of a run.

    Args:
        path: The file, or None to keep records in memory alone.
        step: The last step that stays of what the file holds.
    """

    def __init__(self, path: Path | None, step: int):
        self._columns: dict[str, array[float]] = {}
        self._rows = 0
        self._file: IO[str] | None = None
        self._due = 0.0
        if path is not None:
            records = read_log(path, step)
            write_atomically(path, "".join(map(_line, records)))
            for record in records:
                self._remember(record)
            self._file = path.open("a", encoding="utf-8")

    def note(self, training: Training, found: dict[str, float]) -> None:
        """Write down what a step has found."""
        record = {
            "step": training.step,
            "epoch": (training.step - 1) // training.per_epoch,
            **found,
        }
        self._remember(record)
        if self._file is not None:
            self._file.write(_line(record))
            if time.monotonic() > self._due:
                self.flush()

    def flush(self) -> None:
        """Write what waits in memory."""
        if self._file is not None:
            self._file.flush()
            self._due = time.monotonic() + _SECONDS

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def history(self) -> dict[str, Tensor]:
        """All that was found, by name, a number for each step and NaN where there was none."""
        found = {}
        for name, column in self._columns.items():
            self._fill(column)
            kind = torch.int64 if name in ("step", "epoch") else torch.float64
            found[name] = torch.tensor(column, dtype=torch.float64).to(kind)
        return found

    def _remember(self, record: dict[str, Any]) -> None:
        for name, x in record.items():
            column = self._columns.setdefault(name, array("d"))
            self._fill(column)
            column.append(math.nan if x is None else x)
        self._rows += 1

    def _fill(self, column: "array[float]") -> None:
        """Add NaN for the steps in which there was nothing of that name."""
        column.extend([math.nan] * (self._rows - len(column)))


def read_log(path: Path, step: int | None = None) -> list[dict[str, Any]]:
    """The records of a log, up to a step, without a last line that was cut off.

    Args:
        path: The file; where there is none, there are no records.
        step: The last step that counts; all do by default.
    """
    records: list[dict[str, Any]] = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:  # what a machine that went down has left
            break
        if not isinstance(record, dict) or not isinstance(record.get("step"), int):
            break
        if step is None or record["step"] <= step:
            records.append(record)
    return records


def _line(record: dict[str, Any]) -> str:
    finite = {
        name: x if not isinstance(x, float) or math.isfinite(x) else None
        for name, x in record.items()
    }
    return json.dumps(finite) + "\n"
