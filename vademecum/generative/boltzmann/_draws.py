"""Visible states of a machine: exact draws where all states can be counted, else annealed ones."""

import torch
from jaxtyping import Float
from torch import Tensor

from vademecum.generative.boltzmann._enumeration import log_weights, states
from vademecum.generative.boltzmann._units import Units, bernoulli
from vademecum.generative.boltzmann.partition import Annealed

__all__ = ["annealed_draws", "exact_draws"]


def exact_draws(units: Units, n: int, generator: torch.Generator) -> Float[Tensor, " n d"]:
    """Draw states of the smaller layer by their probabilities, and the other layer given these."""
    m, d = units.weights.shape
    p = log_weights(units if d <= m else units.flipped()).softmax(0)
    drawn = torch.multinomial(p, n, replacement=True, generator=generator)
    smaller = states(drawn, min(m, d)).to(units.weights)
    return smaller if d <= m else bernoulli(units.visible_given(smaller), generator)


def annealed_draws(run: Annealed, n: int, generator: torch.Generator) -> Float[Tensor, " n d"]:
    """Draw from the ends of annealed chains by their weights."""
    p = run.log_weights.softmax(0)
    return run.v[torch.multinomial(p, n, replacement=True, generator=generator)]
