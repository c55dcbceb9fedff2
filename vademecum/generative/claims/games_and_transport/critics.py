"""Critics whose slope is bounded: by clipping, or by a penalty."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.stats import wasserstein_distance
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, complex_step, equals
from vademecum.claims.evidence import ALARM
from vademecum.generative import GAN
from vademecum.generative.claims._finite_games import Dealt
from vademecum.models import mlp


class Ramps(nn.Module):
    """A critic on a line, linear between some points; its parameters are the slopes there."""

    def __init__(self, points: Tensor, *, squashed: bool):
        super().__init__()
        self.points, self.squashed = points, squashed
        self.slopes = nn.Parameter(torch.zeros(len(points) - 1))

    def forward(self, x: Tensor) -> Tensor:
        """The critic's values, through a sigmoid if they are squashed."""
        left, right = self.points[:-1], self.points[1:]
        along = torch.minimum((x - left).clamp(min=0), right - left)
        values = along @ self.slopes
        return values.sigmoid() if self.squashed else values


@claim(
    by="identity",
    sources=("A-371", "C-317"),
    short=r"\min_G \max_{D \in 1\text{-Lip}} \mathbb E_x D(x) - \mathbb E_z D(G(z))",
)
def wgan_critic(squashed: bool = False, clipped: bool = True, steps: int = 3):
    r"""Wasserstein GAN critic.

    The WGAN solves $\min_G \max_{D \in 1\text{-Lip}} \mathbb E_x [D(x)] - \mathbb E_z [D(G(z))]$:
    the discriminator becomes an unbounded critic under a Lipschitz constraint, and at its optimum
    the inner value is $W_1(p, p_\theta)$ (times $K$ for a $K$-Lipschitz family).

    Checked for `GAN` with the constraint "clip" and a critic on a line that is linear between all
    points, whose parameters are its slopes: clipping them to $[-K, K]$ projects on $K$-Lipschitz
    functions. The value is linear in them, so that a few long steps reach the optimum: slopes $K
    \operatorname{sign}(F_q - F_p)$ and the value $K W_1$, by SciPy.

    Knobs:
        squashed: Whether the critic ends with a sigmoid, as a discriminator does.
        clipped: Whether slopes are clipped.
        steps: How many steps the critic takes.
    """
    cases = [(torch.zeros(4, 1), torch.full((4, 1), 10.0), 1.0)]
    for n, K in ((9, 1.0), (14, 2.5)):
        cases.append((torch.randn(n, 1).round(decimals=1), 2 * torch.randn(n, 1), K))
    for x, y, K in cases:
        critic = Ramps(torch.cat([x, y])[:, 0].unique(), squashed=squashed)
        game = GAN(Dealt(y), critic, latent_dim=1, objective="wasserstein", constraint="clip",
                   clip_at=K)  # fmt: skip
        for _ in range(steps):
            loss = game.losses(x, players=("discriminator",))["discriminator"]
            (slope,) = torch.autograd.grad(loss, critic.slopes)
            critic.slopes.data -= 1e6 * slope
            if clipped:
                game.clip()
        value = -game.losses(x, players=("discriminator",))["discriminator"].item()
        distance = wasserstein_distance(x[:, 0].numpy(), y[:, 0].numpy())
        yield equals("value of the best critic", value, K * distance, tol=1e-12, n=len(x), K=K)
        middles = (critic.points[1:] + critic.points[:-1]) / 2
        p, q = ((points <= middles).double().mean(0) for points in (x, y))
        differ = p != q  # elsewhere a slope changes nothing
        wanted = K * (q - p).sign()[differ]
        yield equals("its slopes", critic.slopes[differ], wanted, tol=1e-12, n=len(x), K=K)
        paid = game.losses(x, players=("generator",))["generator"]
        wanted = -float(critic(y).mean().detach())
        yield equals("what the generator pays", paid, wanted, tol=1e-12, n=len(x), K=K)


wgan_critic.foil(
    "a discriminator between 0 and 1", refuted_by="value of the best critic", squashed=True
)
wgan_critic.foil("no constraint", refuted_by="value of the best critic", clipped=False)


