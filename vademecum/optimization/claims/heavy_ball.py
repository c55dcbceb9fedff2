"""Polyak's heavy ball: what it computes."""

from fractions import Fraction
from functools import partial

import torch
from torch import Tensor

from vademecum.claims import claim, equals, with_eigenvalues
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
