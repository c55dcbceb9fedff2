"""Drawing examples: the learned chain, schedules that it likes, and guidance."""

import math
from collections.abc import Iterator
from typing import Literal

import torch
from scipy import stats
from torch import Tensor

from vademecum.claims import Evidence, at_least, at_most, claim, equals, in_mean, slope
from vademecum.generative import MixtureScore, NoiseSchedule, ddim_sample, ddpm_sample
from vademecum.generative.claims._normal_chains import (
    Exact,
    abrupt,
    ending_variance,
    steps_back,
)

V0 = 0.25
SPREADS: tuple[Literal["small", "large"], ...] = ("small", "large")


@claim(
    by="fit",
    sources=("A-387", "A-390", "C-325", "C-326", "C-332", "D-433", "D-436"),
    budget=1.0,
    short=r"x_T \sim \mathcal N(0, I),\quad x_{t-1} \sim \mathcal N(\mu_\theta(x_t, t),"
    r" \sigma_t^2 I)",
)
def ddpm_sampling(noise: float = 1.0, sign: float = 1.0, rate: float = -1.0, n: int = 10_000):
    r"""The learned reverse process and ancestral sampling.

    The generative chain is normal, $p_\theta(x_{t-1} \mid x_t) = \mathcal N(\mu_\theta(x_t, t),
    \sigma_t^2 I)$ with $\sigma_t^2 = \tilde\beta_t$ or $\beta_t$: draw $x_T \sim \mathcal N(0, I)$,
    then step down to $x_0$. With the exact predictor of the noise the law of the output tends to
    that of the data as steps become small.

    Checked for normal data of variance 1/4, whose chain is linear: its variance, from the factors
    and variances of `DDPM.reverse`, ends within 15 % of 1/4 for $T = 100$ and within 4 % for $T =
    1000$ for linear betas with the same noise in all, and the error falls like $1/T$; draws of
    `ddpm_sample` have that variance. For a mixture of two modes the distribution function of draws
    is within 0.05 of the data's for $T = 100$ and $\sigma_t^2 = \beta_t$ (beyond the error of n
    draws).

    Knobs:
        noise: The factor of the noise that each step adds.
        sign: The factor of the predicted noise.
        rate: The power of $T$ at which the error falls.
        n: How many draws are made.
    """
    ends = {}
    for spread in SPREADS:
        for T in (100, 300, 600, 1000, 2000, 4000, 8000, 15_000, 30_000):
            schedule = NoiseSchedule.linear(T)
            network = Exact(schedule.betas[1:], V0, factor=sign)
            gains, spreads = steps_back(schedule, network, spread)
            ends[T] = ending_variance(gains, noise**2 * spreads)
        for T, allowed in ((100, 0.15), (1000, 0.04)):
            yield at_most("relative error of the variance", abs(ends[T] / V0 - 1), allowed, T=T)
        tail = [T for T in ends if T > 100]
        errors = [abs(ends[T] - V0) for T in tail]
        yield slope("error of the variance", tail, errors, rate, variance=spread)
    yield from drawn(noise, sign, n)


def drawn(noise: float, sign: float, n: int) -> Iterator[Evidence]:
    """Draws of the sampler: the variance of normal data, and the law of a mixture."""
    schedule = NoiseSchedule.linear(40)
    network = Exact(schedule.betas[1:], V0, factor=sign)
    for spread in SPREADS:
        x = ddpm_sample(network, (n, 1), schedule=schedule, variance=spread)
        gains, spreads = steps_back(schedule, network, spread)
        wanted = ending_variance(gains, noise**2 * spreads)
        yield in_mean("squares of draws", x**2, wanted, variance=spread)
    schedule = NoiseSchedule.linear(100)
    law = torch.tensor([0.5, 0.5]), torch.tensor([[-1.0], [1.0]]), torch.tensor([0.0625, 0.0625])
    exact = MixtureScore(*law, process=schedule)
    x = ddpm_sample(lambda x, t: sign * exact(x, t), (n, 1), schedule=schedule, variance="large")
    grid = torch.linspace(-2.5, 2.5, 201).numpy()
    truth = (stats.norm.cdf(grid, -1, 0.25) + stats.norm.cdf(grid, 1, 0.25)) / 2
    found = torch.searchsorted(x[:, 0].sort().values, torch.from_numpy(grid)).numpy() / n
    # the uniform error of n draws is larger with a chance of 1e-6 (Dvoretzky, Kiefer, Wolfowitz)
    error = math.sqrt(math.log(2e6) / (2 * n))
    yield at_most("distance of distribution functions", abs(found - truth).max(), 0.05 + error)


ddpm_sampling.foil("the means alone", refuted_by="relative error of the variance", noise=0.0)
ddpm_sampling.foil("the predicted noise is added", sign=-1.0)
ddpm_sampling.foil("a slower approach", refuted_by="error of the variance", rate=-0.8)

SCHEDULES = {
    "linear": lambda T: NoiseSchedule.linear(T),
    "cosine": lambda T: NoiseSchedule.cosine(T),
    "abrupt": lambda T: NoiseSchedule(abrupt(T)),
}


