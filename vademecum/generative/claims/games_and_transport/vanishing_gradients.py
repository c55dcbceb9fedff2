"""Gradients that vanish: where a discriminator is sure, and a loss whose gradients do not."""

import math
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from scipy.integrate import quad
from scipy.special import expit
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations import js_divergence
from vademecum.generative import GAN, wasserstein_1
from vademecum.generative.claims.games_and_transport.adversarial_training import (
    Affine,
    Polynomial,
    as_vector,
    normal_codes,
    play,
    put,
)

Loss = Literal["saturating", "non-saturating"]


class Free(nn.Module):
    """A generator that can move each example as it likes."""

    def __init__(self, rows: Tensor):
        super().__init__()
        self.rows = nn.Parameter(rows)

    def forward(self, z: Tensor) -> Tensor:
        """The examples."""
        return self.rows[: len(z)]


def slopes(objective: Loss, logits: Tensor) -> Tensor:
    """The derivative of the generator's loss in the logit of each of its examples."""
    G = Free(logits[:, None].clone())
    loss = GAN(G, nn.Identity(), latent_dim=1, objective=objective).losses(logits[:, None])
    (found,) = torch.autograd.grad(loss["generator"], G.rows)
    return found[:, 0] * len(logits)


@claim(
    by="identity",
    sources=("A-366", "B-514", "D-430"),
    short=r"\tfrac{d}{da} \log(1 - \sigma(a)) = -\sigma(a) \to 0 \text{ as } a \to -\infty",
)
def generator_saturation(objective: Loss = "saturating"):
    r"""Vanishing generator gradient under a strong discriminator.

    The derivative of $\log(1 - \sigma(a))$ in the logit $a$ is $-\sigma(a)$, which vanishes as the
    discriminator rejects samples with confidence ($a \to -\infty$); with the optimal discriminator
    and laws at distance $\mu$ the generator gradient decays to 0 while the Jensen-Shannon
    divergence saturates at $\log 2$. Training the discriminator to optimality with many steps per
    generator step therefore stalls learning.

    Checked for the gradients of `GAN`; for $\mathcal N(0, 1)$ against $\mathcal N(\mu, 1)$ by the
    derivative of the divergence, $\frac12 \int q\, (x - \mu) \log \frac{2 q}{p + q}$ (SciPy's
    quadrature; 0.225, 0.0686, 0.0062, 0.00020, 2.2e-6 at $\mu = 2, 4, 6, 8, 10$), while $W_1 = \mu$
    keeps the slope 1; and for discriminators with a tenth, three tenths and all of the best logit,
    whose generator gradients at $\mu = 6$ fall to an eighth.

    Knobs:
        objective: The generator's loss.
    """
    a = torch.linspace(-45, 10, 23)
    ratio = slopes(objective, a).numpy() / expit(a.numpy())
    yield equals("slope over $\\sigma(a)$", ratio, -1.0, tol=1e-12)
    yield at_most("size of the slope at $a = -45$", -slopes(objective, a)[0], 1e-19, tol=0.0)
    grid, sizes = torch.arange(-12, 24, 0.1), []
    for mu in (2.0, 4.0, 6.0, 8.0, 10.0):
        at = torch.tensor(mu, requires_grad=True)
        with torch.enable_grad():
            laws = [(-((grid - m) ** 2) / 2).softmax(0) for m in (torch.zeros(()), at)]
            divergence = js_divergence(*laws)
            (found,) = torch.autograd.grad(divergence, at)
        yield equals("slope of the divergence over its integral", found / integral(mu), 1.0,
                     tol=1e-6, mu=mu)  # fmt: skip
        sizes.append(float(found))
        moved, codes = at.detach().clone().requires_grad_(), normal_codes()[:, 0]
        with torch.enable_grad():
            distance = wasserstein_1(codes + moved, codes).distance
            (steady,) = torch.autograd.grad(distance, moved)
        yield equals("slope of the distance", steady, 1.0, tol=1e-12, mu=mu)
    yield equals("divergence at the largest distance", divergence, math.log(2), tol=1e-6)
    known = [0.225, 0.0686, 0.0062, 0.0002, 2.2e-6]
    yield equals("slope over the known one", np.array(sizes) / known, 1.0, tol=0.01)
    yield from on_the_way(objective)


