"""The variational bound of a diffusion model: by enumeration, and for normal chains."""

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import Evidence, at_most, claim, equals, in_mean
from vademecum.foundations import gaussian_kl
from vademecum.generative import NoiseSchedule
from vademecum.generative import diffusion_bound as bound_of
from vademecum.generative.claims._three_steps import BETAS, Chain, Paths, over_paths


@claim(
    by="identity",
    sources=("A-380",),
    budget=0.6,
    short=r"\log p_\theta(x_0) \ge \mathbb E_{q(x_{1:T} | x_0)} \log"
    r" \frac{p_\theta(x_{0:T})}{q(x_{1:T} | x_0)}",
)
def diffusion_bound(
    under: Literal["q", "p"] = "q",
    gap: Literal["q from p", "p from q"] = "q from p",
    models: int = 200,
    n: int = 4000,
):
    r"""The variational bound of a diffusion model, the noised path being the latent variable.

    $\log p_\theta(x_0) \ge \mathbb E_{q(x_{1:T} \mid x_0)} \log \frac{p_\theta(x_{0:T})}{q(x_{1:T}
    \mid x_0)} = \log p_\theta(x_0) - \mathrm{KL}(q(x_{1:T} \mid x_0) \| p_\theta(x_{1:T} \mid
    x_0))$, the evidence lower bound for a fixed encoder; it is attained by the exact reversal.

    Checked by enumeration of all 27 paths of three states in three steps, for random models and the
    exact reversal; and for `diffusion_bound` of normal chains with linear means, in its mean over
    draws, where log-density and divergence of paths are those of four-dimensional normal laws.

    Knobs:
        under: Whether the expectation is over paths of the diffusion or of the model.
        gap: Which divergence the gap is.
        models: How many random models are enumerated.
        n: How many draws of `diffusion_bound`.
    """
    for exact in (False, True):
        paths = Paths.drawn(models)
        paths = paths.reversed_exactly() if exact else paths
        q, p = paths.q, paths.p
        log_p = over_paths(p).log()
        posterior = p / over_paths(p)[:, :, None, None, None]
        weights = q if under == "q" else posterior
        bound = over_paths(weights * (p / q).log())
        apart = over_paths(q * (q / posterior).log())
        if gap == "p from q":
            apart = over_paths(posterior * (posterior / q).log())
        at = {"reversal": "exact" if exact else "any"}
        yield at_most("bound less the log-probability", bound - log_p, 0.0, tol=1e-12, **at)
        yield equals("gap of the bound", log_p - bound, apart, tol=1e-12, **at)
        if exact:
            yield equals("gap of the exact reversal", log_p - bound, 0.0, tol=1e-12)
    for x0 in (0.3, -1.5):
        chain = Chain.drawn()
        x = torch.full((n, 1), x0)
        table = torch.tensor([0.0, *chain.variances])
        found = bound_of(chain.noise, x, schedule=chain.schedule, variance=table, batch=n).total
        log_p, forth, back = chain.evidence(x0)
        wanted = -log_p + (forth if gap == "q from p" else back)
        yield in_mean("negative bound of normal chains", found, wanted, x0=x0)


diffusion_bound.foil("the expectation over paths of the model", under="p")
diffusion_bound.foil("the gap with its laws swapped", refuted_by="gap of the bound", gap="p from q")