@claim(
    by="sampling",
    sources=("A-372",),
    short=r"|w| \le c \ \Rightarrow\ \mathrm{Lip}(D) \le \prod_{l=1}^L c \sqrt{n_{l-1} n_l}",
)
def weight_clipping(widths: bool = True, clipped: bool = True, n: int = 1000):
    r"""Lipschitz bound from weight clipping.

    Clipping all weights of an $L$-layer network with 1-Lipschitz activations to $[-c, c]$ enforces
    a Lipschitz constant of at most $\prod_{l=1}^L c \sqrt{n_{l-1} n_l}$ in the Euclidean norm, a
    crude constraint: it fixes $K$ only up to a constant that depends on the widths.

    *Proof.* A layer's spectral norm is at most its Frobenius norm. Checked for `GAN.clip` on ReLU
    and tanh networks of 2 and 3 layers with large random weights, at random points; with all
    weights $c$ a ReLU network attains the bound at positive inputs.

    Knobs:
        widths: Whether the widths stand in the bound.
        clipped: Whether weights are clipped.
        n: At how many points gradients are looked at.
    """
    for sizes, c, activation in (([3, 6, 4, 1], 0.3, nn.ReLU), ([5, 2, 1], 0.7, nn.Tanh)):
        critic = mlp(sizes, activation)
        game = GAN(nn.Linear(2, sizes[0]), critic, latent_dim=2, objective="wasserstein",
                   constraint="clip", clip_at=c)  # fmt: skip
        before = [p.detach().mul_(8).clone() for p in critic.parameters()]
        if clipped:
            game.clip()
        wanted = torch.cat([cut(p, c) for p in before])
        found = nn.utils.parameters_to_vector(critic.parameters())
        yield equals("parameters after clipping", found, wanted, tol=0.0, layers=len(sizes) - 1)
        factors = [c * (math.sqrt(a * b) if widths else 1) for a, b in pairwise(sizes)]
        bound, x = math.prod(factors), 3 * torch.randn(n, sizes[0])
        steep = gradients(critic, x).norm(dim=1)
        yield at_most("norms of gradients", steep, bound, tol=1e-10, layers=len(sizes) - 1)
        for p in critic.parameters():
            nn.init.constant_(p, 5.0)
        if clipped:
            game.clip()
        if activation is nn.ReLU:
            steep = gradients(critic, x.abs()).norm(dim=1)
            yield equals("norms with all weights $c$", steep, bound, tol=1e-10)


def cut(p: Tensor, c: float) -> Tensor:
    """The entries of a parameter, cut off by NumPy."""
    return torch.from_numpy(np.clip(p.numpy().ravel(), -c, c))


def gradients(critic: nn.Module, x: Tensor) -> Tensor:
    """The derivative of a critic in its inputs, a row for each."""
    x = x.clone().requires_grad_()
    with torch.enable_grad():
        (found,) = torch.autograd.grad(critic(x).sum(), x)
    return found


weight_clipping.foil(
    "a bound without widths", refuted_by="norms with all weights $c$", widths=False
)
weight_clipping.foil("nothing is clipped", refuted_by="norms of gradients", clipped=False)


class Watched(nn.Module):
    """A critic that remembers where it was asked."""

    def __init__(self, critic: nn.Module):
        super().__init__()
        self.critic, self.asked = critic, list[Tensor]()

    def forward(self, x: Tensor) -> Tensor:
        """The critic's values."""
        self.asked.append(x.detach())
        return self.critic(x)


