"""The condition of Polyak and Lojasiewicz: linear rates without convexity."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals, lowest, with_eigenvalues
from vademecum.optimization import certify_descent, pl_constant
from vademecum.optimization.claims._fractions import half_square, line

LEAST = 0.17553098588
"""The least quotient of the wave, at 2.20171, by a grid of a million points around it."""


def wave(x: Tensor) -> Tensor:
    r"""$x^2 + 3 \sin^2 x$."""
    return x.square() + 3 * x.sin().square()


def wave_slope(x: Tensor) -> Tensor:
    """Its derivative."""
    return 2 * x + 3 * (2 * x).sin()


@claim(
    by="sampling",
    sources=("A-107", "B-224", "C-081", "D-062", "D-063"),
    budget=0.3,
    full={"points": 1_000_000},
    short=r"\tfrac12 \|\nabla f(x)\|^2 \ge \mu\, (f(x) - f^*)",
)
def pl_condition(
    mu: float = 0.1755,
    function: Literal["wave", "quartic"] = "wave",
    bend: float = -4.0,
    points: int = 100_000,
):
    r"""The Polyak-Lojasiewicz condition.

    A differentiable $f$ with minimum value $f^*$ is $\mu$-PL if
    $\frac12 \|\nabla f(x)\|^2 \ge \mu\, (f(x) - f^*)$ for all $x$. A small gradient then certifies
    near-optimality and every stationary point is a global minimiser, although $f$ need be neither
    convex nor have a unique minimiser: $x^2 + 3 \sin^2 x$ is PL with $\mu = 0.1755$, and its second
    derivative is $-4$ at $\pi / 2$.

    *Check.* On a grid of $[-50, 50]$, beyond which $|f'| \ge 2 |x| - 3$ and $f \le x^2 + 3$ give
    quotients above 1.8. A function of two variables whose minimisers are a line is PL as well:
    $(x + 2 y)^2 / 2$, with $\mu = 5$. `pl_constant` measures quotients of both as those of models.

    Knobs:
        mu: The constant that the first function is said to have.
        function: The function.
        bend: What the second derivative of $x^2 + 3 \sin^2 x$ is said to be nowhere below.
        points: How many points the grid has.
    """
    lowest("points", points, 1000)
    x = torch.linspace(-50, 50, points + points % 2)  # without 0
    f, slope = (wave(x), wave_slope(x)) if function == "wave" else (x**4, 4 * x**3)
    quotient = slope.square() / (2 * f)
    yield at_least("quotient $|f'|^2 / 2 (f - f^*)$", quotient, mu)
    near = torch.linspace(2.2, 2.203, 1001)
    least = (wave_slope(near).square() / (2 * wave(near))).min()
    yield equals("least quotient of the wave", least, LEAST, tol=1e-8)
    yield equals("sign changes of the slope", int((slope[1:] * slope[:-1] < 0).sum()), 1)
    yield at_least("second derivative of the wave", 2 + 6 * (2 * x).cos(), bend, tol=1e-6)
    yield equals("second derivative of the wave", 2 + 6 * math.cos(math.pi), -4.0, x="pi / 2")
    z, path = torch.tensor(40.0), []
    for _ in range(60):
        path.append(z)
        z = z - wave_slope(z) / 8
    z = torch.stack(path)
    yield at_most("gap along a descent", wave(z), wave_slope(z).square() / (2 * LEAST), tol=1e-12)
    for theta in (-3.0, 0.5, 2.2):
        unit, at = line(torch.tensor([theta])), torch.tensor([theta])
        found = pl_constant(unit, torch.ones(1, 1), loss=lambda z, y: wave(z).sum()).value
        ratio = wave_slope(at).square() / (2 * wave(at))
        yield equals("quotient, measured", found, ratio, x=theta)
    for row in torch.randn(3, 2):
        x, y = torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1)
        found = pl_constant(line(row), x, y, loss=half_square).value
        yield equals("quotient of a function with a line of minimisers", found, 5.0)


pl_condition.foil("a constant that is a little too large", mu=0.18)
pl_condition.foil("PL implies convexity", refuted_by="second derivative of the wave", bend=0.0)
pl_condition.foil(
    "$x^4$, whose quotient $8 x^2$ tends to 0",
    refuted_by="quotient $|f'|^2 / 2 (f - f^*)$",
    function="quartic",
)


@claim(
    by="sampling",
    sources=("A-108", "B-224", "D-064"),
    budget=0.3,
    full={"points": 100_000},
    short=r"\mu\text{-strongly convex} \Rightarrow \mu\text{-PL, not conversely}",
)
def strong_convexity_implies_pl(factor: float = 1.0, converse: bool = False, points: int = 1000):
    r"""Strong convexity implies PL, not conversely.

    Every $\mu$-strongly convex differentiable function is $\mu$-PL with the same $\mu$. The
    converse fails: $\frac12 \|A x - b\|^2$ with rank-deficient $A$ is PL with $\mu$ the smallest
    non-zero eigenvalue of $A^\top A$, but not strongly convex.

    *Proof.* Minimise both sides of $f(y) \ge f(x) + \langle \nabla f(x), y - x \rangle +
    \frac\mu2 \|y - x\|^2$ over $y$. For the second, $\|A^\top r\|^2 \ge \mu \|r\|^2$ for residuals
    $r$ in the range of $A$, to which the rest of $b$ adds a constant.

    *Check.* Quadratics, logistic losses with a ridge $\lambda = \mu$ around a planted optimum, and
    least squares of rank 2 in three variables, with equality along the singular vector.

    Knobs:
        factor: What $\mu$ is multiplied by in the condition.
        converse: Whether a PL function is said to be strongly convex with its $\mu$.
        points: How many points are drawn for each function.
    """
    lowest("points", points, 2)
    for d in (1, 4):
        values = torch.rand(d) + 0.2
        H, at = with_eigenvalues(values), torch.randn(d)
        x = at + 2 * torch.randn(points, d)
        gap, square = ((x - at) @ H * (x - at)).sum(1) / 2, ((x - at) @ H).square().sum(1)
        mu = factor * values.min()
        yield at_least("half the squared gradient of a quadratic", square / 2, mu * gap, d=d)
        X, ridge = torch.randn(20, d), 0.3
        p, z = torch.sigmoid(X @ at), x @ X.T
        terms = nn.functional.softplus(z) - p * z
        terms = terms - (nn.functional.softplus(X @ at) - p * (X @ at))
        gap = terms.mean(1) + ridge / 2 * (x - at).square().sum(1)
        slope = (torch.sigmoid(z) - p) @ X / 20 + ridge * (x - at)
        mu, half = factor * ridge, slope.square().sum(1) / 2
        yield at_least("half the squared gradient of a logistic loss", half, mu * gap, d=d)
    flat = torch.tensor([0.0, 0.5, 2.0])
    U, V = (torch.linalg.qr(torch.randn(k, k)).Q for k in (5, 3))
    A, b = U[:, :3] * flat.sqrt() @ V.T, torch.randn(5)
    least = (torch.linalg.lstsq(A, b[:, None], driver="gelsd").solution[:, 0] @ A.T - b).square()
    x = 2 * torch.randn(points, 3)
    residual = x @ A.T - b
    half, gap = (residual @ A).square().sum(1) / 2, (residual.square().sum(1) - least.sum()) / 2
    yield at_least("half the squared gradient of least squares", half, factor * 0.5 * gap)
    x = torch.linalg.pinv(A) @ b + 3 * V[:, 1]
    residual = A @ x - b
    half, gap = (A.T @ residual).square().sum() / 2, (residual.square().sum() - least.sum()) / 2
    yield equals("half the squared gradient along a singular vector", half, factor * 0.5 * gap)
    curvature = torch.linalg.eigvalsh(A.T @ A)[0]
    yield equals("least curvature of least squares", curvature, 0.5 if converse else 0.0)


strong_convexity_implies_pl.foil(r"the constant $2 \mu$", factor=2.0)
strong_convexity_implies_pl.foil("PL implies strong convexity", converse=True)


@claim(
    by="sampling",
    sources=("A-109", "C-083", "D-064", "D-066"),
    budget=0.5,
    full={"steps": 200, "starts": 21},
    short=r"\mu\text{-PL}: f(x_t) - f^* \le (1 - \tfrac\mu L)^t (f(x_0) - f^*),\quad \eta = 1 / L",
)
def pl_rate(
    factor: float = 1.0,
    functions: tuple[str, ...] = ("wave", "least squares"),
    steps: int = 40,
    starts: int = 2,
):
    r"""Linear convergence under PL.

    If $f$ is $L$-smooth and $\mu$-PL, gradient descent with $\eta = 1 / L$ satisfies
    $f(x_t) - f^* \le (1 - \frac\mu L)^t (f(x_0) - f^*)$, without convexity.

    *Proof.* $f(x_{t + 1}) \le f(x_t) - \frac1{2 L} \|\nabla f(x_t)\|^2 \le f(x_t) - \frac\mu L
    (f(x_t) - f^*)$.

    *Check.* $x^2 + 3 \sin^2 x$ with $L = 8$, $\mu = 0.1755$ from a grid of $[-10, 10]$, by a loop;
    least squares of rank 2 in three variables, by powers of the eigenvalues, where from the
    flattest direction the factor is $(1 - \mu / L)^2$.

    Knobs:
        factor: What $\mu / L$ is multiplied by.
        functions: The functions that are said to be PL; a quartic with $L = 12$, $\mu = 1$ is not.
        steps: How many steps are made.
        starts: How many starts there are on the grid.
    """
    lowest("steps", steps, 20)
    t = torch.arange(steps + 1)
    cases = {"wave": (wave, wave_slope, 8.0, 0.1755, 10.0)}
    cases["quartic"] = (lambda x: x**4, lambda x: 4 * x**3, 12.0, 1.0, 0.2)
    for name in functions:
        if name == "least squares":
            yield from _least_squares(factor, t)
            continue
        f, slope, L, mu, reach = cases[name]
        for start in torch.linspace(-1, 1, starts + starts % 2).tolist():
            x, gaps = torch.tensor(start * reach), []
            found = certify_descent(
                lambda x, f=f: f(x).sum(), x[None], assuming="pl", L=L, mu=mu, minimum=0.0,
                steps=steps,
            )  # fmt: skip
            for _ in t:
                gaps.append(f(x))
                x = x - slope(x) / L
            gaps = torch.stack(gaps)
            bound = (1 - factor * mu / L) ** t * gaps[0]
            yield at_most("gap", gaps, bound, tol=1e-12, f=name, start=start * reach)
            yield equals("gap, certified", found.gap, gaps, tol=1e-12, f=name)


def _least_squares(factor: float, t: Tensor):
    """Of rank 2, with a residual that stays, from the flattest direction."""
    U, V = (torch.linalg.qr(torch.randn(k, k)).Q for k in (5, 3))
    curvatures = torch.tensor([0.0, 0.6, 2.0])
    A, b = U[:, :3] * curvatures.sqrt() @ V.T, torch.randn(5)
    best = torch.linalg.pinv(A) @ b
    least = float((A @ best - b).square().sum() / 2)
    for name, way in (("flattest", torch.tensor([1.0, 3.0, 0.0])), ("any", torch.randn(3))):
        found = certify_descent(
            lambda x: (A @ x - b).square().sum() / 2, best + V @ way, assuming="pl",
            L=2.0, mu=0.6, minimum=least, steps=len(t) - 1,
        )  # fmt: skip
        each = curvatures / 2 * way.square() * (1 - curvatures / 2) ** (2 * t[:, None])
        gaps = each.sum(1)
        bound = (1 - factor * 0.3) ** t * gaps[0]
        yield equals("gap of least squares", found.gap, gaps, tol=1e-12, start=name)
        yield equals("bound, certified", found.bound, bound, tol=1e-12, start=name)
        yield at_most("gap of least squares", gaps, bound, tol=1e-12, start=name)


pl_rate.foil(r"the factor $1 - 2 \mu / L$", refuted_by="gap of least squares", factor=2.0)
pl_rate.foil("a quartic is PL", refuted_by="gap", functions=("quartic",))
