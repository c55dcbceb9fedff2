"""Polyak's heavy ball: what it computes, when it is stable, how fast it is."""

import math
from fractions import Fraction
from functools import partial

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, with_eigenvalues
from vademecum.optimization import HeavyBall
from vademecum.optimization.claims._walks import (
    ROSENBROCK,
    companion,
    powers,
    rosenbrock,
    rosenbrock_gradient,
    walk,
)


def recursion(start: Tensor, rates: list[float], beta: float, damping: int, ahead: int) -> Tensor:
    """The heavy ball on Rosenbrock's function by the formula with two past iterates."""
    path = [start, start]
    for eta in rates:
        x, before = path[-1], path[-2]
        g = rosenbrock_gradient(x + ahead * beta * (x - before))
        path.append(x - eta * (1 - beta) ** damping * g + beta * (x - before))
    return torch.stack(path[1:])


def velocities(start: Tensor, eta: float, beta: float, steps: int) -> Tensor:
    """The same by a velocity."""
    path, v = [start], torch.zeros_like(start)
    for _ in range(steps):
        v = beta * v - eta * rosenbrock_gradient(path[-1])
        path.append(path[-1] + v)
    return torch.stack(path)


@claim(
    by="identity",
    sources=("A-084", "B-241", "B-244", "C-084", "D-168"),
    budget=0.5,
    short=r"x_{t + 1} = x_t - \eta \nabla f(x_t) + \beta (x_t - x_{t - 1})",
)
def heavy_ball(damping: int = 0, ahead: int = 0, rescaled: bool = False, steps: int = 100):
    r"""Heavy-ball momentum.

    Polyak's method adds a multiple of the last displacement,
    $x_{t + 1} = x_t - \eta_t \nabla f(x_t) + \beta (x_t - x_{t - 1})$ with $\beta \in [0, 1)$. For
    constant $\eta$ it is the velocity form $v \leftarrow \beta v - \eta \nabla f(x)$,
    $x \leftarrow x + v$. Without momentum it is gradient descent.

    `HeavyBall` is compared with both forms on Rosenbrock's function from $(-1.2, 1)$ with
    $\eta = 10^{-3}$, $\beta = 0.9$ and with step sizes that change, and on quadratics in dimensions
    2 and 5 with powers of the companion matrix
    $\begin{pmatrix} (1 + \beta) I - \eta H & -\beta I \\ I & 0 \end{pmatrix}$. The valley amplifies
    rounding some thousand times in 100 steps, which $10^{-9}$ allows for.

    Knobs:
        damping: The power of $1 - \beta$ that the gradient is multiplied by.
        ahead: How many displacements $\beta (x_t - x_{t - 1})$ ahead the gradient is taken.
        rescaled: Whether the last displacement is rescaled when the step size changes, as torch's
            momentum does it.
        steps: How many steps are taken.
    """
    start, eta, beta = torch.tensor(ROSENBROCK), 1e-3, 0.9
    found = walk(partial(HeavyBall, lr=eta, momentum=beta), rosenbrock, start, steps)
    stated = recursion(start, [eta] * steps, beta, damping, ahead)
    yield equals("iterates in Rosenbrock's valley", found, stated, eta=eta, beta=beta)
    yield equals("iterates of the velocity form", velocities(start, eta, beta, steps), found)
    rates = [eta / 2 if t % 20 < 10 else eta for t in range(steps)]
    kind = torch.optim.SGD if rescaled else HeavyBall
    found = walk(partial(kind, lr=eta, momentum=beta), rosenbrock, start, rates)
    stated = recursion(start, rates, beta, damping, ahead)
    yield equals("iterates while the step size changes", found, stated, beta=beta)
    for d, beta in ((2, 0.5), (5, 0.8)):
        h, start, eta = with_eigenvalues(1 + 3 * torch.rand(d)), torch.randn(d), 0.3
        share = eta * (1 - beta) ** damping
        found = walk(
            partial(HeavyBall, lr=eta, momentum=beta), lambda x, h=h: x @ h @ x / 2, start, 30
        )
        eye = torch.eye(d)
        there = eye - share * h  # the derivative of a gradient step
        now = (1 + beta) * eye - share * h + ahead * beta * (there - eye)
        matrix = companion(now, -beta * (there if ahead else eye))
        yield equals("iterates on a quadratic", found, powers(matrix, start, 30), d=d, beta=beta)
        plain = walk(partial(HeavyBall, lr=eta, momentum=0.0), rosenbrock, start / 9, [1e-3] * 9)
        descent = walk(partial(torch.optim.SGD, lr=eta), rosenbrock, start / 9, [1e-3] * 9)
        yield equals("iterates without momentum, bit by bit", plain, descent, tol=0.0, d=d)


