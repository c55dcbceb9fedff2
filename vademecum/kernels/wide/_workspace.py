"""Large blocks that are used again: a new one costs more than most of the passes over it."""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["Workspace"]


class Workspace:
    """Blocks of memory by their size; on CUDA torch keeps them itself."""

    def __init__(self):
        self._free: dict[tuple[int, torch.dtype], list[Tensor]] = {}

    def empty(self, shape: Sequence[int], like: Tensor) -> Tensor:
        """A block with any numbers in it."""
        free = self._free.get((torch.Size(shape).numel(), like.dtype))
        return free.pop().view(shape) if free else like.new_empty(shape)

    def give(self, block: Tensor) -> None:
        """Take back a block that nobody uses any more, if it is all of its memory."""
        size = block.untyped_storage().nbytes()
        if block.device.type == "cpu" and size == block.nbytes and block.is_contiguous():
            self._free.setdefault((block.numel(), block.dtype), []).append(block.view(-1))
