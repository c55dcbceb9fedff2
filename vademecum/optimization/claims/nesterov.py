"""Nesterov's accelerated gradient: what it computes, and how fast it is."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, with_eigenvalues
from vademecum.optimization import Nesterov
from vademecum.optimization.claims._objectives import Problem, known_logistic, known_quadratic
from vademecum.optimization.claims._walks import (
    ROSENBROCK,
    companion,
    powers,
    rosenbrock,
    rosenbrock_gradient,
    walk,
)

Step = Callable[[Tensor, float, float], tuple[Tensor, Tensor]]


def explicit(h: Tensor, eta: float, beta: float) -> tuple[Tensor, Tensor]:
    """A step on a quadratic as a combination of the last two iterates."""
    step = torch.eye(len(h)) - eta * h
    return (1 + beta) * step, -beta * step


def implicit(h: Tensor, eta: float, beta: float) -> tuple[Tensor, Tensor]:
    """The step as printed, an equation for the next iterate that is solved here."""
    eye = torch.eye(len(h))
    inverse = torch.linalg.inv(eye + (1 + beta) * eta * h)
    return inverse @ ((1 + beta) * eye + beta * eta * h), -beta * inverse


def polyak(h: Tensor, eta: float, beta: float) -> tuple[Tensor, Tensor]:
    """The heavy ball, with the gradient at the iterate."""
    eye = torch.eye(len(h))
    return (1 + beta) * eye - eta * h, -beta * eye


@claim(
    by="identity",
    sources=("A-083", "B-242", "C-085", "C-086", "D-171", "E-168"),
    budget=0.5,
    short=r"y_k = x_k + \beta (x_k - x_{k - 1}),\ x_{k + 1} = y_k - \eta \nabla f(y_k)",
)
def nesterov(step: Step = explicit, steps: int = 100):
    r"""Nesterov's accelerated gradient.

    Extrapolate, then take the gradient at the extrapolated point:
    $y_k = x_k + \beta (x_k - x_{k - 1})$, $x_{k + 1} = y_k - \eta \nabla f(y_k)$; in velocity form
    $v \leftarrow \beta v - \eta \nabla f(x + \beta v)$, $x \leftarrow x + v$. With $\beta = 0$ it
    is gradient descent; the heavy ball differs by taking the gradient at $x_k$.

    On quadratics in dimensions 1, 2 and 5 the iterates of `Nesterov` are powers of the companion
    matrix with the blocks $(1 + \beta)(I - \eta H)$ and $-\beta (I - \eta H)$. In Rosenbrock's
    valley, from $(-1.2, 1)$ with $\eta = 10^{-3}$, $\beta = 0.9$, they are those of both forms, and
    so they are with $\beta_k = \frac{k - 1}{k + 2}$; the valley amplifies rounding some thousand
    times in 100 steps, which $10^{-9}$ allows for.

    Knobs:
        step: The matrices that multiply $x_k$ and $x_{k - 1}$ in a step on a quadratic with Hessian
            $H$, of $H$, $\eta$ and $\beta$.
        steps: How many steps are taken in the valley.
    """
    for d, eta, beta in ((1, 0.3, 0.0), (2, 0.3, 0.5), (5, 0.2, 0.8)):
        h, start = with_eigenvalues(1 + 2 * torch.rand(d)), torch.randn(d)
        make = partial(Nesterov, lr=eta, momentum=beta)
        found = walk(make, lambda x, h=h: x @ h @ x / 2, start, 25)
        stated = powers(companion(*step(h, eta, beta)), start, 25)
        yield equals("iterates on a quadratic", found, stated, d=d, eta=eta, beta=beta)
    start, eta = torch.tensor(ROSENBROCK), 1e-3
    for beta in (0.9, None):
        found = walk(partial(Nesterov, lr=eta, momentum=beta), rosenbrock, start, steps)
        weights = [(k - 1) / (k + 2) if beta is None else beta for k in range(1, steps + 1)]
        lines, velocity = _by_hand(start, eta, weights)
        yield equals("iterates in Rosenbrock's valley", found, lines, beta=str(beta))
        yield equals("iterates of the velocity form", velocity, lines, beta=str(beta))
    plain = walk(partial(Nesterov, lr=eta, momentum=0.0), rosenbrock, start, 20)
    descent = walk(partial(torch.optim.SGD, lr=eta), rosenbrock, start, 20)
    yield equals("iterates without momentum, bit by bit", plain, descent, tol=0.0)


def _by_hand(start: Tensor, eta: float, weights: list[float]) -> tuple[Tensor, Tensor]:
    """The iterates by the two lines and by a velocity; a weight serves the step after it."""
    path, y = [start], start
    for weight in weights:
        path.append(y - eta * rosenbrock_gradient(y))
        y = path[-1] + weight * (path[-1] - path[-2])
    other, v = [start], torch.zeros_like(start)
    for weight in [0.0, *weights[:-1]]:
        v = weight * v - eta * rosenbrock_gradient(other[-1] + weight * v)
        other.append(other[-1] + v)
    return torch.stack(path), torch.stack(other)


nesterov.foil("the heavy ball", step=polyak)
nesterov.erratum(
    "A-083",
    printed=r"$x_{k+1} = y_k - \eta \nabla f(y_{k+1})$, $y_k = x_k + \beta (x_k - x_{k-1})$",
    right=r"$x_{k+1} = y_k - \eta \nabla f(y_k)$",
    why=r"The index is off by one: $y_{k+1}$ needs $x_{k+1}$, so that the line is an implicit"
    r" equation. On $\frac12 x^2$ with $\beta = 0$ it reads $x_{k+1} = x_k / (1 + \eta)$, implicit"
    r" Euler, and not the gradient step $(1 - \eta) x_k$. (A slip of the scan cannot be excluded.)",
    weight="scan",
    refuted_by="iterates on a quadratic",
    step=implicit,
)


@claim(
    by="identity",
    sources=("A-110", "B-243", "C-086"),
    budget=1.0,
    short=r"f(x_t) - f^* \le L (1 - \kappa^{-1/2})^t \|x_0 - x^*\|^2,\ \eta = \tfrac1L, \beta = "
    r"\tfrac{\sqrt\kappa-1}{\sqrt\kappa+1}",
)
def nesterov_strongly_convex(momentum: float = 1.0, factor: float = 1.0, steps: int = 150):
    r"""The accelerated linear rate.

    For an $L$-smooth, $\mu$-strongly convex $f$, $\kappa = L / \mu$, $\eta = 1 / L$,
    $\beta = \frac{\sqrt\kappa - 1}{\sqrt\kappa + 1}$ and a start at rest,
    $f(x_t) - f^* \le L \big(1 - \sqrt{\mu / L}\big)^t \|x_0 - x^*\|^2$. (Nesterov, 2004.)

    Checked for `Nesterov` on quadratics of dimension 2 to 8 with $\kappa$ from 4 to $10^4$ and on
    logistic losses with a ridge; there also with the sharper constant $\frac{L + \mu}{2}$. Along
    the flattest axis of a quadratic $r = 1 - \sqrt{\mu / L}$ is a double root, and the gap is
    $\frac\mu2 (1 + (1 - r) t)^2 r^{2 t} x_0^2$: the rate is attained up to a factor 2 in the
    exponent.

    Knobs:
        momentum: The factor of $\beta$.
        factor: The factor of $\sqrt{\mu / L}$ in the bound.
        steps: How many steps are taken.
    """
    for problem in (
        known_quadratic(torch.tensor([1.0, 4.0])),
        known_quadratic(torch.cat([torch.tensor([0.5, 50.0]), 0.5 + 49 * torch.rand(3)])),
        known_quadratic(torch.logspace(-2, 2, 8)),
        known_logistic(20, 3, 0.05),
        known_logistic(30, 6, 0.01),
    ):
        start = problem.optimum + torch.randn(len(problem.optimum))
        gaps, distance = _gaps(problem, start, momentum, steps)
        rate = (1 - factor * math.sqrt(problem.mu / problem.L)) ** torch.arange(steps + 1.0)
        kappa = problem.L / problem.mu
        bound = (problem.L + problem.mu) / 2 * rate * distance
        yield at_most("gap over the bound", gaps / (2 * bound), 1.0, problem=problem.name,
                      kappa=kappa)  # fmt: skip
        yield at_most("gap over the sharper bound", gaps / bound, 1.0, problem=problem.name,
                      kappa=kappa)  # fmt: skip
    for kappa in (4.0, 100.0):
        flat = Problem(
            "a flat axis", lambda x, k=kappa: (x[0] ** 2 + k * x[1] ** 2) / 2, torch.zeros_like,
            kappa, 1.0, torch.zeros(2), 0.0,
        )  # fmt: skip
        gaps, distance = _gaps(flat, torch.tensor([1.0, 0.0]), momentum, steps)
        t, r = torch.arange(steps + 1.0), 1 - factor / math.sqrt(kappa)
        closed = (1 + (1 - r) * t) ** 2 / 2 * r ** (2 * t)
        yield at_most("gap over the bound", gaps / (kappa * r**t), 1.0, problem=flat.name,
                      kappa=kappa)  # fmt: skip
        near = closed > 1e-20  # so far rounding is small beside it
        yield equals("gap along the flat axis", gaps[near] / closed[near], 1.0, kappa=kappa)


def _gaps(problem: Problem, start: Tensor, momentum: float, steps: int) -> tuple[Tensor, Tensor]:
    """Gaps of a run, up to the rounding of the function, and the first squared distance."""
    root = math.sqrt(problem.L / problem.mu)
    beta = momentum * (root - 1) / (root + 1)
    path = walk(partial(Nesterov, lr=1 / problem.L, momentum=beta), problem.f, start, steps)
    values = torch.stack([problem.f(x) for x in path]) - problem.minimum
    rounding = 1e-14 * (1 + abs(problem.minimum)) if problem.minimum else 0.0
    return (values - rounding).clamp(min=0), (start - problem.optimum).square().sum()


nesterov_strongly_convex.foil("gradient descent", refuted_by="gap over the bound", momentum=0.0)
nesterov_strongly_convex.foil(
    r"the factor $1 - 3 \sqrt{\mu / L}$", refuted_by="gap over the bound", factor=3.0
)


def chain(n: int) -> Problem:
    r"""Nesterov's worst function, $\frac12 x^\top A x - x_1$ with second differences $A$."""
    a = 2 * torch.eye(n) - torch.diag(torch.ones(n - 1), 1) - torch.diag(torch.ones(n - 1), -1)
    at, first = 1 - torch.arange(1, n + 1) / (n + 1), torch.eye(n)[0]
    L = 2 + 2 * math.cos(math.pi / (n + 1))
    return Problem(
        "the chain", lambda x: x @ (a @ x) / 2 - x[0], lambda x: a @ x - first, L, 0.0, at,
        -float(at[0]) / 2,
    )  # fmt: skip


