"""Time that is shared: a clock says how much is left, and gives parts of it away.

Work in portions goes on in larger ones while there is time, and has a fixed last size: with time
enough the result does not depend on the clock. While a clock is watched, every call of a module
asks it, so that an instrument which calls the network again and again ends in time as well; what
happens within one call cannot be cut, and is not promised to be.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from vademecum.models import call_arguments, map_tensors

__all__ = ["Clock", "OutOfTime"]

_SAFE = 0.8  # of the time left, for a portion whose cost is guessed from a smaller one
_FARTHER = 8  # times the first size is the second one at which work is timed
_WORTH = 1.5  # times as large must a portion be to be worth starting anew


class OutOfTime(BaseException):
    """The time is over; not an `Exception`, so that a network's own code does not swallow it."""


class Clock:
    """How many seconds are left.

    Args:
        seconds: How many there are; may be infinite.
        now: What tells the time.

    Attributes:
        cut: Whether something was made smaller for want of time, and what, in words.

    Example:
        >>> ticks = iter([0.0, 1.0, 1.0, 3.0])
        >>> clock = Clock(10.0, now=lambda: next(ticks))
        >>> clock.left(), clock.spend(0.5).left()
        (9.0, 2.5)
    """

    def __init__(self, seconds: float, *, now: Callable[[], float] = time.perf_counter):
        self._now = now
        self._end = now() + seconds
        self.cut = ""

    def left(self) -> float:
        """The seconds left, negative when the time is over."""
        return self._end - self._now()

    def check(self) -> None:
        """Raise `OutOfTime` if the time is over."""
        if self.left() <= 0:
            raise OutOfTime

    def spend(self, share: float) -> "Clock":
        """A clock for a share of what is left."""
        now = self._now()
        part = Clock(0.0, now=lambda: now)
        part._now, part._end = self._now, now + share * max(self._end - now, 0.0)
        return part

    def portions(
        self,
        first: int,
        last: int,
        *,
        power: float = 1.0,
        what: str = "examples",
        took: float | None = None,
    ) -> Iterator[int]:
        """Sizes to work with, one after the other, of which each makes those before it worthless.

        The first comes in any case; the next ones are as large as the time left seems to allow, by
        a line through what the last two took: of small portions a GPU takes hardly less time than
        of large ones. If the last one is not reached, `cut` says so.

        Args:
            first: The first size, if `last` is not smaller.
            last: The last size, after which there is no more.
            power: The cost grows as the size to this power.
            what: What is counted, in words.
            took: Seconds that the first size has taken already, if each goes on from the one before
                it and does not begin anew.
        """
        size, before = min(first, last), (0.0, 0.0)  # nothing would cost nothing
        done = took or 0.0
        while True:
            start = self._settled()
            yield size
            if size >= last:
                return
            spent = max(self._settled() - start + done, 1e-6)
            done = 0.0 if took is None else spent
            now = float(size) ** power, spent
            factor = _growth(before, now, _SAFE * max(self.left(), 0.0) + done) ** (1 / power)
            larger = min(last, int(size * min(factor, last)))
            if factor < min(_WORTH, last / size) or larger == size:
                self.cut = f"{size} of {last} {what}"
                return
            size, before = larger, now

    @torch.no_grad()
    def pass_seconds(self, model: nn.Module, x: Any) -> float:
        """What a forward pass takes, the second time."""
        once, again = (call_arguments(map_tensors(x, Tensor.clone)) for _ in range(2))
        model(*once[0], **once[1])  # which may work in place
        return self._timed(lambda _: model(*again[0], **again[1]), 1)

    def _timed(self, work: Callable[[int], Any], size: int) -> float:
        start = self._settled()
        work(size)
        return max(self._settled() - start, 1e-6)

    def _settled(self) -> float:
        """The time when all that was begun is done: a GPU works on while Python goes on."""
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return self._now()

    def stages(self, sizes: Sequence[int], *, what: str = "iterations") -> Iterator[int]:
        """Sizes of a fixed sequence, while there seems to be time for the next one.

        Each may go on from what the one before it found, since with time enough they are the same.

        Args:
            sizes: The sizes, increasing; the first comes in any case.
            what: What is counted, in words.
        """
        for i, size in enumerate(sizes):
            start = self._settled()
            yield size
            took = self._settled() - start
            if i + 1 < len(sizes) and took * sizes[i + 1] / size > _SAFE * self.left():
                self.cut = f"{size} of {sizes[-1]} {what}"
                return

    def affordable(
        self,
        work: Callable[[int], Any],
        first: int,
        last: int,
        *,
        times: float,
        what: str = "examples",
    ) -> int:
        """The largest size at which some work can be done so many times in the time left.

        It is done at the first size and at a larger one; its cost is taken to grow along a line.

        Args:
            work: A function of the size.
            first: The first size, if `last` is not smaller, below which it never goes.
            last: The largest size.
            times: How many times it is to be done.
            what: What is counted, in words.
        """
        first = min(first, last)
        if first == last or self.left() == math.inf:
            return last
        limit = _SAFE * max(self.left(), 0.0) / times
        one = self._timed(work, first)
        if one < _FARTHER * limit:  # else there is no time to lose
            one = min(one, self._timed(work, first))
        more = min(_FARTHER * first, last)
        if one > limit or one * more / first > 0.1 * self.left():
            size = int(first * limit / one)
        else:
            two = min(self._timed(work, more), self._timed(work, more))
            slope = max((two - one) / (more - first), one / first * 1e-3)
            size = first + int((limit - one) / slope)
        size = min(max(size, first), last)
        if size < last:
            self.cut = f"{size} of {last} {what}"
        return size

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Raise `OutOfTime` in the next call of any module of torch when the time is over."""

        def ask(module: Any, args: Any) -> None:
            if self.left() <= 0:
                raise OutOfTime

        hook = register_module_forward_pre_hook(ask)
        try:
            yield
        finally:
            hook.remove()


def _growth(before: tuple[float, float], now: tuple[float, float], limit: float) -> float:
    """How many times as much work fits into a time, from two amounts of it and what they took.

    If the second took little more than the first, or even less, that may be an accident: from one
    amount to the next it is never more than 8 times what costs in proportion would allow.
    """
    (less, short), (amount, took) = before, now
    fair = took / amount
    slope = min(max((took - short) / (amount - less), fair / _FARTHER), fair)
    return max(1 + (limit - took) / (slope * amount), 0.0)
