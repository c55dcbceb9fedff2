"""Players that take steps in turn: on a bilinear game, and towards a Gaussian."""

import math
from typing import Literal

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.generative import GAN

Objective = Literal["saturating", "non-saturating", "wasserstein"]
TURNS = ("generator", "discriminator")


def play(gan: GAN, x: Tensor, eta: float, *, fresh: bool = True, decay: float = 0.0) -> None:
    """One round of gradient steps: in turn against the fresh opponent, or both at once."""
    for turn in [(player,) for player in TURNS] if fresh else [TURNS]:
        losses = gan.losses(x, players=turn)
        steps = []
        for player in turn:
            own = list(getattr(gan, player).parameters())
            steps += zip(own, torch.autograd.grad(losses[player], own), strict=True)
        with torch.no_grad():
            for p, slope in steps:
                p -= eta * (slope + decay * p)


def as_vector(gan: GAN) -> Tensor:
    """All parameters, the generator's first."""
    return torch.cat([p.detach().flatten() for p in gan.parameters()])


def put(gan: GAN, vector: Tensor) -> None:
    """Give the players these parameters; the vector is copied, since players move in place."""
    nn.utils.vector_to_parameters(vector.clone(), gan.parameters())


def jacobian(gan: GAN, x: Tensor, at: Tensor, eta: float, h: float = 1e-5, **options) -> np.ndarray:
    """The derivative of a round, by central differences."""
    columns = []
    for unit in torch.eye(len(at)):
        ends = []
        for sign in (h, -h):
            put(gan, at + sign * unit)
            play(gan, x, eta, **options)
            ends.append(as_vector(gan))
        columns.append((ends[0] - ends[1]) / (2 * h))
    return torch.stack(columns, 1).numpy()


class Point(nn.Module):
    """A generator of one point."""

    def __init__(self):
        super().__init__()
        self.theta = nn.Parameter(torch.ones(1))

    def forward(self, z: Tensor) -> Tensor:
        """The point, for each code."""
        return self.theta.expand(len(z), 1)


