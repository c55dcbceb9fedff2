"""Momenta: how they are added to an energy, and the leapfrog scheme that follows them."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from vademecum.bayes import hmc_step
from vademecum.bayes import leapfrog as follow
from vademecum.bayes.claims._laws import draw_from
from vademecum.claims import claim, equals, in_mean, slope

GRID = torch.linspace(-5, 5, 10_001, dtype=torch.float64)


class Smooth:
    """An energy that knows its gradient: a number for each row, the sum over coordinates."""

    def __init__(self, f: Callable[[Tensor], Tensor], df: Callable[[Tensor], Tensor]):
        self._f, self.gradient = f, df

    def __call__(self, theta: Tensor) -> Tensor:
        """The energies."""
        return self._f(theta).sum(1)

    def with_gradient(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Energies and gradients."""
        return self(theta), self.gradient(theta)


WELL = Smooth(lambda t: (t**2 - 1) ** 2, lambda t: 4 * t * (t**2 - 1))
QUARTIC = Smooth(lambda t: t**4 / 4, lambda t: t**3)
SPRING = Smooth(lambda t: t**2 / 2, lambda t: t)


@claim(
    by="identity",
    sources=("A-312", "A-314"),
    budget=0.5,
    short=r"p(\theta, y) \propto e^{-\|y\|^2 / 2m - E(\theta)} \Rightarrow"
    r" p(\theta) \propto e^{-E},\ y \sim N(0, m I)",
)
def hamiltonian_lift(power: float = 1.0, half: float = 0.5, n: int = 40_000):
    r"""The Hamiltonian lift of the posterior.

    Adding a momentum, $p(\theta, y) \propto e^{-H(\theta, y)}$ with $H = \frac{\|y\|^2}{2 m} +
    E(\theta)$, leaves the posterior as the marginal of $\theta$ and makes $y \sim \mathcal N(0, m
    I)$ independent of $\theta$, so that momenta can be refreshed at any time without changing the
    joint law.

    *Proof.* The density is a product. Checked for a double well on a grid, and for the momenta that
    `hmc_step` draws, which a short step shows: $\theta' = \theta + \frac\eta m (y - \frac\eta2
    \nabla E)$ where it is accepted; their variances, and that of two coordinates with masses of
    their own, are those masses, and squares of momenta and positions are uncorrelated. (A mean over
    n draws lies within five standard errors.)

    Knobs:
        power: The power of $m$ that is the variance of the momentum.
        half: The factor of the kinetic energy.
        n: How many chains draw a momentum.
    """
    for m in (0.25, 4.0):
        theta, y = GRID[::20, None], torch.linspace(-9, 9, 1201) * m**0.5
        joint = (-(half * y**2 / m) - WELL(theta)[:, None]).exp()
        joint = joint / joint.sum()
        marginal, alone = joint.sum(1), (-WELL(theta)).exp()
        yield equals("marginal of the position", marginal, alone / alone.sum(), tol=1e-12, m=m)
        variance = (joint * y**2).sum(1) / marginal
        yield equals("variance of the momentum anywhere", variance, m**power, tol=1e-8, m=m)
        fourth = (joint * y**4).sum(1) / marginal
        yield equals("its fourth moment", fourth, 3 * m ** (2 * power), tol=1e-8, m=m)
        at = draw_from(WELL, GRID, n)
        drawn = momenta(at, torch.full((1,), m))
        yield in_mean("squares of momenta drawn", drawn**2, m**power, m=m)
        product = (drawn**2 - m**power) * (at**2 - (alone / alone.sum() * theta[:, 0] ** 2).sum())
        yield in_mean("squares of momenta times those of positions", product, 0.0, m=m)
    masses = torch.tensor([0.3, 5.0])
    drawn = momenta(torch.randn(n, 2), masses)
    for i, m in enumerate(masses.tolist()):
        yield in_mean("squares of a coordinate's momenta", drawn[:, i] ** 2, m**power, m=m)


def momenta(at: Tensor, masses: Tensor) -> Tensor:
    """The momenta behind a short step, from where it went; NaN never occurs at this size."""
    eta = 1e-4 * float(masses.min()) ** 0.5
    step = hmc_step(WELL, at, eta=eta, leapfrogs=1, mass=masses)
    drawn = masses * (step.theta - at) / eta + eta / 2 * WELL.gradient(at)
    return drawn[step.accepted]  # all but one in some 1e8


