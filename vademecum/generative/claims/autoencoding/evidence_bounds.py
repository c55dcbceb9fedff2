"""The evidence lower bound: it is one, what is missing, and where nothing is."""

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import Evidence, at_most, claim, equals, in_mean
from vademecum.foundations import gaussian_kl
from vademecum.generative import VAE
from vademecum.generative.claims._exact_bounds import (
    Linear,
    exact_elbo,
    exact_reconstruction,
    linear_vae,
    log_likelihood,
    posterior,
    random_encoder,
    random_model,
    trapezia,
)
from vademecum.models import mlp


def discrete(codes: int, observations: int) -> tuple[Tensor, Tensor]:
    """The prior of some codes, and the laws of observations given them."""
    return torch.randn(codes).softmax(0), torch.randn(codes, observations).softmax(1)


def kl_to_prior(vae: VAE, x: Tensor, order: str) -> Tensor:
    """The part's divergence from the prior, or the one with its arguments exchanged."""
    if order == "q to p":
        return vae.elbo(x).kl
    code = vae.encode(x)
    zero, one = torch.zeros_like(code.mean), torch.ones_like(code.mean)
    return gaussian_kl(zero, one, code.mean, code.log_variance.exp(), diagonal=True)


Order = Literal["q to p", "p to q"]


@claim(
    by="identity",
    sources=("A-347", "A-348", "B-481", "C-300", "D-394", "D-395", "E-296", "E-301"),
    budget=0.4,
    full={"draws": 200_000},
    short=r"\log p(x) \ge \mathbb E_{q}[\log p(x | z)] - \mathrm{KL}(q(z | x) \| p(z))",
)
def elbo(sign: float = 1.0, order: Order = "q to p", draws: int = 20_000):
    r"""The evidence lower bound.

    For every density $q$ on the code, $\log p_\theta(x) \ge \mathbb E_{q(z \mid x)}[\log
    p_\theta(x \mid z)] - \mathrm{KL}(q(z \mid x) \| p(z))$. Both terms can be estimated from draws
    of $q$ and differentiated, so that the bound is maximised in place of the likelihood.

    *Proof.* Jensen's inequality for $\log \mathbb E_q[p_\theta(x, z) / q(z)]$. *Checked* for the
    bound of `VAE`: for linear Gaussian models with random Gaussian encoders, whose likelihood
    SciPy gives, and networks with one code, whose likelihood quadrature gives; with equality at the
    posterior; the estimates from one draw agree in mean with the bound, and the gradient of their
    mean with that of the bound. By enumeration for discrete models with 4 codes and random $q$.

    Knobs:
        sign: The sign of the divergence.
        order: Which way the divergence goes.
        draws: How many draws of the code estimate the bound.
    """
    for d, m in ((3, 2), (4, 1)):
        model, x = random_model(d, m), 2 * torch.randn(6, d)
        wanted, at = log_likelihood(model, x), {"d": d, "m": m}
        for _ in range(3):
            vae = random_encoder(model)
            bound = exact_reconstruction(vae, x) - sign * kl_to_prior(vae, x, order)
            yield at_most("bound of a linear model", bound, wanted, **at)
        W = torch.linalg.qr(model.W).Q * 1.3  # with independent codes
        model = Linear(W, model.b, model.sigma)
        A, a, precision = posterior(model)
        vae = linear_vae(model, A, a, -precision.diagonal().log())
        bound = exact_reconstruction(vae, x) - sign * kl_to_prior(vae, x, order)
        yield equals("bound at the posterior", bound, log_likelihood(model, x), tol=1e-10, **at)
    yield from _one_draw(sign, order, draws)
    yield from _network(sign, order)
    yield from _enumerated(sign, order)


