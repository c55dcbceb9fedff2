"""How many bytes of tensors some work holds at its peak, on any device.

Storages are counted from the operation that makes them until nobody holds them; those that were
there before are not. What kernels use inside (workspaces of BLAS, say) is not seen.
"""

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vademecum.models.inputs import count_examples, map_tensors, named_tensors
from vademecum.results import one_line

__all__ = ["WorkBytes", "bytes_each", "peak_bytes"]


def peak_bytes(work: Callable[[], Any]) -> int:
    """The most bytes that tensors made by some work hold at a time, its result included.

    Example:
        >>> x = torch.ones(1000)
        >>> peak_bytes(lambda: (x + 1) * 2), peak_bytes(lambda: x.view(10, 100))
        (8000, 0)
    """
    with _Ledger() as ledger:
        found = work()
    del found
    return ledger.peak


class WorkBytes(NamedTuple):
    """What work on examples takes.

    Example:
        >>> WorkBytes(100, 20)
        WorkBytes(fixed=100, each=20)
    """

    fixed: int
    """The bytes it takes whatever their number."""
    each: int
    """The bytes it takes for each of them, at least 1."""

    __repr__ = one_line


def bytes_each(work: Callable[[Any], Any], x: Any) -> WorkBytes:
    """The bytes that work on inputs takes whatever their number, and those for each example.

    They are found from work on one example and on three (or as many as there are).

    Example:
        >>> bytes_each(lambda x: torch.cat([x, x]) + torch.ones(5, 1, 1), torch.ones(8, 2))
        WorkBytes(fixed=20, each=96)
    """
    n = min(count_examples(x), 3)
    few, more = (
        peak_bytes(lambda rows=rows: work(map_tensors(x, lambda t: t[:rows]))) for rows in (1, n)
    )
    each = -(-(more - few) // (n - 1)) if n > 1 else few
    return WorkBytes(max(few - each, 0), max(each, 1))


class _Ledger(TorchDispatchMode):
    """Counts storages while they live."""

    def __init__(self):
        super().__init__()
        self.peak, self._now = 0, 0
        self._known: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call an operation, and note the storages it makes."""
        before = {t.untyped_storage().data_ptr() for _, t in _plain((args, kwargs))}
        found = func(*args, **(kwargs or {}))
        for _, t in _plain(found):
            storage = t.untyped_storage()
            place = storage.data_ptr()
            if place not in before and place not in self._known:
                self._known[place] = storage.nbytes()
                self._now += storage.nbytes()
                weakref.finalize(storage, self._gone, place)
        self.peak = max(self.peak, self._now)
        return found

    def _gone(self, place: int) -> None:
        self._now -= self._known.pop(place, 0)


def _plain(x: Any) -> list[tuple[str, Tensor]]:
    return [(name, t) for name, t in named_tensors(x) if t.layout == torch.strided]
