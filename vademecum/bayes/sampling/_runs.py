"""The course of a run: where steps begin, warm-up, draws, cycles of falling steps."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from vademecum.bayes.sampling._adaptation import DualAveraging, Spread, windows
from vademecum.bayes.sampling._kernels import Kernel
from vademecum.bayes.sampling._recording import Record
from vademecum.bayes.sampling._teams import Member
from vademecum.bayes.steps._energy_calls import Energy, point
from vademecum.bayes.steps._masses import Mass
from vademecum.bayes.steps.hamiltonian import hmc_move

__all__ = ["Run", "StepSearch"]

_REASONABLE = 0.8  # the acceptance of a single leapfrog step at which adaptation begins
_DOUBLINGS = 60
_WALK = 2.38  # over the root of the dimension: the best random walk in a Gaussian


class StepSearch:
    """Where the adaptation of a step size begins: a leapfrog step that is accepted often."""

    def __init__(
        self, kernel: str, energy: Energy, generator: torch.Generator | None, member: Member
    ):
        self._kernel, self._energy, self._generator = kernel, energy, generator
        self._member = member

    def __call__(self, theta: Tensor, mass: Mass) -> float:
        """A step size for chains at these points."""
        if self._kernel == "mh":
            return _WALK / theta.shape[1] ** 0.5
        at = point(self._energy, theta)
        eta, factor = 1.0, None
        for _ in range(_DOUBLINGS):
            step, _, _ = hmc_move(self._energy, at, eta, 1, mass, self._generator)
            often = float(self._member.mean(step.probability)) > _REASONABLE
            if factor is None:
                factor = 2.0 if often else 0.5
            elif often != (factor > 1):
                break
            eta *= factor
        return eta**2 / 2 if self._kernel == "mala" else eta


class Run:
    """Chains on their way."""

    def __init__(
        self, chains: Kernel, record: Record, generator: torch.Generator | None, thin: int,
        tick: Callable[[int], None], member: Member,
    ):  # fmt: skip
        self.chains, self._record, self._generator = chains, record, generator
        self._thin, self._tick, self._member = thin, tick, member

    def warm_up(
        self, search: StepSearch, warmup: int, eta: float | None, mass: Mass, metric: str,
        target: float,
    ) -> tuple[float, Mass]:  # fmt: skip
        """Learn the step size and the mass."""
        if eta is None:
            eta = search(self.chains.theta, mass)
        size = DualAveraging(eta, target)
        first, ends = windows(warmup)
        spread = Spread(self.chains.theta, metric == "dense", self._member)
        for t in range(1, warmup + 1):
            step = self.chains.advance(size.eta, mass, self._generator)
            size.update(self.chains.adapt(step, mass, self._member))
            if metric != "fixed" and t > first:
                spread.update(self.chains.theta)
                if t in ends:
                    mass = spread.mass()
                    self.chains.rescale()
                    spread.restart()
                    size.restart(search(self.chains.theta, mass))
            self._tick(1)
        if warmup:
            self.chains.settle()
        return size.averaged, mass

    def draw(self, draws: int, eta: float, mass: Mass) -> None:
        """Keep draws, with a step that stays."""
        for _ in range(draws):
            for _ in range(self._thin):
                self._record.tally(self.chains.advance(eta, mass, self._generator))
            self._record.add(self.chains.theta, self.chains.energy)
            self._tick(self._thin)

    def cycle(self, warmup: int, draws: int, eta: float, mass: Mass, *, falling: bool) -> None:
        """Steps that are not kept, and draws; the step falls along a cosine, or stays."""
        length = warmup + draws * self._thin
        for k in range(length):
            size = eta / 2 * (1 + math.cos(math.pi * k / length)) if falling else eta
            step = self.chains.advance(size, mass, self._generator)
            if k >= warmup:
                self._record.tally(step)
                if (k - warmup + 1) % self._thin == 0:
                    self._record.add(self.chains.theta, self.chains.energy)
            self._tick(1)
