"""Diffusion in continuous time: run forwards and backwards."""

import math

import numpy as np
import torch

from vademecum.claims import at_most, claim, equals, in_mean, slope
from vademecum.generative import (
    VESDE,
    VPSDE,
    DiffusionSDE,
    MixtureScore,
    reverse_sde_sample,
)


def normal(process: DiffusionSDE, variance: float = 1.0) -> MixtureScore:
    """The exact score of centred normal data on a line."""
    one = torch.ones(1)
    return MixtureScore(one, torch.zeros(1, 1), variance * one, process=process, predicts="score")


@claim(
    by="fit",
    sources=("A-400",),
    budget=1.0,
    short=r"dx = -\tfrac12 \beta x\, dt + \sqrt\beta\, dW: x_t \sim N(e^{-B/2}"
    r" x_0, (1 - e^{-B}) I),\ B = \textstyle\int_0^t \beta",
)
def diffusion_sde(root: bool = True, half: float = 0.5):
    r"""Forward diffusion as a stochastic equation.

    $dx = f(x, t)\, dt + g(t)\, dW$; the variance-preserving choice $f = -\frac12 \beta(t) x$, $g =
    \sqrt{\beta(t)}$ is the continuous limit of the discrete noising chain, with marginal $\mathcal
    N\big(e^{-B/2} x_0, (1 - e^{-B}) I\big)$, $B = \int_0^t \beta$.

    Checked for `VPSDE` with random rates, and for `VESDE`, whose marginal is $\mathcal N\big(x_0,
    (\sigma^2(t) - \sigma^2(0)) I\big)$: mean and variance of the steps of Euler and Maruyama, which
    are exact for linear drifts, approach `marginal` with an error in proportion to the step for
    falling rates, and to within its bound for rising ones, at two times; so does the chain $x_{i+1}
    = \sqrt{1 - \beta_i}\, x_i + \sqrt{\beta_i}\, \epsilon$ with $\beta_i = \beta(t_i) h$. The
    variance tends to 1. That the marginal is normal, as for
    every linear equation, is quoted.

    Knobs:
        root: Whether $g = \sqrt{\beta}$, and not $\beta$.
        half: The factor of $-\beta(t) x$ in the drift.
    """
    low, high = (0.5 + 2 * torch.rand(())).item(), (4 + 3 * torch.rand(())).item()
    vp, ve = VPSDE(beta_min=high, beta_max=low), VESDE(sigma_min=0.3, sigma_max=2.0)
    rising = VPSDE(beta_min=low, beta_max=high)
    counts = [2**k for k in range(5, 14)]
    for end in (0.3, 1.0):
        yield from _at(vp, high, low, end)
        yield from _at(rising, low, high, end)
        B = high * end + (low - high) * end**2 / 2
        gaps = {"mean": [], "variance": [], "chain": []}
        for n in counts:
            mean, variance, chain = _moments(vp, end, n, root, half)
            gaps["mean"].append(abs(mean - math.exp(-B / 2)))
            gaps["variance"].append(abs(variance - 1 + math.exp(-B)))
            gaps["chain"].append(abs(chain - math.exp(-B / 2)))
        # For falling rates all terms of order h have one sign, so that none of them cancel.
        for name, gap in gaps.items():
            yield slope(f"error of the {name} against the steps", counts, gap, -1.0, t=end)
        mean, variance, chain = _moments(rising, end, 8192, root, half)
        B = low * end + (high - low) * end**2 / 2
        # Off by less than h (|beta(t) - beta(0)| / 4 + t max(beta)^2 / 4) < 14 / 8192 < 1.8e-3.
        found = torch.tensor([mean, chain, 1 - variance])
        wanted = torch.tensor([math.exp(-B / 2), math.exp(-B / 2), math.exp(-B)])
        yield equals("moments of steps with rising rates", found, wanted, tol=1.8e-3, t=end)
        _, variance, _ = _moments(ve, end, 4096, True, 0.5)
        grown = 0.09 * ((2.0 / 0.3) ** (2 * end) - 1)
        # A left Riemann sum of a rising g^2 < 15.2 is too small by at most 15.2 / 4096 < 4e-3.
        yield equals("variance by steps that explodes", variance, grown, tol=4e-3, t=end)
        yield equals("variance of VESDE", ve.marginal(torch.tensor(end)).std ** 2, grown, t=end)
    fast = VPSDE(beta_min=40.0, beta_max=60.0)
    _, last, _ = _moments(fast, 1.0, 4096, root, half)
    # Euler's variance solves v = (1 - h b / 2)^2 v + h b: v = 1 / (1 - h b / 4), h b < 0.015.
    yield equals("variance in the long run", last, 1.0, tol=2e-3)


def _at(process: VPSDE, first: float, last: float, end: float):
    """The marginal in closed form, for rates that change linearly."""
    scale, std = (float(v) for v in process.marginal(torch.tensor(end)))
    B = first * end + (last - first) * end**2 / 2
    yield equals("scale of the marginal", scale, math.exp(-B / 2), tol=1e-12, t=end)
    yield equals("its variance", std**2, 1 - math.exp(-B), tol=1e-12, t=end)


