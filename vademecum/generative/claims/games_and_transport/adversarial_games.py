"""The adversarial game: its value, the best discriminator, and what is left to the generator."""

import math
from collections.abc import Callable

import numpy as np
import torch
from scipy.spatial.distance import jensenshannon
from scipy.special import expit
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.generative import optimal_discriminator as best_response
from vademecum.generative.claims._finite_games import Table, cards, drawn_counts, game
from vademecum.generative.claims._laws_on_grids import minimise

Response = Callable[[Tensor, Tensor], Tensor]
EXAMPLE = torch.tensor([5, 3, 2]), torch.tensor([2, 2, 6])


def pairs() -> list[tuple[Tensor, Tensor]]:
    """Counts of data and of generated outcomes, on three sizes of a set."""
    return [EXAMPLE, *((drawn_counts(k, n), drawn_counts(k, n)) for k, n in ((6, 40), (4, 25)))]


def value(p: Tensor, q: Tensor, logits: Tensor) -> Tensor:
    """The value of the game that the discriminator maximises."""
    return -game(q, logits).losses(cards(p), players=("discriminator",))["discriminator"]


def without_logarithms(p: Tensor, q: Tensor, logits: Tensor) -> Tensor:
    """The mean of D on data plus that of 1 - D on what is generated."""
    D = Table(logits.sigmoid())
    return D(cards(p)).mean() + (1 - D(cards(q))).mean()


@claim(
    by="identity",
    sources=(
        *("A-360", "A-361", "A-363", "B-503", "B-508", "B-511", "C-309", "C-310", "C-311"),
        *("D-426", "D-427"),
    ),
    short=r"V = \mathbb E_p \log D(x) + \mathbb E_z \log(1 - D(G(z)))",
)
def gan_objective(of: Callable[[Tensor, Tensor, Tensor], Tensor] = value, labelled: bool = True):
    r"""GAN value function.

    A generator $G$ turns noise into samples and a discriminator $D : x \mapsto [0, 1]$ estimates
    the probability that $x$ is real; the game is $\min_G \max_D V(G, D)$ with $V = \mathbb E_{x
    \sim p} [\log D(x)] + \mathbb E_{z \sim p_z} [\log(1 - D(G(z)))]$. $V$ is minus twice the binary
    cross-entropy of $D$ on the balanced mixture $\tilde p(x, y) = \frac12 (y\, p(x) + (1 - y)\,
    p_\theta(x))$, which is a law with $\tilde P(y = 1) = \frac12$; the normalisation $\ell = V / 2$
    is also in use. $V$ is maximised by $p / (p + p_\theta)$.

    Checked for the losses of `GAN` on laws with 3, 6 and 4 outcomes, where a batch that holds each
    outcome as often as its probability says has exact means; against enumeration of $\tilde p$.

    Knobs:
        of: The value function.
        labelled: Whether the label stands before the data's density in $\tilde p$.
    """
    for p, q in pairs():
        k, logits = len(p), 3 * torch.randn(len(p))
        a, b = (c.numpy() / int(c.sum()) for c in (p, q))
        mixture = np.stack([((0 if labelled else a) + b) / 2, a / 2])  # of y = 0 and y = 1
        yield equals("mass of the balanced mixture", mixture.sum(), 1.0, tol=1e-12, outcomes=k)
        yield equals("probability of a real example", mixture[1].sum(), 0.5, tol=1e-12, outcomes=k)
        D = expit(logits.numpy())
        entropy = -(mixture * np.log(np.stack([1 - D, D]))).sum()
        yield equals("value", of(p, q, logits), -2 * entropy, tol=1e-12, outcomes=k)
        paid = game(q, logits).losses(cards(p), players=("generator",))["generator"]
        yield equals("generator's share", paid, (b * np.log(1 - D)).sum(), tol=1e-12, outcomes=k)
        best = minimise(lambda t, p=p, q=q: -of(p, q, t), torch.zeros(k)).sigmoid()
        yield equals("discriminator that maximises it", best, a / (a + b), tol=1e-8, outcomes=k)