hamiltonian_lift.foil("the mass inverted in the momentum's law", power=-1.0)
hamiltonian_lift.foil("the kinetic energy without its half", half=1.0)


@claim(
    by="identity",
    sources=("A-315",),
    budget=1.0,
    short=r"\det \Phi_\epsilon' = 1,\quad \Phi_\epsilon^{-1} = \Phi_{-\epsilon},\quad"
    r" H \circ \Phi_\epsilon - H = O(\epsilon^2)",
)
def leapfrog(scheme: Literal["leapfrog", "no half kick", "Euler"] = "leapfrog"):
    r"""Hamiltonian dynamics and the leapfrog integrator.

    $\dot\theta = y / m$, $\dot y = -\nabla E(\theta)$ conserves $H$ and volumes of phase space; the
    leapfrog scheme (half a kick, a drift, half a kick) is exactly reversible and volume preserving
    and keeps $H$ up to $O(\epsilon^2)$.

    *Proof.* Each of the three is a shear, whose Jacobian is 1, and undone by its own reverse. The
    order is that of Strang's splitting. Checked for `leapfrog` with a double well and a quartic:
    errors of $H$ after time 1, and distances from the exact solution for a spring, fall as
    $\epsilon^2$ from 1/8 to 1/1600, for masses of 1 and 4; with the momentum flipped it returns;
    the determinant of its Jacobian, by central differences, is 1 (their error is of the order of
    $10^{-10}$ times third derivatives). That exact dynamics conserves $H$ is checked for the
    spring.

    Knobs:
        scheme: Which scheme: "no half kick" takes a whole kick and a drift, "Euler" both at once.
    """

    def run(energy: Smooth, at: Tensor, y: Tensor, eta: float, count: int, m: float):
        if scheme == "leapfrog":
            phase = follow(energy, at, y, eta=eta, leapfrogs=count, mass=m)
            return phase.theta, phase.momentum
        for _ in range(count):
            new = y - eta * energy.gradient(at)
            at, y = at + eta * (new if scheme == "no half kick" else y) / m, new
        return at, y

    counts = [8, 17, 35, 75, 160, 340, 740, 1600]
    for m in (1.0, 4.0):
        at, y = torch.randn(20, 1), m**0.5 * torch.randn(20, 1)
        for name, energy in (("double well", WELL), ("quartic", QUARTIC)):
            before = energy(at) + (y**2).sum(1) / (2 * m)
            errors = []
            for count in counts:
                end, last = run(energy, at, y, 1 / count, count, m)
                errors.append((energy(end) + (last**2).sum(1) / (2 * m) - before).norm())
            sizes = [1 / count for count in counts]
            yield slope("error of the energy, by step", sizes, errors, 2.0, tol=0.1, m=m, E=name)
        w = m**-0.5
        exact = at * math.cos(w) + y / (m * w) * math.sin(w)
        momentum = y * math.cos(w) - at * m * w * math.sin(w)
        conserved = SPRING(exact) + momentum[:, 0] ** 2 / (2 * m)
        total = SPRING(at) + y[:, 0] ** 2 / (2 * m)
        yield equals("energy of the exact solution", conserved, total, tol=1e-12, m=m)
        gaps = [(run(SPRING, at, y, 1 / c, c, m)[0] - exact).norm() for c in counts]
        yield slope("distance from the exact solution", sizes, gaps, 2.0, tol=0.1, m=m)
    at, y = torch.randn(7, 2), torch.randn(7, 2)
    end, last = run(WELL, at, y, 0.05, 12, 2.0)
    back, turned = run(WELL, end, -last, 0.05, 12, 2.0)
    yield equals("where the way back ends", back, at, tol=1e-10)
    yield equals("its momentum", -turned, y, tol=1e-10)
    h = 1e-5
    for k in range(3):
        moves = h * torch.eye(4)
        both = torch.cat([torch.cat([at[k], y[k]]) + moves, torch.cat([at[k], y[k]]) - moves])
        ends = torch.cat(run(WELL, both[:, :2], both[:, 2:], 0.05, 5, 2.0), 1)
        found = torch.linalg.det((ends[:4] - ends[4:]) / (2 * h))
        yield equals("determinant of the Jacobian", found, 1.0, tol=1e-6, start=k)


leapfrog.foil("explicit Euler", refuted_by="determinant of the Jacobian", scheme="Euler")
leapfrog.foil(
    "whole kicks: symplectic, but of order one, and its way back is another",
    refuted_by="where the way back ends",
    scheme="no half kick",
)
