r"""Kernels: what moves all chains by one step, for a step size and a mass that others choose.

Trajectories of equal lengths suit many chains: none waits for another. **ChEES** chooses their
length $T$ by stochastic ascent on the change of the squared distance to the centre, $\frac14
\mathbb E (\|\theta' - \bar\theta\|^2 - \|\theta - \bar\theta\|^2)^2$, in the metric of the mass,
whose derivative is the mean over chains, weighted by their acceptance, of

$$u T\, \big( \|\theta' - \bar\theta'\|_M^2 - \|\theta - \bar\theta\|_M^2 \big)\, (\theta' -
\bar\theta')^\top y'$$

in $\log T$. A share $u$ of it from van der Corput's sequence is taken in each step, so that no
period of the dynamics is met. Steps of "hmc" vary by a tenth for the same reason.

References:
    Hoffman, Radul and Sountsov, An adaptive-MCMC scheme for setting trajectory lengths in
    Hamiltonian Monte Carlo, AISTATS, 2021.
"""

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from vademecum.bayes.sampling._doubling import nuts_move
from vademecum.bayes.sampling._teams import Member
from vademecum.bayes.steps._energy_calls import Energy, Point, estimated, point, values
from vademecum.bayes.steps._masses import Mass, moved
from vademecum.bayes.steps.hamiltonian import hmc_move
from vademecum.bayes.steps.langevin import langevin_move, mala_move, sghmc_move
from vademecum.bayes.steps.metropolis import Step, made, mh_move

__all__ = ["KERNELS", "TARGETS", "Kernel", "kernel_of", "van_der_corput"]

TARGETS = {"nuts": 0.8, "hmc": 0.8, "chees": 0.651, "mala": 0.574, "mh": 0.234}
"""The acceptance that the step size is adapted to."""
KERNELS = (*TARGETS, "ula", "sgld", "sghmc")
"""What moves chains, by name; the last three refuse nothing and adapt nothing."""
_JITTER = 0.1
_RATE, _MOST = 0.025, 0.35  # of Adam on log T, and its largest step, as in the reference code


class Kernel(ABC):
    """Chains that can be moved."""

    theta: Tensor
    energy: Tensor

    @abstractmethod
    def advance(self, eta: float, mass: Mass, generator: torch.Generator | None) -> Step:
        """Move every chain by one step."""

    def adapt(self, step: Step, mass: Mass, member: Member) -> float:
        """Learn from the last step of warm-up, and tell the mean acceptance of all chains."""
        return float(member.mean(step.probability))

    def rescale(self) -> None:
        """Begin anew in the units of another mass, in which the target is about of unit size."""
        return

    def settle(self) -> None:
        """Keep what was learned: warm-up is over."""
        return


class _Chains(Kernel):
    """What kernels share: points with gradients."""

    def __init__(self, energy: Energy, theta: Tensor):
        self._energy, self._at = energy, point(energy, theta)
        self.theta, self.energy = self._at.theta, self._at.energy

    def _moved(self, step: Step) -> Step:
        assert step.gradient is not None
        self._at = Point(step.theta, step.energy, step.gradient)
        self.theta, self.energy = step.theta, step.energy
        return step


class _Nuts(_Chains):
    def __init__(self, energy: Energy, theta: Tensor, *, max_depth: int, **_: Any):
        super().__init__(energy, theta)
        self._depth = max_depth

    def advance(self, eta: float, mass: Mass, generator: torch.Generator | None) -> Step:
        step, _ = nuts_move(self._energy, self._at, eta, mass, generator, self._depth)
        return self._moved(step)


class _Hmc(_Chains):
    def __init__(self, energy: Energy, theta: Tensor, *, leapfrogs: int, **_: Any):
        super().__init__(energy, theta)
        self._count, self._t = leapfrogs, 0

    def advance(self, eta: float, mass: Mass, generator: torch.Generator | None) -> Step:
        self._t += 1
        eta *= 1 + _JITTER * (2 * van_der_corput(self._t) - 1)
        return self._moved(hmc_move(self._energy, self._at, eta, self._count, mass, generator)[0])


