"""SGD with a constant step: a ball of noise, which interpolation or smaller steps empty."""

from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals, lowest
from vademecum.optimization import certify_descent
from vademecum.optimization.claims._moments import (
    family,
    fourth_powers,
    moments,
    standard_errors,
)


@claim(
    by="sampling",
    sources=("A-117", "B-235", "B-236"),
    budget=0.6,
    full={"families": 100, "steps": 200},
    short=r"\mathbb E \|e^k\|^2 \le A^k \|e^0\|^2 + B,\; A = 1 - 2\eta\mu(1 - \eta L),"
    r"\; B = \frac{\eta\sigma^2}{\mu(1 - \eta L)}",
)
def sgd_constant_step(
    limit: Literal["1/L", "1/mu"] = "1/L",
    floor: Literal["mu (1 - eta L)", "mu - eta L"] = "mu (1 - eta L)",
    slowed: bool = True,
    families: int = 8,
    steps: int = 60,
):
    r"""SGD with constant step on strongly convex sums.

    Let $f = \frac1n \sum_i f_i$ be $\mu$-strongly convex, every $f_i$ convex and $L$-smooth,
    $\sigma^2 = \frac1n \sum_i \|\nabla f_i(x^*)\|^2$ the gradient noise at the optimum and
    $0 < \eta < 1 / L$. The iterates of single-sample SGD satisfy $\mathbb E \|x^k - x^*\|^2 \le A^k
    \|x^0 - x^*\|^2 + B$, where $A = 1 - 2 \eta \mu (1 - \eta L)$ and
    $B = \frac{\eta \sigma^2}{\mu (1 - \eta L)}$.

    *Proof.* $\mathbb E \|\nabla f_i(x)\|^2 \le 2 L \langle \nabla f(x), x - x^* \rangle + 2
    \sigma^2$, since gradients of convex smooth functions are co-coercive. So the mean square $D_k$
    satisfies $D_{k + 1} \le A D_k + 2 \eta^2 \sigma^2$, and $B = 2 \eta^2 \sigma^2 / (1 - A)$.

    *Check.* Families of scalar quadratics $\frac{a_i}2 (x - c_i)^2$, whose moments are exact
    recursions, with $\eta$ from 0.1 to 0.9999 of the limit, among them $\frac32 (x - 1)^2$ and
    $\frac12 (x + 3)^2$, curvatures with $\mu = 0.2$, $L = 1$, and a family with one minimum. The
    squared distances of `certify_descent`'s runs have the exact means, to seven standard errors,
    exact ones, too (a chance below $10^{-7}$ by Bernstein's inequality).

    Knobs:
        limit: The limit of $\eta$, of which shares are taken.
        floor: The denominator of $B$.
        slowed: Whether $A$ has its factor $1 - \eta L$.
        families: How many families are drawn.
        steps: How many steps are made.
    """
    lowest("steps", steps, 40)
    pair = torch.tensor([3.0, 1.0]), torch.tensor([1.0, -3.0])
    cases = [(*pair, 0.5), (*pair, 0.9999), (*family(0.2, 1.0, 6), 0.5)]
    cases.append((torch.tensor([2.0, 0.5, 1.0]), torch.zeros(3), 0.8))
    for j in range(families):
        cases.append((*family(0.8 + 0.1 * j, 1.5 + 0.1 * j, 3 + j % 3), 0.1 + 0.8 * j / families))
    k = torch.arange(steps + 1)
    for j, (a, c, share) in enumerate(cases):
        mu, L = float(a.mean()), float(a.max())
        eta, noise, start = share / (L if limit == "1/L" else mu), (a * c).square().mean(), 2.0
        exact = moments(a, c, eta, start, steps)[:, 2]
        A = 1 - 2 * eta * mu * (1 - eta * L if slowed else 1)
        B = eta * noise / (mu * (1 - eta * L) if floor == "mu (1 - eta L)" else mu - eta * L)
        at = {"mu": mu, "L": L, "eta": eta}
        yield at_most("mean squared distance", exact, A**k * start**2 + B, tol=1e-12, **at)
        yield equals("limit $B$ of the recursion", 2 * eta**2 * noise / (1 - A), B, **at)
        if j in (0, 2):
            yield from _certified(a, c, min(eta, 0.9 / L), steps)


