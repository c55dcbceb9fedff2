"""Collapsed modes: codes that all give the same, and a divergence that sees no distance."""

import math

import numpy as np
import torch

from vademecum.claims import at_most, claim, equals
from vademecum.foundations import js_divergence
from vademecum.generative import ModeCoverage, mode_coverage, optimal_discriminator, wasserstein_1
from vademecum.generative.claims._finite_games import cards, game
from vademecum.generative.claims.games_and_transport.adversarial_equilibria import hands


@claim(
    by="identity",
    sources=("A-367", "B-512", "B-513", "B-515", "D-432"),
    short=r"\arg\min_{p_\theta} \mathbb E_{p_\theta} \log(1 - D)"
    r" = \text{mass on } \arg\max D \text{ alone}",
)
def mode_collapse(frozen: bool = True, steps: int = 1000):
    r"""Mode collapse as a best response to a frozen discriminator.

    Against a *fixed* discriminator the generator objective $\mathbb E_{p_\theta} [\log(1 - D)]$ is
    linear in $p_\theta$ and minimised by mass on the maximisers of $D$ alone, so a generator
    trained for long without discriminator updates maps all codes to few outputs (Helvetica
    scenario). A weak or rarely updated discriminator thus invites collapse, an over-trained one
    vanishing gradients; the numbers of steps have to be balanced.

    Checked for the losses of `GAN` over all hands of 6 cards on 4 outcomes; and by gradient descent
    on a softmax law over 8 modes of a ring: against a frozen $D$ with values from 0.1 to 0.9 its
    entropy falls below 0.05 nats, and a sample covers one mode; against the best discriminator at
    every step it ends at the uniform data with entropy $\log 8$, and covers all. The last sentence
    is quoted; its second half is `generator_saturation`.

    Knobs:
        frozen: Whether the first discriminator stays as it is.
        steps: How many steps the generator takes against it.
    """
    D = torch.linspace(0.2, 0.8, 4)[torch.randperm(4)]
    paid, wanted = [], []
    for hand in (every := hands(4, 6)):
        paid.append(game(hand, D.logit()).losses(cards(hand))["generator"])
        wanted.append(float(hand.numpy() / 6 @ np.log(1 - D.numpy())))
    yield equals("generator's loss", torch.stack(paid), wanted, tol=1e-12)
    best = every[int(torch.stack(paid).argmin())]
    yield equals("cards on the maximiser, of the best hand", best[D.argmax()], 6)
    D = torch.linspace(0.1, 0.9, 8)[torch.randperm(8)]
    one = torch.eye(8, dtype=torch.long)
    cost = [game(6 * row, D.logit()).losses(cards(6 * row))["generator"].item() for row in one]
    start = 0.3 * torch.randn(8).numpy()
    law = descended(start, np.array(cost) if frozen else None, steps)
    found, entropy = sampled(law)
    yield at_most("entropy against a frozen discriminator", entropy, 0.05, tol=0.0)
    yield equals("likeliest mode", int(law.argmax()), int(D.argmax()))
    yield equals("modes that a sample covers after that", found.covered, 1)
    found, entropy = sampled(descended(start, None, 400))
    yield equals("entropy against the best discriminator", entropy, math.log(8), tol=1e-6)
    yield equals("modes that a sample covers then", found.covered, 8)
    yield equals("share of junk", found.junk, 0.0, tol=0.0)


def sampled(law: np.ndarray) -> tuple[ModeCoverage, float]:
    """What 400 draws cover of a ring whose modes have these weights, and the entropy of the law."""
    drawn = torch.multinomial(torch.from_numpy(law), 400, replacement=True)
    angle = torch.arange(8) * math.pi / 4
    means = 4 * torch.stack([angle.cos(), angle.sin()], 1)
    x = means[drawn] + 0.1 * torch.randn(400, 2)
    # a collapsed law leaves other modes some 1e-3 at most: six of 400 draws have odds of 5e-6 / 720
    found = mode_coverage(x, means, torch.full((8,), 0.01), radius=6.0, least=6)
    return found, float(-(law * np.log(law)).sum())


