"""How fast averaged SGD is: convex and strongly convex functions."""

from collections.abc import Callable
from itertools import product

import torch
from scipy.stats import norm
from torch import Tensor

from vademecum.claims import at_most, claim, equals, lowest, slope
from vademecum.foundations import Box
from vademecum.optimization import ProjectedSGD, certify_descent


def kinks(x: Tensor) -> Tensor:
    r"""$f = \frac13 (2 |x| + |x - 1|)$, least at 0, where it is $\frac13$."""
    return (2 * x.abs() + (x - 1).abs()) / 3


def sequences(T: int) -> tuple[Tensor, Tensor]:
    """Which kink is drawn at each step, 0 with chance 2/3 or 1, a row for each way; its chance."""
    ways = torch.tensor(list(product((0.0, 1.0), repeat=T)))
    return ways, ((2 / 3) ** (T - ways.sum(1))) * (1 / 3) ** ways.sum(1)


def averages(ways: Tensor, start: float, eta: Callable[[int], float], *, bend: float) -> Tensor:
    """The means of the T iterates of SGD along each way, within [-2, 2] if there is a bend."""
    x, total = torch.full((len(ways),), start), torch.zeros(len(ways))
    for t, kink in enumerate(ways.T, 1):
        total = total + x
        x = x - eta(t) * ((x - kink).sign() + bend * x)
        x = x.clamp(-2, 2) if bend else x
    return total / ways.shape[1]


