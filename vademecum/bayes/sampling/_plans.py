"""What is to be done with chains, by whoever has them or a share of them."""

from collections.abc import Callable
from os import PathLike
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.bayes.sampling._kernels import TARGETS, Kernel, kernel_of
from vademecum.bayes.sampling._portions import limited
from vademecum.bayes.sampling._recording import Record
from vademecum.bayes.sampling._runs import Run, StepSearch
from vademecum.bayes.sampling._teams import Member
from vademecum.bayes.sampling.chain_results import Chains
from vademecum.bayes.steps._energy_calls import Energy, values
from vademecum.bayes.steps._masses import Mass, as_mass
from vademecum.progress import ticking

__all__ = ["Plan"]


class Plan(NamedTuple):
    """The arguments of `sample`, looked at."""

    kernel: str
    draws: int
    warmup: int
    thin: int
    eta: float | None
    mass: Any
    metric: str
    target: float
    knobs: dict[str, Any]
    cycles: int | None
    keep: Callable[[Tensor], Tensor] | None
    out: str | PathLike[str] | None
    memory: int | None
    max_rhat: float
    progress: bool

    def carried_out(
        self, member: Member, energy: Energy, theta: Tensor, generator: torch.Generator | None
    ) -> Chains:
        """Move the member's chains; the first member's result has all of them."""
        depth = self.knobs["max_depth"]
        energy = limited(energy, theta, self.memory, self.kernel, depth, self.metric)
        _insist_on_finite(energy, theta, member)
        own = as_mass(self.mass, theta)
        record = Record(self.draws, member, self.keep, self.out)
        total = (self.cycles or 1) * self.warmup + self.draws * self.thin
        shown = self.progress and member.rank == 0
        with ticking("steps", total, progress=shown) as tick:
            chains = kernel_of(self.kernel, energy, theta, generator=generator, **self.knobs)
            run = Run(chains, record, generator, self.thin, tick, member)
            if self.kernel in TARGETS:
                search = StepSearch(self.kernel, energy, generator, member)
                size, own = run.warm_up(
                    search, self.warmup, self.eta, own, self.metric, self.target
                )
                run.draw(self.draws, size, own)
            else:
                size = _given(self.kernel, self.eta)
                for _ in range(self.cycles or 1):
                    each = self.draws // (self.cycles or 1)
                    run.cycle(self.warmup, each, size, own, falling=self.cycles is not None)
        return self._result(run.chains, record, size, own, member)

    def _result(
        self, chains: Kernel, record: Record, eta: float, mass: Mass, member: Member
    ) -> Chains:
        rhat, all_ = record.rhat(), member.gathered
        acceptance = record.chance / (self.draws * self.thin)
        return Chains(
            record.gathered(), all_(record.energies.mT), all_(acceptance), eta,
            member.at_home(mass.matrix), all_(record.divergent.mT).nonzero(),
            all_(record.failures), all_(chains.theta), rhat, rhat <= self.max_rhat,
        )  # fmt: skip


def _insist_on_finite(energy: Energy, theta: Tensor, member: Member) -> None:
    found = values(energy, theta)
    others = found.new_zeros(member.chains)
    others[member.rows] = torch.where(found.isfinite(), 0.0, found)
    others = member.total(others)  # so that all members raise
    if not bool(others.isfinite().all()):
        chain = int((~others.isfinite()).nonzero()[0])
        raise ValueError(
            f"start must have finite energies, got {others[chain].item()} at chain {chain}"
        )


def _given(kernel: str, eta: float | None) -> float:
    if eta is None:
        raise ValueError(f"eta must be given for kernel {kernel!r}, which does not adapt it")
    return eta