gan_objective.foil(
    "no label before the data's density", refuted_by="mass of the balanced mixture", labelled=False
)
gan_objective.erratum(
    "C-311",
    printed=r"$V(G, D) = \mathbb E_{x_r \sim p_{data}} [D(x_r)] + \mathbb E_{z \sim p_z}"
    r" [1 - D(G(z))]$",
    right=r"$V(G, D) = \mathbb E_{x_r \sim p_{data}} [\log D(x_r)] + \mathbb E_{z \sim p_z}"
    r" [\log(1 - D(G(z)))]$",
    why=r"As scanned: the logarithms are missing. Without them the maximiser is $\mathbf 1[p >"
    r" p_\theta]$ and the value $1 + \mathrm{TV}(p, p_\theta)$, which contradicts the Bayes-optimal"
    r" discriminator and the Jensen-Shannon value on the same sheet: for $p = (.5, .3, .2)$ and"
    r" $p_\theta = (.2, .2, .6)$ it is 1.4, and 1.174 at $p / (p + p_\theta)$. (Logarithms survive"
    " elsewhere in this part of the scan, but denominators do not.)",
    weight="scan",
    refuted_by="discriminator that maximises it",
    of=without_logarithms,
)


def swapped(p: Tensor, q: Tensor) -> Tensor:
    """The posterior of the other class."""
    return best_response(q, p)


def clipped_ratio(p: Tensor, q: Tensor) -> Tensor:
    """The likelihood ratio, cut off at one."""
    return (p / q).clamp(max=1 - 1e-9)


@claim(
    by="identity",
    sources=("A-362", "B-504", "C-310", "C-312", "D-428"),
    short=r"D^*(x) = \frac{p(x)}{p(x) + p_\theta(x)}",
)
def optimal_discriminator(response: Response = best_response, n: int = 1000):
    r"""Bayes-optimal GAN discriminator.

    For a fixed generator law the value function is maximised pointwise by $D^*(x) = \frac{p(x)}
    {p(x) + p_\theta(x)} = \tilde P(y = 1 \mid x)$, the posterior of "real" under balanced classes
    (arbitrary where both densities vanish, where the library says 1/2).

    *Proof.* $a \log D + b \log(1 - D)$ has the derivative $a / D - b / (1 - D)$, which falls in $D$
    and vanishes at $a / (a + b)$ alone. Checked on laws with 3, 6 and 4 outcomes: no random
    discriminator has a larger value, and the gradient of `GAN`'s loss vanishes there; for Gaussians
    of equal variance the logit is linear, for others quadratic, also where densities underflow.

    Knobs:
        response: The discriminator that is said to be the best.
        n: How many others are drawn on each pair of laws.
    """
    for p, q in pairs():
        a, b = (c / int(c.sum()) for c in (p, q))
        D, k = response(a, b), len(p)
        joint = np.stack([b.numpy(), a.numpy()]) / 2
        yield equals("posterior", D, joint[1] / joint.sum(0), tol=1e-12, outcomes=k)
        others = torch.rand(n, k).numpy()
        values = (a.numpy() * np.log(others) + b.numpy() * np.log(1 - others)).sum(1)
        best = value(p, q, D.logit())
        yield at_least("value, and that of others", best, values, outcomes=k)
        logits = D.logit().requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(value(p, q, logits), logits)
        yield equals("slope of the value", slope, 0.0, tol=1e-12, outcomes=k)
    yield from gaussian_pairs()
    nowhere = torch.zeros(2)
    yield equals("where both densities vanish", response(nowhere, nowhere), 0.5, tol=0.0)


