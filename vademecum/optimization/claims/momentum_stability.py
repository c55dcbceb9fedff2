"""Momentum on quadratics: when it is stable, and how fast it is."""

import math
from functools import partial

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.optimization import HeavyBall
from vademecum.optimization.claims._walks import walk


def roots(beta: Tensor, curvature: Tensor) -> Tensor:
    r"""The largest modulus of the roots of $z^2 - (1 + \beta - \eta\lambda) z + \beta$."""
    trace = (1 + beta - curvature).to(torch.complex128)
    spread = (trace**2 - 4 * beta).sqrt()
    return torch.maximum((trace + spread).abs(), (trace - spread).abs()) / 2


@claim(
    by="identity",
    sources=("D-170",),
    budget=0.5,
    short=r"x_t \to x^* \iff |\beta| < 1,\ 0 < \eta\lambda < 2 (1 + \beta)",
)
def momentum_damping(top: float = 0.98, limit: float = 1.0):
    r"""The stability range of heavy-ball momentum.

    On a quadratic with curvature $\lambda$ the heavy-ball iteration has a companion matrix of
    determinant $\beta$, and converges iff $|\beta| < 1$ and $0 < \eta\lambda < 2 (1 + \beta)$.
    Friction corresponds to $1 - \beta$: $\beta = 1$ removes all damping and the iterate oscillates
    for ever, so the range is $\beta \in [0, 1)$. *Proof.* Both roots of
    $z^2 - (1 + \beta - \eta\lambda) z + \beta$ lie in the unit disc iff $|\beta| < 1$ and
    $|1 + \beta - \eta\lambda| < 1 + \beta$.

    Checked on a grid of $\beta \in [-0.9, 0.98]$ and $\eta\lambda \in (-0.5, 4.2)$, points within
    $10^{-3}$ of the border left out; where $\beta \ge 0$ runs of `HeavyBall` have these roots:
    iterates $x_t$ obey $x_{t + 1} x_{t - 1} - x_t^2 = \beta (x_t x_{t - 2} - x_{t - 1}^2)$.

    Knobs:
        top: The largest $\beta$ that is admitted.
        limit: The factor of $\beta$ in the largest stable step.
    """
    curvature = torch.linspace(-0.5, 4.2, 95)
    for beta in (-0.9, -0.4, 0.0, 0.3, 0.6, 0.9, 0.98):
        clear = ((curvature - 2 * (1 + beta)).abs() > 1e-3) & (curvature.abs() > 1e-3)
        claimed = (curvature > 0) & (curvature < 2 * (1 + limit * beta))
        stable = roots(torch.tensor(beta), curvature) < 1
        yield equals("whether the roots are within the disc", stable[clear], claimed[clear],
                     beta=beta)  # fmt: skip
    some = torch.linspace(0.1, 3.9, 20)
    for beta in (0.0, 0.3, 0.9):
        make = partial(HeavyBall, lr=1.0, momentum=beta)
        x = walk(make, lambda x: (some * x * x).sum() / 2, torch.ones(20), 12)
        turn = x[2:] * x[:-2] - x[1:-1] ** 2
        size = (x[1:-1] ** 2)[1:] + (x[2:] * x[:-2]).abs()[1:]
        yield equals("determinant by iterates", (turn[1:] - beta * turn[:-1]) / size,
                     torch.zeros(20), tol=1e-12, beta=beta)  # fmt: skip
        trace = (x[3:] * x[:-3] - x[2:-1] * x[1:-2])[:3] / turn[:3]
        if beta:
            yield equals("trace by iterates", trace, (1 + beta - some).expand(3, -1), beta=beta)
    for beta in torch.linspace(0, top, 5).tolist():
        x, before, swing = 1.0, 1.0, 0.0
        for t in range(2000):
            x, before = x - 0.1 * x + beta * (x - before), x
            swing = max(swing, abs(x)) if t >= 1900 else 0.0
        yield at_most("amplitude over steps 1900 to 2000", swing, 1e-6, tol=0.0, beta=beta)


momentum_damping.foil("the limit of plain descent", limit=0.0)
momentum_damping.erratum(
    "D-170",
    printed=r"$\beta \in [0, 1]$ is the momentum term (friction)",
    right=r"$\beta \in [0, 1)$, and $1 - \beta$ is the friction",
    why=r"$\beta = 1$ must be excluded: the companion matrix has the determinant $\beta$, and on"
    r" $x^2 / 2$ with $\eta = 0.1$ the amplitude after 2000 steps is still 1.01, while it is below"
    r" $10^{-40}$ at $\beta = 0.9$. And $\beta$ is the opposite of friction.",
    weight="soft",
    refuted_by="amplitude over steps 1900 to 2000",
    top=1.0,
)