class _Chees(_Chains):
    def __init__(self, energy: Energy, theta: Tensor, *, max_leapfrogs: int, **_: Any):
        super().__init__(energy, theta)
        self._most, self._t, self._learned = max_leapfrogs, 0, 0
        self._log_T: float | None = None
        self._mean = self._first = self._second = 0.0
        self._last: tuple[Tensor, Tensor, Tensor, float] | None = None

    def advance(self, eta: float, mass: Mass, generator: torch.Generator | None) -> Step:
        self._t += 1
        self._learned += 1
        length = eta if self._log_T is None else math.exp(self._log_T)
        share = van_der_corput(self._t)
        count = min(max(math.ceil(share * length / eta), 1), self._most)
        before = self.theta
        step, end, y = hmc_move(self._energy, self._at, eta, count, mass, generator)
        self._last = before, end.theta, y, share * length
        self._log_T = math.log(length)
        return self._moved(step)

    def adapt(self, step: Step, mass: Mass, member: Member) -> float:
        """A step of Adam on the logarithm of the length; the harmonic mean acceptance."""
        assert self._last is not None
        assert self._log_T is not None
        before, after, y, time = self._last
        weight = step.probability / member.total(step.probability.sum()).clamp(min=1e-20)
        after = torch.where(step.failed[:, None], before, after)
        y = torch.where(step.failed[:, None], 0.0, y)
        old = before - member.mean(before)
        new = after - member.total((weight[:, None] * after).sum(0))
        gain = (mass.squared(new) - mass.squared(old)) * (new * y).sum(-1)
        slope = time * float(member.total((weight * gain).sum()))
        if math.isfinite(slope):
            self._ascend(slope)
        return float(1 / member.mean(1 / step.probability.clamp(min=1e-10)))

    def _ascend(self, slope: float) -> None:
        t = self._learned
        self._first = 0.9 * self._first + 0.1 * slope
        self._second = 0.95 * self._second + 0.05 * slope**2
        scale = math.sqrt(self._second / (1 - 0.95**t)) + 1e-8
        change = _RATE * self._first / (1 - 0.9**t) / scale
        self._log_T = (self._log_T or 0.0) + min(max(change, -_MOST), _MOST)
        share = t**-0.5
        self._mean = (1 - share) * self._mean + share * self._log_T

    def rescale(self) -> None:
        """Begin anew with a quarter of the period of a unit Gaussian."""
        self._log_T = math.log(math.pi / 2)
        self._mean = self._first = self._second = 0.0
        self._learned = 0

    def settle(self) -> None:
        """Use the mean of the lengths that were tried."""
        if self._second:
            self._log_T = self._mean


class _Mala(_Chains):
    def __init__(self, energy: Energy, theta: Tensor, **_: Any):
        super().__init__(energy, theta)

    def advance(self, eta: float, mass: Mass, generator: torch.Generator | None) -> Step:
        return self._moved(mala_move(self._energy, self._at, eta, mass, generator))


class _Metropolis(Kernel):
    def __init__(self, energy: Energy, theta: Tensor, **_: Any):
        self._energy, self.theta, self.energy = energy, theta, values(energy, theta)

    def advance(self, eta: float, mass: Mass, generator: torch.Generator | None) -> Step:
        proposal = moved(self.theta, mass.noise(self.theta, generator), eta)
        step = mh_move(self._energy, self.theta, self.energy, proposal, 0.0, generator)
        self.theta, self.energy = step.theta, step.energy
        return step


class _Langevin(_Chains):
    def __init__(
        self, energy: Energy, theta: Tensor, *, noisy: bool, generator: torch.Generator | None,
        **_: Any,
    ):  # fmt: skip
        self._energy, self._noisy = energy, noisy
        self._at = estimated(energy, theta, generator) if noisy else point(energy, theta)
        self.theta, self.energy = self._at.theta, self._at.energy

    def advance(self, eta: float, mass: Mass, generator: torch.Generator | None) -> Step:
        step = langevin_move(self._energy, self._at, eta, mass, generator, noisy=self._noisy)
        return self._moved(step)


class _Friction(_Langevin):
    def __init__(self, *given: Any, friction: float, **knobs: Any):
        super().__init__(*given, **knobs)
        self._friction, self._y = friction, None

    def advance(self, eta: float, mass: Mass, generator: torch.Generator | None) -> Step:
        y = mass.momentum(self.theta, generator) if self._y is None else self._y
        end, self._y, ok = sghmc_move(
            self._energy, self._at, y, eta, self._friction, mass, generator
        )
        rise = torch.where(ok, end.energy - self.energy, torch.inf)
        return self._moved(made(ok, ok.to(rise.dtype), rise, end, end))


_MAKERS: dict[str, Any] = {
    "nuts": _Nuts, "hmc": _Hmc, "chees": _Chees, "mala": _Mala, "mh": _Metropolis,
    "ula": _Langevin, "sgld": _Langevin, "sghmc": _Friction,
}  # fmt: skip


def kernel_of(kernel: str, energy: Energy, theta: Tensor, **knobs: Any) -> Kernel:
    """Chains at their start."""
    return _MAKERS[kernel](energy, theta, noisy=kernel != "ula", **knobs)


def van_der_corput(t: int) -> float:
    """The binary digits of t = 1, 2, ... mirrored at the point: numbers that fill (0, 1) evenly.

    Example:
        >>> [van_der_corput(t) for t in (1, 2, 3, 4)]
        [0.5, 0.25, 0.75, 0.125]
    """
    found, weight = 0.0, 0.5
    while t:
        found += weight * (t & 1)
        t, weight = t >> 1, weight / 2
    return found
