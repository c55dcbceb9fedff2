r"""Contrastive divergence: a step up the likelihood, with chains in place of the model's mean.

An update adds $\eta$ times $\mathbb E[h \mid v]\, v^\top$ over the examples, less the same over the
ends $v'$ of chains of Gibbs steps, to the weights, and likewise for the log-odds. Hidden units
enter by their probabilities, which have the mean of draws and less variance.
"""

from contextlib import nullcontext

import torch
from torch import Tensor

from vademecum.arrays import one_torch_thread
from vademecum.generative.boltzmann._units import Units, bernoulli
from vademecum.progress import ticking

__all__ = ["ascend"]

# Products of a batch with the weights, in multiplications, that one thread takes alone. Of 16 x 784
# weights and batches of 10 two passes over 5,000 examples took 0.3 s; by two on busy cores 16 s.
_FEW = 2**21


def ascend(
    units: Units,
    x: Tensor,
    chains: Tensor | None,
    *,
    passes: int,
    size: int,
    eta: float,
    steps: int,
    falling: bool,
    persistent: bool,
    generator: torch.Generator,
    progress: bool,
) -> Tensor | None:
    """Learn in place, batch by batch, in some passes over the examples in random order.

    Args:
        units: The machine, which is changed.
        x: The examples.
        chains: Hidden states of persistent chains; None begins them at the first examples.
        passes: How often all examples are seen.
        size: How many of them make an update, and how many persistent chains there are.
        eta: The step, at first.
        steps: Steps of the chains for each update.
        falling: Whether it falls to zero over the second half of the updates, or stays.
        persistent: Whether chains go on, or begin at the examples.
        generator: Where random numbers come from.
        progress: Whether to show a progress bar on standard error.

    Returns:
        The hidden states of persistent chains.
    """
    done, updates = 0, passes * -(-len(x) // size)
    few = x.device.type == "cpu" and size * units.weights.numel() <= _FEW
    alone = one_torch_thread() if few else nullcontext()
    with alone, ticking("passes", passes, progress=progress) as tick:
        for _ in range(passes):
            order = torch.randperm(len(x), generator=generator, device=generator.device)
            for rows in order.split(size):
                v = x.index_select(0, rows)
                p = units.hidden_given(v)
                if chains is None or not persistent:
                    chains = bernoulli(p, generator)
                v_model, p_model, chains = units.sweep(chains, steps, generator)
                step = eta * min(1.0, 2 - 2 * done / updates) if falling else eta
                _move(units, p, v, step)
                _move(units, p_model, v_model, -step)
                done += 1
            tick(1)
    return chains if persistent else None


def _move(units: Units, p: Tensor, v: Tensor, eta: float) -> None:
    """Add a step times the mean statistics of visible states and hidden probabilities."""
    each = v.new_full((len(v),), eta / len(v))
    units.weights.addmm_(p.T, v, alpha=eta / len(v))
    units.visible.addmv_(v.T, each)
    units.hidden.addmv_(p.T, each)