def _certified(a: Tensor, c: Tensor, eta: float, steps: int, runs: int = 2000):
    """The runs of a certificate against exact moments, and its bound against the recursion."""
    mu, L, start = float(a.mean()), float(a.max()), 2.0
    found = certify_descent(
        lambda x: a / 2 * (x - c).square(), torch.tensor([start]), method="sgd", L=L, mu=mu,
        eta=eta, steps=steps, runs=runs, minimiser=torch.zeros(1),
    )  # fmt: skip
    exact = moments(a, c, eta, start, steps)
    off = standard_errors(found.gap, exact[:, 2], exact[:, 4], runs)[[1, 5, -1]]
    yield at_most("mean over runs, off the exact one, in standard errors", off, 7.0, eta=eta)
    A, noise = 1 - 2 * eta * mu * (1 - eta * L), (a * c).square().mean()
    bounds, rest = [], 2 * eta**2 * noise / (1 - A)
    for k in range(steps + 1):
        bounds.append(start**2 * A**k + rest)
    yield equals("bound, certified", found.bound, torch.stack(bounds), eta=eta)


sgd_constant_step.foil(
    r"$A$ without its factor $1 - \eta L$", refuted_by="mean squared distance", slowed=False
)
sgd_constant_step.erratum(
    "A-117",
    printed=r"SGD with $\eta_{const} \le 1/\mu$ (and the variance at an unspecified $\theta$)",
    right=r"$\eta_{const} < 1/L$, the variance at $\theta^*$",
    why=r"The step must be below $1/L \le 1/\mu$. For $f_1 = \frac32 (\theta - 1)^2$,"
    r" $f_2 = \frac12 (\theta + 3)^2$: $\theta^* = 0$, $\mu = 2$, $L = 3$, $\sigma^2 = 9$; at"
    r" $\eta = 1/\mu$ one gets $A = 2$, $B = -4.5$, so the bound is already false at $t = 0$. The"
    r" variance is that at $\theta^*$. (Sheet B prints the same step range, so it is no scanning"
    " slip.)",
    refuted_by="mean squared distance",
    limit="1/mu",
)
sgd_constant_step.erratum(
    "B-235",
    printed=r"$\eta \le 1/\mu$, $A = 1 - 2\eta\mu(1 - \eta L)$,"
    r" $B = \frac{\eta\sigma^2}{\mu - \eta L}$",
    right=r"$\eta < 1/L$, $B = \frac{\eta\sigma^2}{\mu (1 - \eta L)}$",
    why=r"Steps between $1/L$ and $1/\mu$ give $A > 1$ and a negative denominator even in the right"
    r" $B$. And the denominator must be $\mu(1 - \eta L)$: with $\mu = 0.2$, $L = 1$,"
    r" $\eta = 0.5$ one has $A = 0.9 < 1$ but printed $B = -1.67 \sigma^2$, a negative limit for a"
    " squared distance. (The parenthesis, which sheet A has, may have been lost in the scan; the"
    " step range stands on both sheets.)",
    refuted_by="mean squared distance",
    floor="mu - eta L",
)


