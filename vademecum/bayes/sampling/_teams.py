r"""Chains shared out: among devices of one process, or among the processes of `torchrun`.

Member $r$ of $w$ has the chains $\lfloor C r / w \rfloor, \dots, \lfloor C (r + 1) / w \rfloor - 1$
of $C$ and moves them alone. What warm-up learns comes from sums over the chains of all members,
which are the same numbers for each, so that all take the same step size, mass and length. Devices
have a thread each. Random numbers are independent: member $r$ has a generator of its own, seeded
by the $r$-th number of the one that was given (in processes, of the first).
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from vademecum.models import fingerprint
from vademecum.randomness import source, whence

__all__ = ["Member", "in_processes", "on_devices"]


class Member:
    """Who has all chains, or a share of them.

    Args:
        chains: How many chains there are, of all members together.
        rank: The number of this member.
        size: How many members there are.

    Example:
        >>> [Member(7, rank, 3).rows for rank in range(3)]
        [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
    """

    def __init__(self, chains: int, rank: int = 0, size: int = 1):
        self.chains, self.rank, self.size = chains, rank, size
        self.rows = slice(chains * rank // size, chains * (rank + 1) // size)

    def total(self, t: Tensor) -> Tensor:
        """The sum of what the members have, the same for all of them."""
        return t

    def mean(self, t: Tensor) -> Tensor:
        """The mean over the chains of all members, of which each is a row."""
        return self.total(t.sum(0)) / self.chains

    def gathered(self, t: Tensor) -> Tensor:
        """The rows of all members, for the first member at least."""
        return t

    def at_home(self, t: Any) -> Any:
        """A number, or a tensor where the result is to be."""
        return t

    def wait(self) -> None:
        """Wait for all members."""
        return


class _Process(Member):
    """One of the processes of `torchrun`, which all take part in each sum."""

    def total(self, t: Tensor) -> Tensor:
        found = t.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(found)
        return found

    def gathered(self, t: Tensor) -> Tensor:
        kind = torch.uint8 if t.dtype == torch.bool else t.dtype
        found = torch.zeros(self.chains, *t.shape[1:], dtype=kind, device=t.device)
        found[self.rows] = t.to(kind)  # shares may be of two sizes: the others add zeros
        dist.all_reduce(found)
        return found.to(t.dtype)

    def wait(self) -> None:
        dist.barrier()


class _Meeting:
    """Where threads bring what is to be added up."""

    def __init__(self, size: int):
        self.slots: list[Any] = [None] * size
        self.barrier = threading.Barrier(size)


class _Thread(Member):
    """A device, with a thread of its own."""

    def __init__(self, chains: int, rank: int, home: torch.device, meeting: _Meeting):
        super().__init__(chains, rank, len(meeting.slots))
        self._home, self._meeting = home, meeting

    def total(self, t: Tensor) -> Tensor:
        first, *others = self._met(t)
        found = first.to(t.device, copy=True)
        for other in others:  # in the same order everywhere
            found += other.to(t.device)
        return found

    def gathered(self, t: Tensor) -> Tensor:
        parts = self._met(t)
        return torch.cat([part.to(self._home) for part in parts]) if self.rank == 0 else t

    def at_home(self, t: Any) -> Any:
        return t.to(self._home) if isinstance(t, Tensor) else t

    def wait(self) -> None:
        self._meeting.barrier.wait()

    def _met(self, t: Tensor) -> list[Tensor]:
        self._meeting.slots[self.rank] = t
        self.wait()
        found = list(self._meeting.slots)
        self.wait()  # before anybody brings the next
        return found


Work = Callable[[Member, Any, Tensor, torch.Generator | None], Any]
"""What a member does with an energy, its chains and its generator."""


def in_processes(work: Work, energy: Any, start: Tensor, generator: torch.Generator | None) -> Any:
    """The work of this process on its share of the chains."""
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError(
            "devices must be None or devices where torch.distributed is not initialised, got"
            " 'ranks'"
        )
    rank, size = dist.get_rank(), dist.get_world_size()
    rows = torch.arange(len(start), device=start.device)
    mark = fingerprint(start, rows)  # with their numbers, so that order counts
    first = mark.clone()
    dist.broadcast(first, 0)
    others = (mark != first).long()
    dist.all_reduce(others)
    if int(others):
        raise ValueError("start must be the same in all processes, and it is not")
    _insist_on_chains(len(start), size, "processes")
    seeds = _seeds(size, generator).to(start.device)
    dist.broadcast(seeds, 0)
    member = _Process(len(start), rank, size)
    own = torch.Generator(whence(generator, start.device)).manual_seed(int(seeds[rank]))
    return work(member, energy, start[member.rows], own)


def on_devices(
    work: Work,
    energy: Any,
    start: Tensor,
    generator: torch.Generator | None,
    devices: Sequence[torch.device | str],
) -> Any:
    """What the first member finds, after each has worked on a device with a thread of its own."""
    places = [torch.device(device) for device in devices]
    if not places:
        raise ValueError("devices must be at least one, got none")
    _insist_on_chains(len(start), len(places), "devices")
    meeting = _Meeting(len(places))
    seeds = _seeds(len(places), generator).tolist()
    energies = [_brought(energy, place) for place in places]

    def worked(rank: int) -> Any:
        place = places[rank]
        member = _Thread(len(start), rank, start.device, meeting)
        own = torch.Generator(place).manual_seed(seeds[rank])
        try:
            with torch.cuda.device(place) if place.type == "cuda" else nullcontext():
                return work(member, energies[rank], start[member.rows].to(place), own)
        except BaseException:
            meeting.barrier.abort()  # nobody waits for one that failed
            raise

    with ThreadPoolExecutor(len(places)) as pool:
        jobs = [pool.submit(worked, rank) for rank in range(len(places))]
    errors = [error for job in jobs if (error := job.exception()) is not None]
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    return jobs[0].result()


def _brought(energy: Any, device: torch.device) -> Any:
    """The energy on a device: a copy if it can make one, else itself, which takes any device."""
    own = getattr(energy, "on", None)
    return energy if own is None else own(device)


def _seeds(size: int, generator: torch.Generator | None) -> Tensor:
    return torch.randint(2**62, (size,), **source(generator, "cpu")).cpu()


def _insist_on_chains(chains: int, size: int, what: str) -> None:
    if chains < size:
        raise ValueError(f"start must have a chain for each of {size} {what}, got {chains}")
