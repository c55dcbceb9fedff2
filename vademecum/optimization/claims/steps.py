"""Gradient descent with a constant step: what it multiplies, how long it may be, which is best."""

from collections.abc import Iterator
from typing import Any, Literal

import scipy.optimize
import torch
from torch import Tensor, nn

from vademecum.claims import (
    Evidence,
    at_least,
    at_most,
    claim,
    complex_step,
    equals,
    with_eigenvalues,
)
from vademecum.gradients import functional
from vademecum.optimization import sharpness
from vademecum.optimization.claims._objectives import (
    Function,
    descend,
    gradients_of,
    objectives,
    quadratic,
    race,
    ripples,
)


def planted(spectrum: Tensor) -> tuple[Function, Tensor]:
    """A quadratic with known eigenvectors, the columns of a matrix, in the order of the values."""
    axes = torch.linalg.qr(torch.randn(len(spectrum), len(spectrum))).Q
    return quadratic((axes * spectrum) @ axes.T), axes


@claim(
    by="identity",
    sources=("A-074", "B-210", "C-075", "D-153", "E-144"),
    budget=0.5,
    full={"steps": 300},
    short=r"\theta_{t+1} = \theta_t - \eta \nabla f(\theta_t), \quad"
    r" \nabla f(\theta) = H \theta: \theta_t = (I - \eta H)^t \theta_0",
)
def gradient_descent(
    sign: int = -1, factor: Literal["descent", "flow"] = "descent", steps: int = 30
):
    r"""Gradient descent.

    $\theta_{t+1} = \theta_t - \eta_t \nabla f(\theta_t)$ with step sizes $\eta_t > 0$, often one
    and the same. On $f = \frac12 \theta^\top H \theta$ the iterates are $(I - \eta H)^t \theta_0$:
    along an eigenvector of eigenvalue $\lambda$ the error is multiplied by $1 - \eta \lambda$ in
    each step.

    Checked for torch's `SGD` without momentum, with constant and with changing steps, on quadratics
    of both signs whose eigenvectors are planted; and on a logistic loss, whose gradient is taken by
    the complex step.

    Knobs:
        sign: The sign before the gradient.
        factor: What an eigencoordinate is multiplied by: $1 - \eta \lambda$ of the descent, or
            $e^{-\eta \lambda}$ of the flow.
        steps: How many steps are taken.
    """
    for d in (2, 5):
        spectrum = torch.linspace(-0.5, 2.0, d)
        f, axes = planted(spectrum)
        start = torch.randn(3, d)
        for name, sizes in (
            ("constant", [0.3] * steps),
            ("changing", [0.5 / (t + 1) ** 0.5 for t in range(steps)]),
        ):
            path = descend(f, start, sizes) @ axes  # in eigencoordinates
            scale = path.norm(dim=2, keepdim=True)
            shrunk = sign * torch.tensor(sizes)[:, None] * spectrum
            each = {"descent": 1 + shrunk, "flow": shrunk.exp()}[factor]
            whole = torch.cat([torch.ones(1, d), each.cumprod(0)])[:, None] * path[0]
            at = {"d": d, "steps": name}
            # Rounding of a step is a few units of the iterate, and 30 steps multiply it no more
            # than the largest factor does the iterate itself.
            one = (path[1:] - each[:, None] * path[:-1]) / scale[:-1]
            yield equals("error of one step in eigencoordinates", one, 0.0, tol=1e-12, **at)
            gap = (path - whole) / scale
            yield equals("error of all steps in eigencoordinates", gap, 0.0, tol=1e-11, **at)
    x, y, theta = torch.randn(7, 3), torch.randn(7).sign(), torch.randn(3)
    loss = lambda w: (1 + (-(y * (x.to(w) @ w))).exp()).log().mean()  # noqa: E731
    path = descend(lambda w: torch.stack([loss(row) for row in w]), theta[None], [0.7, 0.2])[:, 0]
    for t, eta in enumerate((0.7, 0.2)):
        step = sign * eta * complex_step(loss, path[t])
        yield equals("step on a logistic loss", path[t + 1] - path[t], step, tol=1e-12, t=t)