def _moments(
    process: DiffusionSDE, end: float, n: int, root: bool, half: float
) -> tuple[float, float, float]:
    """Mean and variance after n steps from x = 1, and the scale of the discrete chain."""
    h = end / n
    t = torch.arange(n) * h
    drift = process.drift(torch.ones(n, 1), t)[:, 0].numpy() * (half / 0.5)
    g2 = process.diffusion(t).numpy() ** 2
    g2 = g2 if root else g2**2
    factor = 1 + h * drift
    after = np.cumprod(factor[::-1] ** 2)[::-1]  # what later steps do to the noise of a step
    variance = float((h * g2 * np.append(after[1:], 1.0)).sum())
    return float(np.prod(factor)), variance, float(np.prod(np.sqrt(np.abs(1 - h * g2))))


diffusion_sde.foil("g = beta, without the root", refuted_by="variance in the long run", root=False)
diffusion_sde.foil(
    "a drift without the half", refuted_by="error of the mean against the steps", half=1.0,
    close="the error does not fall at all, and a rate may be off by a tenth",
)  # fmt: skip


@claim(
    by="identity",
    sources=("A-401",),
    budget=1.0,
    short=r"dx = [f(x, t) - g^2(t) \nabla_x \log p_t(x)]\, dt + g(t)\, d\bar W"
    r"\ \text{ has the marginals } p_t",
)
def reverse_sde(score_factor: float = 1.0, n: int = 10_000):
    r"""Reverse-time stochastic equation (Anderson).

    The time reversal of $dx = f\, dt + g\, dW$ with marginals $p_t$ is $dx = \big[f(x, t) - g^2(t)
    \nabla_x \log p_t(x)\big] dt + g(t)\, d\bar W$, run from $T$ down to 0 starting at $p_T$; its
    marginals are the same $p_t$.

    Checked for the variance-preserving process with $\int \beta = 8$. For normal data of variance
    $\frac14$ the variance that the steps of Euler and Maruyama reach falls to $\frac14$ with an
    error in proportion to the step; the squares of what `reverse_sde_sample` draws have that
    variance (five standard errors). For $\frac12 \mathcal N(-1, \frac14) + \frac12 \mathcal N(1,
    \frac14)$ the density itself, carried by the steps' kernels on a grid with 200 steps, has at the
    middle and at the end a total variation of at most 0.05 from $p_t$ (observed: 0.027).

    Knobs:
        score_factor: The factor of $g^2 \nabla \log p_t$; with $\frac12$ it is the drift of the
            flow without noise, with 0 there is no score.
        n: How many examples are drawn.
    """
    process = VPSDE(beta_min=8.0, beta_max=8.0)
    counts = [2**k for k in range(6, 14)]
    ends = [_reversed_variance(0.25, steps, score_factor) for steps in counts]
    yield slope("excess of the variance against the steps", counts,
                np.abs(np.array(ends) - 0.25), -1.0)  # fmt: skip
    yield at_most("variance after 1600 steps", _reversed_variance(0.25, 1600, score_factor), 0.2526)
    x = reverse_sde_sample(normal(process, 0.25), (n, 1), process=process, steps=128, end=0.0)
    yield in_mean("squares of what is drawn in 128 steps", x**2, ends[1])
    yield from _carried_density(process, score_factor)


def _reversed_variance(data: float, steps: int, score_factor: float) -> float:
    """The variance of Euler's steps for dx = -x dt / 2 + dW on [0, 8], reversed, from 1."""
    h, found = 8 / steps, 1.0
    for i in range(steps):
        spread = 1 + (data - 1) * math.exp(-(8 - i * h))
        found = (1 + h / 2 - score_factor * h / spread) ** 2 * found + h
    return found


def _carried_density(process: DiffusionSDE, score_factor: float):
    half = torch.full((2,), 0.5)
    exact = MixtureScore(half, torch.tensor([[-1.0], [1.0]]), half / 2, process=process,
                         predicts="score")  # fmt: skip
    grid = torch.linspace(-4.5, 4.5, 241)[:, None]
    law = exact.log_prob(grid, t=1.0).exp()
    law, steps = law / law.sum(), 200
    for i in range(steps):
        t = torch.tensor(1 - i / steps)
        g2 = float(process.diffusion(t)) ** 2 / steps
        moved = grid - process.drift(grid, t) / steps + score_factor * g2 * exact.score(grid, t)
        kernel = (-((grid.T - moved) ** 2) / (2 * g2)).exp()
        law = law @ (kernel / kernel.sum(1, keepdim=True))
        if i + 1 in (steps // 2, steps):
            lower = 1 - (i + 1) / steps
            wanted = exact.log_prob(grid, t=lower).exp()
            gap = (law - wanted / wanted.sum()).abs().sum() / 2
            yield at_most("total variation from the law at that time", gap, 0.05, t=lower)


reverse_sde.foil(
    "half of the score's drift together with the noise", score_factor=0.5,
    refuted_by="variance after 1600 steps",
)  # fmt: skip
reverse_sde.foil(
    "no score at all", refuted_by="total variation from the law at that time", score_factor=0.0
)
