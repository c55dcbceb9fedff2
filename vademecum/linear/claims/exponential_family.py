"""Exponential families: one form for many laws, and the losses it defines."""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.claims import at_least, claim, equals, in_mean
from vademecum.linear import ExponentialFamily, glm_loss

named = ExponentialFamily.named
POISSON = named("poisson")


def bernoulli_loss(v: Tensor, y: Tensor) -> Tensor:
    """The logistic loss of logits."""
    return glm_loss(v, y, family="bernoulli", reduction="none")


@claim(
    by="identity",
    sources=("B-205",),
    budget=0.5,
    short=r"\ell_y(v) = -\log p(y; v): \text{ squared (Gaussian), logistic (Bernoulli), log loss "
    r"(categorical)}",
)
def negative_log_likelihood(
    bernoulli: Callable[[Tensor, Tensor], Tensor] = bernoulli_loss, n: int = 20
):
    r"""Losses as negative log-likelihoods.

    A parametric observation model $p(y; v)$ defines the loss $\ell_y(v) = -\log p(y; v)$. Gaussian,
    Bernoulli and categorical models reproduce the squared, the logistic and the log loss (the
    first, $\frac12 (v - y)^2$, up to a constant that does not depend on $v$).

    Knobs:
        bernoulli: The loss of a logit and a label, 0 or 1.
        n: How many parameters and observations are drawn.
    """
    from scipy import stats

    v = 2 * torch.randn(n)
    for y in (0, 1):
        truth = -stats.bernoulli.logpmf(y, torch.sigmoid(v).numpy())
        found = bernoulli(v, torch.full((n,), float(y)))
        yield equals("logistic loss", found, truth, tol=1e-12, y=y)
    y = torch.randn(n)
    gaussian = glm_loss(v, y, family="gaussian", reduction="none")
    truth = -stats.norm.logpdf(y.numpy(), v.numpy())
    yield equals("loss of the Gaussian family", gaussian, truth, tol=1e-12)
    rest, constant = gaussian - (v - y).square() / 2, math.log(2 * math.pi) / 2
    yield equals("Gaussian loss less the squared one", rest, constant, tol=1e-12)
    z, k = torch.randn(n, 4), torch.randint(4, (n,))
    p = z.softmax(1)
    truth = -stats.multinomial.logpmf(F.one_hot(k, 4).numpy(), 1, p.numpy())
    categorical = glm_loss(z, k, family="categorical", reduction="none")
    yield equals("loss of the categorical family", categorical, truth, tol=1e-12)
    log_loss = -p[torch.arange(n), k].log()
    yield equals("categorical loss, against the log loss", categorical, log_loss, tol=1e-12)


negative_log_likelihood.foil(
    "with $y$ and $1 - y$ exchanged", bernoulli=lambda v, y: bernoulli_loss(v, 1 - y)
)
negative_log_likelihood.foil(
    "the squared loss of a probability is no Bernoulli likelihood",
    bernoulli=lambda v, y: (torch.sigmoid(v) - y).square(),
)


def outcomes(name: str) -> tuple[Tensor, Tensor]:
    """Outcomes, and their weights in a sum or in a trapezoidal rule."""
    if name == "gaussian":
        y = torch.arange(-15, 15, 0.1)
        return y, torch.full_like(y, 0.1)
    if name == "exponential":
        y = torch.arange(-40, 6, 0.05).exp()  # dy = y du for y = exp(u)
        return y, 0.05 * y
    y = torch.arange({"bernoulli": 2, "poisson": 201}[name]).double()
    return y, torch.ones_like(y)