@claim(
    by="identity",
    sources=("A-381", "A-383"),
    budget=0.6,
    short=r"-\mathrm{ELBO} = L_T + \sum_{t>1} \mathbb "
    r"E\,\mathrm{KL}(q(x_{t-1}|x_t,x_0)\|p_\theta) - \mathbb E \ln p_\theta(x_0|x_1)",
)
def diffusion_bound_decomposition(
    conditioned: bool = True, first: int = 2, reconstruction: bool = True, n: int = 4000
):
    r"""The bound falls into a prior term, a term for each step, and a reconstruction.

    The negative bound is $\mathbb E_q \big[\mathrm{KL}(q(x_T \mid x_0) \| p(x_T)) + \sum_{t=2}^T
    \mathrm{KL}(q(x_{t-1} \mid x_t, x_0) \| p_\theta(x_{t-1} \mid x_t)) - \log p_\theta(x_0 \mid
    x_1)\big]$: the terms $L_T$, $L_{t-1}$ and $L_0$. The last is often left out in practice, and
    what is left is no bound.

    Checked by enumeration for three states in three steps, and for `diffusion_bound` of normal
    chains with linear means: each term in its mean over draws against its closed form, which add up
    to the bound by the joint law of the path.

    Knobs:
        conditioned: Whether the steps' laws are given $x_0$, too.
        first: The first step that has a divergence.
        reconstruction: Whether $L_0$ is counted.
        n: How many draws of `diffusion_bound`.
    """
    paths = Paths.drawn(200)
    q, p = paths.q, paths.p
    total = over_paths(q * (q / p).log())
    terms = enumerated_terms(paths, conditioned=conditioned)
    parts = terms[3] + sum(terms[t - 1] for t in range(first, 4))
    parts = parts + terms["end"] if reconstruction else parts
    yield equals("sum of the terms, enumerated", parts, total, tol=1e-12)
    for x0 in (0.3, -1.5):
        yield from of_chains(x0, first, reconstruction, n)


def of_chains(x0: float, first: int, reconstruction: bool, n: int) -> Iterator[Evidence]:
    """The terms of normal chains, in closed form and drawn."""
    chain = Chain.drawn()
    table = torch.tensor([0.0, *chain.variances])
    x = torch.full((n, 1), x0)
    found = bound_of(chain.noise, x, schedule=chain.schedule, variance=table, batch=n)
    terms = normal_terms(chain, x0)
    log_p, forth, _ = chain.evidence(x0)
    total = terms["prior"] + sum(terms[t] for t in range(2, 4)) + terms[1]
    yield equals("sum of the terms of normal chains", total, forth - log_p, tol=1e-10, x0=x0)
    yield equals("prior term of normal chains", found.prior, terms["prior"], tol=1e-12, x0=x0)
    for t, column in zip((2, 3), found.steps.T, strict=True):
        yield in_mean("divergence of a step", column, terms[t], t=t, x0=x0)
    yield in_mean("reconstruction", found.reconstruction, terms[1], x0=x0)
    columns = [found.reconstruction, *found.steps.T]
    mine = found.prior + found.reconstruction * reconstruction + sum(columns[first - 1 :])
    yield equals("total of the bound", found.total, mine, tol=1e-12, x0=x0)


def enumerated_terms(paths: Paths, *, conditioned: bool) -> dict[int | str, Tensor]:
    """L_T at 3, L_{t-1} at t - 1, and L_0 at "end"; with first = 1 the latter comes in twice."""
    one, two, three = paths.forward
    to2, q = one @ two, paths.q
    to3 = to2 @ three
    terms: dict[int | str, Tensor] = {3: (to3 * (to3 / paths.prior[:, None]).log()).sum(2)}
    joint = q * paths.data[:, :, None, None, None]
    for t, (here, there) in ((2, ("b", "c")), (3, ("c", "d"))):
        pair = torch.einsum(f"nabcd->na{there}{here}", q)  # x_t, x_{t-1} given x_0
        law = pair / pair.sum(3, keepdim=True)
        if not conditioned:
            both = torch.einsum(f"nabcd->n{there}{here}", joint)
            law = (both / both.sum(2, keepdim=True))[:, None].expand_as(pair)
        cost = (law * (law / paths.back[t - 1][:, None]).log()).sum(3)
        terms[t - 1] = (pair.sum(3) * cost).sum(2)
    terms["end"] = -(one * paths.back[0].log().mT).sum(2)
    terms[0] = terms["end"]
    return terms


def normal_terms(chain: Chain, x0: float) -> dict[int | str, float]:
    """Each term of a normal chain: squares of normal numbers have known means."""
    left = [math.prod(1 - b for b in BETAS[:i]) for i in range(4)]
    zero, one = torch.zeros(1), torch.ones(1)
    last = torch.tensor([math.sqrt(left[3]) * x0]), torch.tensor([1 - left[3]])
    terms: dict[int | str, float] = {"prior": float(gaussian_kl(*last, zero, one, diagonal=True))}
    mean, cov = chain.given(x0)
    for t in (1, 2, 3):
        factor, constant = chain.mean(t)
        m, v = math.sqrt(left[t]) * x0, 1 - left[t]
        if t == 1:
            gain, offset, own = 0.0, x0, 0.0
        else:  # x_{t-1} given x_t and x_0, from the covariance of the path
            gain = float(cov[t - 2, t - 1] / cov[t - 1, t - 1])
            offset = float(mean[t - 2]) - gain * m
            own = float(cov[t - 2, t - 2]) - gain**2 * v
        sigma2 = chain.variances[t - 1]
        square = ((gain - factor) * m + offset - constant) ** 2 + (gain - factor) ** 2 * v
        entropy = math.log(2 * math.pi) if t == 1 else -1 - math.log(own)
        terms[t] = (math.log(sigma2) + entropy + (own + square) / sigma2) / 2
    return terms


