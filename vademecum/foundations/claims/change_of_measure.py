"""What the course claims of changing the law of an expectation, and of laws known by samples."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import product

import torch
from torch import Tensor
from torch.distributions import Normal

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations.change_of_measure import donsker_varadhan_bound
from vademecum.foundations.claims.information import random_laws
from vademecum.foundations.divergences import kl_divergence as kl
from vademecum.foundations.entropies import cross_entropy as cross
from vademecum.foundations.entropies import entropy as shannon
from vademecum.foundations.information_estimators import entropy_from_counts
from vademecum.foundations.score_function import score_function_gradient

Divergence = Callable[[Tensor, Tensor], Tensor]


def exponential_moment(phi: Tensor, q: Tensor, p: Tensor) -> Tensor:
    """The bound of Donsker and Varadhan."""
    return donsker_varadhan_bound(phi, phi, q=q, p=p)


def empirical(counts: Tensor) -> Tensor:
    """The relative frequencies along the last axis."""
    return counts / counts.sum(-1, keepdim=True)


@claim(by="identity", sources=("B-422",), budget=0.5, full={"draws": 2000})
def donsker_varadhan(
    bound: Callable[[Tensor, Tensor, Tensor], Tensor] = exponential_moment,
    divergence: Divergence = kl,
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
    """
    fair, biased = torch.tensor([[0.5, 0.5], [0.9, 0.1]])
    yield equals(bound((fair / biased).log(), fair, biased), divergence(fair, biased))
    for _ in range(draws):
        k = int(torch.randint(2, 11, ()))
        q, p, phi = random_laws(k, zeros=True), random_laws(k), 10 * torch.rand(k) - 5
        value = bound(phi, q, p)
        yield at_most(value, divergence(q, p), k=k)
        tilted = (p.log() + phi).softmax(0)
        yield equals(divergence(q, p) - value, divergence(q, tilted), k=k)
        q = random_laws(k)
        yield equals(bound((q / p).log() + 7, q, p), divergence(q, p), k=k)
        counts = torch.randint(1, 9, (2, k))
        drawn = [phi.repeat_interleave(often) for often in counts]  # all draws with equal weights
        yield equals(donsker_varadhan_bound(*drawn), bound(phi, *empirical(counts)), k=k)


donsker_varadhan.foil(
    r"$\mathbb E_P[\phi]$ in place of $\log \mathbb E_P[e^\phi]$",
    bound=lambda phi, q, p: ((q - p) * phi).sum(),
)
donsker_varadhan.foil("the reversed divergence", divergence=lambda q, p: kl(p, q))


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


