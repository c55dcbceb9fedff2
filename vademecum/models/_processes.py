r"""A loader's batches shared by the processes of `torchrun`, and one sum over all of them a pass.

Process $r$ of $w$ takes the batches $r, r + w, \dots$; where the loader has a `DistributedSampler`,
which has shared the examples out already, all that come. What the processes found is then added up
with what tells whether that made sense: hashes, of which each is taken apart into bytes $b_j$, so
that sums of them over processes are exact in single precision. With $\sum$ over processes all have
the same hash if and only if $w \sum b_j^2 = (\sum b_j)^2$ for all $j$.
"""

from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

__all__ = ["Share", "share_of"]


class Share:
    """This process's share of a loader's batches, all of them without other processes."""

    def __init__(self, rank: int, world: int, *, divided: bool):
        self.world, self._rank = world, rank
        self.divided = divided  # by the sampler

    def takes(self, i: int) -> bool:
        """Whether the batch `i` is one of ours."""
        return self.divided or i % self.world == self._rank

    def added(
        self, total: Tensor, counts: list[Tensor], v: Tensor, own: Tensor, all_: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """The sums over all processes of what was found, from one collective operation.

        Args:
            total: What to add up.
            counts: Numbers to add up.
            v: The hash of what must be the same in all processes.
            own: The hash of the examples that were ours.
            all_: The hash of those that came.
        """
        if self.world == 1:
            return total, counts
        v, own, all_ = (_bytes(h).to(total) for h in (v, own, all_))
        rest = torch.stack([c.to(total) for c in counts])
        packed = torch.cat([total.flatten(), rest, v, v * v, own, all_, all_ * all_])
        dist.all_reduce(packed)
        sizes = [total.numel(), len(rest), 8, 8, 8, 8, 8]
        total_, rest, v, vv, own, all_, aa = packed.split(sizes)
        if bool((self.world * vv != v * v).any()):
            raise ValueError("x must be multiplied with the same block in all processes")
        if not self.divided:
            same = not bool((self.world * aa != all_ * all_).any())
            if not same or _whole(own) != _whole(all_ / self.world):
                raise ValueError(
                    "x must bring the same batches in all processes, or have a DistributedSampler"
                )
        return total_.view_as(total), list(rest)


def share_of(loader: Any) -> Share:
    """This process's share of the batches of a loader; of anything else it has all."""
    if not (isinstance(loader, DataLoader) and dist.is_available() and dist.is_initialized()):
        return Share(0, 1, divided=False)
    inner = getattr(loader.batch_sampler, "sampler", loader.sampler)
    divided = any(isinstance(s, DistributedSampler) for s in (loader.sampler, inner))
    return Share(dist.get_rank(), dist.get_world_size(), divided=divided)


def _bytes(h: Tensor) -> Tensor:
    return h.reshape(1).view(torch.uint8)


def _whole(pieces: Tensor) -> int:
    """The hash whose bytes these are, or that of a sum of such."""
    return sum(int(b) << 8 * j for j, b in enumerate(pieces.tolist())) % 2**64
