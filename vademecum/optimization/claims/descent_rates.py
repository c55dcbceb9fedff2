"""How fast gradient descent is: smooth, convex and strongly convex functions."""

import math
from typing import Literal

import torch

from vademecum.claims import at_least, at_most, claim, equals, lowest
from vademecum.optimization import certify_descent
from vademecum.optimization.claims._objectives import (
    by_hand,
    huber,
    known_logistic,
    known_quadratic,
    waves,
)


@claim(
    by="sampling",
    sources=("A-106", "B-223", "C-082", "D-060"),
    budget=0.5,
    full={"steps": 500},
    short=r"\min_{j < k} \|\nabla f(x_j)\|^2 \le \frac{2 L (f(x_0) - f^*)}{k}",
)
def stationarity_rate(
    constant: float = 2.0, power: float = 1.0, curvature: float = 1.0, steps: int = 40
):
    r"""Steps to an $\epsilon$-stationary point.

    $x$ is $\epsilon$-stationary if $\|\nabla f(x)\| \le \epsilon$, a measure that also makes sense
    for non-convex $f$. For $L$-smooth $f$ bounded below by $f^*$ gradient descent with
    $\eta = 1 / L$ has $\min_{j < k} \|\nabla f(x_j)\|^2 \le 2 L (f(x_0) - f^*) / k$, so that some
    (not necessarily the last) of the first $2 L (f(x_0) - f^*) / \epsilon^2$ iterates is
    $\epsilon$-stationary. Convergence of the iterates, or to a minimum, needs more.

    *Proof.* $f(x_{j + 1}) \le f(x_j) - \frac1{2 L} \|\nabla f(x_j)\|^2$; sum over $j < k$.

    *Check.* Sums of cosines with a flat parabola, whose $L$ and lower bound are known. The bound is
    attained on a parabola at $k = 1$, and up to the factor $2 - \frac1k$ at every $k$ by a Huber
    function with kink $\delta$ from $k \delta$, whose gradient stays the same for $k$ steps. On
    $\log(1 + e^{-x})$, with $L = \frac14$ and from 0, the gradient vanishes while
    $e^{x_k} + x_k \ge 1 + 4 k$: the step from $x$ is longer than that of the flow
    $\dot x = 4 / (1 + e^x)$ through $x$.

    Knobs:
        constant: The factor of the bound.
        power: The power of $k$ in it.
        curvature: The curvature of the parabola that is descended with $\eta = 1$.
        steps: How many steps are made.
    """
    lowest("steps", steps, 2)
    k = torch.arange(1, steps + 1)
    for d, count in ((2, 3), (3, 5)):
        problem, x = waves(d, count), 3 * torch.randn(d)
        gaps, squares = by_hand(problem, x, steps)
        found = certify_descent(
            problem.f, x, assuming="smooth", L=problem.L, minimum=problem.minimum, steps=steps
        )
        least, bound = squares.cummin(0).values[:-1], constant * problem.L * gaps[0] / k**power
        yield at_most("least squared gradient", least, bound, d=d)
        yield equals("least squared gradient, certified", found.gap, least, d=d)
        yield equals("bound, certified", found.bound, bound, d=d)
    for L, x in ((1.0, 2.0), (3.0, -0.5)):
        for n in (1, 2, 7):
            gap = L * n * x * x - L * x * x / 2
            start, kink = torch.tensor([n * x]), abs(x)
            found = certify_descent(
                huber(kink, L), start, assuming="smooth", L=L, minimum=0.0, steps=n
            )
            name = "least squared gradient of a Huber function, times 2 - 1/k"
            bound = constant * L * gap / n**power
            yield equals(name, (2 - 1 / n) * found.gap[-1], bound, L=L, k=n)
    x = 1.0
    for _ in range(30):
        x -= curvature * x
    yield at_most("gradient of a parabola after 30 steps, over that at the start", abs(x), 1e-6)
    x = 0.0
    for _ in range(1000):
        x += 4 / (1 + math.exp(x))
    yield at_least("growth of the iterate on log(1 + exp(-x))", math.exp(x) + x, 4001.0, k=1000)
    yield at_most("gradient on log(1 + exp(-x))", 1 / (1 + math.exp(x)), 1 / 3980, k=1000)


