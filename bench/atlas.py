"""The atlas under load: the real server, driven over HTTP.

`python -m bench atlas` starts `vade atlas`, stops its checks of claims, waits until its first
drawings are made, and measures: the time until the address is printed and until the first page is
there; how long the server takes for the page of each room; the CPU time that it takes, all its
processes together, to answer a slider at a position that nobody asked for; what twenty visitors get
who move sliders for a minute; its memory before and after. CPU time and memory are those that Linux
tells in /proc, memory shared by several processes counted once.
"""

import json
import os
import random
import re
import statistics
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from vademecum.pictures import Picture, pictures

__all__ = ["Figure", "figures"]

VISITORS = 20
TICK = os.sysconf("SC_CLK_TCK")


class Figure(NamedTuple):
    """Something measured, and what it may be at most."""

    row: str
    measured: float
    unit: str
    bar: float | None = None

    def __str__(self) -> str:
        bar = "" if self.bar is None else f"  (at most {self.bar:g})"
        return f"{self.row:<60} {self.measured:>10.3g} {self.unit}{bar}"


class Atlas:
    """A running `vade atlas`."""

    def __init__(self) -> None:
        start = time.perf_counter()
        command = [sys.executable, "-m", "vademecum", "atlas", "--no-browser", "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = next(line for line in self.process.stdout if "http://" in line)
        self.address = re.findall(r"http://\S+", line)[0]
        self.until_address = time.perf_counter() - start
        visitor = Visitor(self.address)
        visitor.page("/")
        self.until_page = time.perf_counter() - start

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)

    def cpu(self) -> float:
        """The seconds that its processes have spent."""
        return sum(_ticks(pid) for pid in _tree(self.process.pid)) / TICK

    def megabytes(self) -> float:
        """The memory of its processes, what they share counted once."""
        return sum(_proportional_kilobytes(pid) for pid in _tree(self.process.pid)) / 1e3


class Visitor:
    """One visitor with one connection."""

    def __init__(self, address: str):
        place = urlsplit(address)
        self.connection = HTTPConnection(place.netloc, timeout=60)
        cookie = f"vademecum-{place.port}={place.query.removeprefix('token=')}"
        self.headers = {"Cookie": cookie, "Origin": f"http://{place.netloc}"}

    def ask(self, path: str, method: str = "GET") -> tuple[float, int, bytes]:
        """The seconds it took, the status and the answer."""
        start = time.perf_counter()
        self.connection.request(method, path, headers=self.headers)
        answer = self.connection.getresponse()
        body = answer.read()
        return time.perf_counter() - start, answer.status, body

    def page(self, path: str) -> float:
        """The seconds that a page took, which must be there."""
        seconds, status, body = self.ask(path)
        if status != 200:
            raise RuntimeError(f"{path}: {status} {body[:200]!r}")
        return seconds


def figures(*, seconds: float = 60.0, positions: int = 4):
    """Measure, and yield what was found.

    Args:
        seconds: How long the visitors stay.
        positions: At how many places the CPU time of each picture is taken.
    """
    atlas = Atlas()
    try:
        yield Figure("start: until the address is printed", atlas.until_address, "s", 6.0)
        yield Figure("start: until the first page is there", atlas.until_page, "s")
        visitor = Visitor(atlas.address)
        _until_quiet(atlas, visitor)
        shown = pictures()
        for room in dict.fromkeys(picture.room for picture in shown):
            visitor.page(f"/rooms/{room}")
            taken = statistics.median(visitor.page(f"/rooms/{room}") for _ in range(3))
            yield Figure(f"page of {room} with its first picture, warm", taken, "s", 0.5)
        spent = {p.id: _sliders(atlas, visitor, p, positions) for p in shown}
        every = [s for found in spent.values() for s in found]
        dearest = max(spent, key=lambda name: max(spent[name]))
        yield Figure("slider: CPU of an answer, median", statistics.median(every), "s", 0.25)
        yield Figure(f"slider: CPU, the dearest ({dearest})", max(every), "s", 0.6)
        before = atlas.megabytes()
        yield from _crowd(atlas.address, seconds)
        yield Figure("memory before the visitors came", before, "MB")
        yield Figure("memory after they left", atlas.megabytes(), "MB")
    finally:
        atlas.close()