gradient_descent.foil("the other sign climbs", sign=1)
gradient_descent.foil(r"$e^{-\eta \lambda}$ is the factor of the flow", factor="flow")


def edges(limit: float, steps: int) -> Iterator[Evidence]:
    """Convex quadratics just below, at and beyond the limit, in eigencoordinates."""
    for d in (2, 4):
        L = float(1 + 4 * torch.rand(()))
        spectrum = torch.cat([torch.zeros(1), L * torch.linspace(0.2, 1, d)])  # one flat direction
        f, axes = planted(spectrum)
        start = (1 + torch.rand(2, d + 1)) @ axes.T
        at = {"d": d + 1}
        stable, shares = (0.25, 0.5, 0.95), (0.25, 0.5, 0.95, 1.0, 1.025, 0.0)
        runs = race(f, start, [[share * limit / L for share in shares]] * steps) @ axes
        for share, path in zip(stable, runs.unbind(1), strict=False):
            name = "distance from the minimisers over that of the start"
            rest = path[-1, :, 1:].norm(dim=1) / path[0, :, 1:].norm(dim=1)
            yield at_most(name, rest, 1e-6, tol=0.0, eta=f"{share * limit:g}/L", **at)
            yield equals("coordinate of the minimiser", path[-1, :, 0], path[0, :, 0], **at)
        flips = runs[1:, 3, :, -1] / runs[:-1, 3, :, -1]
        yield equals("factor of the steepest coordinate at the limit", flips, -1.0, **at)
        growth = (runs[-1, 4, :, -1] / runs[0, 4, :, -1]).abs().log() / steps
        name = "growth of the steepest coordinate beyond the limit, log of the factor"
        yield at_least(name, growth, 0.04, **at)  # log 1.05 = 0.0488
        yield equals("place without a step", runs[-1, 5], runs[0, 5], tol=0.0, **at)


def measured_limit(limit: float) -> Iterator[Evidence]:
    """The limit that `sharpness` measures on a linear model, and runs on both sides of it."""
    model, x, y = nn.Linear(3, 2), torch.randn(9, 3), torch.randn(9, 2)
    found, f = sharpness(model, x, y, tol=1e-10), functional(model)
    wide = torch.cat([x, torch.ones(9, 1)], 1)  # the error is a mean over 18 squares
    largest = 2 * float(torch.linalg.eigvalsh(wide.T @ wide)[-1]) / 18
    yield equals("critical step measured, times L", found.critical_step * largest, limit)
    risk = lambda rows: torch.stack([nn.functional.mse_loss(f(t, x), y) for t in rows])  # noqa: E731
    shares = [0.98, 1.02]
    sizes = [share * limit / largest for share in shares]
    runs = race(risk, f.theta.detach()[None], [sizes] * 10)[:, :, 0] @ found.vector
    moves = runs.diff(dim=0)
    for i, share in enumerate(shares):
        factor = moves[1:, i] / moves[:-1, i]
        name = "factor of a move along the sharpest direction"
        yield equals(name, factor, 1 - 2 * share, tol=1e-7, eta=f"{share * limit:g}/L")


