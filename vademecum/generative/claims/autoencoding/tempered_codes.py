"""The weight of the divergence: what it makes of the encoder, the rate and the reconstruction."""

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.generative import VAE
from vademecum.generative.claims._exact_bounds import (
    Linear,
    Told,
    exact_elbo,
    exact_reconstruction,
    linear_vae,
    log_likelihood,
    log_normal,
    trapezia,
)


def discrete(n: int, codes: int, observations: int) -> tuple[Tensor, Tensor]:
    """Priors (n, codes) and log-likelihoods (n, observations, codes) of random models."""
    laws = torch.randn(n, codes, observations).softmax(2)
    return torch.randn(n, codes).softmax(1), laws.mT.log()


def objective(q: Tensor, prior: Tensor, fit: Tensor, beta: float) -> Tensor:
    """The weighted bound of discrete codes: for priors (n, 1, codes), q and fit (n, k, codes)."""
    return (q * fit).sum(-1) - beta * (q * (q / prior).log()).sum(-1)


def scalar(sigma: float, w: float) -> Linear:
    """A model of one code and one coordinate."""
    return Linear(torch.tensor([[w]]), torch.zeros(1), sigma)


def tempered_vae(model: Linear, temper: float) -> VAE:
    r"""The model with the encoder $\propto p(z)\, p(x \mid z)^{1 / t}$ for the temperature t."""
    w, noise = float(model.W), temper * model.sigma**2
    slope, spread = w / (w**2 + noise), noise / (w**2 + noise)
    A = torch.tensor([[slope]])
    return linear_vae(model, A, torch.zeros(1), torch.tensor([math.log(spread)]))


@claim(
    by="identity",
    sources=("C-307",),
    budget=0.3,
    short=r"\mathcal L_\beta = \mathbb E_q[\log p(x | z)] - \beta\, \mathrm{KL}(q \| p),\quad q^*"
    r" \propto p(z)\, p(x | z)^{1/\beta}",
)
def beta_vae(power: float = 1.0, weight: Literal["beta", "1 / beta"] = "beta"):
    r"""The objective of the beta-VAE and its optimal encoder.

    $\mathcal L_\beta = \mathbb E_{q(z \mid x)}[\log p(x \mid z)] - \beta\, \mathrm{KL}(q(z \mid x)
    \,\|\, p(z))$, averaged over the data and maximised; $\beta = 1$ is the evidence lower bound,
    and $\beta \ge 1$ gives a lower bound of it. For a fixed decoder the optimal encoder is the
    tempered posterior $q^*(z \mid x) \propto p(z)\, p(x \mid z)^{1 / \beta}$, with the value $\beta
    \log \int p(z)\, p(x \mid z)^{1 / \beta} dz$.

    *Proof.* $\mathcal L_\beta = \beta \log C - \beta\, \mathrm{KL}(q \| q^*)$ with the normaliser
    $C$. *Checked* for $\beta$ from 1/2 to 4: the loss of `VAE` is minus the objective, by its
    terms; for a linear Gaussian model, whose tempered posterior is normal, the objective there has
    the value of the integral by quadrature, and random encoders have less; for random discrete
    models by enumeration the same, with 1,000 random $q$; at $\beta = 1$ the value is $\log p(x)$;
    and for a fixed $q \ne p$ the objective falls with $\beta$.

    Knobs:
        power: The power of $1 / \beta$ in the tempering.
        weight: What stands before the divergence.
    """
    betas = (0.5, 1.0, 2.0, 4.0)
    model, x = scalar(0.7, 1.3), torch.tensor([[-1.5], [0.4], [2.2]])
    nodes, weights = trapezia()
    fit = log_normal(x, (nodes * model.W).T, model.sigma**2)
    values, fixed = [], _loose(model)
    for beta in betas:
        used = beta if weight == "beta" else 1 / beta
        vae = tempered_vae(model, beta**power)
        best = exact_elbo(vae, x, beta=used)
        top = beta * ((fit / beta).exp() @ weights).log()
        yield equals("objective of a linear model at its optimum", best, top, beta=beta)
        others = torch.stack([exact_elbo(_loose(model), x, beta=used) for _ in range(5)])
        yield at_most("objective of random encoders", others, top, beta=beta)
        values.append(exact_elbo(fixed, x, beta=used))
        yield from _loss_of_part(vae, x, beta, used)
        yield from _enumerated(beta, used, power)
    one = exact_elbo(tempered_vae(model, 1.0), x)
    yield equals("objective at beta = 1, and the likelihood", one, log_likelihood(model, x))
    falls = torch.stack(values).diff(dim=0)
    yield at_most("change of the objective with beta, for a fixed q", falls, -1e-9, tol=0.0)
    bound = exact_elbo(fixed, x)
    yield at_most("objective for beta above 1, and the bound", torch.stack(values[2:]), bound)


def _loose(model: Linear) -> VAE:
    """Any encoder but the prior."""
    A, a = 0.5 + torch.rand(1, 1), torch.randn(1)
    return linear_vae(model, A, a, torch.randn(1))


