"""`python -m bench [ROOM ...] [--device cuda] [--only WORD]`: measure, print and keep the table."""

import argparse
import dataclasses
import importlib
import json
from importlib.metadata import distributions
from pathlib import Path

import torch

from bench.harness import Result, measure
from vademecum import ROOMS
from vademecum.claims import environment
from vademecum.files import write_atomically

RESULTS = Path(__file__).parent / "results"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("rooms", nargs="*", default=list(ROOMS), metavar="ROOM")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", default="", help="rows whose name contains this; keeps no file")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds a row")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # for all alike
    for room in arguments.rooms:
        if room not in ROOMS:
            parser.error(f"no room {room!r}; there are: {', '.join(ROOMS)}")
        rows = importlib.import_module(f"bench.{room}").rows(torch.device(arguments.device))
        results = []
        print(f"{'row':<60} {'ours':>10} {'best peer':>10}  ratio  memory  peer", flush=True)
        for row in rows:
            if arguments.only in row.name:
                results.append(measure(row, budget=arguments.budget))
                print(_line(results[-1]), flush=True)
        if not arguments.only:
            _keep(room, arguments.device, results)
    return 0


def _line(result: Result) -> str:
    memory = "–" if result.memory_ratio is None else f"{result.memory_ratio:.3g}"
    return (
        f"{result.row:<60} {_time(result.ours_s):>10} {_time(result.peer_s):>10}"
        f" {result.ratio:>6.2f} {memory:>7}  {result.peer}"
        + (f"  (limit: {result.limit})" if result.limit else "")
    )


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _keep(room: str, device: str, results: list[Result]) -> None:
    names = {"numpy", "scipy", "scikit-learn", "torch"} | _peer_packages()
    versions = {d.name: d.version for d in distributions() if d.name in names}
    content = {
        "environment": environment() | {"threads": torch.get_num_threads(), "versions": versions},
        "rows": [dataclasses.asdict(result) for result in results],
    }
    name = room if device == "cpu" else f"{room}-{device}"
    write_atomically(RESULTS / f"{name}.json", json.dumps(content, indent=1) + "\n")


def _peer_packages() -> set[str]:
    lines = (Path(__file__).parent / "peers.txt").read_text().splitlines()
    return {line.partition("==")[0].strip() for line in lines if not line.startswith("#")}


if __name__ == "__main__":
    raise SystemExit(main())
