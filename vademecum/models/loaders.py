r"""Data too large for memory: a `DataLoader` in their place, whose batches come one by one.

A batch is a pair of inputs and targets; more entries than two, of which the last holds the targets;
a mapping, whose entry "labels" holds them; or inputs alone. Each pass sees the same batches: random
numbers for them come from torch's seed anew, and global generators stay where they are.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from vademecum.models.inputs import map_tensors
from vademecum.progress import ticking
from vademecum.randomness import own_randomness
from vademecum.results import one_line

__all__ = ["Batch", "batches", "next_pair"]


def batches(
    x: Any, y: Any = None, *, device: torch.device | None = None, progress: bool = False
) -> Generator[tuple[Any, Any], None, None]:
    """The inputs and targets of each batch of a loader; of data at hand those given, alone.

    Who stops before the end must close it, so that random numbers go on from where they were.

    Args:
        x: A `DataLoader`, or inputs.
        y: The targets of inputs that are at hand.
        device: Where to move what a loader brings.
        progress: Whether to show a progress bar on standard error.

    Example:
        >>> loader = DataLoader([(torch.zeros(2), 0), (torch.ones(2), 1)], batch_size=2)
        >>> [(tuple(x.shape), y.tolist()) for x, y in batches(loader)]
        [((2, 2), [0, 1])]
    """
    if not isinstance(x, DataLoader):
        yield x, y
        return
    if y is not None:
        raise ValueError("y must be None where x is a DataLoader, which brings the targets")
    total = len(x) if hasattr(x.dataset, "__len__") else None
    bar = ticking("batches", total, progress=progress)
    with own_randomness(torch.initial_seed()), _generators_of(x), bar as tick:
        for batch in x:
            yield next_pair(batch, device)
            tick(1)


class Batch(NamedTuple):
    """A batch of a loader.

    Example:
        >>> Batch(torch.ones(1), None)
        Batch(x=tensor([1.]), y=None)
    """

    x: Any
    """The inputs."""
    y: Any
    """The targets, or None."""

    __repr__ = one_line


def next_pair(batch: Any, device: torch.device | None = None) -> Batch:
    """The inputs and targets of what a loader brings, on a device.

    Example:
        >>> next_pair({"x": torch.ones(1), "labels": torch.zeros(1)})
        Batch(x={'x': tensor([1.])}, y=tensor([0.]))
    """
    return Batch(*map_tensors(_pair(batch), lambda t: t.to(device)))


@contextmanager
def _generators_of(loader: Any) -> Iterator[None]:
    """Give a loader's generators, and those of its samplers, their states back."""
    inner = getattr(loader.batch_sampler, "sampler", None)
    holders = (loader, loader.sampler, loader.batch_sampler, inner)
    found = [getattr(holder, "generator", None) for holder in holders]
    states = [(g, g.get_state()) for g in found if isinstance(g, torch.Generator)]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)


def _pair(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, Mapping):
        x = dict(batch)
        return x, x.pop("labels", None)
    if type(batch) in (tuple, list):
        *x, y = (*batch, None) if len(batch) == 1 else batch
        return (x[0] if len(x) == 1 else tuple(x)), y
    return batch, None