@claim(
    by="identity",
    sources=("B-207", "B-208"),
    budget=0.5,
    short=r"p(y; v) = h(y) e^{y v - \psi(v)}:\quad \nabla \psi = \mathbb E_v[y],"
    r"\; \nabla^2 \psi = \mathrm{Cov}_v[y]",
)
def exponential_family(poisson: ExponentialFamily = POISSON, n: int = 5):
    r"""The exponential family and its log-partition function.

    A natural exponential family $p(y; v) = h(y) \exp[y \cdot v - \psi(v)]$ is normalised by
    $\psi(v) = \log \int h(y)\, e^{y \cdot v} dy$ (a sum for discrete $y$). On its domain $\psi$ is
    convex with $\nabla \psi(v) = \mathbb{E}_v[y]$ and $\nabla^2 \psi(v) = \mathrm{Cov}_v[y]$:
    $\log(1 + e^v)$ for Bernoulli, $e^v$ for Poisson, $v^2 / 2$ for the Gaussian of unit variance,
    $-\log(-v)$ on $v < 0$ for the exponential distribution.

    Mass, mean and variance are summed from the density: Poisson counts to 200 leave out less than
    $10^{-200}$ at $v \le 2$; the trapezoidal rule's error is below $10^{-12}$ here. So are those of
    samples, whose means lie within six standard errors.

    Knobs:
        poisson: The family that is taken for Poisson's.
        n: How many parameters are drawn for each family.
    """
    for name in ("bernoulli", "poisson", "gaussian", "exponential"):
        family = poisson if name == "poisson" else named(name)
        v = 4 * torch.rand(n) - 2
        v = -v.exp() if name == "exponential" else v
        y, weight = outcomes(name)
        shape = n, len(y)
        density = family.log_prob(v[:, None].expand(shape), y.expand(shape)).exp() * weight
        yield equals("mass", density.sum(1), 1.0, tol=1e-10, family=name)
        mean = density @ y
        yield equals("mean", family.mean(v), mean, tol=1e-10, family=name)
        variance = (density * (y - mean[:, None]).square()).sum(1)
        yield equals("variance", family.variance(v), variance, tol=1e-10, family=name)
        yield at_least("curvature of the log-partition", family.variance(v), 0.0, family=name)
        drawn = family.sample(v[:1].expand(2000)).double()
        at = {"sigmas": 6, "family": name}
        yield in_mean("mean of a sample", drawn, float(mean[0]), **at)
        squares = (drawn - mean[0]).square()
        yield in_mean("variance of a sample", squares, float(variance[0]), **at)
    family, z = named("categorical"), torch.randn(n, 4)
    p = family.log_prob(z[:, None].expand(n, 4, 4), torch.arange(4).expand(n, 4)).exp()
    yield equals("mass", p.sum(1), 1.0, tol=1e-10, family="categorical")
    yield equals("mean", family.mean(z), p, tol=1e-10, family="categorical")
    covariance = torch.stack([torch.cov(torch.eye(4), aweights=q, correction=0) for q in p])
    yield equals("variance", family.variance(z), covariance, tol=1e-10, family="categorical")


exponential_family.foil(
    "a Poisson family with the base measure 1 instead of $1 / y!$",
    poisson=replace(POISSON, log_base=torch.zeros_like),
)
exponential_family.foil(
    r"a Poisson family with $\psi(v) = v$",
    poisson=replace(POISSON, log_partition=lambda v: v),
)


@claim(
    by="identity",
    sources=("B-209",),
    budget=0.5,
    short=r"\partial \ell / \partial v = \nabla \psi(v) - y = \mathbb E_v[y] - y",
)
def canonical_link(sign: float = 1.0, saturating: bool = False, chain: bool = True, n: int = 12):
    r"""The gradient of an exponential-family loss is mean minus observation.

    With the negative log-likelihood of a natural exponential family as loss and a network's output
    as natural parameter $v$,
    $\partial \ell / \partial v = \nabla \psi(v) - y = \mathbb{E}_v[y] - y$; squared, logistic,
    softmax and Poisson regression are instances. With another link $v = h(u)$ the factor $h'(u)$
    appears.

    Knobs:
        sign: The sign of the gradient.
        saturating: Whether there is the factor $\sigma'(v)$ that the squared error of a Bernoulli
            probability has.
        chain: Whether $h'(u)$ is there for $h = \tanh$.
        n: How many parameters are drawn for each family.
    """
    means = {
        "bernoulli": lambda v: 1 / (1 + (-v).exp()),
        "poisson": torch.exp,
        "gaussian": lambda v: v,
        "categorical": lambda v: v.exp() / v.exp().sum(-1, keepdim=True),
    }
    for name, mean_of in means.items():
        v = torch.randn(n, 3)
        y = named(name).sample(v)
        observed = F.one_hot(y, 3) if name == "categorical" else y
        formula = sign * (mean_of(v) - observed)
        if saturating and name == "bernoulli":
            formula = formula * torch.sigmoid(v) * torch.sigmoid(-v)

        def loss(v: Tensor, y: Tensor = y, name: str = name) -> Tensor:
            return glm_loss(v, y, family=name, reduction="sum")

        slope = torch.func.grad(loss)(v)
        yield equals("gradient in the natural parameter", slope, formula, tol=1e-12, family=name)
        through = torch.func.grad(lambda u, loss=loss: loss(u.tanh()))(v)
        factor = 1 - v.tanh().square() if chain else 1.0
        formula = sign * (mean_of(v.tanh()) - observed) * factor
        yield equals("gradient through another link", through, formula, tol=1e-12, family=name)


canonical_link.foil(r"observation minus mean, $y - \nabla \psi(v)$", sign=-1.0)
canonical_link.foil(r"$(\sigma(v) - y)\, \sigma'(v)$ is the squared error's", saturating=True)
canonical_link.foil("another link without its derivative", chain=False)
