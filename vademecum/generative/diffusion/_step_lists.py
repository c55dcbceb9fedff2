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

Without new noise the true path has the integral $\sqrt{\bar\beta_s} \int e^\lambda x_0(\lambda)\,
d\lambda$ for $C \hat x_0$, over a step of length $h$ in $\lambda = \frac12 \log (\bar\alpha /
\bar\beta)$; for a constant they agree. A second order puts there, instead of $\hat x_0$, what a
line through it and $\hat x_0'$ of the step before, of length $h'$, says of the middle of the step,
$\hat x_0 + \frac{h}{2 h'} (\hat x_0 - \hat x_0')$, with new noise as well. The first step has none
before, and the last, to $\lambda_0 = \infty$, no middle: they are of the first order, as is one
after a far shorter step, such as one of a beta that is lost in rounding.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from vademecum.arguments import choice, whole
from vademecum.generative._marginals import Predicts
from vademecum.generative.diffusion.noise_schedules import NoiseSchedule

__all__ = [
    "Moves", "Spacing", "clean_weights", "insist_on_schedule", "leans", "moves", "spaced",
    "step_list",
]  # fmt: skip

Spacing = Literal["even", "quadratic", "snr"]

_SHORT = 1e-4  # of the next step: single precision then leaves three digits of what is extrapolated


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
    if getattr(steps, "ndim", 0):
        given = f"{type(steps).__name__} of shape {tuple(steps.shape)}"
        raise ValueError(f"steps must be an integer or a list of them, got a {given}")
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


def spaced(steps: Any, schedule: NoiseSchedule, spacing: Spacing) -> list[int]:
    """The steps that a sampler visits, closer to each other where there is little noise.

    Of steps that would fall together the later ones move apart, to the nearest that are free.

    Example:
        >>> spaced(5, NoiseSchedule.linear(100), "quadratic")
        [100, 64, 36, 16, 4]
        >>> spaced(5, NoiseSchedule.linear(100), "snr")
        [100, 77, 45, 9, 1]
    """
    even, T = step_list(steps, schedule.T), schedule.T
    if choice("spacing", spacing, ("even", "quadratic", "snr")) == "even":
        return even
    if isinstance(steps, Sequence):
        raise ValueError(f"spacing must be 'even' where steps are a list, got {spacing!r}")
    count, share = len(even), torch.arange(len(even), 0, -1, dtype=torch.float64) / len(even)
    wanted = T * share.square()
    if spacing == "snr":
        level = _log_snr(schedule)[1:]
        level = level.clamp(min=float(level[level.isfinite()].min()))  # all may be noise at T
        goals = torch.linspace(float(level[-1]), float(level[0]), count, dtype=torch.float64)
        wanted = 1 + (level[:, None] - goals).abs().argmin(0)
    found, low = [], 0
    for i, t in enumerate(reversed(wanted.round().long().tolist())):
        low = min(max(t, low + 1), T - (count - 1 - i))
        found.append(low)
    return [T, *found[-2::-1]]


def _log_snr(schedule: NoiseSchedule) -> Tensor:
    return schedule.alpha_bar.log() - schedule.beta_bar.log()


def leans(schedule: NoiseSchedule, steps: list[int]) -> Tensor:
    """How much of the change of the clean example since the last step each step adds: h / 2 h'."""
    h = _log_snr(schedule)[torch.tensor([*steps, 0])].diff()
    lean = torch.zeros_like(h)
    lean[1:-1] = torch.where(h[:-2] > _SHORT * h[1:-1], h[1:-1] / (2 * h[:-2]), 0)
    return lean


def moves(schedule: NoiseSchedule, steps: list[int], eta: float) -> Moves:
    """What each step of a list does."""
    t, s = torch.tensor(steps), torch.tensor([*steps[1:], 0])
    gone = schedule.alpha_bar[s] == 0
    if gone.any():
        last = int(s[gone][-1])
        raise ValueError(f"schedule must leave some signal at every step but T, got none at {last}")
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
