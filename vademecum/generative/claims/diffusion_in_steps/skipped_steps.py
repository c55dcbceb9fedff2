"""The deterministic sampler: steps that it may skip, and its way to new noise."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_most, claim, equals, in_mean, slope
from vademecum.generative import NoiseSchedule, ddim_sample
from vademecum.generative.claims._normal_chains import Exact, random_betas


class Knowing(nn.Module):
    """A network that knows the noise, and remembers where it was asked."""

    def __init__(self, noise: Tensor):
        super().__init__()
        self.noise, self.seen = noise, []

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """The noise."""
        self.seen.append((int(t[0]), x))
        return self.noise


@claim(
    by="fit",
    sources=("C-335",),
    budget=0.8,
    short=r"x_s = \sqrt{\bar\alpha_s}\, \hat x_0 + \sqrt{1 - \bar\alpha_s}\, \epsilon_\theta,\ "
    r"\hat x_0 = x_0(x_t, \epsilon_\theta)",
)
def ddim(
    divided: bool = True,
    level: Literal["next", "same"] = "next",
    rate: float = -1.0,
    power: int = 2,
    order: int = 2,
    second: float = -2.0,
    T: int = 30,
    n: int = 4000,
):
    r"""The deterministic sampler: predict the data, then move them to the next level of noise.

    $x_{t-1} = \sqrt{\bar\alpha_{t-1}}\, \frac{x_t - \sqrt{1 - \bar\alpha_t}\,
    \epsilon_\theta}{\sqrt{\bar\alpha_t}} + \sqrt{1 - \bar\alpha_{t-1}}\, \epsilon_\theta$ with the
    same predicted noise; no randomness is added and steps may be skipped. A share $\eta$ of the
    deviation $\tilde\sigma$ of $q(x_s \mid x_t, x_0)$ may be new noise, with $\sqrt{1 -
    \bar\alpha_s - \eta^2 \tilde\sigma^2}$ before the predicted one: every level keeps its law.

    Checked for `ddim_sample`: where the true noise is predicted, every step lands on $\sqrt{\bar
    \alpha_s}\, x_0 + \sqrt{1 - \bar\alpha_s}\, \epsilon$ of the next level $s$ of its list, for
    even, uneven and own lists, and the last on $x_0$. For normal data of variance $s^2$ and the
    exact predictor the map from $x_T$ to $x_0$ is linear, and its slope tends to $s /
    \sqrt{\bar\alpha_T s^2 + 1 - \bar\alpha_T}$, with an error like 1 over the number of steps.
    `order=2`, which follows a line through the last two predictions and which the sheets do not
    have, makes that 1 over its square: at the last level with noise, from which one step of the
    first order leads to the data, for steps that are even in the logarithm of $\bar\alpha / (1 -
    \bar\alpha)$. Where the data are known, draws with $\eta = 0.5$ and 1 have the mean and the
    variance of $q(x_s \mid x_0)$ at all levels of a list (five standard errors), and $\sqrt{(1 -
    \bar\alpha_t) (1 - \bar\alpha_s - \eta^2 \tilde\sigma^2)}$ for covariance from one to the
    next; for $\eta = 1$ that is the covariance of the noising chain.

    Knobs:
        divided: Whether the predicted data are divided by $\sqrt{\bar\alpha_t}$.
        level: Whether the noise is added at the next level, or at that where it was predicted.
        rate: The power of the number of steps at which the error falls.
        power: The power of $\eta$ before $\tilde\sigma^2$.
        order: The order of steps for which the error is to fall faster.
        second: The power of the number of steps at which it does.
        T: How many steps the schedule has.
        n: How many draws are made with new noise.
    """
    betas = random_betas(T, 0.3)
    schedule, left = NoiseSchedule(betas), [1.0, *(1 - betas).cumprod(0).tolist()]
    for steps in (T, 1, 7, 13, [T, T - 1, 5, 2]):
        x0, noise = torch.randn(2, 3, 2)
        model = Knowing(noise)
        start = math.sqrt(left[T]) * x0 + math.sqrt(1 - left[T]) * noise
        end = ddim_sample(model, (3, 2), schedule=schedule, steps=steps, start=start)
        places = [*model.seen, (0, end)]
        at = {"steps": str(steps)}
        for (t, x), (s, after) in pairwise(places):
            guess = x - math.sqrt(1 - left[t]) * noise
            guess = guess / math.sqrt(left[t]) if divided else guess
            std = math.sqrt(1 - left[s if level == "next" else t])
            formula = math.sqrt(left[s]) * guess + std * noise
            target = math.sqrt(left[s]) * x0 + math.sqrt(1 - left[s]) * noise
            yield equals("where a step lands", after, target, tol=1e-10, t=t, s=s, **at)
            yield equals("where the formula lands", formula, target, tol=1e-10, t=t, s=s, **at)
        yield equals("first step", places[0][0], T, steps=str(steps))
    for s in (0.5, 2.0):
        yield from slopes(s, rate)
        yield from extrapolated(s, order, second)
    for eta in (0.5, 1.0):
        yield from renewed(betas, eta, power, n)


def renewed(betas: Tensor, eta: float, power: int, n: int) -> Iterator[Evidence]:
    """Draws with new noise where the data are known: laws of all levels, and of pairs of them."""
    T, data, seen = len(betas), 0.7, []
    left = [1.0, *(1 - betas).cumprod(0).tolist()]

    def known(x: Tensor, t: Tensor) -> Tensor:
        seen.append((int(t[0]), x))
        return torch.full_like(x, data)

    start = math.sqrt(left[T]) * data + math.sqrt(1 - left[T]) * torch.randn(n, 1)
    ddim_sample(known, (n, 1), schedule=NoiseSchedule(betas), steps=[T, T - 1, T // 2, 2], eta=eta,
                predicts="x0", start=start)  # fmt: skip
    for (t, x), (s, y) in pairwise(seen):
        own, next_ = x - math.sqrt(left[t]) * data, y - math.sqrt(left[s]) * data
        at = {"t": t, "s": s, "eta": eta}
        spread = (1 - left[s]) / (1 - left[t]) * (1 - left[t] / left[s])
        pair = math.sqrt((1 - left[t]) * (1 - left[s] - eta**power * spread))
        yield in_mean("draws with new noise less their mean", next_, 0.0, **at)
        yield in_mean("their squares", next_**2, 1 - left[s], **at)
        yield in_mean("their products with those before", own * next_, pair, **at)
        if eta == 1:
            chain = math.sqrt(left[t] / left[s]) * (1 - left[s])
            yield equals("covariance of the noising chain", pair, chain, tol=1e-12, **at)


def slopes(s: float, rate: float) -> Iterator[Evidence]:
    """The slope of the map from noise to normal data, for more and more steps."""
    T = 4000
    schedule = NoiseSchedule.linear(T)
    bar = math.exp(float(torch.log1p(-schedule.betas[1:]).sum()))
    limit = s / math.sqrt(bar * s**2 + 1 - bar)
    exact, counts = Exact(schedule.betas[1:], s**2), [10, 20, 40, 80, 150, 300, 600, 1000]
    ends = [
        float(ddim_sample(exact, (1, 1), schedule=schedule, steps=k, start=torch.ones(1, 1)))
        for k in counts
    ]
    yield at_most("error of the slope with 1,000 steps", abs(ends[-1] - limit), 0.01 * limit, s=s)
    yield slope("error of the slope", counts, [abs(end - limit) for end in ends], rate, s=s)


def extrapolated(s: float, order: int, rate: float) -> Iterator[Evidence]:
    """The slope of the map down to the first level, by steps of a higher order, even in log-SNR."""
    T = 4001
    bar = torch.special.expit(torch.linspace(6, -6, T))  # 6 is the log-SNR at t = 1, -6 at T
    betas = 1 - bar / torch.cat([bar.new_ones(1), bar[:-1]])
    limit = math.sqrt(float((bar[0] * s**2 + 1 - bar[0]) / (bar[-1] * s**2 + 1 - bar[-1])))
    exact, schedule, counts = Exact(betas, s**2), NoiseSchedule(betas), [10, 20, 40, 80, 160]
    counts, ends, seen = [*counts, 400, 500, 1000], [], []

    def spied(x: Tensor, t: Tensor) -> Tensor:
        seen.append(float(x))
        return exact(x, t)

    for k in counts:
        steps, one = range(T, 0, -(T - 1) // k), torch.ones(1, 1)
        ddim_sample(spied, (1, 1), schedule=schedule, steps=steps, order=order, start=one)
        ends.append(seen[-1])
    errors = [abs(end - limit) for end in ends]
    yield slope("error of the second order", counts, errors, rate, s=s)


ddim.foil("without the division", divided=False)
ddim.foil("noise at the old level", level="same")
ddim.foil("eta as the share of the variance", power=1, n=40_000)
ddim.foil("a slower approach", refuted_by="error of the slope", rate=-0.8)
ddim.foil("no prediction from before", refuted_by="error of the second order", order=1)
ddim.foil("a slower second order", refuted_by="error of the second order", second=-1.6)
