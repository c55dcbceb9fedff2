r"""Langevin dynamics: gradient descent with noise, with and without a test, and with momentum.

With the preconditioner $M^{-1}$ (1 by default) and $\epsilon \sim \mathcal N(0, I)$

$$\theta' = \theta - \eta M^{-1} \nabla E(\theta) + \sqrt{2 \eta}\, M^{-1/2} \epsilon$$

is unadjusted (`ula_step`); with a gradient from a random part of the data it is `sgld_step`. Both
have a bias that vanishes with $\eta$. As a proposal of Metropolis-Hastings, whose ratio follows
from the density of $\theta'$, it is exact (`mala_step`). With a momentum and friction $B$

$$y' = y - \eta \nabla \tilde E(\theta) - \eta B M^{-1} y + \sqrt{2 B \eta}\, \epsilon, \qquad
\theta' = \theta + \eta M^{-1} y'$$

is stochastic-gradient Hamiltonian Monte Carlo (`sghmc_step`): friction acts on the velocity
$M^{-1} y$. A step to where energy or gradient is NaN or infinite is not made. The claims are
`unadjusted_langevin` and `sghmc`.

References:
    Roberts and Tweedie, Exponential convergence of Langevin distributions and their discrete
    approximations, Bernoulli, 1996.
    Welling and Teh, Bayesian learning via stochastic gradient Langevin dynamics, ICML, 2011.
    Chen, Fox and Guestrin, Stochastic gradient Hamiltonian Monte Carlo, ICML, 2014.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.arguments import number
from vademecum.bayes.steps._energy_calls import (
    Energy,
    Point,
    estimated,
    point,
    starting_point,
    usable,
)
from vademecum.bayes.steps._masses import Mass, as_mass, moved, normal
from vademecum.bayes.steps.hamiltonian import Phase, known_point
from vademecum.bayes.steps.metropolis import Step, accept, chosen, made

__all__ = [
    "langevin_move", "mala_move", "mala_step", "sghmc_move", "sghmc_step", "sgld_step", "ula_step",
]  # fmt: skip


def ula_step(
    energy: Energy,
    theta: Float[Tensor, " chains P"] | Step,
    *,
    eta: float,
    mass: float | Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Step:
    r"""A step of the unadjusted Langevin algorithm for every chain.

    Args:
        energy: The energy of (chains, P) points, a number for each.
        theta: Where the chains are; or the last `Step`, whose gradients are used again.
        eta: The step size: the gradient is multiplied by $\eta$, the noise by $\sqrt{2 \eta}$.
        mass: The inverse of the preconditioner: a number, a diagonal or a matrix; 1 by default.
        generator: Where random numbers come from; torch's global generator by default.

    Example:
        >>> ball = lambda theta: theta.square().sum(1) / 2
        >>> step = ula_step(ball, torch.full((10_000, 1), 4.0), eta=0.5)
        >>> bool((step.theta.mean() - 2).abs() < 0.1), bool((step.theta.var() - 1).abs() < 0.1)
        (True, True)
    """
    at = known_point(energy, theta)
    eta = number("eta", eta, above=0)
    return langevin_move(energy, at, eta, as_mass(mass, at.theta), generator, noisy=False)


def sgld_step(
    energy: Energy,
    theta: Float[Tensor, " chains P"] | Step,
    *,
    eta: float,
    mass: float | Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Step:
    r"""A step of stochastic-gradient Langevin dynamics for every chain.

    It is that of `ula_step` with a gradient from a random part of the data.

    Args:
        energy: What `posterior` gives with `batch`; of any other energy the whole gradient.
        theta: Where the chains are; or the last `Step`, whose gradients are used.
        eta: The step size: the gradient is multiplied by $\eta$, the noise by $\sqrt{2 \eta}$.
        mass: The inverse of the preconditioner: a number, a diagonal or a matrix; 1 by default.
        generator: Where random numbers come from; torch's global generator by default.

    Example:
        >>> from vademecum.bayes import posterior
        >>> model, x, y = nn.Linear(1, 1, bias=False), torch.ones(100, 1), torch.zeros(100, 1)
        >>> energy = posterior(model, x, y, likelihood="gaussian", batch=10)
        >>> sgld_step(energy, torch.ones(3, 1), eta=1e-3).theta.shape
        torch.Size([3, 1])
    """
    if isinstance(theta, Step) and theta.gradient is not None:
        at = Point(theta.theta, theta.energy, theta.gradient)
    else:
        where = theta.theta if isinstance(theta, Step) else starting_point("theta", theta)
        at = estimated(energy, where, generator)
    eta = number("eta", eta, above=0)
    return langevin_move(energy, at, eta, as_mass(mass, at.theta), generator, noisy=True)


def langevin_move(
    energy: Energy, at: Point, eta: float, mass: Mass, generator: torch.Generator | None, *,
    noisy: bool,
) -> Step:  # fmt: skip
    """A step of gradient descent with noise, and the gradient after it, of all or some data."""
    mean = mass.drift(at.theta, at.gradient, -eta)
    theta = moved(mean, mass.noise(at.theta, generator), math.sqrt(2 * eta))
    end = estimated(energy, theta, generator) if noisy else point(energy, theta)
    ok = usable(end)
    change = torch.where(ok, end.energy - at.energy, torch.inf)
    return made(ok, ok.to(theta.dtype), change, end, at)


def mala_step(
    energy: Energy,
    theta: Float[Tensor, " chains P"] | Step,
    *,
    eta: float,
    mass: float | Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Step:
    r"""A Langevin step for every chain, accepted by the test of Metropolis and Hastings.

    Args:
        energy: The energy of (chains, P) points, a number for each.
        theta: Where the chains are; or the last `Step`, whose energies and gradients are used
            again.
        eta: The step size, as for `ula_step`.
        mass: The inverse of the preconditioner: a number, a diagonal or a matrix; 1 by default.
        generator: Where random numbers come from; torch's global generator by default.

    Example:
        >>> ball = lambda theta: theta.square().sum(1) / 2
        >>> step = mala_step(ball, torch.full((10_000, 1), 4.0), eta=0.5)
        >>> bool(step.probability.min() < 1)
        True
    """
    at = known_point(energy, theta)
    eta = number("eta", eta, above=0)
    return mala_move(energy, at, eta, as_mass(mass, at.theta), generator)


def mala_move(
    energy: Energy, at: Point, eta: float, mass: Mass, generator: torch.Generator | None
) -> Step:
    r"""A Langevin proposal and its test.

    The density of the proposal is that of $\mathcal N(0, M^{-1})$ at $d = (\theta' - \theta + \eta
    M^{-1} \nabla E) / \sqrt{2 \eta}$, which is the noise itself.
    """
    scale = math.sqrt(2 * eta)
    noise = mass.noise(at.theta, generator)
    theta = moved(mass.drift(at.theta, at.gradient, -eta), noise, scale)
    end = point(energy, theta)
    back = (at.theta - mass.drift(theta, end.gradient, -eta)) / scale
    log_ratio = (mass.squared(noise) - mass.squared(back)) / 2
    ok = usable(end)
    rise = torch.where(ok, end.energy - at.energy - log_ratio, torch.inf)
    accepted, probability = accept(-rise, generator)
    return made(accepted, probability, rise, end, at)


def sghmc_step(
    energy: Energy,
    theta: Float[Tensor, " chains P"] | Phase,
    momentum: Float[Tensor, " chains P"] | None = None,
    *,
    eta: float,
    friction: float = 1.0,
    mass: float | Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Phase:
    r"""A step of stochastic-gradient Hamiltonian Monte Carlo for every chain.

    Args:
        energy: What `posterior` gives with `batch`; of any other energy the whole gradient.
        theta: Where the chains are; or the last `Phase`, whose momenta and gradients are used.
        momentum: Their momenta; by default drawn from $\mathcal N(0, M)$.
        eta: The step size.
        friction: The friction $B$, which also sets the noise, of variance $2 B \eta$.
        mass: The mass $M$: a number, a diagonal (P,), or a matrix (P, P); 1 by default.
        generator: Where random numbers come from; torch's global generator by default.

    Example:
        >>> ball = lambda theta: theta.square().sum(1) / 2
        >>> phase = sghmc_step(ball, torch.zeros(4, 2), eta=0.1)
        >>> phase = sghmc_step(ball, phase, eta=0.1)
        >>> phase.theta.shape
        torch.Size([4, 2])
    """
    eta, friction = number("eta", eta, above=0), number("friction", friction, low=0)
    if isinstance(theta, Phase):
        at, y = Point(theta.theta, theta.energy, theta.gradient), theta.momentum
    else:
        at = estimated(energy, starting_point("theta", theta), generator)
        y = (
            momentum
            if momentum is not None
            else as_mass(mass, at.theta).momentum(at.theta, generator)
        )
    if y.shape != at.theta.shape:
        raise ValueError(f"momentum must have shape {tuple(at.theta.shape)}, got {tuple(y.shape)}")
    end, y, _ = sghmc_move(energy, at, y, eta, friction, as_mass(mass, at.theta), generator)
    return Phase(end.theta, y, end.energy, end.gradient)


def sghmc_move(
    energy: Energy, at: Point, y: Tensor, eta: float, friction: float, mass: Mass,
    generator: torch.Generator | None,
) -> tuple[Point, Tensor, Tensor]:  # fmt: skip
    """A step with friction: the point after it, its momenta, and where it was possible."""
    y = moved(mass.drift(y, y, -eta * friction), at.gradient, -eta)
    if friction:
        y = moved(y, normal(y, generator), math.sqrt(2 * friction * eta))
    end = estimated(energy, mass.drift(at.theta, y, eta), generator)
    ok = usable(end)
    rows = (chosen(ok, new, old) for new, old in zip(end, at, strict=True))
    return Point(*rows), chosen(ok, y, torch.zeros_like(y)), ok