heavy_ball.foil(
    r"the damped form, whose first step is too short by $1 - \beta$",
    refuted_by="iterates on a quadratic",
    damping=1,
)
heavy_ball.foil(
    "the gradient ahead of the iterate, which is Nesterov's",
    refuted_by="iterates on a quadratic",
    ahead=1,
)
heavy_ball.foil(
    "torch's momentum, which rescales the way so far when the step size changes",
    refuted_by="iterates while the step size changes",
    rescaled=True,
)


@claim(
    by="identity",
    sources=("A-085", "D-169"),
    budget=0.5,
    short=r"x_{t + 1} - x_t = -\eta \textstyle\sum_{k \le t} \beta^{t - k}\, \nabla f(x_k)",
)
def heavy_ball_unrolled(shift: int = 0, normalised: bool = False, steps: int = 60):
    r"""Momentum as an exponentially weighted sum of gradients.

    Started at rest, the heavy-ball displacement is
    $x_{t + 1} - x_t = -\eta \sum_{k = 0}^t \beta^{t - k} \nabla f(x_k)$, that is
    $-\frac{\eta}{1 - \beta}$ times a moving average of past gradients with the weights
    $(1 - \beta) \beta^{t - k}$, which sum to $1 - \beta^{t + 1}$. Under a constant gradient $g$ it
    is $-\eta g \frac{1 - \beta^{t + 1}}{1 - \beta}$ and tends to $-\frac{\eta}{1 - \beta} g$.

    The sum is taken over the gradients met in Rosenbrock's valley; the constant gradient, with
    $\eta$, $\beta$ and $g$ that are sums of few powers of two, is compared in exact fractions.

    Knobs:
        shift: By how much the powers of $\beta$ are shifted.
        normalised: Whether the weights are those of a moving average.
        steps: How many steps are taken in the valley.
    """

    def weight(beta, k: int):
        return beta ** (k + shift) * (1 - beta if normalised else 1)

    start = torch.tensor(ROSENBROCK)
    for eta, beta in ((1e-3, 0.9), (5e-4, 0.5)):
        path = walk(partial(HeavyBall, lr=eta, momentum=beta), rosenbrock, start, steps)
        gradients = torch.stack([rosenbrock_gradient(x) for x in path])
        for t in range(0, steps, 7):
            weights = torch.tensor([weight(beta, t - k) for k in range(t + 1)])
            summed = -eta * weights @ gradients[: t + 1]
            yield equals("displacement", path[t + 1] - path[t], summed, t=t, beta=beta)
    g, eta = torch.tensor([0.75, -2.0, 5.0]), 0.25
    for beta in (0.5, 0.75):
        make = partial(HeavyBall, lr=eta, momentum=beta)
        path = walk(make, lambda x: g @ x, torch.zeros(3), 12)
        for t in range(12):
            b = Fraction(beta)
            closed = Fraction(eta) * weight(b, 0) * (1 - b ** (t + 1)) / (1 - b)
            moved = [Fraction(v) for v in (path[t] - path[t + 1]).tolist()]
            for i, (step, slope) in enumerate(zip(moved, g.tolist(), strict=True)):
                gap = step - closed * Fraction(slope)
                yield equals("numerator of displacement minus closed form", gap.numerator, 0,
                             t=t, i=i, beta=beta)  # fmt: skip
    long = walk(partial(HeavyBall, lr=eta, momentum=0.75), lambda x: g @ x, torch.zeros(3), 90)
    limit = eta * weight(0.75, 0) / (1 - 0.75)
    yield equals("displacement after 90 steps", long[89] - long[90], limit * g)


heavy_ball_unrolled.foil(
    r"the limit $-\eta g$ of a moving average",
    refuted_by="displacement after 90 steps",
    normalised=True,
)
heavy_ball_unrolled.foil(
    r"the limit $-\frac{\eta \beta}{1 - \beta} g$",
    refuted_by="displacement after 90 steps",
    shift=1,
)


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