@claim(
    by="identity",
    sources=("D-171", "E-167"),
    budget=1.0,
    short=r"f(x_t) - f^* \le 2 L \|x_0 - x^*\|^2 / (t + 1)^2,\quad \eta = \tfrac1L,\ \beta_k = "
    r"\tfrac{k - 1}{k + 2}",
)
def nesterov_convex(accelerated: bool = True, order: float = 2.0, steps: int = 150):
    r"""The accelerated rate on convex functions.

    For convex $L$-smooth $f$ Nesterov's method with $\eta = 1 / L$,
    $x_k = y_k - \frac1L \nabla f(y_k)$, $y_{k + 1} = x_k + \frac{k - 1}{k + 2} (x_k - x_{k - 1})$
    from $y_1 = x_0$, and likewise with FISTA's sequence $\frac{s_k - 1}{s_{k + 1}}$, $s_1 = 1$,
    $s_{k + 1} = \frac12 (1 + \sqrt{1 + 4 s_k^2})$, attains
    $f(x_t) - f^* \le \frac{2 L \|x_0 - x^*\|^2}{(t + 1)^2}$. The order is the best possible for
    methods that see gradients only: on the chain of $n$ variables none of them, started at 0, is
    below $\frac{3 \cdot 4 \|x_0 - x^*\|^2}{32 (t + 1)^2}$ for $n = 2 t + 1$. (Nesterov, 1983 and
    2004; Beck and Teboulle, 2009.)

    Checked for `Nesterov` on the chain $\frac12 x^\top A x - x_1$ with the second-difference matrix
    of 201 variables, on least squares of rank 3 in 7 dimensions and for the FISTA sequence by hand;
    the lower bound for `Nesterov` at $t = 5, 20, 60$.

    Knobs:
        accelerated: Whether the momentum is that of the theorem, or none.
        order: The power of $t + 1$ in the bound.
        steps: How many steps are taken.
    """
    momentum = None if accelerated else 0.0
    a, at = torch.randn(12, 3) @ torch.randn(3, 7), torch.randn(7)
    L = float(torch.linalg.matrix_norm(a, 2)) ** 2
    squares = Problem(
        "least squares", lambda x: (a @ (x - at)).square().sum() / 2,
        lambda x: a.T @ (a @ (x - at)), L, 0.0, at, 0.0,
    )  # fmt: skip
    t = torch.arange(steps + 1.0)
    for problem, start in ((chain(201), torch.zeros(201)), (squares, at + torch.randn(7))):
        make = partial(Nesterov, lr=1 / problem.L, momentum=momentum)
        path = walk(make, problem.f, start, steps)
        distance = (start - problem.optimum).square().sum()
        bound = 2 * problem.L * distance / (t + 1) ** order
        for name, iterates in (("Nesterov", path), ("FISTA", _fista(problem, start, steps))):
            gaps = torch.stack([problem.f(x) for x in iterates]) - problem.minimum
            yield at_most("gap over the bound", gaps / bound, 1.0, of=name, problem=problem.name)
        first = start - problem.gradient(start) / problem.L
        yield equals("the first iterate", path[1], first, problem=problem.name)
    for t in (5, 20, 60):
        worst = chain(2 * t + 1)
        found = walk(
            partial(Nesterov, lr=0.25, momentum=momentum), worst.f, torch.zeros(2 * t + 1), t
        )
        gap = worst.f(found[t]) - worst.minimum
        below = 3 * 4 * worst.optimum.square().sum() / (32 * (t + 1) ** 2)
        yield at_least("gap over the lower bound", gap / below, 1.0, t=t)


def _fista(problem: Problem, start: Tensor, steps: int) -> Tensor:
    path, y, s = [start], start, 1.0
    for _ in range(steps):
        path.append(y - problem.gradient(y) / problem.L)
        after = (1 + math.sqrt(1 + 4 * s * s)) / 2
        y, s = path[-1] + (s - 1) / after * (path[-1] - path[-2]), after
    return torch.stack(path)


nesterov_convex.foil("plain gradient descent", refuted_by="gap over the bound", accelerated=False)
nesterov_convex.foil("the order $1 / t^3$", refuted_by="gap over the bound", order=3.0)