@claim(
    by="sampling",
    sources=("A-373", "C-318", "C-319"),
    short=r"\lambda\, \mathbb E_{\hat x} (\|\nabla D(\hat x)\| - 1)^2, \quad"
    r" \hat x = \alpha x + (1 - \alpha) G(z)",
)
def gradient_penalty(power: int = 1, one_alpha: bool = True, n: int = 2000):
    r"""Gradient penalty (WGAN-GP).

    The Lipschitz constraint is replaced by the penalty $\lambda\, \mathbb E_{\hat x} \big[(\|
    \nabla_{\hat x} D(\hat x) \|_2 - 1)^2\big]$ at random points $\hat x = \alpha x + (1 - \alpha)
    G(z)$, $\alpha \sim U[0, 1]$, of segments between real and generated samples.

    Checked for `GAN`: for linear critics the penalty is $\lambda (\|w\| - 1)^2$, and zero iff
    $\|w\| = 1$; for a small tanh critic the penalty and its gradient in the parameters agree with
    the formula and its complex step; the points lie on their segments, and $\alpha$ is uniform by
    the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart at a level of $10^{-6}$.

    Knobs:
        power: Of the norm within the square.
        one_alpha: Whether a pair has one $\alpha$; else every coordinate has its own.
        n: How many pairs there are.
    """
    for d, weight in ((3, 10.0), (5, 2.0)):
        x, y, w = torch.randn(6, d), torch.randn(6, d), torch.randn(d)
        for size in (2.0, 1.0, 0.3):
            critic = nn.Linear(d, 1, bias=False)
            critic.weight.data.copy_(size * w / w.norm())
            found, _ = penalty_of(critic, x, y, weight)
            wanted = weight * (size**power - 1) ** 2
            yield equals("penalty of a linear critic", found, wanted, tol=1e-12, d=d, norm=size)
    yield from tanh_critic(power)
    x, y = torch.randn(n, 3), torch.randn(n, 3)
    _, between = penalty_of(nn.Linear(3, 1), x, y, 1.0)
    if not one_alpha:
        between = y + torch.rand(n, 3) * (x - y)
    # the coordinate along which a pair is farthest apart gives its alpha best
    far = (x - y).abs().argmax(1, keepdim=True)
    alpha = ((between - y).gather(1, far) / (x - y).gather(1, far))[:, 0]
    off = (between - y - alpha[:, None] * (x - y)).norm(dim=1)
    yield equals("distance of points from their segments", off, 0.0, tol=1e-12)
    yield at_least("smallest alpha", alpha, 0.0, tol=1e-12)
    yield at_most("largest alpha", alpha, 1.0, tol=1e-12)
    steps, sorted_ = np.arange(n + 1) / n, alpha.sort().values.numpy()
    gap = max(np.abs(sorted_ - steps[:-1]).max(), np.abs(sorted_ - steps[1:]).max())
    allowed = math.sqrt(math.log(2 / ALARM) / (2 * n))
    yield at_most("distance of alpha from the uniform law", gap, allowed, tol=0.0)


def penalty_of(critic: nn.Module, x: Tensor, y: Tensor, weight: float) -> tuple[Tensor, Tensor]:
    """The penalty, as what the constraint adds to the loss, and where it was taken."""
    watched = Watched(critic)
    keys: Any = {"latent_dim": 1, "objective": "wasserstein"}
    game = GAN(Dealt(y), watched, constraint="gradient-penalty", penalty=weight, **keys)
    with_it = game.losses(x, players=("discriminator",))["discriminator"]
    between = watched.asked[-1]
    without = GAN(Dealt(y), watched, **keys).losses(x, players=("discriminator",))["discriminator"]
    return with_it - without, between


def tanh_critic(power: int):
    """Penalty and its gradient for a critic of two layers, against the formula."""
    x, y = torch.randn(5, 2), torch.randn(5, 2)
    critic = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1, bias=False))
    own = list(critic.parameters())
    found, between = penalty_of(critic, x, y, 10.0)
    at = between.numpy()

    def formula(theta: np.ndarray) -> np.number:
        W, b, v = theta[:8].reshape(4, 2), theta[8:12], theta[12:]
        slope = ((1 - np.tanh(at @ W.T + b) ** 2) * v) @ W
        return 10 * ((np.sqrt((slope**2).sum(1)) ** power - 1) ** 2).mean()

    theta = nn.utils.parameters_to_vector(own).detach().numpy()
    yield equals("penalty of a tanh critic", found, formula(theta), tol=1e-12)
    slopes = torch.autograd.grad(found, own)
    wanted = complex_step(formula, theta)
    yield equals("its gradient", torch.cat([s.flatten() for s in slopes]), wanted, tol=1e-10)


gradient_penalty.foil("the squared norm", refuted_by="penalty of a linear critic", power=2)
gradient_penalty.foil(
    "an alpha for every coordinate",
    refuted_by="distance of points from their segments",
    one_alpha=False,
)
