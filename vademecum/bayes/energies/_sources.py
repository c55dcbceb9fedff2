r"""Where an energy's examples come from: tensors at hand, or the batches of a `DataLoader`.

For the whole energy all parts are added up. For estimates of it, the sum over a part $B$ of $b$
examples counts $n / b$ times, which is right on average if each part is drawn at random: with
replacement from data at hand, or as the next batch of a loader that shuffles, whose random numbers
come from the generator of the chains.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from vademecum.arguments import whole
from vademecum.models import batches, count_examples, map_tensors, next_pair, targets_of
from vademecum.randomness import own_randomness, source

__all__ = ["Streamed", "examples"]


class Part(NamedTuple):
    """Some examples, for all chains alike or for each its own."""

    x: Any
    y: Tensor  # (chains, b, ...), or (1, b, ...)
    own: bool
    scale: float


class AtHand:
    """Tensors, of which estimates take rows at random.

    Args:
        x: The inputs.
        y: The targets.
        batch: How many rows; None for all.
        shared: Whether all chains get the same.
    """

    def __init__(self, x: Any, y: Tensor, batch: int | None, *, shared: bool):
        self.n = count_examples(x, targets_of(y))
        self.random = batch is not None
        self._x, self._y, self._shared = x, y, shared
        self._batch = self.n if batch is None else whole("batch", batch, low=1, high=self.n)

    def first(self) -> tuple[Any, Tensor]:
        """Some examples."""
        return self._x, self._y

    def parts(self) -> Generator[tuple[Any, Tensor], None, None]:
        """All examples, in one part."""
        yield self._x, self._y

    def part(self, chains: int, device: torch.device, generator: torch.Generator | None) -> Part:
        """Random rows."""
        size = (self._batch,) if self._shared else (chains, self._batch)
        index = torch.randint(self.n, size, **source(generator, device)).to(device)
        y = self._y[index] if index.ndim == 2 else self._y[index][None]
        x = map_tensors(self._x, lambda t: t[index])
        return Part(x, y, index.ndim == 2, self.n / self._batch)


class Streamed:
    """A loader, whose batches come one after the other, for all chains alike.

    Args:
        x: The loader.
        device: Where to move what it brings.
        check: What refuses targets.
    """

    def __init__(self, x: DataLoader[Any], device: torch.device, check: Any):
        self.random, self._loader, self._device = True, x, device
        self._batches: Iterator[Any] | None = None
        self.n = 0
        if x.drop_last:
            raise ValueError("x must bring all its examples, and drop_last of the loader is set")
        for inputs, y in batches(x, device=device):
            check(y)
            self.n += count_examples(inputs, targets_of(y))
        if not self.n:
            raise ValueError("x must hold batches, got an empty DataLoader")

    def first(self) -> tuple[Any, Tensor]:
        """The first batch."""
        each = batches(self._loader, device=self._device)
        try:
            return next(each)
        finally:
            each.close()

    def parts(self) -> Generator[tuple[Any, Tensor], None, None]:
        """All batches, the same each time."""
        count = 0
        for x, y in batches(self._loader, device=self._device):
            count += count_examples(x, targets_of(y))
            yield x, y
        if count != self.n:
            raise ValueError(
                f"x must bring the same examples at each pass, got {count} of them after {self.n}"
            )

    def part(self, chains: int, device: torch.device, generator: torch.Generator | None) -> Part:
        """The next batch, the first of another pass after the last."""
        with _drawn(generator):
            if self._batches is None:
                self._batches = iter(self._loader)
            batch = next(self._batches, None)
            if batch is None:
                self._batches = iter(self._loader)
                batch = next(self._batches)
        x, y = next_pair(batch, device)
        return Part(x, y[None], False, self.n / count_examples(x, targets_of(y)))


@contextmanager
def _drawn(generator: torch.Generator | None) -> Iterator[None]:
    """Let loaders draw random numbers that follow from a generator."""
    seed = int(torch.randint(2**62, (), **source(generator, "cpu")))
    with own_randomness(seed):
        yield


def examples(
    x: Any, y: Any, batch: int | None, *, shared: bool, device: torch.device, check: Any
) -> AtHand | Streamed:
    """Where examples come from, as arguments tell."""
    if not isinstance(x, DataLoader):
        if y is None:
            raise ValueError("y must be given where x is no DataLoader")
        return AtHand(x, y, batch, shared=shared)
    for name, value in (("y", y), ("batch", batch)):
        if value is not None:
            raise ValueError(f"{name} must be None where x is a DataLoader, which has its own")
    return Streamed(x, device, check)