def integral(mu: float) -> float:
    """The derivative of the divergence in the second mean, by quadrature."""

    def integrand(x: float) -> float:
        q = math.exp(-((x - mu) ** 2) / 2) / math.sqrt(2 * math.pi)
        # the logarithm of q / (p + q); that of 2 has an integral of 0
        return -q * (x - mu) * float(np.logaddexp(0, mu**2 / 2 - mu * x)) / 2

    cuts = (-12, mu / 2, mu, mu + 12)
    return sum(float(quad(integrand, a, b, epsabs=1e-14)[0]) for a, b in pairwise(cuts))


def on_the_way(objective: Loss):
    """The generator's gradient by its mean, for discriminators with a share of the best logit."""
    z = normal_codes(2000)
    for mu in (2.0, 4.0, 6.0):
        G, D = Affine(z), Polynomial(1)
        gan = GAN(G, D, latent_dim=1, objective=objective)
        found = []
        for share in (0.1, 0.3, 1.0):
            put(gan, torch.tensor([1.0, mu, share * mu**2 / 2, -share * mu]))
            loss = gan.losses(z, players=("generator",))["generator"]
            found.append(torch.autograd.grad(loss, G.b)[0].item())
        # quantiles stand for the law: observed within 0.5 %
        ratio = found[-1] / (2 * integral(mu))
        yield equals("gradient at the best discriminator over twice the slope", ratio, 1.0,
                     tol=0.01, mu=mu)  # fmt: skip
    yield at_most("gradient as discriminators improve", found[1:], found[:-1], tol=0.0, mu=mu)
    yield at_most("gradient at the best over that at a poor one", found[2] / found[0], 0.2)


generator_saturation.foil(
    "every generator loss saturates",
    refuted_by="slope over $\\sigma(a)$",
    objective="non-saturating",
)


@claim(
    by="identity",
    sources=("D-431",),
    short=r"\tfrac{d}{da} (-\log \sigma(a)) = -(1 - \sigma(a)) \to -1 \text{ as } a \to -\infty",
)
def non_saturating_loss(objective: Loss = "non-saturating", proportional: bool = False):
    r"""Non-saturating generator loss.

    Train $G$ to maximise $\mathbb E[\log D(G(z))]$ in place of minimising $\mathbb E[\log(1 -
    D(G(z)))]$: the logit derivative is $1 - \sigma(a)$ instead of $\sigma(a)$ in size, so gradients
    stay strong when samples are rejected, and $p_\theta = p$, $D = \frac12$ remains a fixed point
    of the dynamics.

    Checked for the gradients of `GAN`: 0.9999 against 0.0001 at $D = 10^{-4}$, the ratio of the two
    losses' gradients $(1 - \sigma(a)) / \sigma(a) = e^{-a}$, and the fixed point of a game with a
    quadratic logit.

    Knobs:
        objective: The generator's loss.
        proportional: Whether the two gradients are said to differ by a factor that is the same for
            all logits.
    """
    rejected = torch.tensor([1e-4]).logit()
    yield equals("slope at $D = 10^{-4}$", slopes(objective, rejected), -0.9999, tol=1e-10)
    other = slopes("saturating", rejected)
    yield equals("slope of the minimax loss there", other, -1e-4, tol=1e-10)
    a = torch.linspace(-30, 8, 20)
    found = slopes(objective, a)
    yield equals("slope", found, -expit(-a.numpy()), tol=1e-12)
    yield at_most("slope where samples are rejected", found[a <= 0], -0.5, tol=0.0)
    ratio = (found / slopes("saturating", a)).log()
    yield equals("logarithm of the losses' ratio", ratio, -a[:1] if proportional else -a, tol=1e-9)
    z = normal_codes()
    gan = GAN(Affine(z), Polynomial(2), latent_dim=1, objective=objective)
    for s, mu in ((1.5, 1.0), (0.7, -2.0)):
        solution = torch.tensor([s, mu, 0.0, 0.0, 0.0])
        put(gan, solution)
        play(gan, s * z + mu, 0.3)
        yield equals("players after a round at the solution", as_vector(gan), solution, tol=1e-12)
        moved = solution + 0.1
        put(gan, moved)
        play(gan, s * z + mu, 0.3)
        gap = (as_vector(gan) - moved).abs().max()
        yield at_least("largest move elsewhere", gap, 1e-3, tol=0.0)


non_saturating_loss.foil(
    "the minimax loss", refuted_by="slope at $D = 10^{-4}$", objective="saturating"
)
non_saturating_loss.foil(
    "the same gradient up to a factor",
    refuted_by="logarithm of the losses' ratio",
    proportional=True,
)
