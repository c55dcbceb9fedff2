r"""Hamiltonian Monte Carlo: leapfrog steps, accepted by the error of the energy.

With a momentum $y \sim \mathcal N(0, M)$ and $H(\theta, y) = E(\theta) + \frac12 y^\top M^{-1} y$
a leapfrog step of size $\eta$ is half a kick, a drift, half a kick:

$$y \leftarrow y - \tfrac\eta2 \nabla E(\theta), \qquad \theta \leftarrow \theta + \eta M^{-1} y,
\qquad y \leftarrow y - \tfrac\eta2 \nabla E(\theta).$$

It is reversible and keeps volumes, so that accepting its end with probability $\min(1, e^{H - H'})$
leaves $e^{-E}$ exactly invariant, for any step size. Between two drifts both half kicks are one
whole kick, so L steps take L gradients, and the one at the start is known from the step before. The
claims are `hamiltonian_lift`, `leapfrog`, `hmc_acceptance` and `hmc_multimodal`.

References:
    Neal, MCMC using Hamiltonian dynamics, Handbook of Markov Chain Monte Carlo, 2011.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import number, whole
from vademecum.bayes.steps._energy_calls import (
    Energy,
    Point,
    gradient,
    point,
    starting_point,
    usable,
)
from vademecum.bayes.steps._masses import Mass, as_mass, moved
from vademecum.bayes.steps.metropolis import Step, accept, made
from vademecum.results import one_line

__all__ = ["Phase", "hmc_move", "hmc_step", "known_point", "leapfrog", "trajectory"]


class Phase(NamedTuple):
    """Positions and momenta, with the energies and gradients at the positions.

    Example:
        >>> ball = lambda theta: theta.square().sum(1) / 2
        >>> leapfrog(ball, torch.ones(1, 1), torch.zeros(1, 1), eta=0.5).momentum
        tensor([[-0.4688]])
    """

    theta: Float[Tensor, " chains P"]
    """The positions."""
    momentum: Float[Tensor, " chains P"]
    """The momenta."""
    energy: Float[Tensor, " chains"]
    """The energies at the positions, without the kinetic ones."""
    gradient: Float[Tensor, " chains P"]
    """Their gradients."""

    __repr__ = one_line


def leapfrog(
    energy: Energy,
    theta: Float[Tensor, " chains P"],
    momentum: Float[Tensor, " chains P"],
    *,
    eta: float,
    leapfrogs: int = 1,
    mass: float | Tensor | None = None,
) -> Phase:
    r"""Follow Hamilton's equations by leapfrog steps: half a kick, a drift, half a kick.

    Args:
        energy: The energy of (chains, P) points, a number for each.
        theta: The positions.
        momentum: The momenta.
        eta: The size of a step; a negative one goes back in time.
        leapfrogs: How many steps.
        mass: The mass $M$: a number, a diagonal (P,), or a matrix (P, P); 1 by default.

    Example:
        >>> ball = lambda theta: theta.square().sum(1) / 2
        >>> there = leapfrog(ball, torch.ones(1, 1), torch.zeros(1, 1), eta=0.5, leapfrogs=9)
        >>> back = leapfrog(ball, there.theta, there.momentum, eta=-0.5, leapfrogs=9)
        >>> (back.theta - 1).abs().max() < 1e-6
        tensor(True)
    """
    at = starting_point("theta", theta)
    if momentum.shape != at.shape:
        raise ValueError(f"momentum must have shape {tuple(at.shape)}, got {tuple(momentum.shape)}")
    eta = number("eta", eta)
    count = whole("leapfrogs", leapfrogs, low=1)
    start = point(energy, at)
    end, momentum = trajectory(energy, start, momentum, eta, count, as_mass(mass, at))
    return Phase(end.theta, momentum, end.energy, end.gradient)


def trajectory(
    energy: Energy, at: Point, momentum: Tensor, eta: float | Tensor, count: int, mass: Mass
) -> tuple[Point, Tensor]:
    """The end of a number of leapfrog steps; their size is one number, or one a row, (rows, 1)."""
    theta, slope = at.theta, at.gradient
    momentum = moved(momentum, slope, -eta / 2)
    for _ in range(count - 1):
        theta = mass.drift(theta, momentum, eta)
        momentum = moved(momentum, gradient(energy, theta), -eta)
    end = point(energy, mass.drift(theta, momentum, eta))
    return end, moved(momentum, end.gradient, -eta / 2)


def hmc_step(
    energy: Energy,
    theta: Float[Tensor, " chains P"] | Step,
    *,
    eta: float,
    leapfrogs: int,
    mass: float | Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Step:
    r"""A step of Hamiltonian Monte Carlo for every chain, with a fresh momentum.

    Args:
        energy: The energy of (chains, P) points, a number for each.
        theta: Where the chains are; or the last `Step`, whose energies and gradients are used
            again.
        eta: The size of a leapfrog step.
        leapfrogs: How many of them.
        mass: The covariance of the momentum: a number, a diagonal (P,), or a matrix (P, P); 1 by
            default.
        generator: Where random numbers come from; torch's global generator by default.

    Example:
        >>> ball = lambda theta: theta.square().sum(1) / 2
        >>> step = hmc_step(ball, torch.zeros(1000, 2), eta=0.1, leapfrogs=15)
        >>> bool(step.probability.mean() > 0.99), bool((step.theta.var() - 1).abs() < 0.2)
        (True, True)
    """
    eta = number("eta", eta, above=0)
    count = whole("leapfrogs", leapfrogs, low=1)
    at = known_point(energy, theta)
    return hmc_move(energy, at, eta, count, as_mass(mass, at.theta), generator)[0]


def hmc_move(
    energy: Energy, at: Point, eta: float | Tensor, count: int, mass: Mass,
    generator: torch.Generator | None,
) -> tuple[Step, Point, Tensor]:  # fmt: skip
    """A step, and the end of its trajectory, accepted or not, with the momentum there."""
    momentum = mass.momentum(at.theta, generator)
    before = at.energy + mass.kinetic(momentum)
    end, last = trajectory(energy, at, momentum, eta, count, mass)
    ok = usable(end) & end.theta.isfinite().all(-1)
    change = torch.where(ok, end.energy + mass.kinetic(last) - before, torch.inf)
    accepted, probability = accept(-change, generator)
    return made(accepted, probability, change, end, at), end, last


def known_point(energy: Energy, theta: Tensor | Step) -> Point:
    """Positions, energies and gradients at the beginning of a step."""
    if isinstance(theta, Step) and theta.gradient is not None:
        return Point(theta.theta, theta.energy, theta.gradient)
    at = theta.theta if isinstance(theta, Step) else starting_point("theta", theta)
    return point(energy, at)