@claim(by="identity", sources=("D-032", "E-033"), budget=0.5, full={"draws": 10**6})
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

    *Sampled:* with $|f| \le 1$ and softmax scores in $[-1, 1]$, Hoeffding's inequality at $10^{-7}$
    for all coordinates together.
    """
    theta = torch.tensor([0.3, 1.7], requires_grad=True)
    x = torch.linspace(-4, 4, 9)
    for i in range(9):
        mu, sigma = theta[0], theta[1]
        density = (-((x[i] - mu) ** 2) / (2 * sigma**2)).exp() / (sigma * math.sqrt(2 * math.pi))
        (slope,) = torch.autograd.grad(density, theta)
        (score,) = torch.autograd.grad(Normal(mu, sigma).log_prob(x[i]), theta)
        yield equals(slope, density**power * score, x=x[i].item())
    z = torch.randn(3, requires_grad=True)
    f, p = 2 * torch.rand(3) - 1, z.detach().softmax(0)
    scores = torch.eye(3) - p
    yield equals(p @ scores, 0.0)
    h = 1e-5 * torch.eye(3)
    central = ((z.detach() + h).softmax(-1) @ f - (z.detach() - h).softmax(-1) @ f) / 2e-5
    for b in (0.0, -3.0, 100.0):
        yield equals((p * (f - b)) @ scores, central, tol=1e-7, b=b)
        yield equals(expected(partial(with_baseline, b=b), f, z, 1), central, tol=1e-7, b=b)
        one_draw = with_baseline(z.log_softmax(0)[:1], f[:1], z, b=b)
        yield equals(one_draw, (f[0] - b) * scores[0], b=b)
    for n in (2, 3):
        yield equals(expected(estimator, f, z, n), central, tol=1e-7, n=n)
    x = torch.multinomial(p, draws, replacement=True)
    (sampled,) = score_function_gradient(z.log_softmax(0)[x], f[x], [z], baseline=0.0)
    radius = math.sqrt(2 * math.log(2 * 3 / 1e-7) / draws)
    yield at_most((sampled - central).abs(), radius, draws=draws)


log_derivative_trick.foil(r"$\nabla p = \nabla \log p$ lacks the factor $p$", power=0)
log_derivative_trick.foil(
    r"$\mathbb E[\nabla f]$ without a score is 0 here", estimator=lambda log_prob, f, z: 0 * z
)
log_derivative_trick.foil(
    "a baseline that depends on the draw: the mean of all, itself included", estimator=own_mean
)


def multinomial(p: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """All counts of n draws from a law on two or three letters, and their probabilities."""
    first = torch.cartesian_prod(*[torch.arange(n + 1)] * (len(p) - 1)).view(-1, len(p) - 1)
    first = first[first.sum(1) <= n]
    counts = torch.cat([first, n - first.sum(1, keepdim=True)], 1)
    log = math.lgamma(n + 1) + (counts * p.log() - torch.lgamma(counts + 1.0)).sum(1)
    return counts, log.exp()


@claim(by="identity", sources=("D-128",), budget=0.5)
def empirical_cross_entropy(offset: int = -1, divergence: Divergence = kl):
    r"""Learning minimises the empirical cross-entropy.

    The data law $p$ is known only through $n$ samples, and the model $q$ approximates it. Over all
    laws on $k$ letters the empirical cross-entropy $-\frac1n \sum_i \log q(x_i)$ is minimised by
    the empirical law $\hat p$, and the optimism is
    $\mathbb E[\mathrm{KL}(\hat p \| p)] = \frac{k - 1}{2 n} + O(n^{-2})$
    ($2 n\, \mathrm{KL}(\hat p \| p)$ is asymptotically $\chi^2_{k - 1}$). So the plug-in entropy
    falls short by as much: $\mathbb E[H(\hat p)] = H(p) - \mathbb E[\mathrm{KL}(\hat p \| p)]$. The
    reversed $\mathrm{KL}(p \| \hat p)$ is infinite with positive probability.
    """
    counts = torch.randint(1, 9, (5,))
    hat = empirical(counts)
    x = torch.arange(5).repeat_interleave(counts)
    z = torch.randn(5, requires_grad=True)
    (slope,) = torch.autograd.grad(-z.log_softmax(0)[x].mean(), z)
    yield equals(slope, z.softmax(0) - hat)
    model = random_laws(1000, 5)
    yield at_least(-model[:, x].log().mean(1), cross(hat, hat))
    laws = [
        ([0.5, 0.5], (50, 200, 800)),
        ([0.3, 0.7], (50, 200, 800)),
        ([0.3, 0.3, 0.4], (50, 100)),
    ]
    for law, sizes in laws:
        p = torch.tensor(law)
        yield equals(kl(p, torch.eye(len(p))), math.inf, k=len(p))  # one letter alone was drawn
        for n in sizes:
            counts, weights = multinomial(p, n)
            optimism = weights @ divergence(counts / n, p.expand_as(counts))
            leading = (len(p) + offset) / 2
            yield at_most((n * optimism - leading).abs(), 1 / n, k=len(p), n=n)
            plug_in = weights @ entropy_from_counts(counts, correction="none").value
            yield equals(plug_in, shannon(p) - optimism, k=len(p), n=n)


empirical_cross_entropy.foil(r"all $k$ letters counted: $\frac{k}{2 n}$", offset=0)
empirical_cross_entropy.foil(
    "the reversed divergence has no finite mean", divergence=lambda p, q: kl(q, p)
)


@claim(by="exhaustion", sources=("B-338",), budget=0.5, full={"largest": 6, "s": 10**5})
def bootstrap_distinct(
    left_out: bool = False,
    replace: bool = True,
    largest: int = 5,
    s: int = 1000,
    samples: int = 50,
):
    r"""Share of distinct examples in a bootstrap sample.

    A bootstrap sample ($s$ draws with replacement from $s$ examples) contains in expectation a
    fraction $1 - (1 - \frac1s)^s$ of the distinct examples. It decreases from 1 at $s = 1$ to
    $1 - e^{-1} \approx 0.632$, roughly two thirds.

    *Sampled:* each draw changes the share by at most $\frac1s$, so McDiarmid's inequality bounds
    the deviation of the mean over $m$ samples by $\sqrt{\ln(2 / \alpha) / (2 m s)}$ at the level
    $\alpha = 10^{-7}$.
    """

    def share(size: int) -> Fraction:
        missed = Fraction(size - 1, size) ** size
        return missed if left_out else 1 - missed

    for size in range(1, largest + 1):
        seen = sum(len(set(indices)) for indices in product(range(size), repeat=size))
        yield equals(seen, int(share(size) * size ** (size + 1)), s=size)
    n = torch.arange(2.0, 10**4)
    distinct = torch.cat([torch.ones(1), -torch.expm1(n * torch.log1p(-1 / n))])
    yield at_least(distinct[:-1] - distinct[1:], 0.0, tol=0.0)
    yield at_most((distinct[1:] - 1 + math.exp(-1)).abs(), 1 / (math.e * n))
    draw = torch.multinomial(torch.ones(samples, s), s, replacement=replace).sort(1).values
    fresh = 1 + (draw[:, 1:] != draw[:, :-1]).sum(1)
    radius = math.sqrt(math.log(2e7) / (2 * samples * s))
    yield at_most(abs(float((fresh / s).mean()) - float(share(s))), radius, s=s)


bootstrap_distinct.foil(r"$e^{-1}$ is the share that is left out", left_out=True)
bootstrap_distinct.foil("without replacement nothing is drawn twice", replace=False)
