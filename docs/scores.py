"""`python docs/scores.py [--seeds 0-4] [--jobs N] [--only WORD]`: what each recipe reaches.

Runs every row of `vademecum/train/recipes/scores.json` with several seeds on two threads each and
writes mean, spread and time into that file (`vade train --list` reads it), and the table into
`docs/train.md`. A row that misses its bar with any seed is named, and nothing is written. Rows that
begin with the weights of another (`--from runs/bert`) run after it, in the same folder.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from vademecum.cli.choice import parse_seeds
from vademecum.files import write_atomically

ROOT = Path(__file__).parents[1]
SCORES = ROOT / "vademecum" / "train" / "recipes" / "scores.json"
PAGE = ROOT / "docs" / "train.md"
MARKS = "<!-- scores -->", "<!-- end of scores -->"


def main() -> int:
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--threads", type=int, default=2, help="threads of a run")
    parser.add_argument("--only", default="", help="rows whose command contains this; keeps none")
    parser.add_argument("--out", type=Path, default=SCORES)
    arguments = parser.parse_args()
    known = json.loads(SCORES.read_text())
    seeds = parse_seeds(arguments.seeds)
    rows = [row for row in known["rows"] if arguments.only in row["command"]]
    commands = [chain for chain in _chains(rows) for _ in seeds]
    each = [*seeds] * (len(commands) // len(seeds)), [arguments.threads] * len(commands)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        all_found = list(pool.map(_measured, commands, *each))
    found: dict[str, list[tuple[str, float, float]]] = {}
    for chain, values in zip(commands, all_found, strict=True):
        for command, value in zip(chain, values, strict=True):
            found.setdefault(command, []).append(value)
    missed = [_noted(row, found[row["command"]]) for row in rows]
    for line in filter(None, missed):
        print(line, file=sys.stderr)
    if not arguments.only and not any(missed):
        write_atomically(arguments.out, json.dumps(known, indent=1) + "\n")
        _write_table(known["rows"])
    return 1 if any(missed) else 0


def _chains(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Commands one by one, but those that need another's weights after it."""
    chains: dict[str, tuple[str, ...]] = {row["command"]: (row["command"],) for row in rows}
    for command in list(chains):
        words = command.split()
        first = words[words.index("--from") + 1].removeprefix("runs/") if "--from" in words else ""
        if first in chains:
            chains[first] += (command,)
            del chains[command]
    return sorted(chains.values(), key=len, reverse=True)


def _measured(chain: tuple[str, ...], seed: int, threads: int) -> list[tuple[str, float, float]]:
    """The score of each command, its value, and the seconds that it took."""
    import torch

    from vademecum.cli import main as vade

    torch.set_num_threads(threads)
    values = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for i, command in enumerate(chain):
            out = f"runs/{command}" if not i else f"runs/{i}"
            start = time.perf_counter()
            code = vade(["train", *command.split(), "--seed", str(seed), "--device", "cpu",
                         "--out", out])  # fmt: skip
            if code:
                raise RuntimeError(f"vade train {command} --seed {seed} ended with {code}")
            took = time.perf_counter() - start
            name = json.loads(Path(out, "config.json").read_text())["score"]
            scores = json.loads(Path(out, "summary.json").read_text())["scores"]
            values.append((name, scores[name], took))
            print(f"{command} --seed {seed}: {name} {scores[name]:.4g}, {took:.1f} s", flush=True)
        os.chdir("/")
    return values


def _noted(row: dict[str, Any], found: list[tuple[str, float, float]]) -> str:
    """Put what was found into a row, and say whether it has missed its bar."""
    values = [value for _, value, _ in found]
    row |= {
        "score": found[0][0],
        "mean": round(statistics.fmean(values), 4),
        "spread": round(statistics.pstdev(values), 4),
        "seconds": round(statistics.fmean(seconds for *_, seconds in found), 1),
    }
    worst = min(values) if row["maximize"] else max(values)
    if worst >= row["bar"] if row["maximize"] else worst <= row["bar"]:
        return ""
    return f"{row['command']}: {row['score']} {worst:.4g} misses the bar of {row['bar']:g}"


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown."""
    lines = [
        "| `vade train ...` | score | bar | mean ± spread | seconds |",
        "|---|---|--:|--:|--:|",
    ]
    for row in rows:
        sign = "≥" if row["maximize"] else "≤"
        reached = f"{row['mean']:.3f} ± {row['spread']:.3f}"
        cells = (f"`{row['command']}`", row["score"], f"{sign} {row['bar']:g}", reached,
                 f"{row['seconds']:.0f}")  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _write_table(rows: list[dict[str, Any]]) -> None:
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    write_atomically(PAGE, f"{before}{MARKS[0]}\n{table(rows)}\n{MARKS[1]}{after}")


if __name__ == "__main__":
    sys.exit(main())
