r"""Which examples are in which batch: a function of the seed, the epoch and the position alone.

The order of epoch $e$ is a random permutation of all examples that the seed and $e$ decide; batch
$b$ holds its entries $bB, \dots, bB + B - 1$, and the last batch what is left. A step's batch is
split by position: among processes first, then among the micro-batches of each. Neither the number
of workers or processes nor anything that happens between two steps changes what a step sees.
"""

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import count, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.arguments import whole

__all__ = ["Order", "Part", "seed_for"]


def seed_for(*words: int | str) -> int:
    """A seed of 63 bits for some purpose, other ones for other words.

    Example:
        >>> seed_for(0, "order", 1) == seed_for(0, "order", 1) != seed_for(0, "order", 2)
        True
    """
    text = "/".join(map(str, words)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little") >> 1


class Part(NamedTuple):
    """The share of a step's batch that one process takes at once.

    Attributes:
        epoch: The epoch, from 0.
        start: The position of its first example in the epoch.
        examples: The numbers of its examples in the data.
        whole: How many examples the step's batch has, over all parts and processes.
        last: Whether it is this process's last one of the step.
        counts: Whether its examples count; not if they are lent, for a process with fewer parts.
    """

    epoch: int
    start: int
    examples: Tensor
    whole: int
    last: bool
    counts: bool = True


class Order:
    """The order of a data set.

    Args:
        n: How many examples there are.
        batch_size: How many a step takes, over all processes.
        seed: What decides the order.
        accumulate: How many micro-batches each process makes of its share.
        rank: The number of this process.
        ranks: How many processes there are.

    Example:
        >>> order = Order(5, 2, seed=0)
        >>> order.per_epoch, [len(part.examples) for part in order.parts(2)]
        (3, [1])
    """

    def __init__(
        self, n: int, batch_size: int, seed: int, accumulate: int = 1, rank: int = 0, ranks: int = 1
    ):
        self.n, self.seed, self.rank, self.ranks = n, whole("seed", seed), rank, ranks
        self.batch_size = whole("batch_size", batch_size, low=1)
        self.accumulate = whole("accumulate", accumulate, low=1)
        self.per_epoch = -(-n // batch_size)

    def parts(self, step: int) -> list[Part]:
        """The micro-batches of a step that are this process's, as many as any other's."""
        epoch, batch = divmod(step, self.per_epoch)
        start = batch * self.batch_size
        stop = min(start + self.batch_size, self.n)
        order = _permutation(self.n, self.seed, epoch)
        shares = self.ranks * self.accumulate
        edges = [start + i * (stop - start) // shares for i in range(shares + 1)]
        each = [
            [(a, b) for a, b in pairwise(edges[first : first + self.accumulate + 1]) if a < b]
            for first in range(0, shares, self.accumulate)
        ]
        own, most = each[self.rank], max(map(len, each))
        lent = most - len(own)  # for processes that share weights must go through equally many
        return [
            Part(epoch, a, order[a:b], stop - start, i == most, i > lent)
            for i, (a, b) in enumerate([(start, start + 1)] * lent + own, 1)
        ]

    def all_parts(self, first: int, steps: int | None) -> Iterator[Part]:
        """The micro-batches from a step on, without end if it is not known."""
        for step in count(first) if steps is None else range(first, steps):
            yield from self.parts(step)


@lru_cache(maxsize=2)
def _permutation(n: int, seed: int, epoch: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed_for(seed, "order", epoch))
    return torch.randperm(n, generator=generator)