def _until_quiet(atlas: Atlas, visitor: Visitor) -> None:
    visitor.ask("/check", "DELETE")
    while True:  # until the first drawings are made
        spent = atlas.cpu()
        time.sleep(1)
        if atlas.cpu() - spent < 0.05:
            return


def _address(picture: Picture, dice: random.Random, moved: dict | None = None) -> str:
    knobs = moved or {k.name: dice.choice(k.positions) for k in picture.knobs.values()}
    return f"/pictures/{picture.room}/{picture.name}.svg?{urlencode(knobs)}"


def _sliders(atlas: Atlas, visitor: Visitor, picture: Picture, positions: int) -> list[float]:
    """One knob after the other is moved from where the picture stood, as a hand would."""
    dice, found = random.Random(picture.id), []
    knobs = {knob.name: knob.default for knob in picture.knobs.values()}
    for _ in range(positions):
        knob = dice.choice(list(picture.knobs.values()))
        knobs[knob.name] = dice.choice([p for p in knob.positions if p != knobs[knob.name]])
        before = atlas.cpu()
        visitor.page(_address(picture, dice, knobs))
        found.append(atlas.cpu() - before)
    return found


def _crowd(address: str, seconds: float):
    command = [sys.executable, "-m", "bench.atlas", address, str(seconds)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = json.loads(said)
    took, bad = found["seconds"], found["errors"]
    if bad:
        print(f"errors: {bad[:5]}", file=sys.stderr)
    yield Figure(f"{VISITORS} visitors: answers a second", len(took) / seconds, "")
    yield Figure(f"{VISITORS} visitors: errors", len(bad), "", 0.0)
    yield Figure(f"{VISITORS} visitors: a slider's answer, median", statistics.median(took), "s", 2)
    late = statistics.quantiles(took, n=20)[-1]
    yield Figure(f"{VISITORS} visitors: 19 answers of 20 within", late, "s")


def visit(address: str, seconds: float) -> dict[str, list]:
    """Twenty visitors, each before a picture of its own choice, moving one knob after the other."""
    took: list[float] = []
    errors: list[str] = []

    def stay(number: int) -> None:
        dice, visitor, shown = random.Random(number), Visitor(address), pictures()
        picture = dice.choice(shown)
        knobs = {knob.name: knob.default for knob in picture.knobs.values()}
        asked, end = False, time.perf_counter() + seconds
        time.sleep(2 * dice.random())
        while not asked or time.perf_counter() < end:
            asked, knob = True, dice.choice(list(picture.knobs.values()))
            knobs[knob.name] = dice.choice(knob.positions)
            try:
                took.append(visitor.page(_address(picture, dice, knobs)))
            except (OSError, RuntimeError) as error:
                errors.append(repr(error))
            time.sleep(1 + dice.random())
        visitor.connection.close()

    threads = [threading.Thread(target=stay, args=(n,)) for n in range(VISITORS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"seconds": took, "errors": errors}


def _tree(root: int) -> list[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        pid = int(path.parent.name)
        if told := _told(pid, "stat"):
            parents[pid] = int(told.rpartition(")")[2].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _ticks(pid: int) -> int:
    words = _told(pid, "stat").rpartition(")")[2].split() or [0] * 13
    return int(words[11]) + int(words[12])


def _proportional_kilobytes(pid: int) -> int:
    found = re.findall(r"^Pss:\s+(\d+)", _told(pid, "smaps_rollup"), re.MULTILINE)
    return int(found[0]) if found else 0


def _told(pid: int, what: str) -> str:
    try:
        return Path(f"/proc/{pid}/{what}").read_text()
    except OSError:  # it has just ended
        return ""


if __name__ == "__main__":  # the visitors, in a process of their own
    print(json.dumps(visit(sys.argv[1], float(sys.argv[2]))))