@claim(
    by="sampling",
    sources=("B-237", "B-238", "E-138"),
    budget=0.5,
    full={"steps": 20_000},
    short=r"x' = (1 - \eta a) x + \eta \xi:\quad \mathrm{Var}(x) \to"
    r" \frac{\eta \sigma^2}{a (2 - \eta a)}",
)
def noise_floor(
    power: float = 1.0, settles: Literal["full batch", "sgd"] = "full batch", steps: int = 2000
):
    r"""The noise floor of constant-step SGD.

    With a constant step SGD does not settle: for $x' = (1 - \eta a) x + \eta \xi$,
    $\mathrm{Var}\, \xi = \sigma^2$, $0 < \eta a < 2$, the stationary variance is
    $\frac{\eta \sigma^2}{a (2 - \eta a)}$, increasing in $\eta$ and proportional to it for small
    $\eta$. The training error fluctuates around a level, and the visited parameters form a whole
    set that can be averaged or used as an ensemble, unlike the late iterates of full-batch descent.

    *Proof.* $v = (1 - \eta a)^2 v + \eta^2 \sigma^2$.

    *Check.* The exact recursion on both sides of $\eta a = 1$; `certify_descent`'s SGD on terms
    $\frac a2 (x - c_i)^2$ of one curvature, whose runs have the exact mean squares.

    Knobs:
        power: The power of $\eta$ to which the floor is proportional for small $\eta$.
        settles: Whose late iterates are said to coincide.
        steps: How many steps the recursion is followed.
    """
    lowest("steps", steps, 100)
    for a, eta, sigma in ((1.0, 0.1, 1.0), (3.0, 0.5, 0.7), (0.5, 1.0, 2.0), (2.0, 0.05, 1.5)):
        v = 0.0
        for _ in range(steps):
            v = (1 - eta * a) ** 2 * v + eta**2 * sigma**2
        floor = eta * sigma**2 / (a * (2 - eta * a))
        yield equals("stationary variance", v, floor, tol=1e-12, eta=eta, a=a)
    for a in (0.5, 3.0):
        floors = []
        for eta in (0.001, 0.002, 0.1, 0.2):
            v = eta / (2 * a)  # near the floor, as small steps take long
            for _ in range(steps):
                v = (1 - eta * a) ** 2 * v + eta**2
            floors.append(v)
        name = "floor with twice the step over the floor"
        yield equals(name, floors[1] / floors[0], 2.0**power, tol=0.002, a=a)
        yield at_least("growth of the floor with the step", torch.tensor(floors).diff(), 0.0, a=a)
    a, c = torch.full((5,), 1.5), torch.tensor([2.0, -1.0, 0.5, -3.0, 1.5])
    eta, runs = 0.3, 2000
    found = certify_descent(
        lambda x: a / 2 * (x - c).square(), torch.tensor([2.0]), method="sgd", L=1.5, mu=1.5,
        eta=eta, steps=40, runs=runs, minimiser=torch.zeros(1),
    )  # fmt: skip
    exact = moments(a, c, eta, 2.0, 40)
    off = standard_errors(found.gap, exact[:, 2], exact[:, 4], runs)[[1, 5, -1]]
    yield at_most("mean over runs, off the exact one, in standard errors", off, 7.0)
    floor = eta * (a * c).square().mean() / (1.5 * (2 - 1.5 * eta))
    yield equals("mean square after 40 steps", exact[-1, 2], floor, tol=1e-9)
    x, late = torch.tensor(2.0), []
    for t in range(200):
        drawn = c[torch.randint(5, ())] if settles == "sgd" else c.mean()
        x = x - eta * 1.5 * (x - drawn)
        late += [x] if t >= 150 else []
    yield at_most("spread of the late iterates", torch.stack(late).std(), 1e-9)


SMALL = "the step is small, not infinitely so: its tolerance is two in a thousand"
noise_floor.foil(r"a floor that does not depend on $\eta$", close=SMALL, power=0.0)
noise_floor.foil(r"a floor proportional to $\eta^2$", close=SMALL, power=2.0)
noise_floor.erratum(
    "B-238",
    printed="Advantage over SGD: can return a set of visited parameters",
    right="Advantage over full-batch descent: can return a set of visited parameters",
    why="The sentence stands in the section on SGD and compares SGD with itself; the comparison"
    " that makes sense is with full-batch gradient descent, whose late iterates coincide.",
    weight="soft",
    refuted_by="spread of the late iterates",
    settles="sgd",
)


