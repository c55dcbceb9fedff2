"""Train, kill at random, resume, and compare with a run that was left alone, bit by bit.

    python docs/kill_and_resume.py                     # one process, killed five times
    python docs/kill_and_resume.py --processes 2       # torchrun starts both again when one dies
    python docs/kill_and_resume.py -- gpt --steps 200  # another recipe

The kills are SIGKILL, at a random moment: in a step, in an evaluation, while a checkpoint is being
written. What is printed last are the SHA-256 of the final weights of both runs, and the exit code
is 0 if they are equal.
"""

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

RECIPE = ["classify", "--model.name", "mlp", "--shifts", "1", "--average", "0.9"]
MOST_STARTS = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=5, help="how often to kill")
    parser.add_argument("--processes", type=int, default=1, help="how many, under torchrun")
    parser.add_argument("--seed", type=int, default=None, help="of the moments at which to kill")
    parser.add_argument("recipe", nargs="*", default=RECIPE, help="what to train, after --")
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    with TemporaryDirectory() as place:
        whole, killed = Path(place, "whole"), Path(place, "killed")
        started = time.monotonic()
        if subprocess.run(command(asked, whole), check=False).returncode:
            return 2
        seconds = time.monotonic() - started
        (interrupted_together if asked.processes > 1 else interrupted)(asked, killed, draw, seconds)
        hashes = [weights_of(folder) for folder in (whole, killed)]
    print(f"left alone          {hashes[0]}\nkilled {asked.kills} times      {hashes[1]}")
    return int(hashes[0] != hashes[1])


def command(asked: argparse.Namespace, folder: Path, *more: str) -> list[str]:
    """The command that trains, as anybody would type it."""
    flags = [*asked.recipe, "--out", str(folder), "--checkpoint-every", "0.05", *more]
    if asked.processes == 1:
        return [sys.executable, "-m", "vademecum", "train", *flags]
    launcher = ["--nproc-per-node", str(asked.processes), "--max-restarts", str(asked.kills)]
    return [sys.executable, "-m", "torch.distributed.run", *launcher, "-m", "vademecum", "train",
            *flags]  # fmt: skip


def interrupted(
    asked: argparse.Namespace, folder: Path, draw: random.Random, seconds: float
) -> None:
    """Train with kills: the same command with --resume goes on."""
    kills = 0
    for _ in range(MOST_STARTS):
        there = any((folder / "checkpoints").glob("step-*"))
        process = subprocess.Popen(command(asked, folder, *["--resume"] * there))
        kills += kills < asked.kills and kill_later(process, folder, draw, seconds)
        if process.wait() == 0:
            return
    sys.exit(f"the run did not end in {MOST_STARTS} starts")


def interrupted_together(
    asked: argparse.Namespace, folder: Path, draw: random.Random, seconds: float
) -> None:
    """Train with processes of which one is killed now and then: torchrun starts all again."""
    launcher = subprocess.Popen(command(asked, folder))
    for _ in range(asked.kills):
        wait_for_steps(launcher, folder, draw, seconds)
        if own := children(launcher.pid):
            victim = draw.choice(own)
            print(f"--- killing process {own.index(victim)} of {len(own)}", flush=True)
            os.kill(victim, signal.SIGKILL)
        wait_until(lambda old=own: children(launcher.pid) != old or launcher.poll() is not None)
    if launcher.wait():
        sys.exit("torchrun gave up")


def kill_later(
    process: subprocess.Popen[bytes], folder: Path, draw: random.Random, seconds: float
) -> bool:
    """Kill a process some time after it has begun to train, unless it ends before."""
    wait_for_steps(process, folder, draw, seconds)
    if process.poll() is not None:
        return False
    print(f"--- killing it after {lines_of(folder)} steps", flush=True)
    process.kill()
    return True


def wait_for_steps(
    process: subprocess.Popen[bytes], folder: Path, draw: random.Random, seconds: float
) -> None:
    """Wait until something new is in the folder, and then a random while."""
    before = newest(folder)
    wait_until(lambda: newest(folder) != before or process.poll() is not None)
    time.sleep(draw.random() * min(1.0, seconds / 20))


def wait_until(happened) -> None:
    while not happened():
        time.sleep(0.01)


def newest(folder: Path) -> str:
    return max((path.name for path in (folder / "checkpoints").glob("step-*")), default="")


def lines_of(folder: Path) -> int:
    log = folder / "log.jsonl"
    return len(log.read_text().splitlines()) if log.exists() else 0


def children(number: int) -> list[int]:
    path = Path(f"/proc/{number}/task/{number}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def weights_of(folder: Path) -> str:
    path = folder / "checkpoints" / newest(folder) / "model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