def _loss_of_part(vae: VAE, x: Tensor, beta: float, used: float) -> Iterator[Evidence]:
    vae.beta = beta
    loss = vae.loss(x, generator=torch.Generator().manual_seed(5))
    terms = vae.elbo(x, generator=torch.Generator().manual_seed(5))
    wanted = (used * terms.kl - terms.reconstruction).mean()
    yield equals("loss of the part", loss, wanted, tol=1e-13, beta=beta)
    vae.beta = 1.0


def _enumerated(beta: float, used: float, power: float) -> Iterator[Evidence]:
    prior, fit = discrete(1, 4, 5)
    best = (prior.log()[:, None] + fit / beta**power).softmax(2)
    value = objective(best, prior[:, None], fit, used)
    top = beta * (prior.log()[:, None] + fit / beta).logsumexp(2)
    yield equals("objective of a discrete model at its optimum", value, top, tol=1e-12, beta=beta)
    q = torch.randn(1000, 5, 4).softmax(2)
    others = objective(q, prior[:, None], fit, used)
    yield at_most("objective of random laws of codes", others, top, tol=1e-12, beta=beta)


beta_vae.foil("the posterior that is not tempered", power=0.0)
beta_vae.foil("tempered the other way", power=-1.0)
beta_vae.foil("the inverse weight", weight="1 / beta")


@claim(
    by="identity",
    sources=("C-308",),
    budget=0.4,
    short=r"\beta \mapsto \mathrm{KL}(q^*_\beta \| p),\ \mathbb E_{q^*_\beta}[\log p(x | z)]"
    r"\ \text{fall}",
)
def beta_rate_distortion(sign: float = 1.0, noise: float = 1.0, models: int = 50):
    r"""A larger beta trades reconstruction for a simpler code.

    For a fixed decoder and the optimal encoder both the rate $\mathrm{KL}(q^*_\beta \,\|\, p)$ and
    the reconstruction $\mathbb E_{q^*_\beta}[\log p(x \mid z)]$ do not increase with $\beta$. (That
    $\beta > 1$ also yields coordinates that are more disentangled is a tendency, no theorem.)

    *Proof.* The optimal value is a supremum of functions that are linear in $\beta$ with slope
    minus the rate, so it is convex and the rate falls; of two betas each prefers its own optimum,
    so the reconstruction falls, too. *Checked* on grids of $\beta$ from 0.1 to 20: for tempered
    posteriors of random discrete models, and for the terms of `VAE` with a linear Gaussian model of
    one code, whose optimal encoder $\mathcal N\bigl(\frac{w x}{w^2 + \beta \sigma^2}, \frac{\beta
    \sigma^2}{w^2 + \beta \sigma^2}\bigr)$ is found again by maximising the objective of the part.

    Knobs:
        sign: The direction in which both go; -1 claims that they grow.
        noise: A factor before $\beta \sigma^2$ in the optimal encoder.
        models: How many discrete models are drawn.
    """
    betas = np.geomspace(0.1, 20, 40)
    prior, fit = discrete(models, 4, 5)
    laws = [(prior.log()[:, None] + fit / b).softmax(2) for b in betas]
    rates = torch.stack([(q * (q / prior[:, None]).log()).sum(2) for q in laws])
    fits = torch.stack([(q * fit).sum(2) for q in laws])
    for name, curve in (("rate", rates), ("reconstruction", fits)):
        step = sign * curve.diff(dim=0)
        yield at_most(f"change of the {name} with beta, discrete", step, 0.0, tol=1e-12)
    model, x = scalar(0.8, 1.4), torch.tensor([[-1.0], [0.5], [2.0]])
    codes = [tempered_vae(model, b) for b in betas]
    rates = torch.stack([vae.elbo(x).kl for vae in codes])
    fits = torch.stack([exact_reconstruction(vae, x) for vae in codes])
    for name, curve in (("rate", rates), ("reconstruction", fits)):
        step = sign * curve.diff(dim=0)
        yield at_most(f"change of the {name} with beta, linear", step, 0.0, tol=1e-12)
        drop = sign * (curve[0] - curve[-1])
        yield at_least(f"fall of the {name} from beta = 0.1 to 20", drop, 0.1, tol=0.0)
    for beta in (0.5, 1.0, 4.0):
        slope, spread = _maximised(model, beta)
        below = 1.4**2 + noise * beta * 0.8**2
        yield equals("slope of the best encoder", slope, 1.4 / below, tol=1e-6, beta=beta)
        wanted = noise * beta * 0.8**2 / below
        yield equals("variance of the best encoder", spread, wanted, tol=1e-6, beta=beta)


def _maximised(model: Linear, beta: float) -> tuple[float, float]:
    x = torch.tensor([[1.0]])

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        v = torch.tensor(theta, requires_grad=True)
        vae = tempered_vae(model, beta)
        vae.encoder = Told(lambda _: (v[:1, None], v[1:, None]))
        value = -exact_elbo(vae, x, beta=beta).sum()
        return float(value.detach()), torch.autograd.grad(value, v)[0].numpy()

    found = minimize(loss, np.zeros(2), jac=True, method="BFGS", options={"gtol": 1e-9})
    return float(found.x[0]), float(np.exp(found.x[1]))


beta_rate_distortion.foil("a larger beta improves the reconstruction", sign=-1.0)
beta_rate_distortion.foil("twice the noise in the optimal encoder", noise=2.0)