stationarity_rate.foil(
    "the constant $\\frac12$, which a parabola breaks at once",
    refuted_by="least squared gradient of a Huber function, times 2 - 1/k",
    constant=0.5,
)
stationarity_rate.foil(
    "the rate $1 / k^2$, which slow Huber functions do not keep",
    refuted_by="least squared gradient of a Huber function, times 2 - 1/k",
    power=2.0,
)
stationarity_rate.erratum(
    "D-060",
    printed=r"If the objective function is $L$-smooth a step size of $\eta = 1/L$ guarantees"
    " convergence",
    right=r"... $f$ is also bounded below, the least gradient norm tends to 0",
    why=r"Boundedness below is missing: $f = -x^2/2$ is 1-smooth and $\eta = 1$ gives"
    r" $x_{k+1} = 2 x_k$. With it only the gradient norm must vanish; on $\log(1 + e^{-x})$ the"
    " iterates still run to infinity.",
    weight="soft",
    refuted_by="gradient of a parabola after 30 steps, over that at the start",
    curvature=-1.0,
)


def quartic_error(of: str, t: int) -> tuple[float, float]:
    r"""$t$ times the error of descent on $\theta^4$ from 1 with $\eta = 1/12$, at $t/100$ and t."""
    x, found = 1.0, []
    for step in range(1, t + 1):
        x -= x**3 / 3
        if step in (t // 100, t):
            found.append(step * (x**4 if of == "values" else x))
    return found[0], found[1]


@claim(
    by="sampling",
    sources=("E-155", "E-156", "E-157"),
    budget=0.5,
    full={"steps": 200},
    short=r"f(\theta_t) - f^* \le \frac{L}{2 t} \|\theta_0 - \theta^*\|^2,\quad \eta = 1 / L",
)
def convex_rate(
    constant: float = 0.5,
    power: float = 1.0,
    of: Literal["values", "iterates"] = "values",
    steps: int = 40,
):
    r"""Sublinear rate on smooth convex functions.

    If $f$ is convex and $L$-smooth and $\eta = 1 / L$, then
    $f(\theta_t) - f^* \le \frac L{2 t} \|\theta_0 - \theta^*\|^2$ for $t \ge 1$ (hence also
    $\le \frac{2 L}{t + 1} \|\theta_0 - \theta^*\|^2$): accuracy $\epsilon$ within
    $\frac L{2 \epsilon} \|\theta_0 - \theta^*\|^2$ steps. This $O(1 / t)$ is called sublinear and
    concerns function values; the iterates have no rate in general.

    *Proof.* $\frac2L (f(\theta_{t + 1}) - f^*) \le \|\theta_t - \theta^*\|^2 - \|\theta_{t + 1} -
    \theta^*\|^2$, by convexity and smoothness; the sum telescopes, and the values do not increase.

    *Check.* Singular quadratics and logistic losses with planted optima. The Huber function with
    kink $R / (2 t + 1)$ from $R$ has the gap $L R^2 / (4 t + 2)$ after $t$ steps, the bound up to
    the factor $2 + \frac1t$. On $\theta^4$, which is 12-smooth on $[-1, 1]$, $t$ times the gap
    falls from $t = 10^2$ to $10^4$, and $t$ times the iterate grows.

    Knobs:
        constant: The factor of the bound.
        power: The power of $t$ in it.
        of: What is said to fall like $1 / t$ on $\theta^4$.
        steps: How many steps are made.
    """
    lowest("steps", steps, 2)
    t = torch.arange(1, steps + 1)
    for problem in (known_quadratic(torch.tensor([0.0, 0.1, 3.0])), known_logistic(30, 4, 0.0)):
        start = problem.optimum + torch.randn(len(problem.optimum))
        gaps, _ = by_hand(problem, start, steps)
        found = certify_descent(
            problem.f, start, L=problem.L, minimiser=problem.optimum, steps=steps
        )
        R2 = (start - problem.optimum).square().sum()
        bound = constant * problem.L * R2 / t**power
        yield at_most("gap", gaps[1:], bound, tol=1e-12, f=problem.name)
        yield equals("gap, certified", found.gap, gaps[1:], tol=1e-12, f=problem.name)
        yield equals("bound, certified", found.bound, bound, f=problem.name)
    for n, R, L in ((1, 2.0, 1.0), (4, 1.0, 3.0), (20, 3.0, 0.5)):
        f, start = huber(R / (2 * n + 1), L), torch.tensor([R])
        found = certify_descent(f, start, L=L, minimiser=torch.zeros(1), steps=n)
        yield equals("gap of a Huber function", found.gap[-1], L * R * R / (4 * n + 2), t=n)
        bound = constant * L * R * R / n**power
        yield at_most("gap of a Huber function", found.gap[-1], bound, t=n)
        yield at_least("its tightness, (2 + 1/t) times", (2 + 1 / n) * found.tightness, 1.0, t=n)
    early, late = quartic_error(of, 10_000)
    yield at_most("t times the error on a quartic, at 10000 over at 100", late / early, 1.0)


convex_rate.foil(
    r"the constant $\frac18$",
    refuted_by="gap of a Huber function",
    constant=0.125,
)
convex_rate.foil("the rate $1 / t^2$", refuted_by="gap of a Huber function", power=2.0)
convex_rate.erratum(
    "E-156",
    printed=r"the rate $O(t^{-1})$ is called polynomial (linear) and attributed to"
    r" $\theta \to \theta^*$",
    right=r"$O(t^{-1})$ is called sublinear and bounds $\mathcal R(\theta(t)) - \mathcal R^*$",
    why=r"'Linear' means geometric, $c^t$; and the theorem bounds $\mathcal R(\theta(t)) - \mathcal"
    r" R^*$. For the iterates it is false: gradient descent on $\theta^4$ has"
    r" $\theta_t \sim t^{-1/2}$, so $t\, \theta_t$ is unbounded.",
    refuted_by="t times the error on a quartic, at 10000 over at 100",
    of="iterates",
)


@claim(
    by="sampling",
    sources=("D-050", "E-164", "E-165"),
    budget=0.5,
    full={"steps": 500},
    short=r"f(\theta_t) - f^* \le (1 - \tfrac\mu L)^t (f(\theta_0) - f^*),\quad \eta = 1 / L",
)
def linear_rate(factor: float = 1.0, root: float = 1.0, steps: int = 60):
    r"""Linear rate under strong convexity.

    If $f$ is $\mu$-strongly convex and $L$-smooth and $\eta = 1 / L$, then
    $f(\theta_t) - f^* \le (1 - \frac\mu L)^t (f(\theta_0) - f^*)$. Decay like $c^t$ with $c < 1$ is
    called a linear rate, because the logarithm of the error falls linearly in $t$; on quadratics
    the asymptotic factor is $(1 - \mu / L)^2$.

    *Proof.* $f(\theta_{t + 1}) \le f(\theta_t) - \frac1{2 L} \|\nabla f(\theta_t)\|^2$, and strong
    convexity makes $\|\nabla f\|^2 \ge 2 \mu\, (f - f^*)$.

    *Check.* Quadratics and ridge-penalised logistic losses with planted optima, by a loop of our
    own; diagonal quadratics in closed form, which from the flattest axis keep the asymptotic factor
    throughout.

    Knobs:
        factor: What $\mu / L$ is multiplied by in the factor.
        root: The power to which it is raised.
        steps: How many steps are made.
    """
    lowest("steps", steps, 50)
    t = torch.arange(steps + 1)
    for problem in (
        known_quadratic(torch.tensor([0.5, 1.0, 2.0, 4.0])),
        known_logistic(30, 3, 0.05),
    ):
        start = problem.optimum + torch.randn(len(problem.optimum))
        gaps, _ = by_hand(problem, start, steps)
        found = certify_descent(
            problem.f, start, L=problem.L, mu=problem.mu, minimum=problem.minimum, steps=steps
        )
        bound = (1 - factor * (problem.mu / problem.L) ** root) ** t * gaps[0]
        yield at_most("gap", gaps, bound, tol=1e-12, f=problem.name)
        yield equals("gap, certified", found.gap, gaps, tol=1e-12, f=problem.name)
        yield equals("bound, certified", found.bound, bound, tol=1e-12, f=problem.name)
    for kappa in (5.0, 100.0):
        curvatures = torch.tensor([1.0, kappa / 2, kappa])
        found = certify_descent(
            lambda x, a=curvatures: a @ x.square() / 2, torch.tensor([3.0, 0.2, 1.0]),
            L=kappa, mu=1.0, minimum=0.0, steps=steps,
        )  # fmt: skip
        late = found.gap[-1] / found.gap[-2]
        yield equals("factor of the last step", late, (1 - 1 / kappa) ** 2, kappa=kappa)
        flat = certify_descent(
            lambda x, a=curvatures: a @ x.square() / 2, torch.tensor([3.0, 0.0, 0.0]),
            L=kappa, mu=1.0, minimum=0.0, steps=steps,
        )  # fmt: skip
        exact = 4.5 * (1 - 1 / kappa) ** (2 * t)
        yield equals("gap from the flattest axis", flat.gap, exact, tol=1e-12, kappa=kappa)
        bound = (1 - factor * (1 / kappa) ** root) ** t * 4.5
        yield at_most("gap from the flattest axis", exact, bound, tol=1e-12, kappa=kappa)


linear_rate.foil(
    r"the accelerated factor $1 - \sqrt{\mu / L}$",
    refuted_by="gap from the flattest axis",
    root=0.5,
)
linear_rate.foil(
    r"a factor below $(1 - \mu / L)^2$", refuted_by="gap from the flattest axis", factor=2.1
)