class Slope(nn.Module):
    """A critic that falls along the line."""

    def __init__(self):
        super().__init__()
        self.phi = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Minus the slope times the place."""
        return -self.phi * x


@claim(
    by="identity",
    sources=("B-510", "C-315", "C-316"),
    short=r"\theta' = \theta - \eta \nabla_\theta \ell(\theta, \phi), \quad"
    r" \phi' = \phi + \eta \nabla_\phi \ell(\theta', \phi)",
)
def alternating_gradient_gan(fresh: bool = True, n: int = 10_000):
    r"""Alternating gradient updates.

    In place of the inner supremum one alternates a generator descent step $\theta_{t+1} = \theta_t
    - \eta \nabla_\theta \ell(\theta_t, \phi_t)$ with a discriminator ascent step at the *fresh*
    generator, $\phi_{t+1} = \phi_t + \eta \nabla_\phi \ell(\theta_{t+1}, \phi_t)$. On the bilinear
    game $\ell = \theta \phi$ this has iteration determinant 1 and bounded orbits for $0 < \eta <
    2$, whereas simultaneous updates spiral out by $\sqrt{1 + \eta^2}$ per step.

    *Proof.* The round is $M = \begin{pmatrix} 1 & -\eta \\ \eta & 1 - \eta^2 \end{pmatrix}$ with
    trace $2 - \eta^2$, and keeps $\theta^2 + \phi^2 - \eta \theta \phi$, so an orbit stays within
    $\sqrt{(2 + \eta) / (2 - \eta)}$ times its start. Checked for the rounds that a `GAN` plays: a
    generator of one point, a linear critic and data at 0 are this game. Beyond $\eta = 2$ the
    spectral radius exceeds 1. With $\frac\epsilon2 \theta^2 - \frac\epsilon2 \phi^2$ added both
    ways converge for small $\eta$.

    Knobs:
        fresh: Whether the discriminator sees the fresh generator; else both step at once.
        n: How many steps an orbit has.
    """
    gan = GAN(Point(), Slope(), latent_dim=1, objective="wasserstein")
    x, origin = torch.zeros(3, 1), torch.zeros(2)
    for eta in (0.1, 0.3 + 1.5 * float(torch.rand(())), 2.2):
        M = jacobian(gan, x, origin, eta, h=1.0, fresh=fresh)  # a linear map: no step is too long
        wanted = np.array([[1, -eta], [eta, 1 - eta**2]])
        yield equals("round as a matrix", M, wanted, tol=1e-12, eta=eta)
        yield equals("its determinant", np.linalg.det(M), 1.0, tol=1e-12, eta=eta)
        radius, half = np.abs(np.linalg.eigvals(M)).max(), abs(2 - eta**2) / 2
        wanted = half + math.sqrt(max(half**2 - 1, 0)) if half > 1 else 1.0
        yield equals("its spectral radius", radius, wanted, tol=1e-12, eta=eta)
        if eta < 2:
            far = math.sqrt((2 + eta) / (2 - eta))
            yield at_most("farthest point of an orbit", farthest(M, n), far, tol=1e-9, eta=eta)
    yield from rounds(gan, x, M, eta)
    yield from other_rounds(gan, x)


def farthest(M: np.ndarray, n: int) -> float:
    """The largest distance from the origin on the way from the unit vectors, in n rounds."""
    (a, b), (c, d) = M.tolist()
    most = 0.0
    for theta, phi in ((1.0, 0.0), (0.0, 1.0)):
        for _ in range(n):
            theta, phi = a * theta + b * phi, c * theta + d * phi
            most = max(most, theta * theta + phi * phi)
    return math.sqrt(most)


def rounds(gan: GAN, x: Tensor, M: np.ndarray, eta: float):
    """Rounds in a row are powers of the matrix."""
    put(gan, torch.tensor([1.0, 0.5]))
    for _ in range(6):
        play(gan, x, eta)
    wanted = np.linalg.matrix_power(np.array([[1, -eta], [eta, 1 - eta**2]]), 6) @ [1.0, 0.5]
    yield equals("players after six rounds in turn", as_vector(gan), wanted, tol=1e-12, eta=eta)


def other_rounds(gan: GAN, x: Tensor):
    """Simultaneous steps, and a game with curvature."""
    origin = torch.zeros(2)
    for eta in (0.1, 0.7):
        both = np.linalg.eigvals(jacobian(gan, x, origin, eta, h=1.0, fresh=False))
        wanted = math.sqrt(1 + eta**2)
        yield equals("spectral radius, both at once", np.abs(both), wanted, tol=1e-12, eta=eta)
    for fresh in (True, False):
        M = jacobian(gan, x, origin, 0.1, h=1.0, fresh=fresh, decay=0.5)
        radius = np.abs(np.linalg.eigvals(M)).max()
        # of [[1 - c, -e], [e, 1 - c]] or, in turn, the root of its determinant (1 - c)^2
        wanted = 0.95 if fresh else math.sqrt(0.95**2 + 0.1**2)
        yield equals("spectral radius with curvature", radius, wanted, tol=1e-12, in_turn=fresh)


alternating_gradient_gan.foil(
    "both players step at once", refuted_by="farthest point of an orbit", fresh=False
)


def normal_codes(n: int = 32) -> Tensor:
    """Quantiles of the normal law, scaled to mean 0 and variance 1."""
    z = torch.from_numpy(ndtri((np.arange(n) + 0.5) / n))
    return ((z - z.mean()) / z.std(correction=0))[:, None]


class Affine(nn.Module):
    """A generator $a z + b$ of fixed codes."""

    def __init__(self, codes: Tensor):
        super().__init__()
        self.codes, self.a, self.b = codes, *(nn.Parameter(torch.tensor(t)) for t in (0.5, -0.5))

    def forward(self, z: Tensor) -> Tensor:
        """The images of the codes."""
        return self.a * self.codes[: len(z)] + self.b


class Polynomial(nn.Module):
    """A discriminator whose logit is a polynomial."""

    def __init__(self, degree: int):
        super().__init__()
        self.coefficients = nn.Parameter(torch.zeros(degree + 1))

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        powers = torch.arange(len(self.coefficients))
        return (self.coefficients * x**powers).sum(1)


@claim(
    by="training",
    sources=("A-360", "B-502", "D-426"),
    short=r"G(z) = a z + b \to \mathcal N(\mu, s^2): \quad |a| \to s,\ b \to \mu,\ D \to \tfrac12",
    full={"steps": 1000},
)
def gan_training(degree: int = 2, steps: int = 220):
    r"""A generative adversarial network learns a Gaussian.

    Generator $G(z) = a z + b$ and discriminator with quadratic logit, trained against each other by
    alternating gradient steps, converge locally to the data law $\mathcal N(\mu, s^2)$, with $|a| =
    s$, $b = \mu$ and $D \equiv \frac12$: the generator learns only through the classifier.

    Near the solution a round is linear. With features $f = (1, x, x^2)$, $K = \mathbb E\, \partial
    f(a z + b) / \partial(a, b)$ and $C = \mathbb E f f^\top$ it is $\delta' = \delta + \frac\eta2
    K^\top \phi$, $\phi' = \phi - \frac\eta2 (C \phi + K \delta')$ for both losses. Checked for
    `GAN` with 32 quantiles in the place of expectations, $0.1 \le \mu \le 0.4$, $0.9 \le s \le 1.1$
    and $\eta = 0.5$: the derivative of a round is this matrix and its spectral radius is below 1;
    after 220 rounds from $a = 0.5$, $b = -0.5$ and zero logits the players are at the solution, for
    the minimax and the non-saturating loss. The radius is at most 0.926 there (observed on a grid
    of $\mu$ and $s$), so that errors shrink by $4 \cdot 10^{-8}$. Beyond, say at $\mu = 0.7$ and
    $s = 1.1$, a step of 0.5 is too long.

    Knobs:
        degree: Of the logit; a linear one cannot see variances.
        steps: How many rounds are played.
    """
    z, eta = normal_codes(), 0.5
    mu, s = 0.1 + 0.3 * float(torch.rand(())), 0.9 + 0.2 * float(torch.rand(()))
    x = s * z + mu
    solution = torch.tensor([s, mu, *[0.0] * (degree + 1)])
    for objective in ("saturating", "non-saturating"):
        gan = GAN(Affine(z), Polynomial(degree), latent_dim=1, objective=objective)
        for _ in range(steps):
            play(gan, x, eta)
        a, b, *logit = as_vector(gan).tolist()
        yield equals("scale that was learnt", a, s, tol=1e-5, loss=objective)
        yield equals("mean that was learnt", b, mu, tol=1e-5, loss=objective)
        yield equals("logit of the discriminator", logit, 0.0, tol=1e-5, loss=objective)
        J = jacobian(gan, x, solution, eta)
        wanted = linear_round(z[:, 0].numpy(), s, mu, eta, degree)
        # central differences of 1e-5: their square, and rounding over it
        yield equals("derivative of a round", J, wanted, tol=1e-7, loss=objective)
        radius = np.abs(np.linalg.eigvals(J)).max()
        yield at_most("its spectral radius", radius, 0.93, tol=0.0, loss=objective)
        put(gan, solution)
        play(gan, x, eta)
        yield equals("move at the solution", as_vector(gan), solution, tol=1e-12, loss=objective)
    yield at_least("how far the generator came", abs(a - 0.5) + abs(b + 0.5), 0.9)


def linear_round(z: np.ndarray, s: float, mu: float, eta: float, degree: int) -> np.ndarray:
    """The matrix of a round at the solution, from moments."""
    x, powers = s * z + mu, np.arange(degree + 1)
    f = x[:, None] ** powers
    slopes = powers * x[:, None] ** np.maximum(powers - 1, 0)
    K = np.stack([(slopes * z[:, None]).mean(0), slopes.mean(0)], 1)
    C = f.T @ f / len(z)
    generator = np.hstack([np.eye(2), eta / 2 * K.T])
    discriminator = np.hstack([np.zeros((degree + 1, 2)), np.eye(degree + 1) - eta / 2 * C])
    return np.vstack([generator, discriminator - eta / 2 * K @ generator])


gan_training.foil("a logit that cannot see variances", refuted_by="scale that was learnt", degree=1)
