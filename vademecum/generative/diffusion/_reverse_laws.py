r"""The law of a step back, $p_\theta(x_{t-1} \mid x_t) = N(\mu_\theta, \sigma_t^2)$, and its cost.

For $t \ge 2$ its cost is $\mathrm{KL}(q(x_{t-1} \mid x_t, x_0) \| p_\theta)$, entry by entry

$$\frac12 \Big(\log\frac{\sigma_t^2}{\tilde\beta_t} - 1 + \frac{\tilde\beta_t + (\tilde\mu_t -
\mu_\theta)^2}{\sigma_t^2}\Big);$$

at $t = 1$ it is $-\log p_\theta(x_0 \mid x_1)$: a density, or for data on a grid of levels in $[-1,
1]$ the probability of the cell around each. A learned variance lies between $\tilde\beta_t$ and
$\beta_t$ on a logarithmic scale. As $\tilde\beta_1 = 0$, the "small" variance of the first step is
that of the second, as in the code of Ho et al. Exact.
"""

import math
from typing import Any

import torch
from torch import Tensor

from vademecum.arguments import choice
from vademecum.generative._marginals import Predicts
from vademecum.generative.diffusion._walks import Variance, variance_table
from vademecum.generative.diffusion.noise_schedules import NoiseSchedule

__all__ = [
    "cell_log_probability", "error_weights", "fixed_variances", "learned_log_variance", "step_cost",
]  # fmt: skip


def fixed_variances(schedule: NoiseSchedule, variance: Variance | Tensor) -> Tensor:
    """The variance of each step back for t from 0 to T, in float64; of learned ones the least."""
    if isinstance(variance, Tensor):
        table = variance_table(variance, schedule.T)
        if not bool((table[1:] > 0).all()):
            raise ValueError("variance must be > 0 for t from 1 on, since it is divided by")
        return table
    if choice("variance", variance, ("small", "large", "learned")) == "large":
        return schedule.betas
    table = schedule.beta_tilde.clone()
    table[1] = table[2] if schedule.T > 1 else schedule.betas[1]
    return table


def learned_log_variance(schedule: NoiseSchedule, least: Tensor, raw: Tensor, t: Tensor) -> Tensor:
    """The logarithm of a learned variance: raw outputs of -1 and 1 are the small and the large.

    The table of the least ones is where t is.
    """
    wide = [1] * (raw.ndim - 1)
    low = least[t].log().to(raw).view(-1, *wide)
    high = schedule.at("betas", t).log().to(raw).view(-1, *wide)
    share = (raw + 1) / 2
    return share * high + (1 - share) * low


def error_weights(schedule: NoiseSchedule, variances: Tensor, predicts: Predicts) -> Tensor:
    """What an entry's squared error of prediction costs in the bound, for t from 0 to T."""
    clean = schedule.alpha_bar[:-1].sqrt() * schedule.betas[1:] / schedule.beta_bar[1:]
    weight = clean.square() / (2 * variances[1:])
    scale, std = schedule.alpha_bar[1:].sqrt(), schedule.beta_bar[1:].sqrt()
    if predicts != "x0":
        weight = weight * (std if predicts == "v" else std / scale).square()
    return torch.cat([weight.new_zeros(1), weight])


def step_cost(
    schedule: NoiseSchedule, x0: Tensor, xt: Tensor, guess: Tensor, t: Tensor, log_variance: Any,
    *, levels: int | None = None,
) -> Tensor:  # fmt: skip
    """The cost of each entry in nats, at t = 1 that of the data.

    Args:
        schedule: The noise.
        x0: Clean examples.
        xt: The same at step t.
        guess: The clean examples that are predicted.
        t: A step from 1 to T for each.
        log_variance: The logarithm of the model's variance, in a shape that broadcasts.
        levels: How many levels the data have in [-1, 1]; None for continuous data.
    """
    true, model = schedule.posterior(x0, xt, t), schedule.posterior(guess, xt, t).mean
    first = (t == 1).view(-1, *[1] * (x0.ndim - 1))
    variance = torch.where(first, torch.ones_like(true.variance), true.variance)  # 0 at t = 1
    inverse = torch.exp(-log_variance)
    apart = (true.mean - model).square() * inverse
    cost = (log_variance - variance.log() - 1 + variance * inverse + apart) / 2
    if levels is None:  # the mean of the posterior at t = 1 is the clean example
        ends = (math.log(2 * math.pi) + log_variance + apart) / 2
    else:
        ends = -cell_log_probability(x0, model, torch.exp(log_variance / 2), levels)
    return torch.where(first, ends, cost)


def cell_log_probability(x: Tensor, mean: Tensor, std: Tensor, levels: int) -> Tensor:
    """The log-probability that a normal number falls next to x on a grid of levels in [-1, 1].

    The first and the last cell reach to infinity.
    """
    half = 1 / (levels - 1)
    high = torch.where(x > 1 - half, torch.inf, (x + half - mean) / std)
    low = torch.where(x < -1 + half, -torch.inf, (x - half - mean) / std)
    mirrored = low + high > 0  # the tail that is small keeps its digits
    low, high = torch.where(mirrored, -high, low), torch.where(mirrored, -low, high)
    below, above = torch.special.log_ndtr(low), torch.special.log_ndtr(high)
    return above + torch.log1p(-torch.exp(below - above))