@claim(
    by="identity",
    sources=("A-391",),
    budget=0.4,
    short=r"\bar\alpha_t \text{ from 1 to nearly 0 in small steps: linear, cosine; no abrupt one}",
)
def noise_schedule(gradual: tuple[str, ...] = ("linear", "cosine"), T: int = 100):
    r"""The noise schedule should lower the signal slowly.

    The quality of samples for a given number of steps depends on the schedule: $\bar\alpha_t$
    should fall gradually from 1 to nearly 0, because large single steps violate the normal
    approximation of the step back; linear and cosine schedules do, an abrupt one does not. The
    cosine schedule is $\bar\alpha_t \propto \cos^2\big(\frac\pi2 \frac{t/T + 0.008}{1.008}\big)$,
    with the last $\beta$ cut from 1 to 0.999.

    Checked for normal data of variance 1/4 and 4 with the exact predictor, $T = 100$ and
    $\sigma_t^2 = \beta_t$: the law of the output, in closed form from `DDPM.reverse`, has a
    divergence of less than $10^{-3}$ from that of the data with gradual schedules, and of more than
    0.1 with the one that takes nearly all in one step, though it leaves as little in the end.

    Knobs:
        gradual: Which schedules fall gradually.
        T: How many steps.
    """
    wave = [math.cos((t / T + 0.008) / 1.008 * math.pi / 2) ** 2 for t in range(T)]
    shares = [value / wave[0] for value in wave] + [wave[-1] / wave[0] * 1e-3]
    found = NoiseSchedule.cosine(T).alpha_bar
    yield equals("alpha bar over the cosine", found / torch.tensor(shares), 1.0, tol=1e-9)
    for name, make in SCHEDULES.items():
        schedule = make(T)
        yield at_most("share of the data that is left", schedule.alpha_bar[-1], 1.1e-4, name=name)
        steepest = float((schedule.alpha_bar[:-1] - schedule.alpha_bar[1:]).max())
        for v0 in (V0, 4.0):
            gains, spreads = steps_back(schedule, Exact(schedule.betas[1:], v0), "large")
            v = ending_variance(gains, spreads)
            apart = (v / v0 - 1 - math.log(v / v0)) / 2
            at = {"schedule": name, "v0": v0}
            if name in gradual:
                yield at_most("divergence from the data", apart, 1e-3, **at)
                yield at_most("largest fall of alpha bar in a step", steepest, 0.1, **at)
            else:
                yield at_least("divergence after an abrupt schedule", apart, 0.1, **at)


noise_schedule.foil("an abrupt schedule is as good", gradual=("linear", "cosine", "abrupt"))


@claim(
    by="identity",
    sources=("C-334",),
    budget=0.4,
    short=r"\tilde\epsilon = (1 + w)\, \epsilon_\theta(x_t, t, c) - w\, \epsilon_\theta(x_t, t)",
)
def classifier_free_guidance(
    formula: Literal["extrapolate", "interpolate", "scale"] = "extrapolate", n: int = 5
):
    r"""Classifier-free guidance goes beyond the prediction with a context.

    $\tilde\epsilon = (1 + w)\, \epsilon_\theta(x_t, t, c) - w\, \epsilon_\theta(x_t, t)$ with $w
    \ge 0$ extrapolates from the prediction without a context beyond the one with it; at each level
    of noise the guided score is that of the unnormalised law $p_t(x \mid c)^{1+w} p_t(x)^{-w}$. It
    is not the score of noised data of any law in general.

    Checked for a mixture whose components are the contexts, at two levels of noise: what
    `ddim_sample` makes of the exact predictions, by one step, against the gradient of $(1 + w) \log
    p_t(x \mid c) - w \log p_t(x)$; $w = 0$ gives the prediction with the context, $w = -1$ the
    other.

    Knobs:
        formula: $(1 + w) \epsilon_c - w \epsilon$, or $(1 - w) \epsilon_c + w \epsilon$, or
            $\epsilon + w (\epsilon_c - \epsilon)$.
        n: How many points.
    """
    weights, means = torch.tensor([0.2, 0.8]), torch.tensor([[-1.0, 0.5], [0.7, -0.3]])
    variances = torch.tensor([0.3, 1.4])
    for betas in ([0.4], [0.2, 0.7]):
        schedule = NoiseSchedule(betas)
        exact = MixtureScore(weights, means, variances, process=schedule)
        left = math.prod(1 - b for b in betas)
        std, T = math.sqrt(1 - left), len(betas)
        x, labels = torch.randn(n, 2), torch.arange(n) % 2
        t = torch.full((n,), T)
        given, free, noised = exact(x, t, labels), exact(x, t), left * variances + std**2
        for w in (2.0, 0.5, 0.0, -1.0):
            mixed = {
                "extrapolate": (1 + w) * given - w * free,
                "interpolate": (1 - w) * given + w * free,
                "scale": free + w * (given - free),
            }[formula]
            score = guided_score(x, labels, w, (weights, math.sqrt(left) * means, noised))
            yield equals("guided score", -mixed / std, score, tol=1e-10, w=w, T=T)
            ended = ddim_sample(
                exact, (n, 2), schedule=schedule, steps=[T], start=x, context=labels, guidance=w
            )
            told = (x - math.sqrt(left) * ended) / std  # one step gives the predicted data
            yield equals("guided score of ddim_sample", -told / std, score, tol=1e-10, w=w, T=T)


def guided_score(x: Tensor, labels: Tensor, w: float, law: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """The gradient of (1 + w) log p(x | c) - w log p(x), by autograd through the densities."""
    x = x.detach().requires_grad_()
    pi, means, v = law
    square = (x[:, None] - means).square().sum(2)
    logs = -square / (2 * v) - torch.log(2 * math.pi * v)  # in two dimensions
    own = logs.gather(1, labels[:, None])[:, 0]
    whole = (logs + pi.log()).logsumexp(1)
    return torch.autograd.grad(((1 + w) * own - w * whole).sum(), x)[0]


classifier_free_guidance.foil("interpolation", formula="interpolate")
classifier_free_guidance.foil("the weight counted from the other side", formula="scale")
