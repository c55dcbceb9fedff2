"""A training run while it goes on: its curves and where it stands, from the files in its folder."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from vademecum.canvas import styled, svg
from vademecum.errors import UsageError
from vademecum.train import Run, draw_run
from vademecum.train._journal import read_log

__all__ = ["RunView", "look_at_run"]


class RunView(NamedTuple):
    """What a page tells of a run.

    Attributes:
        folder: Where it is.
        recipe: What is trained.
        facts: Names and values: where it stands.
        curves: Its curves as SVG; empty before the first step.
        ended: Whether it has ended, so that nothing will change.
    """

    folder: str
    recipe: str
    facts: dict[str, str]
    curves: bytes
    ended: bool


def look_at_run(folder: Path) -> RunView:
    """Read the folder of a run.

    Raises:
        UsageError: If no run has begun there.
    """
    if not (folder / "config.json").is_file():
        raise UsageError(f"--run {folder} must be the folder of a run, with its config.json")
    asked, ended = _json(folder / "config.json"), _json(folder / "summary.json")
    records = read_log(folder / "log.jsonl")
    last = {name: value for record in records for name, value in record.items()}
    done = f"{last.get('step', 0)} of {asked.get('steps') or ended.get('steps') or 'unknown'}"
    facts = {"steps": done}
    facts |= {
        name.partition(".")[2] or name: f"{value:.4g}"
        for name, value in last.items()
        if value is not None and name.startswith(("loss", "score.", "track."))
    }
    curves = svg(styled(lambda: draw_run(_as_run(records)))) if records else b""
    over = bool(ended) and ended["steps"] >= last.get("step", 0)  # or it was resumed
    return RunView(str(folder), str(asked.get("recipe", "")), facts, curves, over)


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.is_file() else {}


def _as_run(records: list[dict[str, Any]]) -> Run:
    names = dict.fromkeys(name for record in records for name in record)
    missing = float("nan")
    columns = {
        name: [missing if (x := record.get(name)) is None else float(x) for record in records]
        for name in names
    }
    history = {name: torch.tensor(column) for name, column in columns.items()}
    steps = int(records[-1]["step"])
    return Run(nn.Identity(), steps, 0.0, {}, None, history, None, 0.0, "")