@claim(
    by="sampling",
    sources=("B-236",),
    budget=0.4,
    full={"steps": 2000, "n": 12},
    short=r"\nabla f_i(x^*) = 0\ \forall i:\ \mathbb E \|x^k - x^*\|^2 \le A^k \|x^0 - x^*\|^2,\ "
    r"A = 1 - 2 \eta \mu (1 - \eta L)",
)
def interpolation(noise: float = 0.0, steps: int = 150, n: int = 7):
    r"""Interpolation removes the noise floor.

    If all examples are fitted exactly at $x^*$ ($\nabla f_i(x^*) = 0$ for every $i$), then
    $\sigma^2 = 0$ and constant-step SGD converges linearly, $\mathbb E \|x^k - x^*\|^2 \le A^k
    \|x^0 - x^*\|^2$ with $A = 1 - 2 \eta \mu (1 - \eta L)$.

    *Check.* Least squares with $n$ examples $z_i$ in two dimensions, $L = \max_i \|z_i\|^2$,
    $\eta = 1 / (2 L)$: the matrix $E = \mathbb E (x - x^*)(x - x^*)^\top$ obeys
    $E' = \frac1n \sum_i (I - \eta z_i z_i^\top) E (I - \eta z_i z_i^\top)$, and noise adds
    $\eta^2 \frac1n \sum_i r_i^2 z_i z_i^\top$ and mixed terms. The runs of `certify_descent` have
    the traces of these matrices as means, to seven standard errors from exact fourth moments.

    Knobs:
        noise: The size of what no weights fit in the targets.
        steps: How many steps are made.
        n: How many examples there are.
    """
    lowest("n", n, 3)
    z = torch.randn(n, 2)
    z = z / z.norm(dim=1, keepdim=True) * (0.5 + 0.5 * torch.rand(n, 1))
    z[0], z[1] = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    L, mu = 1.0, float(torch.linalg.eigvalsh(z.T @ z / n)[0])
    eta, start, residual = 0.5, torch.tensor([2.0, -1.0]), noise * torch.randn(n)
    residual = residual - z @ torch.linalg.lstsq(z, residual[:, None]).solution[:, 0]
    A, k = 1 - 2 * eta * mu * (1 - eta * L), torch.arange(steps + 1)
    maps = torch.eye(2) - eta * z[:, :, None] * z[:, None, :]
    push = eta * residual[:, None] * z
    E, e, traces = torch.outer(start, start), start, []
    for _ in k:
        traces.append(E.trace())
        mixed = maps @ e
        crossed = mixed[:, :, None] * push[:, None, :]
        own = push[:, :, None] * push[:, None, :]
        E = (maps @ E @ maps + crossed + crossed.mT + own).mean(0)
        e = (mixed + push).mean(0)
    traces, bound = torch.stack(traces), A**k * start.square().sum()
    yield at_most("mean squared distance over its bound", traces / bound, 1.0, noise=noise)
    best, runs, few = torch.tensor([0.3, 1.2]), 2000, min(steps, 30)
    target = z @ best
    found = certify_descent(
        lambda x: (z @ x - target).square() / 2, best + start, method="sgd",
        assuming="interpolation", L=L, mu=mu, eta=eta, steps=few, runs=runs, minimiser=best,
    )  # fmt: skip
    second, fourth = fourth_powers(maps, start, few)
    off = standard_errors(found.gap, second, fourth, runs)[[1, 3, 8]]
    yield at_most("mean over runs, off the exact one, in standard errors", off, 7.0)
    bound = A ** torch.arange(few + 1) * 5
    yield equals("bound, certified", found.bound, bound)


interpolation.foil("noisy targets leave a floor", noise=1.0)
