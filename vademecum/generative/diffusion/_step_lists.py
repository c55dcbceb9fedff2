r"""Which steps a sampler visits, and what each of them does, as two numbers.

A step from $t$ to $s < t$ (not only $t - 1$) with $\bar\alpha_{ts} = \bar\alpha_t / \bar\alpha_s$
and $\tilde\sigma^2 = \frac{\bar\beta_s}{\bar\beta_t} (1 - \bar\alpha_{ts})$, the variance of $x_s$
given $x_t$ and $x_0$, is

$$x_s = \sqrt{\bar\alpha_s}\, \hat x_0 + \sqrt{\bar\beta_s - \eta^2 \tilde\sigma^2}\, \hat\epsilon +
\sigma z = C \hat x_0 + D x_t + \sigma z, \qquad D = \sqrt{\frac{\bar\beta_s - \eta^2
\tilde\sigma^2}{\bar\beta_t}}, \quad C = \sqrt{\bar\alpha_s} - D \sqrt{\bar\alpha_t}.$$

With $\eta = 1$ the mean is that of $q(x_s \mid x_t, x_0)$, which is the DDPM's. What a network
predicts gives $\hat x_0 = P x_t + Q\, \mathrm{out}$, so that without cutting $\hat x_0$ the step is
$x_s = (C P + D)\, x_t + C Q\, \mathrm{out} + \sigma z$. Exact.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vademecum.arguments import whole
from vademecum.generative._marginals import Predicts
from vademecum.generative.diffusion.noise_schedules import NoiseSchedule

__all__ = ["Moves", "clean_weights", "insist_on_schedule", "moves", "step_list"]


class Moves(NamedTuple):
    """What each step of a list does, in float64: one row for each step."""

    clean: Tensor
    """The factor of the predicted clean example, C."""
    noisy: Tensor
    """The factor of the example as it is, D."""
    small: Tensor
    """The variance of the step back given the clean example, or its share by eta."""
    large: Tensor
    """The variance of the noise that the way forward adds."""


def step_list(steps: Any, T: int) -> list[int]:
    """The steps that a sampler visits, falling from T; each is followed by the next, the last by 0.

    Example:
        >>> step_list(3, 10), step_list([10, 9, 2], 10)
        ([10, 7, 3], [10, 9, 2])
    """
    if isinstance(steps, Sequence) and not isinstance(steps, str):
        chosen = [whole("steps", t, low=1, high=T) for t in steps]
        if not chosen or chosen[0] != T:
            raise ValueError(f"steps must begin with T = {T}, where all is noise, got {chosen[:3]}")
        if any(a <= b for a, b in pairwise(chosen)):
            raise ValueError(f"steps must fall from one to the next, got {chosen}")
        return chosen
    count = whole("steps", steps, low=1)
    if count > T:
        raise ValueError(f"steps must be <= {T}, the steps of the schedule, got {count}")
    return [(2 * T * i + count) // (2 * count) for i in range(count, 0, -1)]


def moves(schedule: NoiseSchedule, steps: list[int], eta: float) -> Moves:
    """What each step of a list does."""
    t, s = torch.tensor(steps), torch.tensor([*steps[1:], 0])
    bar_t, bar_s = schedule.beta_bar[t], schedule.beta_bar[s]
    scale_t, scale_s = schedule.alpha_bar[t].sqrt(), schedule.alpha_bar[s].sqrt()
    large = (bar_t - bar_s) / schedule.alpha_bar[s]  # 1 - alpha_bar_t / alpha_bar_s
    small = eta**2 * bar_s / bar_t * large
    noisy = ((bar_s - small).clamp(min=0) / bar_t).sqrt()
    return Moves(scale_s - noisy * scale_t, noisy, small, large)


def clean_weights(
    schedule: NoiseSchedule, steps: list[int], predicts: Predicts
) -> tuple[Tensor, Tensor]:
    """The factors of the example and of the prediction in the clean example: P and Q."""
    t = torch.tensor(steps)
    scale, std = schedule.marginal(t)
    if predicts == "x0":
        return torch.zeros_like(scale), torch.ones_like(scale)
    if predicts == "v":
        return scale, -std
    if not scale.all():
        raise ValueError(
            f"predicts must be 'x0' or 'v' where the last step leaves no data, got {predicts!r}"
        )
    return 1 / scale, (-std if predicts == "noise" else std**2) / scale


def insist_on_schedule(schedule: Any) -> NoiseSchedule:
    """A schedule as an argument."""
    if not isinstance(schedule, NoiseSchedule):
        raise ValueError(f"schedule must be a NoiseSchedule, got {type(schedule).__name__}")
    return schedule
