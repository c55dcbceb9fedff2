"""Drawings: pictures as SVG, made in worker processes and kept.

Who asks for what is being drawn waits for the same drawing; one that nobody waits for any more is
not begun. A picture goes to the process that drew it first, where its caches are, unless another is
idle. The processes are forked from one that has imported every room, so a fresh one takes no time;
each drawing has limits of CPU time, wall time and memory.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from vademecum.atlas.verdicts import figure
from vademecum.canvas import svg
from vademecum.claims import Report, Workers
from vademecum.claims.workers import Call
from vademecum.pictures import Picture, find_picture, pictures

__all__ = ["AHEAD", "Drawings", "draw_picture", "positions"]

AHEAD = 1
"""The rank of what somebody may want next."""
_BEFOREHAND = 2
_PLACES, _FILM = 5, 40  # of a knob, and of the one that plays, where pictures are files
_LIMITS: dict[str, Any] = {"limit": 60.0, "cpu": 20, "memory": 2 << 30, "forked": True}


class Drawings:
    """Where pages get their drawings.

    Args:
        jobs: How many processes draw; as many as there are cores by default.
        space: The bytes of drawings that are kept; those that nobody asked for lately go first.
    """

    def __init__(self, jobs: int | None = None, *, space: int = 64 << 20):
        self._workers = Workers(jobs, **_LIMITS)
        self._space, self._size = space, 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._calls: dict[str, tuple[Call, list[Future[bytes]]]] = {}
        self._lock = threading.RLock()

    def svg(self, picture: Picture, knobs: Mapping[str, Any]) -> bytes:
        """The picture, as soon as it is drawn."""
        return self.ask(picture, knobs).result()

    def ask(self, picture: Picture, knobs: Mapping[str, Any], rank: int = 0) -> Future[bytes]:
        """The picture, some time; cancel it when nobody waits any more.

        Raises:
            UsageError: If there is no such knob, or it cannot take the value.
        """
        at = picture.at(knobs)
        return self._ask(f"{picture.id} {at}", rank, picture.id, draw_picture, picture.id, at)

    def evidence(self, report: Report) -> Future[bytes]:
        """The figure of a report; a run is a function of its claim and seed."""
        key = f"{report.id} {report.seed} {report.verdict}"
        return self._ask(key, 0, "", figure, report)

    def warm(self) -> None:
        """Draw the first positions of all pictures, when there is nothing else to do."""
        for picture in pictures():
            self.ask(picture, {}, _BEFOREHAND)

    def close(self) -> None:
        """Kill what is under way."""
        self._workers.shutdown(cancel_futures=True)

    def _ask(
        self, key: str, rank: int, home: str, make: Callable[..., bytes], *args: Any
    ) -> Future[bytes]:
        answer: Future[bytes] = Future()
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                answer.set_result(self._kept[key])
                return answer
            if key in self._calls:
                call, asking = self._calls[key]
                call.rank = min(call.rank, rank)
                asking.append(answer)
            else:
                call = self._workers.ask(make, args, key=home, rank=rank)
                self._calls[key] = call, [answer]
                call.add_done_callback(lambda call: self._done(key, call))
        answer.add_done_callback(lambda answer: self._leave(key, answer))
        return answer

    def _leave(self, key: str, answer: Future[bytes]) -> None:
        """Somebody has their drawing, or has gone."""
        with self._lock:
            call, asking = self._calls.get(key, (None, []))
            if call is None or answer not in asking:
                return
            asking.remove(answer)
            if not asking:
                call.cancel()  # unless it is being drawn: then it will be kept

    def _done(self, key: str, call: Future) -> None:
        with self._lock:
            _, asking = self._calls.pop(key, (None, []))
            failed = call.cancelled() or call.exception()
            if not failed:
                self._keep(key, call.result())
        for answer in asking:
            if answer.set_running_or_notify_cancel():
                if call.cancelled():
                    answer.set_exception(ChildProcessError("the atlas is closing"))
                elif error := call.exception():
                    answer.set_exception(error)
                else:
                    answer.set_result(call.result())

    def _keep(self, key: str, drawing: bytes) -> None:
        self._kept[key] = drawing
        self._size += len(drawing)
        while self._size > self._space:
            self._size -= len(self._kept.popitem(last=False)[1])


def draw_picture(name: str, knobs: Mapping[str, Any]) -> bytes:
    """A picture as SVG."""
    return svg(find_picture(name)(**knobs))


def positions(picture: Picture) -> list[dict[str, Any]]:
    """Where a picture is drawn: as it stands at first, and with one knob at a few other places."""
    first, found = picture.at({}), [picture.at({})]
    for knob in picture.knobs.values():
        others = [value for value in knob.positions if value != knob.default]
        most = _FILM if knob.name == picture.plays else _PLACES
        if len(others) > most:
            others = [others[i * (len(others) - 1) // (most - 1)] for i in range(most)]
        found += [first | {knob.name: value} for value in others]
    return found
