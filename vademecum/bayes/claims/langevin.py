"""Langevin dynamics: gradient descent with noise, and with friction and noise."""

import math
from itertools import pairwise

import numpy as np
import torch
from scipy.linalg import expm, solve_continuous_lyapunov, solve_discrete_lyapunov
from torch import Tensor

from vademecum.bayes import mala_step, sghmc_step, ula_step
from vademecum.bayes.claims._laws import follows
from vademecum.bayes.claims.hamiltonian import QUARTIC, SPRING, Smooth
from vademecum.bayes.claims.trajectories import mixture
from vademecum.claims import at_least, at_most, claim, complex_step, equals, in_mean


def stiff(k: float) -> Smooth:
    """The energy of a spring."""
    return Smooth(lambda t: k * t**2 / 2, lambda t: k * t)


def linear_part(k: float, eta: float, friction: float, m: float) -> np.ndarray:
    """The matrix by which a step multiplies position and momentum: differences, equal noise."""
    starts = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    ends = []
    for theta, y in starts.tolist():
        dice = torch.Generator().manual_seed(0)
        phase = sghmc_step(
            stiff(k), torch.full((1, 1), theta), torch.full((1, 1), y), eta=eta, friction=friction,
            mass=m, generator=dice,
        )  # fmt: skip
        ends.append([float(phase.theta), float(phase.momentum)])
    found = np.array(ends)
    return (found[1:] - found[0]).T


class Noisy:
    """A spring whose gradient has noise of a size s, as that of a part of the data."""

    def __init__(self, s: float):
        self._s = s

    def __call__(self, theta: Tensor) -> Tensor:
        """The energies, without noise."""
        return SPRING(theta)

    def with_gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """The energies, and gradients with noise."""
        return SPRING(theta), theta + self._s * torch.randn_like(theta)


@claim(
    by="identity",
    sources=("A-317", "A-318", "D-374", "D-375"),
    budget=1.0,
    short=r"dy = -\nabla E\, dt - \tfrac Bm y\, dt + N(0, 2B\, dt),\quad d\theta = \tfrac ym\, dt",
)
def sghmc(mass_in_friction: bool = True, root: bool = True, noise: float = 2.0, n: int = 40_000):
    r"""Stochastic-gradient Hamiltonian Monte Carlo with friction (underdamped Langevin dynamics).

    Gradients of a part of the data inject noise, so the energy drifts upwards and the acceptance of
    Hamiltonian Monte Carlo is lost; friction repairs it. With kinetic energy $\|y\|^2 / 2 m$ the
    dynamics $d\theta = \frac ym\, dt$, $dy = -\nabla E\, dt - \frac Bm\, y\, dt + \mathcal N(0, 2
    B\, dt)$ keeps $e^{-H}$ invariant (friction acts on the velocity, noise has variance $2 B\,
    dt$); in discrete form with unit mass $v_{t+1} = (1 - \eta \gamma) v_t - \eta \nabla \tilde
    E(\theta_t) + \sqrt{2 \gamma \eta}\, \epsilon_t$, $\theta_{t+1} = \theta_t + \eta v_{t+1}$: a
    particle with friction in a heat bath.

    Checked for $E = \frac k2 \theta^2$, where Lyapunov's equations give stationary variances
    exactly: in continuous time $1/k$ and $m$; for `sghmc_step`, whose matrix is read off from steps
    with equal noise, $\frac1k \frac{2 - \eta B / m}{2 - \eta B / m - \eta^2 k / 2 m}$ and $m
    \frac2{2 - \eta B / m - \eta^2 k / 2 m}$, which tend to those; and the variance of its noise is
    $2 B \eta$ (five standard errors of n draws). Without friction, noise of intensity $s^2$ in the
    gradient raises the mean energy by $s^2 / 2 m$ per unit of time: by the matrix exponential, and
    for `sghmc_step`, whose modified energy $\frac12 (v^2 + \theta^2 - \eta v \theta)$ rises by
    $\frac12 \eta^2 s^2$ a step.

    Knobs:
        mass_in_friction: Whether friction acts on the velocity, and not on the momentum.
        root: Whether noise of the discrete form has the amplitude $\sqrt{2 \gamma \eta}$, and not
            $2 \gamma \eta$.
        noise: The factor of the noise's variance, 2.
        n: How many draws of the noise are taken.
    """
    for k, m, B in ((1.0, 4.0, 1.0), (1.0, 1.0, 0.5), (3.0, 0.5, 2.0)):
        drag = B / m if mass_in_friction else B
        F, D = np.array([[0, 1 / m], [-k, -drag]]), np.diag([0.0, noise * B])
        found = solve_continuous_lyapunov(F, -D)
        at = {"k": k, "m": m, "B": B}
        yield equals("variance of the position", found[0, 0], 1 / k, tol=1e-10, **at)
        yield equals("variance of the momentum", found[1, 1], m, tol=1e-10, **at)
    for k, m, gamma, eta in ((1.0, 1.0, 1.0, 0.05), (2.0, 4.0, 0.5, 0.2), (1.0, 0.5, 2.0, 0.01)):
        amplitude = math.sqrt(noise * gamma * eta) if root else noise * gamma * eta
        A = linear_part(k, eta, gamma, m)
        found = solve_discrete_lyapunov(A, spread(amplitude, eta, m))
        rest = 2 - eta * gamma / m - eta**2 * k / (2 * m)
        wanted = (2 - eta * gamma / m) / rest / k
        at = {"eta": eta, "B": gamma, "m": m, "k": k}
        yield equals("variance of the position by steps", found[0, 0], wanted, tol=1e-9, **at)
        yield equals("variance of the momentum by steps", found[1, 1], 2 * m / rest, tol=1e-9, **at)
        zero = torch.zeros(n, 1)
        drawn = sghmc_step(stiff(k), zero, zero, eta=eta, friction=gamma, mass=m).momentum
        yield in_mean("squares of the noise of a step", drawn**2, amplitude**2, **at)
    yield from heating(n)


