"""The variance of a step back: which one is right."""

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
from scipy import optimize
from torch import Tensor, nn

from vademecum.claims import Evidence, at_least, at_most, claim, equals, in_mean
from vademecum.foundations import gaussian_condition, gaussian_kl
from vademecum.generative import DDPM, NoiseSchedule, ddpm_sample
from vademecum.generative import diffusion_bound as bound_of
from vademecum.generative.claims._normal_chains import (
    Exact,
    ending_variance,
    steps_back,
)

V0 = 0.25


@claim(
    by="identity",
    sources=("D-436", "C-325"),
    budget=0.8,
    short=r"x_0 \sim N(0, v_0): \mathrm{Var}[x_{t-1} | x_t] = \beta_t"
    r" v_{t-1} / v_t;\ v_0 = 0, 1: \tilde\beta_t, \beta_t",
)
def reverse_variance(chain: Literal["true", "small", "large"] = "true", T: int = 20, n: int = 2000):
    r"""The right variance of the step back depends on the spread of the data.

    The reverse kernel may have a learned covariance. For data $\mathcal N(0, v_0 I)$ and $v_t =
    \bar\alpha_t v_0 + 1 - \bar\alpha_t$ the true variance of the step back is $\beta_t
    \frac{v_{t-1}}{v_t}$, increasing in $v_0$: it is $\tilde\beta_t$ for point masses, $\beta_t$ for
    unit variance, and tends to $\beta_t / \alpha_t$ for wide data. So the two usual fixed choices
    are the ends for data of variance between 0 and 1, and the bound on the likelihood is largest at
    the true one.

    Checked for a linear schedule: against conditioning of the joint law, and $\tilde\beta_t$ plus
    what the posterior mean inherits from $\mathrm{Var}[x_0 \mid x_t]$; the expected step of the
    bound is least there, by numerical minimisation; a chain with exact means (`DDPM.reverse`) and
    these variances leads from $v_T$ back to $v_0$, by recursion and for draws of `ddpm_sample`; a
    learned variance (`DDPM`) can be the true one for $v_0$ in $[0, 1]$; `diffusion_bound` at the
    true variances is the entropy plus the divergence of the end.

    Knobs:
        chain: The variances of the chain: the true ones, $\tilde\beta_t$ or $\beta_t$.
        T: How many steps.
        n: How many draws.
    """
    schedule = NoiseSchedule.linear(T, first=0.01, last=0.4)
    betas = schedule.betas[1:]
    left = torch.cat([torch.ones(1), (1 - betas).cumprod(0)])
    tilde = (1 - left[:-1]) / (1 - left[1:]) * betas
    before = tilde
    for v0 in (0.0, V0, 1.0, 4.0, 1e6):
        v, at = left * v0 + 1 - left, {"v0": v0}
        true = betas * v[:-1] / v[1:]
        unknown = v0 * (1 - left[1:]) / v[1:]
        whole = tilde + (left[:-1].sqrt() * betas / (1 - left[1:])) ** 2 * unknown
        yield equals("variance given the data, and theirs", true, whole, tol=1e-12, **at)
        for t in (2, T):
            pair = (1 - betas[t - 1]).sqrt() * v[t - 1]
            cov = torch.stack([v[t - 1], pair, pair, v[t]]).view(2, 2)
            law = gaussian_condition(torch.zeros(2), cov, [1], torch.zeros(1))
            share, rounding = law.cov / true[t - 1], 1e-15 * float(v[t - 1] / true[t - 1])
            yield equals("variance of the conditional", share, 1.0, tol=1e-12 + rounding, t=t, **at)
        wider = true[1:] / before[1:]
        yield at_least("variance over that of narrower data", wider, 1.0, tol=1e-12, **at)
        before = true
        gains, _ = steps_back(schedule, Exact(betas, v0))
        spreads = {"true": true, "small": tilde, "large": betas}[chain]
        ended = ending_variance(gains, spreads, float(v[-1]), last=True)
        if chain == "true" or v0 == V0:
            yield equals("variance of the data, back again", ended, v0, tol=1e-9, **at)
    yield from ends_of_the_range(schedule, left, tilde)
    yield from cost_of_variance(schedule, left)
    yield from by_parts(schedule, left, n)


