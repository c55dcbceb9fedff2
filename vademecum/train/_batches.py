"""Where batches come from: tensors in memory, data sets with worker processes, files of tokens.

Each source has a length and gives, for a row of `Part`s, the batches that they name, in that order.
Nothing is drawn from global random numbers: a data set's `__getitem__` finds them seeded by the
seed, the epoch and the example, whichever process it runs in, and they are given back.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from vademecum.arguments import whole
from vademecum.models import map_tensors, named_leaves
from vademecum.randomness import own_randomness, reseed
from vademecum.train._order import Part, seed_for
from vademecum.train._signals import ignore_signals, withheld_signals
from vademecum.train.tokens import Tokens

__all__ = ["Source", "source_of"]


@runtime_checkable
class Source(Protocol):
    """Something that has examples."""

    def __len__(self) -> int:
        """How many examples there are."""
        ...

    def batches(self, parts: Iterable[Part]) -> Iterator[Any]:
        """The batches that the parts name, on the device."""
        ...


def source_of(data: Any, *, device: torch.device, seed: int, workers: int) -> Source:
    """The source for what `fit` was given as data.

    Raises:
        ValueError: If it is nothing that has examples, or has none.
    """
    whole("workers", workers, low=0)
    if isinstance(data, Tokens):
        source: Source = _Windows(data, device)
    elif isinstance(data, Tensor | tuple | list | Mapping):
        source = _InMemory(data, device)
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        source = _Loaded(data, device, seed, workers)
    else:
        kind = "an IterableDataset" if isinstance(data, IterableDataset) else type(data).__name__
        raise ValueError(
            "data must be tensors, a map-style Dataset (with __len__ and __getitem__) or Tokens,"
            f" got {kind}"
        )
    if workers and not isinstance(source, _Loaded):
        raise ValueError(f"workers must be 0 for data in memory, got {workers}")
    if not len(source):
        raise ValueError("data must hold at least one example, got none")
    return source


class _InMemory:
    """Tensors with a common first axis, which are indexed where they are; all on the device."""

    def __init__(self, data: Any, device: torch.device):
        leaves = list(named_leaves(data, "data"))
        for name, leaf in leaves:
            if not isinstance(leaf, Tensor) or leaf.ndim == 0:
                given = "a number" if isinstance(leaf, Tensor) else type(leaf).__name__
                raise ValueError(f"{name} must be a tensor with examples in its rows, got {given}")
        sizes = {name: len(leaf) for name, leaf in leaves}
        if len(set(sizes.values())) != 1:
            raise ValueError(f"data must have tensors with equally many rows, got {sizes}")
        self._n = next(iter(sizes.values()))
        self._data, self._device = map_tensors(data, lambda t: t.to(device)), device

    def __len__(self) -> int:
        return self._n

    def batches(self, parts: Iterable[Part]) -> Iterator[Any]:
        for part in parts:
            rows = part.examples.to(self._device, non_blocking=True)
            if isinstance(self._data, Tensor):
                yield self._data[rows]
            elif type(self._data) is tuple:
                yield tuple([t[rows] for t in self._data])
            else:
                yield map_tensors(self._data, lambda t, rows=rows: t[rows])


class _Windows:
    """Windows of tokens, read on the CPU."""

    def __init__(self, tokens: Tokens, device: torch.device):
        self._tokens, self._device = tokens, device

    def __len__(self) -> int:
        return len(self._tokens)

    def batches(self, parts: Iterable[Part]) -> Iterator[Any]:
        for part in parts:
            yield self._tokens.read(part.examples).to(self._device, non_blocking=True)


class _Loaded:
    """A map-style data set, read by worker processes ahead of time if there are any."""

    def __init__(self, dataset: Any, device: torch.device, seed: int, workers: int):
        self._dataset, self._device, self._seed, self._workers = dataset, device, seed, workers

    def __len__(self) -> int:
        return len(self._dataset)

    def batches(self, parts: Iterable[Part]) -> Iterator[Any]:
        loader = DataLoader(
            _Seeded(self._dataset, self._seed),
            batch_sampler=_Numbers(parts),
            num_workers=self._workers,
            collate_fn=getattr(self._dataset, "collate", default_collate),
            pin_memory=self._device.type == "cuda",
            worker_init_fn=ignore_signals,
            generator=torch.Generator().manual_seed(0),  # or the global one would be drawn from
        )
        with withheld_signals():
            batches = iter(loader)
        for batch in batches:
            yield map_tensors(batch, lambda t: t.to(self._device, non_blocking=True))


class _Numbers:
    """Parts as lists of (epoch, example), as a loader wants them."""

    def __init__(self, parts: Iterable[Part]):
        self._parts = parts

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for part in self._parts:
            yield [(part.epoch, example) for example in part.examples.tolist()]


class _Seeded(Dataset[Any]):
    """A data set whose random numbers are functions of the seed, the epoch and the example."""

    def __init__(self, dataset: Any, seed: int):
        self._dataset, self._seed = dataset, seed

    def __getitem__(self, place: tuple[int, int]) -> Any:
        epoch, example = place
        seed = seed_for(self._seed, "example", epoch, example)
        if torch.utils.data.get_worker_info() is not None:  # whose random numbers are its own
            reseed(seed)
            return self._dataset[example]
        with own_randomness(seed):
            return self._dataset[example]
