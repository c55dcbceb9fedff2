"""Batches without end, for a number of steps that is counted elsewhere."""

from collections.abc import Generator
from typing import Any

import torch
from torch.utils.data import DataLoader

from vademecum.models import batches, count_examples, map_tensors
from vademecum.randomness import source

__all__ = ["endless_batches"]


def endless_batches(
    x: Any,
    y: Any,
    batch: int | None,
    *,
    generator: torch.Generator | None,
    device: torch.device,
) -> Generator[tuple[Any, Any], None, None]:
    """Those of a loader one after the other; of data at hand random ones, or all each time.

    Args:
        x: A `DataLoader`, or inputs.
        y: The targets of inputs that are at hand.
        batch: How many examples to draw, with replacement; None for all. A loader has its own.
        generator: Where random numbers come from; torch's global generator by default.
        device: Where to move what a loader brings, and to draw.

    Example:
        >>> cpu = torch.device("cpu")
        >>> draws = endless_batches(torch.zeros(5, 2), None, 3, generator=None, device=cpu)
        >>> next(draws)[0].shape
        torch.Size([3, 2])
    """
    while isinstance(x, DataLoader):
        yield from batches(x, y, device=device)
    n = 0 if batch is None else count_examples(x)
    while True:
        if batch is None or batch >= n:
            yield x, y
            continue
        rows = torch.randint(n, (batch,), **source(generator, device))
        yield map_tensors((x, y), lambda t, rows=rows: t[rows.to(t.device)])
