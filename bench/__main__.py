"""`python -m bench [ROOM ...] [--device cuda] [--only WORD]`: measure, print and keep the table.

Each row is kept as soon as it is measured, beside those of earlier runs on the same kind of machine
with the same versions of what both know: a run that is cut off, or of some rows only, loses
nothing. A table from elsewhere is replaced when a run of the whole room ends, and by no other.
"""

import argparse
import dataclasses
import importlib
import json
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch

from bench.harness import Failed, Result, Row, Skipped, in_turn, measure
from vademecum import ROOMS
from vademecum.claims import environment
from vademecum.files import write_atomically

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PINNED = "peers.txt", "outside.txt"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    rooms = [room for room in (*ROOMS, "train", "atlas") if _modules(room)]
    parser.add_argument("rooms", nargs="*", default=rooms, metavar="ROOM")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds a row")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # for all alike
    for room in arguments.rooms:
        if room not in rooms:
            parser.error(f"no rows for {room!r}; there are some for: {', '.join(rooms)}")
    broken = 0
    for room in arguments.rooms:
        if room == "atlas":
            _atlas()
            continue
        print(f"{'row':<60} {'ours':>10} {'best peer':>10}  ratio  memory  peer", flush=True)
        table = Table(room, arguments.device)
        skipped = 0
        for row in in_turn(_rows(room, torch.device(arguments.device))):
            if isinstance(row, Row) and arguments.only not in row.name:
                continue
            result = measure(row, budget=arguments.budget) if isinstance(row, Row) else row
            print(_line(result), flush=True)
            broken += isinstance(result, Failed)
            skipped += isinstance(result, Skipped)
            if not isinstance(result, Skipped):
                table.add(dataclasses.asdict(result))
        if skipped:
            print(f"rows of {room} were skipped: what was kept of them stays")
        elif not arguments.only:
            table.close()
        if not table.here and (skipped or arguments.only):
            print(f"the table of {room} is from elsewhere: none of these rows was kept")
    return 1 if broken else 0


def _atlas() -> None:
    from bench.atlas import figures

    table = Table("atlas", "cpu")
    for figure in figures():
        print(figure, flush=True)
        table.add(figure._asdict())
    table.close()


def _rows(room: str, device: torch.device) -> Iterator[Row | Skipped]:
    parts = [importlib.import_module(f"bench.{name}") for name in _modules(room)]
    yield from in_turn(*(part.rows(device) for part in parts))


def _modules(room: str) -> list[str]:
    """The module with the rows of a room, or those that share them."""
    if (HERE / f"{room}.py").exists():
        return [room]
    return sorted(path.stem for path in HERE.glob(f"{room}_*.py"))


def _line(result: Result | Skipped | Failed) -> str:
    if isinstance(result, Skipped):
        return f"skipped {result.what}: {result.hint}"
    if isinstance(result, Failed):
        return f"{result.row:<60} failed: {result.failed}"
    memory = "–" if result.memory_ratio is None else f"{result.memory_ratio:.3g}"
    return (
        f"{result.row:<60} {_time(result.ours_s):>10} {_time(result.peer_s):>10}"
        f" {result.ratio:>6.2f} {memory:>7}  {result.peer}"
        + (f"  (limit: {result.limit})" if result.limit else "")
    )


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


class Table:
    """The rows kept of one room, each written as it comes."""

    def __init__(self, room: str, device: str) -> None:
        self.path = RESULTS / f"{room if device == 'cpu' else f'{room}-{device}'}.json"
        self.about = _about()
        self.measured: list[dict[str, Any]] = []
        kept = json.loads(self.path.read_text()) if self.path.exists() else None
        self.here = kept is None or _alike(kept["environment"], self.about)
        if kept is not None and self.here:
            self.about["versions"] = kept["environment"]["versions"] | self.about["versions"]
        self.earlier = kept["rows"] if kept is not None and self.here else []

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row in its place, unless the table is from elsewhere."""
        self.measured.append(row)
        if self.here:
            new = {row["row"]: row for row in self.measured}
            known = [new.pop(row["row"], row) for row in self.earlier]
            self._write(known + list(new.values()))

    def close(self) -> None:
        """The whole room was measured: keep its rows and no others."""
        self._write(self.measured)

    def _write(self, rows: list[dict[str, Any]]) -> None:
        content = {"environment": self.about, "rows": rows}
        write_atomically(self.path, json.dumps(content, indent=1) + "\n")


def _about() -> dict[str, Any]:
    names = {"networkx", "numpy", "scipy", "scikit-learn", "torch"} | _peer_packages()
    versions = {d.name: d.version for d in distributions() if _plain(d.name) in names}
    return environment() | {"threads": torch.get_num_threads(), "versions": versions}


def _peer_packages() -> set[str]:
    lines = [line for name in PINNED for line in (HERE / name).read_text().splitlines()]
    return {_plain(line.partition("==")[0].strip()) for line in lines if not line.startswith("#")}


def _plain(package: str) -> str:
    """A package's name, of which there are several spellings."""
    return package.lower().replace("_", "-")


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two environments differ at most by packages that one of them does not know."""
    a, b = one.get("versions", {}), other["versions"]
    same = all(a[name] == b[name] for name in a.keys() & b.keys())
    return same and one | {"versions": b} == other


if __name__ == "__main__":
    raise SystemExit(main())
