r"""Metropolis-Hastings: a proposal, accepted so that $e^{-E} / Z$ stays.

A proposal $\theta' \sim r(\cdot \mid \theta)$ is accepted with probability

$$\min \Big\{ 1, \frac{r(\theta \mid \theta')}{r(\theta' \mid \theta)}\, e^{E(\theta) - E(\theta')}
\Big\},$$

else the chain stays. Then $e^{-E(\theta)} r(\theta' \mid \theta) \min\{1, \cdot\}$ is symmetric in
the two points: detailed balance. Exact for every proposal whose ratio is right. A proposal whose
energy is NaN or infinite is never accepted. The claim is `metropolis_hastings`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vademecum.arguments import number
from vademecum.bayes.steps._energy_calls import Energy, Point, starting_point, values
from vademecum.bayes.steps._masses import as_mass, moved
from vademecum.randomness import source
from vademecum.results import one_line

__all__ = ["Step", "accept", "chosen", "made", "mh_move", "mh_step"]

Proposal = Callable[[Tensor, torch.Generator | None], Any]


class Step(NamedTuple):
    """Where chains are after a step, and what became of the proposal.

    Example:
        >>> start = torch.zeros(2, 3)
        >>> step = mh_step(lambda theta: theta.square().sum(1) / 2, start, eta=1e-9)
        >>> step.accepted, step.failed
        (tensor([True, True]), tensor([False, False]))
    """

    theta: Float[Tensor, " chains P"]
    """The positions."""
    energy: Float[Tensor, " chains"]
    """The energies there."""
    gradient: Float[Tensor, " chains P"] | None
    """The gradients there, if the step has computed them."""
    accepted: Bool[Tensor, " chains"]
    """Whether the proposal was accepted."""
    probability: Float[Tensor, " chains"]
    """With which probability it was accepted; along the whole trajectory on average for NUTS."""
    change: Float[Tensor, " chains"]
    """How much the total energy rose on the way to the proposal; infinite where it failed."""
    failed: Bool[Tensor, " chains"]
    """Whether the energy of the proposal, or its gradient where one is used, is NaN or infinite."""

    __repr__ = one_line


def mh_step(
    energy: Energy,
    theta: Float[Tensor, " chains P"] | Step,
    *,
    eta: float | None = None,
    propose: Proposal | None = None,
    mass: float | Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Step:
    r"""A step of Metropolis-Hastings for every chain: a random walk, or any proposal.

    Args:
        energy: The energy of (chains, P) points, a number for each.
        theta: Where the chains are; or the last `Step`, whose energies are used again.
        eta: The standard deviation of a Gaussian random walk in each coordinate.
        propose: In its place, a function of the points and of a generator (or None) that gives
            proposals; if it is not symmetric, both the proposals and $\log r(\theta \mid \theta') -
            \log r(\theta' \mid \theta)$, (chains,).
        mass: The random walk has the covariance $\eta^2 M^{-1}$: a number, a diagonal or a matrix.
        generator: Where random numbers come from; torch's global generator by default.

    Raises:
        ValueError: If not one of `eta` and `propose` is given, or a proposal has a wrong shape.

    Example:
        >>> def always_right(theta, generator):  # the way back would never be proposed
        ...     return theta + 1, torch.full((len(theta),), -torch.inf)
        >>> step = mh_step(lambda theta: theta[:, 0], torch.zeros(2, 1), propose=always_right)
        >>> step.theta.flatten().tolist()
        [0.0, 0.0]
    """
    at, found = _start_of(energy, theta)
    if (eta is None) == (propose is None):
        raise ValueError("one of eta and propose must be given, and not both")
    if propose is None:
        scale = number("eta", eta, above=0)
        proposal, log_ratio = moved(at, as_mass(mass, at).noise(at, generator), scale), 0.0
    else:
        proposal, log_ratio = _proposed(propose(at, generator), at)
    return mh_move(energy, at, found, proposal, log_ratio, generator)


def mh_move(
    energy: Energy, at: Tensor, found: Tensor, proposal: Tensor, log_ratio: Tensor | float,
    generator: torch.Generator | None,
) -> Step:  # fmt: skip
    """A proposal from points of known energies, accepted or not."""
    new = values(energy, proposal)
    ok = new.isfinite() & proposal.isfinite().all(-1)
    change = torch.where(ok, new - found, torch.inf)
    accepted, probability = accept(log_ratio - change, generator)
    theta, kept = chosen(accepted, proposal, at), chosen(accepted, new, found)
    return Step(theta, kept, None, accepted, probability, change, ~ok)


def _start_of(energy: Energy, theta: Tensor | Step) -> tuple[Tensor, Tensor]:
    """Positions and energies at the beginning of a step."""
    if isinstance(theta, Step):
        return theta.theta, theta.energy
    at = starting_point("theta", theta)
    return at, values(energy, at)


def accept(log_ratio: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Whether each chain accepts, and its probability; NaN is never accepted."""
    probability = log_ratio.clamp(max=0).exp().nan_to_num(nan=0.0)
    drawn = torch.rand(
        probability.shape, dtype=probability.dtype, **source(generator, probability.device)
    )
    return drawn.to(probability.device) < probability, probability


def chosen(accepted: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Rows of one tensor where accepted, else of the other."""
    return torch.where(accepted if new.ndim == 1 else accepted[:, None], new, old)


def made(accepted: Tensor, probability: Tensor, change: Tensor, new: Point, old: Point) -> Step:
    """A step with gradients: where it is accepted the new points, else the old ones."""
    theta, found, slope = (chosen(accepted, n, o) for n, o in zip(new, old, strict=True))
    return Step(theta, found, slope, accepted, probability, change, change.isposinf())


def _proposed(given: Any, at: Tensor) -> tuple[Tensor, Tensor | float]:
    proposal, log_ratio = given if isinstance(given, tuple) else (given, 0.0)
    if not isinstance(proposal, Tensor) or proposal.shape != at.shape:
        raise ValueError(f"propose must give points of shape {tuple(at.shape)}, got {proposal!r}")
    if isinstance(log_ratio, Tensor) and log_ratio.shape != at.shape[:1]:
        raise ValueError(
            f"propose must give a log ratio of shape ({len(at)},), got {tuple(log_ratio.shape)}"
        )
    return proposal, log_ratio
