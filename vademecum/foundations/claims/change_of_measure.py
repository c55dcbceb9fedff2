"""Change of measure: expectations under another law, and their gradients."""

import math
from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from torch import Tensor
from torch.distributions import Normal

from vademecum.claims import at_most, claim, complex_step, equals
from vademecum.foundations import donsker_varadhan_bound, score_function_gradient
from vademecum.foundations.claims.empirical_laws import empirical
from vademecum.foundations.claims.information import random_laws

Divergence = Callable[[Tensor, Tensor], Tensor]


def exponential_moment(phi: Tensor, q: Tensor, p: Tensor) -> Tensor:
    """The bound of Donsker and Varadhan."""
    return donsker_varadhan_bound(phi, phi, q=q, p=p)


def by_definition(q: Tensor, p: Tensor) -> Tensor:
    r"""$\sum q \log \frac qp$ for laws along the last axis, where p is nowhere zero."""
    return (torch.special.xlogy(q, q) - torch.special.xlogy(q, p)).sum(-1)


@claim(
    by="identity",
    sources=("B-422",),
    budget=0.5,
    full={"draws": 2000},
    short=r"\mathbb E_Q[\phi] \le \mathrm{KL}(Q \| P) + \log \mathbb E_P[e^\phi]",
)
def donsker_varadhan(
    bound: Callable[[Tensor, Tensor, Tensor], Tensor] = exponential_moment,
    divergence: Divergence = by_definition,
    draws: int = 20,
):
    r"""Donsker-Varadhan change of measure.

    For $Q \ll P$ and measurable $\phi$ with $\mathbb E_P[e^\phi] < \infty$:
    $\mathbb E_Q[\phi] \le \mathrm{KL}(Q \| P) + \log \mathbb E_P[e^\phi]$, with equality for
    $\phi = \log \frac{dQ}{dP} + c$. Hence
    $\mathrm{KL}(Q \| P) = \sup_\phi \{\mathbb E_Q[\phi] - \log \mathbb E_P[e^\phi]\}$; it is the
    engine of PAC-Bayes bounds.

    *Proof.* The gap is $\mathrm{KL}(Q \| P_\phi) \ge 0$ with the tilted law
    $P_\phi \propto P e^\phi$.

    Knobs:
        bound: What is called the lower bound, of $\phi$, q and p.
        divergence: What is called the divergence of q and p.
        draws: How many triples of q, p and $\phi$ are drawn, on 2 to 10 letters.
    """
    fair, biased = torch.tensor([[0.5, 0.5], [0.9, 0.1]])
    ratio = (fair / biased).log()
    value = bound(ratio, fair, biased)
    yield equals(
        "lower bound for the divergence of two coins, at $\\log(q / p)$",
        value,
        divergence(fair, biased),
    )
    for _ in range(draws):
        k = int(torch.randint(2, 11, ()))
        q, p, phi = random_laws(k, zeros=True), random_laws(k), 10 * torch.rand(k) - 5
        value = bound(phi, q, p)
        yield at_most(
            "lower bound for the divergence, at a random $\\phi$", value, divergence(q, p), k=k
        )
        tilted = (p.log() + phi).softmax(0)
        gap = divergence(q, p) - value
        yield equals("divergence less its lower bound", gap, divergence(q, tilted), k=k)
        q = random_laws(k)
        best = bound((q / p).log() + 7, q, p)
        yield equals(
            "lower bound for the divergence, at $\\log(q / p) + 7$", best, divergence(q, p), k=k
        )
        counts = torch.randint(1, 9, (2, k))
        drawn = [phi.repeat_interleave(often) for often in counts]  # all draws with equal weights
        weighted = bound(phi, *empirical(counts))
        yield equals(
            "lower bound for the divergence, from draws",
            donsker_varadhan_bound(*drawn),
            weighted,
            k=k,
        )


donsker_varadhan.foil(
    r"$\mathbb E_P[\phi]$ in place of $\log \mathbb E_P[e^\phi]$",
    bound=lambda phi, q, p: ((q - p) * phi).sum(),
)
donsker_varadhan.foil("the reversed divergence", divergence=lambda q, p: by_definition(p, q))


def with_baseline(log_prob: Tensor, f: Tensor, z: Tensor, *, b: float) -> Tensor:
    """Subtract a number."""
    return score_function_gradient(log_prob, f, [z], baseline=b)[0]