@claim(
    by="identity",
    sources=("B-241", "B-244", "C-084", "D-055", "D-168"),
    budget=0.6,
    short=r"\rho = \sqrt\beta = \tfrac{\sqrt\kappa - 1}{\sqrt\kappa + 1}\ "
    r"(\eta = \tfrac{4}{(\sqrt L + \sqrt\mu)^2})",
)
def heavy_ball_rate(power: int = 2, scale: float = 1.0):
    r"""The optimal rate of the heavy ball on quadratics.

    For quadratics with spectrum in $[\mu, L]$, $\kappa = L / \mu$, the choice
    $\eta = \frac{4}{(\sqrt L + \sqrt\mu)^2}$,
    $\beta = \big(\frac{\sqrt\kappa - 1}{\sqrt\kappa + 1}\big)^2$ gives the asymptotic factor
    $\sqrt\beta = \frac{\sqrt\kappa - 1}{\sqrt\kappa + 1}$ a step, and no other constant choice
    gives less; the best gradient descent has $\frac{\kappa - 1}{\kappa + 1}$: $\sqrt\kappa$ instead
    of $\kappa$ iterations. *Proof.* With this choice $(1 + \beta - \eta\lambda)^2 \le 4 \beta$ on
    $[\mu, L]$, so that both roots have the modulus $\sqrt\beta$, double ones $r = \pm\sqrt\beta$ at
    the ends, where from rest $x_t = (1 + (1 - r) t)\, r^t x_0$.

    Roots are computed for 200 curvatures and $\kappa = 10, 10^2, 10^4$, double ones up to the root
    of the rounding; 200 other choices are drawn for each. Runs of `HeavyBall` are compared with the
    closed form at both ends, and counted on $\mathrm{diag}(1, 10^4)$ against gradient descent with
    $\frac{2}{L + \mu}$, both to $\|x\| \le 10^{-6}$.

    Knobs:
        power: The power in $\beta$.
        scale: The factor of the step size.
    """
    for kappa in (10.0, 1e2, 1e4):
        q = (math.sqrt(kappa) - 1) / (math.sqrt(kappa) + 1)
        beta, eta = q**power, scale * 4 / (math.sqrt(kappa) + 1) ** 2  # mu = 1
        spectrum = torch.linspace(1, kappa, 200)
        worst = roots(torch.tensor(beta), eta * spectrum)
        yield equals("factor a step, over the spectrum", worst, q, tol=1e-6, kappa=kappa)
        others = torch.rand(200), 4 / kappa * torch.rand(200)
        found = torch.maximum(roots(others[0], others[1]), roots(others[0], others[1] * kappa))
        yield at_least("worst factor of another choice", found, q, tol=1e-6, kappa=kappa)
    ends, q = torch.tensor([1.0, 100.0]), 9 / 11
    make = partial(HeavyBall, lr=scale * 4 / 121, momentum=q**power)
    found = walk(make, lambda x: (ends * x * x).sum() / 2, torch.ones(2), 60)
    t, r = torch.arange(61.0)[:, None], torch.tensor([q, -q])
    closed = (1 + (1 - r) * t) * r**t
    yield equals("iterates at the ends of the spectrum", found / q**t, closed / q**t)
    counted = _steps_to_rest(scale * 4 / 101**2, (99 / 101) ** power)
    yield at_least("steps of gradient descent over those of the heavy ball",
                   _descent_steps() / counted, 50.0, kappa=1e4)  # fmt: skip


def _steps_to_rest(eta: float, beta: float) -> int:
    """How many steps `HeavyBall` needs from (1, 1) to a norm of 1e-6; 1100 if more."""
    ends = torch.tensor([1.0, 1e4])
    make = partial(HeavyBall, lr=eta, momentum=beta)
    path = walk(make, lambda x: (ends * x * x).sum() / 2, torch.ones(2), 1100)
    near = (path.norm(dim=1) <= 1e-6).nonzero()
    return int(near[0]) if len(near) else 1100


def _descent_steps() -> int:
    """The same of gradient descent, whose iterates are powers: of +-(kappa - 1) / (kappa + 1)."""
    factor = (1e4 - 1) / (1e4 + 1)
    return math.ceil(math.log(1e-6 / math.sqrt(2)) / math.log(factor))


heavy_ball_rate.foil(r"$\beta$ without the square", power=1)
heavy_ball_rate.foil(r"the step size $\frac{2}{(\sqrt L + \sqrt\mu)^2}$", scale=0.5)