def quartic_average(decay: float, T: int) -> tuple[float, float]:
    r"""$\sqrt t f(\bar x_t)$ on $x^4 / 4$ from 1 with steps $t^{-decay} / 2$, at T / 100 and T."""
    x, total, found = 1.0, 0.0, []
    for t in range(1, T + 1):
        total += x
        x -= x**3 / (2 * t**decay)
        if t in (T // 100, T):
            found.append(t**0.5 * (total / t) ** 4 / 4)
    return found[0], found[1]


def returned_square(decay: float, T: int, *, averaged: bool) -> tuple[float, float]:
    r"""$\sqrt t$ times the mean excess on $x^2 / 2$ with unit noise, at T / 100 and T, exactly.

    The moments of the iterate x and the sum s of the iterates before it obey
    $\mathbb E s'^2 = \mathbb E (s + x)^2$, $\mathbb E s' x' = (1 - \eta) \mathbb E (s + x) x$.
    """
    xx, sx, ss, found = 1.0, 0.0, 0.0, []
    for t in range(1, T + 1):
        eta = 0.5 / t**decay
        ss, sx, xx = (
            ss + 2 * sx + xx, (1 - eta) * (sx + xx), (1 - eta) ** 2 * xx + eta**2
        )  # fmt: skip
        if t in (T // 100, T):
            found.append(t**0.5 * (ss / t**2 if averaged else xx) / 2)
    return found[0], found[1]


@claim(
    by="sampling",
    sources=("A-114", "C-096", "D-163"),
    budget=0.6,
    full={"T": 14, "runs": 20_000},
    short=r"\eta = \tfrac{R}{G \sqrt T}:\quad \mathbb E f(\bar x_T) - f^* \le \frac{R G}{\sqrt T}",
)
def sgd_convex_rate(
    order: float = 0.5, decay: float = 0.5, averaged: bool = True, T: int = 12, runs: int = 1000
):
    r"""Averaged SGD on convex functions.

    For convex $f$ with stochastic (sub)gradients bounded by $G$ and $\|x_1 - x^*\| \le R$, SGD with
    constant step $\frac R{G \sqrt T}$ satisfies $\mathbb E f(\bar x_T) - f^* \le \frac{R G}{\sqrt
    T}$ for the average of the $T$ iterates; steps proportional to $1 / \sqrt t$ give the same order
    up to a logarithm, and the order is optimal without strong convexity. Steps $c / t$ can be as
    slow as a power of $1 / \log t$. (That for non-convex smooth $f$ the rate concerns the squared
    gradient norm only is quoted.)

    *Proof.* $2 \eta\, \mathbb E (f(x_t) - f^*) \le \mathbb E \|x_t - x^*\|^2 - \mathbb E
    \|x_{t + 1} - x^*\|^2 + \eta^2 G^2$; sum over $t$ and use convexity. *Optimal:* whoever sees $T$
    gradients $\pm \delta + \xi$, $\xi$ standard normal, of $\pm \delta x$ on $[-1, 1]$ misses the
    sign with the chance $\Phi(-\delta \sqrt T)$ at least, which costs $2 \delta$; take
    $\delta = 1 / \sqrt T$.

    *Check.* $\frac13 (2 |x| + |x - 1|)$ from 2, where $R = 2$ and $G = 1$: all index sequences, and
    the runs of `certify_descent` against their exact mean, to seven exact standard errors. With
    exact gradients $x^4 / 4$ from 1, $\eta_t = \frac12 t^{-1/2}$: $\sqrt t f(\bar x_t)$ falls. On
    $x^2 / 2$ with unit noise the mean excess of the average falls, by exact moments.

    Knobs:
        order: The power of $T$ in the bound and in the order that is optimal.
        decay: The power of $1 / t$ to which steps are proportional.
        averaged: Whether the average of the iterates is returned, or the last one.
        T: How many steps are enumerated, and fewer.
        runs: How many runs the certificate makes.
    """
    lowest("T", T, 4)
    for n in (T // 3, 2 * T // 3, T):
        ways, chance = sequences(n)
        f = kinks(averages(ways, 2.0, lambda t, n=n: 2 / n**0.5, bend=0.0)) - 1 / 3
        exact = chance @ f
        bound = 2 / n**order
        yield at_most("mean gap of the average", exact, bound, T=n)
        found = certify_descent(
            lambda x: torch.stack([x.abs(), x.abs(), (x - 1).abs()])[:, 0], torch.tensor([2.0]),
            method="averaged_sgd", G=1.0, steps=n, runs=runs, minimiser=torch.zeros(1),
        )  # fmt: skip
        error = float((chance @ (f - exact).square()).sqrt()) / runs**0.5
        off = (found.gap[-1] - exact).abs() / (error + 1e-12)
        yield at_most("mean over runs, off the exact one, in standard errors", off, 7.0, T=n)
        yield equals("gap of the start, certified", found.gap[0], 4 / 3, T=n)
        yield equals("bound, certified", found.bound[-1], bound, T=n)
        t = torch.arange(1, n + 1)
        way = n**0.5 / t + 1 / n**0.5  # R^2 / (2 eta t) + eta G^2 / 2
        yield equals("bound on the way, certified", found.bound, way, T=n)
    early, late = quartic_average(decay, 10_000)
    name = "root of t times the gap on a quartic, at 10000 over at 100"
    yield at_most(name, late / early, 1.0)
    early, late = returned_square(decay, 10_000, averaged=averaged)
    name = "root of t times the excess on a noisy parabola, at 10000 over at 100"
    yield at_most(name, late / early, 1.0)
    least = [2 / n**0.5 * norm.cdf(-1) * n**order for n in (100, 10_000)]
    name = "least mean excess on a line with noise, in the order stated, at 10000 over at 100"
    yield equals(name, least[1] / least[0], 1.0)


sgd_convex_rate.foil(r"the bound $R G / T$", refuted_by="mean gap of the average", order=1.0)
sgd_convex_rate.erratum(
    "A-114",
    printed=r"Let $\eta_t \propto \frac1t$, then for convex $f$: $\mathbb E[f(\bar\theta_t)] -"
    r" f(\theta^*) \in O(1/\sqrt t)$",
    right=r"Let $\eta_t \propto \frac1{\sqrt t}$, ...",
    why=r"The step $1/t$ belongs to the strongly convex case. On $x^4/4$ with exact gradients and"
    r" $\eta_t = \frac1{2t}$ the iterate follows $x' = -x^3$ in time $\frac12 \log t$; measured"
    r" $\sqrt t\, f(\bar x_t) = 0.048, 0.18, 0.92$ at $t = 10^2, 10^4, 10^6$ is unbounded.",
    refuted_by="root of t times the gap on a quartic, at 10000 over at 100",
    decay=1.0,
)
sgd_convex_rate.erratum(
    "C-096",
    printed=r"General: $O(1/\sqrt t)$",
    right=r"Convex, steps $\propto 1/\sqrt t$, averaged: $O(1/\sqrt t)$ up to a logarithm",
    why=r"Convexity, decaying (or horizon-tuned) steps and averaging are needed. With the constant"
    r" $\eta$ of the printed update, noisy $\frac12 x^2$ keeps the excess"
    r" $\frac{\eta\sigma^2}{2 (2 - \eta)}$ for ever.",
    weight="soft",
    refuted_by="root of t times the excess on a noisy parabola, at 10000 over at 100",
    decay=0.0,
    averaged=False,
)
sgd_convex_rate.erratum(
    "D-163",
    printed=r"Often achieves the optimal convergence rate of $O(1/t)$ for convex problems",
    right=r"... of $O(1/t)$ for strongly convex problems",
    why=r"Strong convexity is missing: for $\pm\delta x$ on $[-1, 1]$ with unit gradient noise"
    r" finding the sign takes about $\delta^{-2}$ samples, so the minimax stochastic rate without"
    r" strong convexity is of order $1/\sqrt t$.",
    weight="soft",
    refuted_by="least mean excess on a line with noise, in the order stated, at 10000 over at 100",
    order=1.0,
)


@claim(
    by="sampling",
    sources=("A-115", "C-097"),
    budget=0.4,
    full={"T": 14},
    short=r"\eta_t = \tfrac1{\mu t}:\quad"
    r" \mathbb E f(\bar x_T) - f^* \le \frac{G^2 (1 + \log T)}{2 \mu T}",
)
def sgd_strongly_convex_rate(slower: float = 1.0, T: int = 10):
    r"""Averaged SGD on strongly convex functions.

    For $\mu$-strongly convex $f$ on a bounded closed convex set, stochastic (sub)gradients bounded
    by $G$ there, and projected SGD with $\eta_t = \frac1{\mu t}$: $\mathbb E f(\bar x_T) - f^* \le
    \frac{G^2 (1 + \log T)}{2 \mu T}$. (That suffix averaging removes the logarithm is quoted.) The
    constant matters: on $\frac\mu2 x^2$ the step $c / t$ gives $f \sim t^{-2 c \mu}$, too slow for
    $c \mu < \frac12$.

    *Proof.* As for convex functions, with $\mu \|x_t - x^*\|^2$ on the left: the distances
    telescope, and $\frac1{2 T} \sum_t \eta_t G^2$ remains.

    *Check.* $f = \frac13 (2 |x| + |x - 1|) + \frac12 x^2$ on $[-2, 2]$ from 2, where $G = 3$ and
    $\mu = 1$, along all index sequences by `ProjectedSGD`; its steps agree with a loop of our own,
    also with steps so long that the projection is felt. Without noise $x_t = \prod_{s \le t}
    (1 - c / s)$ on $\frac12 x^2$, whose exponent is fitted over two decades for $c \mu = 0.1$, 0.3
    with $\mu = 1$ and $\mu = 2$; the bias at $t \ge 10^3$ is below $c / t$.

    Knobs:
        slower: What the step is divided by.
        T: How many steps are enumerated, and fewer.
    """
    lowest("T", T, 6)
    for n in (2, T // 2 + 1, T):
        ways, chance = sequences(n)
        mean = projected(ways, lambda t: 1 / (slower * t))
        own = averages(ways, 2.0, lambda t: 1 / (slower * t), bend=1.0)
        yield equals("average of the iterates", mean, own, T=n)
        gap = chance @ (kinks(mean) + mean.square() / 2) - 1 / 3
        bound = 9 * (1 + torch.tensor(float(n)).log()) / (2 * n)
        yield at_most("mean gap of the average", gap, bound, T=n)
    ways, _ = sequences(4)
    long = [projected(ways, lambda t: 3 / t), averages(ways, 2.0, lambda t: 3 / t, bend=1.0)]
    yield equals("average of the iterates with long steps", *long)
    t = torch.logspace(3, 5, 9).round().long()
    for c, mu in ((0.1, 1.0), (0.3, 1.0), (0.15, 2.0)):
        x = torch.log1p(-c * mu / torch.arange(1.0, 1e5 + 1)).cumsum(0).exp()[t - 1]
        f = mu / 2 * x.square()
        yield slope("gap over t, steps c / t", t, f, -2 * c * mu, c=c, mu=mu, tol=c * mu * 1e-3)


def projected(ways: Tensor, eta: Callable[[int], float]) -> Tensor:
    """The means of the iterates of the room's optimiser along each way."""
    x = torch.full((len(ways),), 2.0, requires_grad=True)
    edge = 2 * torch.ones(len(ways))
    optimizer = ProjectedSGD([x], 1.0, Box(-edge, edge))
    total = torch.zeros(len(ways))
    for t, kink in enumerate(ways.T, 1):
        total += x.detach()
        optimizer.param_groups[0]["lr"] = eta(t)
        optimizer.zero_grad()
        ((x - kink).abs() + x.square() / 2).sum().backward()
        optimizer.step()
    return total / ways.shape[1]


sgd_strongly_convex_rate.foil(
    r"the step $\frac1{10 \mu t}$", refuted_by="mean gap of the average", slower=10.0
)