def expected(estimator: Callable[..., Tensor], f: Tensor, z: Tensor, n: int) -> Tensor:
    """The mean of an estimate over all samples of n draws from the softmax of z."""
    mean, p = torch.zeros_like(z), z.detach().softmax(0)
    for draws in product(range(len(z)), repeat=n):
        x = torch.tensor(draws)
        mean = mean + p[x].prod() * estimator(z.log_softmax(0)[x], f[x], z)
    return mean


def own_mean(log_prob: Tensor, f: Tensor, z: Tensor) -> Tensor:
    """Subtract the mean over all draws, to which each draw's own value belongs."""
    return score_function_gradient(log_prob, f - f.mean(), [z], baseline=0.0)[0]


@claim(
    by="identity",
    sources=("D-032", "E-033"),
    budget=0.5,
    full={"draws": 10**6},
    short=r"\nabla_\theta \mathbb E_{p_\theta}[f] ="
    r" \mathbb E_{p_\theta}[f\, \nabla_\theta \log p_\theta]",
)
def log_derivative_trick(
    power: int = 1,
    estimator: Callable[[Tensor, Tensor, Tensor], Tensor] = (
        lambda log_prob, f, z: score_function_gradient(log_prob, f, [z])[0]
    ),
    draws: int = 1000,
):
    r"""Log-derivative trick.

    $\nabla_\theta p_\theta(x) = p_\theta(x)\, \nabla_\theta \log p_\theta(x)$ wherever
    $p_\theta(x) > 0$; hence $\nabla_\theta \mathbb E_{p_\theta}[f(x)] =
    \mathbb E_{p_\theta}[f(x)\, \nabla_\theta \log p_\theta(x)]$ (score-function or REINFORCE
    gradient) when the derivative may pass under the integral. The score has mean 0, so a baseline
    $b$ that does not depend on the draw may be subtracted from $f$: a constant, or the mean of the
    other draws.

    Checked for a normal density; for a softmax law on three letters, over all samples of up to
    three draws, against a complex step; and with random draws, where $|f| \le 1$ and scores in
    $[-1, 1]$ let Hoeffding's inequality bound the error at the level $10^{-7}$ for all coordinates
    together.

    Knobs:
        power: The power of p in front of its score.
        estimator: The gradient estimated from log-probabilities, values of f and the logits.
        draws: How many draws the random sample has.
    """
    theta = torch.tensor([0.3, 1.7], requires_grad=True)
    x = torch.linspace(-4, 4, 9)
    for i in range(9):
        mu, sigma = theta[0], theta[1]
        density = (-((x[i] - mu) ** 2) / (2 * sigma**2)).exp() / (sigma * math.sqrt(2 * math.pi))
        (slope,) = torch.autograd.grad(density, theta)
        (score,) = torch.autograd.grad(Normal(mu, sigma).log_prob(x[i]), theta)
        at = {"x": x[i].item()}
        yield equals("slope of a normal density", slope, density**power * score, **at)
    z = torch.randn(3, requires_grad=True)
    f, p = 2 * torch.rand(3) - 1, z.detach().softmax(0)
    scores = torch.eye(3) - p
    yield equals("mean of the score", p @ scores, 0.0)
    mean_f = lambda z: (z.exp() * f).sum() / z.exp().sum()  # noqa: E731
    exact = complex_step(mean_f, z.detach())
    for b in (0.0, -3.0, 100.0):
        whole = (p * (f - b)) @ scores
        yield equals("mean of f less a baseline, times the score", whole, exact, b=b)
        one = expected(partial(with_baseline, b=b), f, z, 1)
        yield equals("mean estimate from one draw", one, exact, b=b)
        one_draw = with_baseline(z.log_softmax(0)[:1], f[:1], z, b=b)
        yield equals("estimate from the first letter", one_draw, (f[0] - b) * scores[0], b=b)
    for n in (2, 3):
        yield equals("mean estimate from n draws", expected(estimator, f, z, n), exact, n=n)
    x = torch.multinomial(p, draws, replacement=True)
    (sampled,) = score_function_gradient(z.log_softmax(0)[x], f[x], [z], baseline=0.0)
    radius = math.sqrt(2 * math.log(2 * 3 / 1e-7) / draws)
    yield at_most("error of a sampled gradient", (sampled - exact).abs(), radius, draws=draws)


log_derivative_trick.foil(r"$\nabla p = \nabla \log p$ lacks the factor $p$", power=0)
log_derivative_trick.foil(
    r"$\mathbb E[\nabla f]$ without a score is 0 here", estimator=lambda log_prob, f, z: 0 * z
)
log_derivative_trick.foil(
    "a baseline that depends on the draw: the mean of all, itself included", estimator=own_mean
)