def descended(start: np.ndarray, cost: np.ndarray | None, steps: int) -> np.ndarray:
    """A softmax law after descent on its expected cost, or on that of the best discriminator."""
    logits, data = start.copy(), torch.full((8,), 1 / 8)
    eta = 1.0 if cost is not None else 4.0
    for _ in range(steps):
        law = softmax(logits)
        c = cost
        if c is None:
            c = (1 - optimal_discriminator(data, torch.from_numpy(law))).log().numpy()
        logits -= eta * law * (c - law @ c)
    return softmax(logits)


def softmax(logits: np.ndarray) -> np.ndarray:
    """The law; SciPy's own takes five times as long for so few outcomes."""
    law = np.exp(logits - logits.max())
    return law / law.sum()


mode_collapse.foil(
    "training always collapses",
    refuted_by="entropy against a frozen discriminator",
    frozen=False,
)


@claim(
    by="identity",
    sources=("A-368",),
    short=r"\operatorname{supp} p \cap \operatorname{supp} p_\theta = \emptyset"
    r" \Rightarrow \mathrm{JS}(p, p_\theta) = \log 2",
)
def js_saturation(least: float = 1.0, attained: bool = True):
    r"""The Jensen-Shannon divergence saturates on disjoint supports.

    If the supports of $p$ and $p_\theta$ are disjoint, $\mathrm{JS}(p, p_\theta) = \log 2$ whatever
    their distance, so it gives no direction of improvement, while $W_1$ keeps measuring the
    distance.

    Checked for point masses at 0 and $a$, and for uniform laws on $[0, 1]$ and $[a, a + 1]$, cut
    into cells of 1/20, with $a = 1$ (where they touch) and random $a > 1$ up to 10. For $a < 1$ the
    supports overlap and the divergence is $a \log 2$.

    Knobs:
        least: The smallest distance $a$.
        attained: Whether $W_1$ is the distance; else it is said to saturate as well.
    """
    shifts = [0, *torch.randint(1, 180, (4,)).tolist()]
    for cells in shifts:
        a = least + cells / 20
        far = round(20 * a)
        width = 20 + far + 2
        laws = torch.zeros(4, width)
        laws[0, :20], laws[1, far : far + 20] = 1 / 20, 1 / 20
        laws[2, far + 1 : far + 21], laws[3, max(far - 1, 0) : far + 19] = 1 / 20, 1 / 20
        found, up, down = (js_divergence(laws[0], law) for law in laws[1:])
        yield equals("divergence of uniform laws", found, math.log(2), tol=1e-12, a=a)
        if cells:
            yield equals("change of the divergence", up - down, 0.0, tol=1e-12, a=a)
        points = js_divergence(torch.eye(width)[0], torch.eye(width)[far])
        yield equals("divergence of point masses", points, math.log(2), tol=1e-12, a=a)
        centres, moved = (torch.arange(20) + 0.5) / 20, torch.tensor(a, requires_grad=True)
        with torch.enable_grad():
            distance = wasserstein_1(centres, centres + moved).distance
            (slope,) = torch.autograd.grad(distance, moved)
        wanted = a if attained else 1.0
        yield equals("transport between uniform laws", distance.detach(), wanted, tol=1e-12, a=a)
        one = wasserstein_1(torch.zeros(1), torch.tensor([a])).distance
        yield equals("transport between point masses", one, wanted, tol=1e-12, a=a)
        yield equals("slope of the transport", slope, 1.0, tol=1e-12, a=a)


js_saturation.foil("supports that overlap", refuted_by="divergence of uniform laws", least=0.5)
js_saturation.foil(
    "transport saturates as well", refuted_by="transport between uniform laws", attained=False
)
