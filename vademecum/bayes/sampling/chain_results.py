"""What sampling gives: draws, and whether to trust them."""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from vademecum.results import one_line

__all__ = ["Chains"]


class Chains(NamedTuple):
    """The draws of chains, with what tells whether to trust them.

    Example:
        >>> from vademecum.bayes import sample
        >>> ball = lambda theta: theta.square().sum(1) / 2
        >>> chains = sample(ball, torch.zeros(8, 2), kernel="hmc", draws=200, warmup=50)
        >>> chains.draws.shape, chains.divergences.shape, int(chains.failures.sum())
        (torch.Size([8, 200, 2]), torch.Size([0, 2]), 0)
        >>> more = sample(ball, chains.last, draws=9, warmup=0, eta=chains.eta, mass=chains.mass)
    """

    draws: Float[Tensor, " chains draws *shape"]
    """The draws, or what `keep` made of them."""
    energies: Float[Tensor, " chains draws"]
    """The energies of the draws; estimates where the kernel uses a part of the data."""
    acceptance: Float[Tensor, " chains"]
    """The mean probability of acceptance after warm-up."""
    eta: float
    """The step size after warm-up."""
    mass: float | Tensor
    """The mass after warm-up: a number, a diagonal (P,), or a matrix (P, P)."""
    divergences: Int[Tensor, " k 2"]
    """Chain and draw of each step on which the total energy rose by more than 1,000."""
    failures: Int[Tensor, " chains"]
    """How many proposals had an energy or a gradient that is NaN or infinite; none is accepted."""
    last: Float[Tensor, " chains P"]
    """Where the chains are in the end, from where another call can go on."""
    rhat: float
    """The largest classic split R of all stored numbers; NaN for fewer than 20 draws."""
    converged: bool
    """Whether that is at most `max_rhat`; not if it is NaN."""

    __repr__ = one_line
