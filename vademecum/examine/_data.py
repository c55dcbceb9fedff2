"""The data of an examination: at hand, checked, and where the network is.

Of a loader the first examples are taken, as many as a fixed number and a fixed size allow, so that
every section sees the same. Examples lie along the first axis of all tensors; where they cannot be
told apart, as the nodes of a graph, the data are one whole.
"""

from contextlib import closing
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vademecum.models import (
    Entangled,
    batches,
    count_examples,
    map_tensors,
    named_tensors,
    refuse_batch_statistics,
    refuse_nan,
)
from vademecum.results import one_line

__all__ = ["Data", "taken"]

_EXAMPLES, _BYTES = 10_000, 2**29
"""How many examples of a loader are taken, and how many bytes of them, at most."""


class Data(NamedTuple):
    """Examples at hand."""

    x: Any
    y: Any
    n: int | None
    """How many examples; None where they cannot be told apart."""
    of: str
    """Where they come from, in words."""

    __repr__ = one_line

    def rows(self, index: Tensor | slice) -> tuple[Any, Any]:
        """Some of the examples."""
        return map_tensors((self.x, self.y), lambda t: t[_on(index, t)])

    def copied(self) -> "Data":
        """The same in memory of its own, which a network may write into."""
        return self._replace(x=map_tensors(self.x, Tensor.clone))


def taken(name: str, x: Any, y: Any, model: nn.Module) -> Data:
    """The examples of tensors or of a loader.

    Args:
        name: What they are called in messages: "x" or "test".
        x: Inputs, or a `DataLoader`.
        y: Targets, or None.
        model: The network, which says where they must be.

    Raises:
        ValueError: If there are none, or but one; if there is NaN among them; if they are
            elsewhere than the network.
    """
    if x is None:
        raise ValueError(f"{name} must hold examples, got None")
    places = {t.device for t in (*model.parameters(), *model.buffers())}
    of = "all of them"
    if isinstance(x, DataLoader):
        x, y, of = _from_loader(name, x, y, next(iter(places), None))
    for where, t in (*named_tensors(x, name), *named_tensors(y, f"targets of {name}")):
        if places and t.device not in places:
            raise ValueError(f"{where} must be on {_listed(places)} as model is, got {t.device}")
    if y is not None:
        _refuse_nan_targets(name, y)
    n = _counted(name, x, y)
    try:
        refuse_batch_statistics(model)
    except Entangled:
        return Data(x, y, None, f"{of}, tied to each other by batch normalisation")
    return Data(x, y, n, of)


def _counted(name: str, x: Any, y: Any) -> int | None:
    """How many examples there are, or None if that cannot be told."""
    try:
        refuse_nan(x)
        n = count_examples(x)
    except Entangled:
        if not any(True for _ in named_tensors(x)) and not hasattr(x, "x"):
            raise ValueError(f"{name} must hold tensors, got {type(x).__name__}") from None
        return None
    except ValueError as error:
        raise ValueError(str(error).replace("x must", f"{name} must", 1)) from None
    if isinstance(y, Tensor) and (y.ndim == 0 or len(y) != n):
        given = f"{tuple(y.shape)}"
        raise ValueError(f"targets of {name} must be one for each of {n} examples, got {given}")
    if n < 2:
        raise ValueError(f"{name} must hold at least 2 examples, got {n}")
    return n


def _refuse_nan_targets(name: str, y: Any) -> None:
    for where, t in named_tensors(y, f"targets of {name}"):
        if t.is_floating_point() and not bool(torch.isfinite(t).all()):
            raise ValueError(f"{where} must be finite, got NaN or an infinite number")


def _from_loader(
    name: str, loader: Any, y: Any, device: torch.device | None
) -> tuple[Any, Any, str]:
    """The first examples of a loader that can be put together."""
    parts, kinds, rows, size = [], None, 0, 0
    with closing(batches(loader, y, device=device)) as each:
        for pair in each:
            tensors = [t for _, t in named_tensors(pair)]
            kind = [(t.shape[1:], t.dtype) for t in tensors]
            if not tensors or tensors[0].ndim == 0 or (kinds is not None and kind != kinds):
                break
            kinds = kind
            parts.append(pair)
            rows += len(tensors[0])
            size += sum(t.numel() * t.element_size() for t in tensors)
            if rows >= _EXAMPLES or size >= _BYTES:
                break
    if not parts:
        raise ValueError(f"{name} must hold examples, got a DataLoader without batches of tensors")
    columns = zip(*([t for _, t in named_tensors(pair)] for pair in parts), strict=True)
    whole = iter([torch.cat(column)[:_EXAMPLES] for column in columns])
    x, y = map_tensors(parts[0], lambda _: next(whole))
    return x, y, f"the first {min(rows, _EXAMPLES)} of a loader"


def _on(index: Tensor | slice, t: Tensor) -> Tensor | slice:
    return index if isinstance(index, slice) else index.to(t.device)


def _listed(places: set[torch.device]) -> str:
    return " or ".join(sorted(map(str, places)))