def ends_of_the_range(schedule: NoiseSchedule, left: Tensor, tilde: Tensor) -> Iterator[Evidence]:
    """The true variance at v0 = 0, 1 and infinity: the tables of the schedule."""
    betas = schedule.betas[1:]
    ends = ((0.0, schedule.beta_tilde[1:]), (1.0, betas), (1e12, betas / schedule.alphas[1:]))
    for v0, wanted in ends:
        v = left * v0 + 1 - left
        true = betas * v[:-1] / v[1:]
        yield equals("end of the range", true[1:], wanted[1:], tol=1e-9, v0=v0)
    yield equals("small variances of the schedule", schedule.beta_tilde[1:], tilde, tol=1e-12)


def cost_of_variance(schedule: NoiseSchedule, left: Tensor) -> Iterator[Evidence]:
    """The expected step of the bound as a function of the variance is least at the true one."""
    t = 8
    beta = schedule.betas[t]
    for v0 in (V0, 4.0):
        v = left * v0 + 1 - left
        model = DDPM(Exact(schedule.betas[1:], v0), (1,), schedule=schedule)
        nodes = torch.linspace(-8, 8, 401)
        mass = (-(nodes**2) / 2).softmax(0)
        xt = (v[t].sqrt() * nodes)[:, None]
        steps = torch.full((401,), t)
        known = left[t].sqrt() * v0 / v[t] * xt
        spread = (v0 * (1 - left[t]) / v[t]).sqrt()
        apart = torch.zeros(401)
        for node, weight in zip(nodes[::8], mass[::8] / mass[::8].sum(), strict=True):
            truth = schedule.posterior(known + spread * node, xt, steps)
            apart += weight * (truth.mean - model.reverse(xt, steps).mean).square()[:, 0]
        square, tilde = float(mass @ apart), schedule.beta_tilde[t : t + 1]

        def cost(log: float, square=square, tilde=tilde) -> float:
            off, own = torch.tensor([math.sqrt(square)]), torch.tensor([math.exp(log)])
            return float(gaussian_kl(off, tilde, 0 * off, own, diagonal=True))

        found: Any = optimize.minimize_scalar(cost, (math.log(tilde), math.log(beta)), tol=1e-10)
        wanted = float(torch.log(beta * v[t - 1] / v[t]))
        yield equals("log-variance of least cost", float(found.x), wanted, tol=1e-6, v0=v0)


def by_parts(schedule: NoiseSchedule, left: Tensor, n: int) -> Iterator[Evidence]:
    """The sampler, a learned variance and the bound, all at the true variances."""
    v = left * V0 + 1 - left
    true = schedule.betas[1:] * v[:-1] / v[1:]
    table, exact = torch.cat([torch.zeros(1), true]), Exact(schedule.betas[1:], V0)
    start = v[-1].sqrt() * torch.randn(n, 1)
    x = ddpm_sample(exact, (n, 1), schedule=schedule, variance=table, start=start)
    yield in_mean("squares of draws", x**2, V0)
    low, high = schedule.beta_tilde[2:].log(), schedule.betas[2:].log()
    raw = 2 * (true[1:].log() - low) / (high - low) - 1
    yield at_most("raw learned variance", raw.abs(), 1.0)

    class Learned(nn.Module):
        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            return torch.cat([exact(x, t), raw[t - 2][:, None]], 1)

    model = DDPM(Learned(), (1,), schedule=schedule, variance="learned")
    t = torch.arange(2, schedule.T + 1)
    found = model.reverse(torch.ones(len(t), 1), t).variance[:, 0]
    yield equals("learned variance", found, true[1:], tol=1e-12)
    x = V0**0.5 * torch.randn(n, 1)
    totals = bound_of(exact, x, schedule=schedule, variance=table, batch=n).total
    end, entropy = float(v[-1]), math.log(2 * math.pi * math.e * V0) / 2
    wanted = entropy + (end - 1 - math.log(end)) / 2
    yield in_mean("bound at the true variances", totals, wanted)


reverse_variance.foil("the small variance is exact", chain="small")
reverse_variance.foil("the large variance is exact", chain="large")
