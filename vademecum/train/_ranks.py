"""The processes of a run and what they do together; one process alone is the ordinary case.

`torchrun` starts them and says in the environment who is who. Each has a part of every batch.
Gradients are averaged over them by torch's `DistributedDataParallel`, in which each has all weights
("ddp"), or by `fully_shard`, in which each has a part of them ("fsdp"). Numbers that decide
something, such as a signal, are added up, so that all decide the same.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from vademecum.errors import UsageError

__all__ = ["Ranks", "processes", "restarted"]

_GROUPS = count()
"""Numbers of the groups that this process has joined, the same in all that join them."""


class Ranks:
    """The processes of a run, as one of them sees them.

    Args:
        rank: The number of this one, from 0.
        size: How many there are.
        device: Where this one computes.
    """

    def __init__(self, rank: int = 0, size: int = 1, device: torch.device | str = "cpu"):
        self.rank, self.size, self.device = rank, size, torch.device(device)

    @property
    def main(self) -> bool:
        """Whether this is the first one, which writes and shows what all have done."""
        return self.rank == 0

    def total(self, *numbers: Any) -> list[Any]:
        """Sums over all processes of numbers or of tensors with one, as they are if alone."""
        if self.size == 1:
            return list(numbers)
        sums = torch.stack([_float64(x, self.device) for x in numbers])
        dist.all_reduce(sums)
        return list(sums)

    def any(self, *flags: bool) -> list[bool]:
        """Whether a flag is set in some process, for each flag."""
        if self.size == 1:
            return list(flags)
        wire = torch.tensor(flags, dtype=torch.int32, device=_wire(self.device))
        dist.all_reduce(wire, dist.ReduceOp.MAX)
        return [bool(flag) for flag in wire.tolist()]

    def first(self, numbers: Sequence[float]) -> list[float]:
        """The numbers of the first process, of which each has as many."""
        if self.size == 1:
            return list(numbers)
        wire = torch.tensor(numbers, dtype=torch.float64, device=_wire(self.device))
        dist.broadcast(wire, 0)
        return wire.tolist()

    def first_text(self, text: str) -> str:
        """The text of the first process."""
        size = int(self.first([len(text.encode())])[0])
        content = text.encode() if self.main else bytes(size)
        return bytes(map(int, self.first(list(content)))).decode()

    def gathered(self, tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
        """The tensors of all processes by their numbers; all have the same names and shapes."""
        if self.size == 1:
            return {"0": tensors}
        found: dict[str, dict[str, Tensor]] = {str(rank): {} for rank in range(self.size)}
        for name, tensor in tensors.items():
            wire = tensor.to(_wire(self.device))
            whole = [torch.empty_like(wire) for _ in range(self.size)]
            dist.all_gather(whole, wire)
            for rank, part in enumerate(whole):
                found[str(rank)][name] = part.cpu()
        return found

    def from_first(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite tensors by those of the first process."""
        if self.size > 1:
            with torch.no_grad():
                for tensor in tensors:
                    dist.broadcast(tensor.detach(), 0)


@contextmanager
def processes(device: torch.device | str | None = None) -> Iterator[Ranks]:
    """Join the other processes that torchrun has started, if it has, and part from them at the end.

    Args:
        device: Where to compute: of several devices of a machine each process takes its own.

    Raises:
        UsageError: If there is no such device.
    """
    place = _there(device or "cpu")
    size = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(place)
    if dist.is_initialized():
        yield Ranks(dist.get_rank(), dist.get_world_size(), place)
        return
    if size == 1:
        yield Ranks(device=place)
        return
    backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
    store, rank, size = next(rendezvous("env://"))
    # What processes left behind that torchrun has replaced would send the new ones to their graves,
    # and so would the addresses of an earlier group of the same ones, such as that of a teacher.
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"{restarts}/{next(_GROUPS)}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    try:
        yield Ranks(rank, size, place)
    finally:
        dist.destroy_process_group()


def _there(device: torch.device | str) -> torch.device:
    try:
        place = torch.device(device)
    except RuntimeError as error:  # of a word that is no device
        raise UsageError(f"device must be such as 'cpu' or 'cuda', got {device!r}") from error
    found = torch.cuda.device_count() if place.type == "cuda" else sys.maxsize
    if (place.index or 0) >= found:
        raise UsageError(f"device must be there, got {str(place)!r} where torch finds {found} GPUs")
    return place


def restarted() -> bool:
    """Whether a scheduler has started this run anew, so that it should go on where it was."""
    counts = (os.environ.get(n, "0") for n in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"))
    return any(n.isdecimal() and int(n) > 0 for n in counts)


def _wire(device: torch.device) -> torch.device:
    """Where small numbers are exchanged: on the CPU, unless processes cannot."""
    return device if dist.get_backend() == "nccl" else torch.device("cpu")


def _float64(x: Any, device: torch.device) -> Tensor:
    return torch.as_tensor(x, dtype=torch.float64, device=device).detach().reshape(())