diffusion_bound_decomposition.foil("steps not given the data", conditioned=False)
diffusion_bound_decomposition.foil("the first step counted twice", first=1)
diffusion_bound_decomposition.foil("without the reconstruction", reconstruction=False)


@claim(
    by="identity",
    sources=("A-382",),
    budget=0.4,
    short=r"L_T = \tfrac12 (\bar\alpha_T \|x_0\|^2 - d \bar\alpha_T - d \log(1 - \bar\alpha_T))",
)
def diffusion_prior_term(T: int = 1000, logarithm: bool = True, trace: float = 1.0, d: int = 5):
    r"""The prior term of the diffusion loss has nothing to train, and vanishes.

    $L_T = \mathrm{KL}(q(x_T \mid x_0) \| \mathcal N(0, I)) = \frac12 (\bar\alpha_T \|x_0\|^2 - d
    \bar\alpha_T - d \log(1 - \bar\alpha_T))$ for $p(x_T) = \mathcal N(0, I)$; it tends to 0 with
    $\bar\alpha_T$.

    Checked against the general divergence of normal laws, and `diffusion_bound`. For betas from
    $10^{-4}$ to 0.02 in 1,000 steps and $\|x_0\|^2 = d$ it is below $10^{-4}$ nats for each
    dimension; in general at most $\frac12 (\bar\alpha_T \|x_0\|^2 / d + \bar\alpha_T^2)$ for
    $\bar\alpha_T \le \frac12$.

    Knobs:
        T: How many of the 1,000 steps are made.
        logarithm: Whether the term with the logarithm is there.
        trace: The factor of $-d \bar\alpha_T$.
        d: The dimension.
    """
    for betas in ((0.9, 0.5), (0.3,), (0.1, 0.2, 0.7)):
        schedule, x = NoiseSchedule(list(betas)), torch.randn(4, d)
        left = math.prod(1 - b for b in betas)
        mean, spread = math.sqrt(left) * x, torch.full((d,), 1 - left)
        general = gaussian_kl(mean, spread, torch.zeros(d), torch.ones(d), diagonal=True)
        log = math.log(1 - left) if logarithm else 0.0
        formula = (left * x.square().sum(1) - d * trace * left - d * log) / 2
        at = {"alpha_bar": left}
        yield equals("divergence from the standard normal law", general, formula, tol=1e-12, **at)
        found = bound_of(lambda x, t: x / 2, x, schedule=schedule).prior
        yield equals("prior term of diffusion_bound", found, general, tol=1e-12, **at)
    schedule = NoiseSchedule(torch.linspace(1e-4, 0.02, 1000)[:T])
    x = torch.randn(1, d)
    x = x * math.sqrt(d) / x.norm()
    yield at_most("prior term a dimension", prior(schedule, x) / d, 1e-4, tol=0.0, T=T)
    for left in (0.5, 0.1, 1e-2, 1e-4, 1e-6):
        value = prior(NoiseSchedule([1 - left]), x) / d
        yield at_most("prior term over its bound", value / ((left + left**2) / 2), 1.0, left=left)


def prior(schedule: NoiseSchedule, x: Tensor) -> Tensor:
    """The divergence of the last step from the standard normal law."""
    scale, std = schedule.marginal(schedule.T)
    one = torch.ones(x.shape[1])
    return gaussian_kl(scale * x, std**2 * one, 0 * one, one, diagonal=True)


diffusion_prior_term.foil("50 of the steps are enough", refuted_by="prior term a dimension", T=50)
diffusion_prior_term.foil("without the logarithm", logarithm=False)
diffusion_prior_term.foil("without the trace", trace=0.0)