@claim(
    by="sampling",
    sources=("B-213", "E-136", "E-158"),
    budget=1.0,
    full={"n": 10_000},
    short=r"f = \tfrac12 \theta^\top H \theta,\ H \succeq 0: \theta_t \to \theta^* \iff"
    r" 0 < \eta < 2 / \lambda_{\max}(H)",
)
def stable_step(recommended: float = 1.0, limit: float = 2.0, steps: int = 150, n: int = 500):
    r"""The stability limit of a constant step.

    On a convex quadratic whose minimum is attained, such as $\frac12 \theta^\top H \theta$, with
    largest curvature $L > 0$ gradient descent converges from every start if and only if
    $0 < \eta < 2/L$; at $\eta = 2/L$ the steepest coordinate flips its sign for ever, and beyond it
    diverges. For any $L$-smooth function every $0 < \eta < 2/L$ decreases $f$ unless the gradient
    is zero, and $\eta = 1/L$ is the standard choice; the price of a step this small is slow
    progress along flat directions.

    *Proof.* A coordinate is multiplied by $1 - \eta \lambda$, of modulus below 1 exactly for
    $0 < \eta \lambda < 2$; the second part is the descent lemma. Checked with torch's `SGD` for
    spectra in $\{0\} \cup [0.2 L, L]$, where 150 steps of $\frac1{2 L}$ or more leave $0.9^{150}$
    of the distance; with $\eta = 1/L$ the risk keeps below
    $2 L \|\theta_0 - \theta^*\|^2 / (t + 1)$, as for every convex function. On a linear model the
    limit is the `critical_step` of `sharpness`.

    Knobs:
        recommended: The standard choice, in units of $1/L$.
        limit: The limit, in units of $1/L$.
        steps: How many steps are taken.
        n: How many points are drawn for functions that are not quadratic.
    """
    for d, L in ((1, 4.0), (3, 4.0)):
        spectrum = L * torch.linspace(1, 0.1, d)
        f = quadratic(torch.diag(spectrum))
        start = torch.ones(1, d)
        path = descend(f, start, recommended / L, 50)[:, 0]
        bound = 2 * L * start.square().sum() / torch.arange(1, 52)
        yield at_most("risk against $2 L |\\theta_0|^2 / (t + 1)$", f(path), bound, d=d, t=50)
    yield from edges(limit, steps)
    yield from measured_limit(limit)
    for d in (2, 4):
        for name, f, L, *_ in objectives(d):
            x = 3 * torch.randn(n, d)
            for share in (0.05, recommended / 2, 0.995):
                eta = share * limit / L
                change = f(descend(f, x, eta, 1)[-1]) - f(x)
                most = -eta * (1 - share) * gradients_of(f, x).square().sum(1)
                yield at_most("change of f by a step", change, most, tol=1e-12, f=name, d=d)
    bottom = torch.full((1, 1), torch.pi + 0.1)  # near a minimum of the cosine, with curvature 1
    wave = ripples(torch.ones(1), torch.eye(1))
    for share, sense in ((0.975, -1.0), (1.025, 1.0)):
        change = wave(descend(wave, bottom, limit * share, 1)[-1]) - wave(bottom)
        name = "change of the cosine near its minimum, times the sign beside the limit"
        yield at_least(name, sense * change, 1e-5, eta=limit * share)


stable_step.foil(
    "steps beyond 1/L, which still converge",
    refuted_by="growth of the steepest coordinate beyond the limit, log of the factor",
    limit=1.0,
)
stable_step.foil("a step of 2.09/L diverges", limit=2.2)
stable_step.erratum(
    "E-158",
    printed=r"recommended step sizes: $\eta = \frac1L$ or $\eta := \frac2L$",
    right=r"recommended step size: $\eta = \frac1L$; every $0 < \eta < \frac2L$ is stable",
    why=r"with $\eta = 2/L$ on $\frac L2 \theta^2$ the iteration is $\theta \mapsto -\theta$: the"
    r" risk never decreases, against the sheet's own bound $2 L \|\theta(0) - \theta^*\|^2 / (t+1)$"
    r" as soon as $t > 3$",
    weight="hard",
    refuted_by="risk against $2 L |\\theta_0|^2 / (t + 1)$",
    recommended=2.0,
)


def worst_factor(f: Function, d: int, eta: float) -> float:
    """The largest factor by which one step stretches a vector: the norm of the step as a matrix."""
    return float(torch.linalg.matrix_norm(descend(f, torch.eye(d), eta, 1)[-1], 2))