def spread(amplitude: float, eta: float, m: float) -> np.ndarray:
    """The covariance of a step's noise, which enters the momentum and through it the position."""
    way = np.array([eta / m, 1.0]) * amplitude
    return np.outer(way, way)


def heating(n: int):
    """How energy grows without friction: in continuous time by Van Loan's block exponential."""
    s, eta = 0.7, 0.1
    for m in (1.0, 4.0):
        F, D = np.array([[0, 1 / m], [-1.0, 0]]), np.diag([0.0, s**2])
        block = expm(np.block([[F, D], [np.zeros((2, 2)), -F.T]]) * 1.0)
        flow, cov = block[:2, :2], np.eye(2)
        energies = []
        for _ in range(5):
            energies.append((cov[0, 0] + cov[1, 1] / m) / 2)
            cov = flow @ cov @ flow.T + block[:2, 2:] @ flow.T
        wanted = s**2 / (2 * m)
        yield equals("energy gained in a unit of time", np.diff(energies), wanted, tol=1e-10, m=m)
    theta, y = torch.randn(n // 4, 1), torch.randn(n // 4, 1)
    before = (y**2 + theta**2 - eta * y * theta) / 2
    count = 20
    for _ in range(count):
        phase = sghmc_step(Noisy(s), theta, y, eta=eta, friction=0.0)
        theta, y = phase.theta, phase.momentum
    gained = (y**2 + theta**2 - eta * y * theta) / 2 - before
    yield in_mean("modified energy gained in 20 steps", gained, count * eta**2 * s**2 / 2)


sghmc.foil("noise of half the variance", refuted_by="variance of the momentum", noise=1.0)
sghmc.erratum(
    "A-318",
    printed=r"$dy = -\nabla_\theta H\, dt - B\, y\, dt + \mathcal N(0, 2 B\, dt)$",
    right=r"$dy = -\nabla_\theta H\, dt - \frac Bm\, y\, dt + \mathcal N(0, 2 B\, dt)$",
    why=r"The mass is missing: with the sheet's own kinetic energy $\|y\|^2 / 2 m$ the momentum has"
    r" the law $\mathcal N(0, m I)$, but the printed dynamics gives it the variance 1 and, for $m ="
    r" 4$ and $E = \theta^2 / 2$, the position the variance $\frac14$ instead of 1. Correct only"
    r" for $m = 1$.",
    weight="hard",
    refuted_by="variance of the position",
    mass_in_friction=False,
)
sghmc.erratum(
    "D-374",
    printed=r"$v_{t+1} = (1 - \eta \gamma) v_t - \eta \nabla \tilde E(\theta) + 2 \gamma \eta\,"
    r" \epsilon$, $\epsilon \sim N(0, I)$",
    right=r"$v_{t+1} = (1 - \eta \gamma) v_t - \eta \nabla \tilde E(\theta) + \sqrt{2 \gamma"
    r" \eta}\, \epsilon$",
    why=r"As scanned, the root over $2 \gamma \eta$ is missing: stationary variances become"
    r" $2 \gamma \eta$ times the right ones, 0.1001 instead of 1.0006 for $\theta$ at $\eta ="
    r" 0.05$, $\gamma = 1$, $E = \theta^2 / 2$, so that the chain samples at a temperature that"
    r" vanishes with $\eta$.",
    weight="scan",
    refuted_by="variance of the position by steps",
    root=False,
)


def stationary_gap(eta: float, noise: float, grid: Tensor, density: Tensor, mean: Tensor) -> float:
    """Total variation between a density and the stationary one of a Langevin chain on a grid."""
    kernel = (-((grid[None] - mean[:, None]) ** 2) / (2 * noise * eta)).exp()
    kernel = kernel / kernel.sum(1, keepdim=True)
    law = density
    for _ in range(12):
        kernel = kernel @ kernel  # 4096 steps
    return float((law @ kernel - density).abs().sum() / 2)


@claim(
    by="sampling",
    sources=("A-396", "D-373"),
    budget=1.0,
    short=r"\theta' = \theta - \eta \nabla E + \sqrt{2 \eta}\, \epsilon;\ E = \tfrac12 \theta^2: "
    r"\mathrm{Var} = \tfrac1{1 - \eta/2}",
)
def unadjusted_langevin(noise: float = 2.0, bias: float = 0.5, n: int = 100_000):
    r"""The unadjusted Langevin algorithm.

    Adding suitably scaled noise turns gradient descent into a sampler: $\theta_{t+1} = \theta_t -
    \eta \nabla E(\theta_t) + \sqrt{2 \eta}\, \epsilon_t$, equivalently $x_{t+1} \sim \mathcal N(x_t
    + \eta \nabla \log p(x_t), 2 \eta I)$, explores $p \propto e^{-E}$ instead of collapsing to a
    mode, with a bias that vanishes as $\eta \to 0$ when $\nabla E$ is Lipschitz (and $e^{-E}$
    light-tailed); for a unit Gaussian and $\eta < 2$ the stationary variance is exactly $1 / (1 -
    \eta / 2)$. With superlinear gradients, such as those of a quartic, the chain is transient and
    has no stationary law.

    Checked for `ula_step`: its mean is $x - \eta E'(x)$ and the square of its noise $2 \eta$, in
    two dimensions (five standard errors); chains in the stationary law of a unit Gaussian stay in
    it (distance of distribution functions at a level of 1e-6), to which the recursion of variances
    converges; for $\frac12 \mathcal N(\pm 1.5, 1)$ on a grid the total variation falls with $\eta$;
    with a quartic, from $\frac3{\sqrt \eta}$, it leaves every bound within eight steps, where
    `mala_step` stays. That no stationary law exists is quoted.

    Knobs:
        noise: The variance of the noise over $\eta$.
        bias: The factor of $\eta$ in the stationary variance.
        n: How many chains make a step.
    """
    for eta in (0.5, 0.1, 0.01):
        variance = 0.0
        for _ in range(round(40 / eta)):
            variance = (1 - eta) ** 2 * variance + noise * eta
        wanted = 1 / (1 - bias * eta)
        yield equals("variance after many steps", variance, wanted, tol=1e-10, eta=eta)
        start = math.sqrt(wanted) * torch.randn(n, 1)
        law = stiff(1 / wanted)
        end = ula_step(SPRING, start, eta=eta).theta
        grid = torch.linspace(-9, 9, 9001)
        yield follows("distance from the stationary law", end, law, grid, eta=eta)
    yield from one_step(noise, n // 4)
    two, grid = mixture(1.5), torch.linspace(-9, 9, 241)
    density = (-two(grid[:, None])).exp()
    density = density / density.sum()
    gaps = []
    for eta in (0.5, 0.2, 0.1, 0.05):
        mean = grid - eta * complex_step(mixture_energy, grid, 1)
        gaps.append(stationary_gap(eta, noise, grid, density, mean))
    ratios = [b / a for a, b in pairwise(gaps)]
    most = [0.5, 0.6, 0.6]  # for steps of 2/5 and twice a half, if it is about linear in the step
    yield at_most("total variation over that with the larger step", ratios, most)
    eta = 0.1
    at = torch.full((100, 1), 3 / math.sqrt(eta))
    wild, tame = at, at
    for _ in range(8):
        wild = ula_step(QUARTIC, wild, eta=eta).theta
        tame = mala_step(QUARTIC, tame, eta=eta).theta
    yield at_least("decades travelled with a quartic", wild.abs().log10(), 30.0)
    yield at_most("the same with a test", tame.abs().log10(), 1.0)


def mixture_energy(t: Tensor) -> Tensor:
    """The energy of two normal laws at 1.5 and -1.5, by its definition, for complex numbers."""
    return -((-((t - 1.5) ** 2) / 2).exp() + (-((t + 1.5) ** 2) / 2).exp()).log()


def one_step(noise: float, n: int):
    """Mean and variance of a step from a point, in two dimensions of different stiffness."""
    k, x, eta = torch.tensor([1.0, 5.0]), torch.tensor([2.0, -1.0]), 0.3
    end = ula_step(lambda t: (k * t**2).sum(1) / 2, x.expand(n, 2).clone(), eta=eta).theta
    for i in range(2):
        mean = float(x[i] - eta * k[i] * x[i])
        yield in_mean("mean of a step", end[:, i], mean, i=i)
        yield in_mean("square of its noise", (end[:, i] - mean) ** 2, noise * eta, i=i)
    yield in_mean("product of its noises", (end - end.mean(0)).prod(1), 0.0)


unadjusted_langevin.foil("noise of half the variance", refuted_by="square of its noise", noise=1.0)
unadjusted_langevin.foil("no noise", refuted_by="variance after many steps", noise=1e-9)
unadjusted_langevin.foil(
    "no bias: the stationary variance is 1", refuted_by="variance after many steps", bias=0.0
)
