"""How many bytes of tensors some work holds at its peak, on any device.

Storages are counted from the operation that makes them until nobody holds them; those that were
there before are not. What kernels use inside (workspaces of BLAS, say) is not seen.
"""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vademecum.models.inputs import count_examples, map_tensors, named_tensors

__all__ = ["bytes_each", "peak_bytes"]


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


def bytes_each(work: Callable[[Any], Any], x: Any) -> tuple[int, int]:
    """The bytes that work on inputs takes whatever their number, and those for each example.

    They are found from work on one example and on three (or as many as there are).

    Example:
        >>> bytes_each(lambda x: x @ x.mT @ torch.eye(len(x)), torch.ones(8, 2))[1] > 0
        True
    """
    n = min(count_examples(x), 3)
    few, more = (
        peak_bytes(lambda rows=rows: work(map_tensors(x, lambda t: t[:rows]))) for rows in (1, n)
    )
    each = -(-(more - few) // (n - 1)) if n > 1 else few
    return max(few - each, 0), max(each, 1)


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