def _one_draw(sign: float, order: str, draws: int) -> Iterator[Evidence]:
    """Estimates from one draw each, and their gradients: 200 means, nearly normal."""
    model = random_model(3, 2)
    vae, x = random_encoder(model), torch.randn(1, 3)
    bound = exact_reconstruction(vae, x) - sign * kl_to_prior(vae, x, order)
    yield in_mean("bound from one draw", vae.elbo(x.expand(draws, 3)).elbo, bound.item())
    weights = [net.weight for net in (vae.encoder, vae.decoder) if isinstance(net, nn.Linear)]
    exact = torch.autograd.grad(bound.sum(), weights)
    some = x.expand(draws // 200, 3)
    grads = [torch.autograd.grad(-vae.loss(some), weights) for _ in range(200)]
    for name, place, i, j in (("encoder", 0, 3, 1), ("encoder", 0, 0, 2), ("decoder", 1, 2, 0)):
        each = torch.stack([g[place][i, j] for g in grads])
        wanted = exact[place][i, j].item()
        yield in_mean("gradient of the estimated bound", each, wanted, module=name, i=i, j=j)


def _network(sign: float, order: str) -> Iterator[Evidence]:
    net, x = mlp([1, 5, 3], nn.Tanh), torch.randn(4, 3)
    vae = VAE(mlp([3, 4, 2], nn.Tanh), net, noise=0.8)
    rule = nodes, weights = trapezia()
    log_prob = torch.distributions.Normal(net(nodes), 0.8).log_prob(x[:, None]).sum(2)
    wanted = (log_prob + weights.log()).logsumexp(1)
    bound = exact_reconstruction(vae, x, rule) - sign * kl_to_prior(vae, x, order)
    yield at_most("bound of a network", bound, wanted)


def _enumerated(sign: float, order: str) -> Iterator[Evidence]:
    prior, laws = discrete(4, 5)
    q = torch.randn(1000, 5, 4).softmax(2)
    p = prior.expand_as(q)
    one, other = (q, p) if order == "q to p" else (p, q)
    divergence = (one * (one / other).log()).sum(2)
    bound = (q * laws.T.log()).sum(2) - sign * divergence
    yield at_most("bound of a discrete model", bound, (prior @ laws).log(), tol=1e-12)
    q = (prior[:, None] * laws).T / (prior @ laws)[:, None]
    one, other = (q, prior.expand_as(q)) if order == "q to p" else (prior.expand_as(q), q)
    best = (q * laws.T.log()).sum(1) - sign * (one * (one / other).log()).sum(1)
    yield equals("bound of a discrete model at the posterior", best, (prior @ laws).log())


elbo.foil("the divergence added", sign=-1.0)
elbo.foil("the divergence counted half, which is no bound at the posterior", sign=0.5)
elbo.foil("the divergence of the prior from q", order="p to q")


@claim(
    by="identity",
    sources=("A-349", "B-481", "C-300", "D-394", "E-307"),
    budget=0.3,
    short=r"\log p(x) = \mathcal L(q; x) + \mathrm{KL}\bigl(q(z | x) \,\|\, p(z | x)\bigr)",
)
def elbo_gap(order: Literal["q to p", "p to q"] = "q to p", factor: float = 1.0):
    r"""The gap of the evidence lower bound is a divergence from the posterior.

    $\log p_\theta(x) = \mathcal L(\theta, q; x) + \mathrm{KL}(q(z \mid x) \,\|\, p_\theta(z \mid
    x))$ exactly, so that $\log p_\theta(x) = \mathbb E_q[\log p_\theta(x \mid z)] - \mathrm{KL}(q
    \| p(z)) + \mathrm{KL}(q \| p_\theta(z \mid x))$; for a data set it is summed over the points.

    *Proof.* $\log p_\theta(x) = \log p_\theta(x, z) - \log p_\theta(z \mid x)$ for every $z$; take
    the mean over $q$. *Checked* for the bound of `VAE`: linear Gaussian models with random encoders
    and correlated posteriors (likelihood by SciPy, divergence by `gaussian_kl`), point by point and
    summed; a network with one code, all by quadrature; discrete models by enumeration.

    Knobs:
        order: Which way the divergence from the posterior goes.
        factor: A factor before it.
    """
    for d, m in ((4, 2), (2, 3)):
        model, x = random_model(d, m), 2 * torch.randn(5, d)
        vae = random_encoder(model)
        code, (A, a, precision) = vae.encode(x), posterior(model)
        q = code.mean, torch.diag_embed(code.log_variance.exp())
        p = x @ A.T + a, torch.linalg.inv(precision).expand(5, m, m)
        p = p[0], (p[1] + p[1].mT) / 2
        gap = factor * (gaussian_kl(*q, *p) if order == "q to p" else gaussian_kl(*p, *q))
        sides = exact_elbo(vae, x) + gap, log_likelihood(model, x)
        yield equals("bound and gap of a linear model", *sides, tol=1e-10, d=d, m=m)
        sums = sides[0].sum(), sides[1].sum()
        yield equals("bound and gap of a data set", *sums, tol=1e-10, d=d, m=m)
    net, x = mlp([1, 5, 3], nn.Tanh), torch.randn(4, 3)
    vae = VAE(mlp([3, 4, 2], nn.Tanh), net, noise=0.8)
    z = torch.linspace(-14, 14, 5601)  # the rule of trapezia, exact to 1e-12 for these densities
    step = float(z[1] - z[0])
    fit = torch.distributions.Normal(net(z[:, None]), 0.8).log_prob(x[:, None]).sum(2)
    joint = fit + torch.distributions.Normal(0.0, 1.0).log_prob(z)
    evidence, bound = (joint.exp().sum(1) * step).log(), exact_elbo(vae, x, trapezia())
    mean, log_variance = (part[:, 0] for part in vae.encode(x))
    log_q = torch.distributions.Normal(mean, (log_variance / 2).exp()).log_prob(z[:, None]).T
    log_p = joint - evidence[:, None]
    one, other = (log_q, log_p) if order == "q to p" else (log_p, log_q)
    gap = factor * (one.exp() * (one - other)).sum(1) * step
    yield equals("bound and gap of a network", bound + gap, evidence)
    prior, laws = discrete(4, 5)
    q, exact = torch.randn(5, 4).softmax(1), (prior[:, None] * laws).T / (prior @ laws)[:, None]
    bound = (q * (laws.T.log() + prior.log() - q.log())).sum(1)
    one, other = (q, exact) if order == "q to p" else (exact, q)
    total = bound + factor * (one * (one / other).log()).sum(1)
    yield equals("bound and gap of a discrete model", total, (prior @ laws).log(), tol=1e-12)


elbo_gap.foil("the divergence of the posterior from q", order="p to q")
elbo_gap.foil("half the divergence", factor=0.5)