def gaussian_pairs():
    """Logits of two Gaussians: linear for equal variances, else quadratic."""
    x = torch.linspace(-60, 60, 101)
    m, s, t = 1 + torch.rand(()), 0.5 + torch.rand(()), 0.5 + torch.rand(())
    one, same, other = (torch.distributions.Normal(u, v) for u, v in ((0.0, s), (m, s), (m, t)))
    found = best_response(one.log_prob(x), same.log_prob(x), log=True)
    linear = (m / s**2) * (m / 2 - x)
    # the logit is the difference of two numbers of up to 1e4, so it is off by some 1e-12
    yield equals("posterior, equal variances", found, expit(linear.numpy()), tol=1e-10)
    found = best_response(one.log_prob(x), other.log_prob(x), log=True)
    quadratic = (x - m) ** 2 / (2 * t**2) - x**2 / (2 * s**2) + (t / s).log()
    yield equals("posterior, two variances", found, expit(quadratic.numpy()), tol=1e-10)
    near = x.abs() < 5
    found = best_response(*(law.log_prob(x[near]).exp() for law in (one, other)))
    yield equals("posterior, of densities", found, expit(quadratic[near].numpy()), tol=1e-10)


optimal_discriminator.foil(
    "the posterior of the other class", refuted_by="value, and that of others", response=swapped
)
optimal_discriminator.foil(
    "the likelihood ratio, clipped", refuted_by="slope of the value", response=clipped_ratio
)


@claim(
    by="identity",
    sources=("A-364", "B-505", "B-511", "C-313", "D-429"),
    short=r"V(G, D^*) = 2\, \mathrm{JS}(p, p_\theta) - \log 4",
)
def gan_jensen_shannon(factor: float = 2.0, constant: float = 2.0):
    r"""The GAN game minimises the Jensen-Shannon divergence.

    At the optimal discriminator $\ell(\theta, \phi^*) = \frac12 \mathbb E_p [\log D^*] + \frac12
    \mathbb E_{p_\theta} [\log(1 - D^*)] = \mathrm{JS}(p, p_\theta) - \log 2$, equivalently $V(G,
    D^*) = 2\, \mathrm{JS}(p, p_\theta) - \log 4$, with $0 \le \mathrm{JS} \le \log 2$ (0 iff equal,
    $\log 2$ iff the supports are disjoint).

    Checked for `GAN` with `optimal_discriminator` against SciPy's Jensen-Shannon distance, for
    equal, disjoint and random laws; that the bounds are attained there alone follows from
    $\frac12 \mathrm{TV}^2 \le \mathrm{JS} \le \mathrm{TV} \log 2$, which is checked as well.

    Knobs:
        factor: What the divergence is multiplied by.
        constant: How many times log 2 are subtracted.
    """
    first = drawn_counts(5, 30)
    apart = torch.tensor([4, 6, 0, 0, 0]), torch.tensor([0, 0, 3, 2, 5])
    touching = torch.tensor([4, 5, 1, 0, 0]), torch.tensor([0, 0, 3, 2, 5])
    cases = {"equal": (first, first), "disjoint": apart, "touching": touching}
    cases |= {f"random {i}": pair for i, pair in enumerate(pairs())}
    for kind, (p, q) in cases.items():
        a, b = (c / int(c.sum()) for c in (p, q))
        js = jensenshannon(a.numpy(), b.numpy()) ** 2
        found = float(value(p, q, best_response(a, b).logit()))
        wanted = factor * js - constant * math.log(2)
        yield equals("value at the best discriminator", found, wanted, tol=1e-12, laws=kind)
        tv = float((a - b).abs().sum()) / 2
        own = (found + math.log(4)) / 2
        yield at_least("divergence", own, tv**2 / 2, tol=1e-12, laws=kind)
        yield at_most("divergence", own, tv * math.log(2), tol=1e-12, laws=kind)


gan_jensen_shannon.foil("no factor before the divergence", factor=1.0)
gan_jensen_shannon.erratum(
    "C-313",
    printed=r"$\ell^* = \mathrm{JS}(p, p_\theta) - \ln 2$",
    right=r"$V^* = 2\, \mathrm{JS}(p, p_\theta) - \ln 4$, or $\ell = V / 2$",
    why=r"Right for $\ell = V / 2$, but the only objective on the sheet is the sum $V$ of two"
    r" expectations, whose optimum at $p = p_\theta$ is $-2 \ln 2 = -1.386$; the balanced mixture"
    r" with its factor $\frac12$ is never introduced.",
    weight="soft",
    refuted_by="value at the best discriminator",
    factor=1.0,
    constant=1.0,
)
