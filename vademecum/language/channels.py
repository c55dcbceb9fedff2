r"""The noisy channel: which target was meant, when a source was seen.

$$P(t \mid s) = \frac{P(s \mid t)\, P(t)}{\sum_{t'} P(s \mid t')\, P(t')} :$$

a model of the channel (what a speaker utters, how a translator renders) and one of the language,
each learned from data of its own. Recognisers weigh the language by a power $\lambda$,
$P(s \mid t)\, P(t)^\lambda$, since their channels are too sure of themselves; $\lambda = 1$ is the
rule of Bayes. Computed in logarithms, since sentences have probabilities that no float can hold,
and in double precision, since those logarithms are large.

Exact up to rounding. The claims are `noisy_channel` and `monolingual_prior`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vademecum.arguments import broadcasting, number
from vademecum.results import one_line

__all__ = ["NoisyChannel", "noisy_channel"]


class NoisyChannel(NamedTuple):
    """What was meant, as far as a channel and a language tell.

    Example:
        >>> noisy_channel(torch.tensor([0.5, 0.5]).log(), torch.tensor([0.2, 0.8]).log()).best
        tensor(1)
    """

    best: Int[Tensor, " *sources"]
    """The most probable target of each source."""
    log_posterior: Float[Tensor, " *sources targets"]
    """The logarithms of all targets' probabilities, given the source."""

    __repr__ = one_line


def noisy_channel(
    log_channel: Float[Tensor, " *sources targets"],
    log_prior: Float[Tensor, " *others targets"],
    *,
    weight: float = 1.0,
) -> NoisyChannel:
    r"""Decode sources by a channel and a language model.

    Args:
        log_channel: $\log P(s \mid t)$, for each source a row over its candidate targets.
        log_prior: $\log P(t)$, for all sources at once or for the candidates of each; it need not
            be normalised.
        weight: The power $\lambda$ of the prior.

    Raises:
        ValueError: If the shapes do not broadcast, a number is NaN or plus infinity, or no target
            can have given some source.

    References:
        Brown et al., The mathematics of statistical machine translation, Computational Linguistics,
        1993.

    Example:
        >>> channel = torch.tensor([[0.4, 0.6]]).log()  # the second target fits the source better
        >>> found = noisy_channel(channel, torch.tensor([0.9, 0.1]).log())
        >>> found.best.tolist(), found.log_posterior.exp()  # 0.36 : 0.06
        ([0], tensor([[0.8571, 0.1429]]))
    """
    number("weight", weight, low=0)
    logs = {"log_channel": log_channel, "log_prior": log_prior}
    for name, x in logs.items():
        if not isinstance(x, Tensor) or not x.is_floating_point() or not x.ndim or not x.numel():
            given = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else repr(x)
            raise ValueError(f"{name} must be logarithms, with targets along the last axis,"
                             f" got {given}")  # fmt: skip
        if not bool((x < torch.inf).all()):
            raise ValueError(f"{name} must hold logarithms of probabilities, got NaN or infinity")
    broadcasting("log_channel and log_prior", {name: x.shape for name, x in logs.items()})
    prior = log_prior.to(log_channel.device, torch.float64)
    joint = log_channel.double() + (weight * prior if weight else torch.zeros_like(prior))
    total = joint.logsumexp(-1, keepdim=True)
    if not bool((total > -torch.inf).all()):
        place = tuple(int(i) for i in (total[..., 0] == -torch.inf).nonzero()[0])
        raise ValueError(f"some target must be able to give each source, got none for {place}")
    dtype = torch.promote_types(log_channel.dtype, log_prior.dtype)
    return NoisyChannel(joint.argmax(-1), (joint - total).to(dtype))
