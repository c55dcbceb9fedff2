"""Work on the rows of inputs, as many at a time as a limit of memory has room for."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import whole
from vademecum.arrays import portions
from vademecum.models import bytes_each

__all__ = ["in_portions"]


def in_portions(work: Callable[[Tensor], Any], x: Tensor, *, memory: int | None) -> Any:
    """What `work` gives for all rows: a tensor, or a tuple of them, with one row for each.

    Args:
        work: Takes rows and gives tensors.
        x: All rows.
        memory: Bytes to use at most beyond inputs and result; None does all at once.

    Raises:
        ValueError: If there is no room for one row.

    Example:
        >>> in_portions(lambda x: x + 1, torch.zeros(3, 1), memory=100).tolist()
        [[1.0], [1.0], [1.0]]
    """
    if memory is None:
        return work(x)
    fixed, each = bytes_each(work, x)
    if whole("memory", memory, low=1) < fixed + each:
        raise ValueError(f"memory must be >= {fixed + each} bytes for one example, got {memory}")
    found = [work(x[rows]) for rows in portions(len(x), each=each, memory=memory - fixed)]
    if isinstance(found[0], Tensor):
        return torch.cat(found)
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))