@claim(
    by="identity",
    sources=("B-213", "D-158", "E-158"),
    budget=0.5,
    full={"draws": 50},
    short=r"\arg\min_\eta \max_{\mu \le \lambda \le L} |1 - \eta \lambda| = \tfrac2{L + \mu}, \quad"
    r" \min = \tfrac{L - \mu}{L + \mu}",
)
def best_constant_step(
    step: Literal["2/(L+mu)", "1/L", "1/sqrt(L mu)"] = "2/(L+mu)", draws: int = 1
):
    r"""The best constant step on a quadratic.

    For quadratics with spectrum in $[\mu, L]$, both ends attained, the worst contraction factor
    $\max_\lambda |1 - \eta \lambda|$ is smallest at $\eta = 2 / (L + \mu)$, where it equals
    $(\kappa - 1) / (\kappa + 1)$, $\kappa = L / \mu$. The step $1/L$ is safe, since it minimises
    the quadratic upper bound, but not optimal.

    *Proof.* The maximum is that of $1 - \eta \mu$, which falls, and $\eta L - 1$, which rises; they
    meet there. Checked for the step of torch's `SGD`, taken as a matrix, whose norm is minimised by
    a search over $\eta$.

    Knobs:
        step: The step that is said to be best.
        draws: How many spectra are drawn for each condition number.
    """
    best = {
        "2/(L+mu)": lambda mu, L: 2 / (L + mu),
        "1/L": lambda mu, L: 1 / L,
        "1/sqrt(L mu)": lambda mu, L: (L * mu) ** -0.5,
    }[step]
    f, start = quadratic(torch.diag(torch.tensor([1.0, 0.1]))), torch.ones(1, 2)
    risks = {eta: float(f(descend(f, start, eta, 50)[-1])) for eta in (0.5, 1.0, 2 / 1.1)}
    for eta, risk in risks.items():
        exact = ((1 - eta) ** 100 + 0.1 * (1 - 0.1 * eta) ** 100) / 2
        yield equals("risk after 50 steps on diag(1, 0.1), over the exact one", risk / exact, 1.0)
    own = float(f(descend(f, start, best(0.1, 1.0), 50)[-1]))
    for eta, rival in risks.items():
        name = "risk after 50 steps on diag(1, 0.1), over that of a rival step"
        yield at_most(name, own / rival, 1.0, rival=eta)
    for kappa, d in [(1.5, 2), (10.0, 3), (200.0, 6)] * draws:
        mu = float(0.1 + torch.rand(()))
        L = kappa * mu
        inside = mu + (L - mu) * torch.rand(d - 2)
        f = quadratic(with_eigenvalues(torch.cat([torch.tensor([mu, L]), inside])))
        eta, at = best(mu, L), {"kappa": kappa, "d": d}
        found: Any = scipy.optimize.minimize_scalar(
            lambda e, f=f, d=d: worst_factor(f, d, e), bounds=(0, 3 / L), method="bounded",
            options={"xatol": 1e-10 / L},
        )  # fmt: skip
        # A search along a kink: its place to 1e-7, its value to the slope times that.
        yield equals("best step, times L", found.x * L, eta * L, tol=1e-6, **at)
        factor = worst_factor(f, d, eta)
        yield equals("factor of the best step found", found.fun, factor, tol=1e-6, **at)
        yield equals("worst factor of a step", factor, (kappa - 1) / (kappa + 1), **at)
        for share in (0.5, 0.9, 1.1, 1.5):
            rival = worst_factor(f, d, share * eta)
            yield at_most("worst factor, against a rival's", factor, rival, share=share, **at)


best_constant_step.foil(
    "the geometric mean of the curvatures", refuted_by="best step, times L", step="1/sqrt(L mu)"
)
best_constant_step.erratum(
    "D-158",
    printed=r"for an $L$-smooth function, GD with a fixed step size $\eta \le 1/L$ is optimal",
    right=r"$\eta < 2/L$ suffices for descent; $\eta = 2/(L + \mu)$ is best on quadratics",
    why=r"it is a sufficient condition for descent. For $H = \operatorname{diag}(1, 0.1)$, 50 steps"
    r" from $(1, 1)$: $\eta = 1$ reaches 1.3e-6, $\eta = 2/1.1 > 1/L$ reaches 1.1e-9, $\eta = 0.5$"
    r" only 3.0e-4; accelerated methods beat every constant step",
    weight="hard",
    refuted_by="risk after 50 steps on diag(1, 0.1), over that of a rival step",
    step="1/L",
)
