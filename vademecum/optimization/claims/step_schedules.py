"""Steps that change on the way: by decay, or by what the noise allows."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.optim import lr_scheduler

from vademecum.claims import at_least, at_most, claim, equals, lowest


@claim(
    by="identity",
    sources=("B-234", "E-171"),
    budget=0.4,
    full={"phase": 3000},
    short=r"\eta = c / t: \text{ error } \to 0;\quad"
    r" \eta \text{ constant: a floor} \propto \eta \text{, lowered by each reduction}",
)
def step_decay(
    etas: tuple[float, ...] = (0.2, 0.02, 0.002),
    vanishing: Literal["c / t", "constant"] = "c / t",
    phase: int = 1000,
):
    r"""Decaying learning rates.

    In practice one keeps the step constant or lowers it at a few chosen points; in theory it decays
    like $1 / t$. Each reduction lowers the noise floor in proportion, so late iterations are not
    thrown out of a good region: with $\eta = c / t$ the error on a noisy quadratic tends to 0, with
    constant $\eta$ it does not.

    *Check.* The mean square $m' = (1 - \eta)^2 m + \eta^2$ of SGD on $x^2 / 2$ with unit noise, the
    steps from torch's schedulers. Constant 0.2 ends at $0.2 / 1.8$; the steps 0.2, 0.02, 0.002 end
    within 20 percent of the floor of the last one, $0.002 / 1.998$; $1 / t$ ends at $1 / T$.

    Knobs:
        etas: The step sizes of the phases.
        vanishing: The schedule that is said to drive the error to 0.
        phase: How many steps a phase has.
    """
    lowest("phase", phase, 1000)
    T = 3 * phase
    factors = [etas[min(t // phase, 2)] / etas[0] for t in range(T)]
    staircase = _steps(etas[0], lambda t: factors[t], T)
    ends = _squares(staircase)
    floor = 0.002 / 1.998
    yield at_most("end of the staircase, over the floor of 0.002", ends[-1] / floor, 1.2)
    yield at_least("end of the staircase, over the floor of 0.002", ends[-1] / floor, 1.0)
    for j, eta in enumerate(etas[:2]):
        low = eta / (2 - eta)
        name = "mean square at the end of a phase, over its floor"
        yield equals(name, ends[(j + 1) * phase - 1] / low, 1.0, tol=1e-6, eta=eta)
    constant = _squares([0.2] * T)
    yield equals("end of a constant step of 0.2", constant[-1], 0.2 / 1.8, tol=1e-12)
    slow = (lambda t: 1 / (t + 1)) if vanishing == "c / t" else (lambda t: 1.0)
    decayed = _squares(_steps(1.0, slow, T))
    t = torch.arange(1, T + 1)
    yield equals("$t$ times the mean square, steps $1 / t$", t * torch.tensor(decayed), 1.0)


def _steps(first: float, factor: Callable[[int], float], T: int) -> list[float]:
    """The steps of an optimiser of torch under a scheduler of torch."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=first)
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda t: factor(min(t, T - 1)))
    found = []
    for _ in range(T):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def _squares(steps: list[float]) -> list[float]:
    """The mean squares from 1 on, by the exact recursion."""
    m, found = 1.0, []
    for eta in steps:
        m = (1 - eta) ** 2 * m + eta**2
        found.append(m)
    return found


step_decay.foil("warm-up without decay ends at the floor of 0.2", etas=(0.002, 0.02, 0.2))
step_decay.foil("a constant step drives the error to 0", vanishing="constant")


@claim(
    by="sampling",
    sources=("A-116", "C-098", "D-163"),
    budget=0.5,
    full={"steps": 100_000, "runs": 100_000},
    short=r"\eta_t = \tfrac ct,\ 2 c a > 1:\quad t\, \mathbb E x_t^2 \to"
    r" \frac{c^2 \sigma^2}{2 c a - 1} \text{ on } \tfrac a2 x^2",
)
def sgd_smooth_rate(
    c: float = 2.0, limit: Literal["2 c a - 1", "2 c a"] = "2 c a - 1",
    steps: int = 10_000, runs: int = 2000,
):  # fmt: skip
    r"""SGD on smooth strongly convex functions.

    If $f$ is smooth and $\mu$-strongly convex and the gradients are unbiased with bounded variance,
    SGD with $\eta_t = \frac ct$, $2 c \mu > 1$, has $\mathbb E f(x_t) - f^* \in O(1 / t)$, the
    optimal order, for the last iterate and for the average. For $f = \frac a2 x^2$ with gradient
    noise $\sigma^2$: $t\, \mathbb E x_t^2 \to \frac{c^2 \sigma^2}{2 c a - 1}$.

    *Check.* Checked on quadratics, quoted beyond. Exact recursions of the moments of iterate and
    average: with $a = c = \sigma = 1$, $t\, \mathbb E x_t^2 = 1$ exactly and
    $t\, \mathbb E \bar x_t^2 < 2$; other $a$, $\sigma$ tend to the limit. torch's SGD with a
    scheduler of torch has the exact mean square after 50 steps, to six standard errors of the mean
    of squares of normal numbers.

    Knobs:
        c: The constant of the step.
        limit: The denominator of the limit.
        steps: How many steps the recursions are followed.
        runs: How many runs of torch's SGD there are.
    """
    lowest("steps", steps, 1000)
    last, mean = _moments_of_average(1.0, 1.0, 1.0, steps)
    t = torch.arange(1, steps + 1)
    yield equals("t times the mean square of the iterate", t * last, 1.0)
    yield at_most("t times the mean square of the average", t * mean, 2.0)
    for a, sigma in ((1.0, 1.0), (1.5, 0.7)):
        last, mean = _moments_of_average(a, c, sigma, steps)
        rest = 2 * c * a - 1 if limit == "2 c a - 1" else 2 * c * a
        name = "t times the mean square of the iterate, over its limit"
        stated = c**2 * sigma**2 / rest
        yield equals(name, steps * last[-1] / stated, 1.0, tol=2e-3, a=a, c=c)
        growth = steps * last[-1] / (steps / 10 * last[steps // 10 - 1])
        yield at_most("t times the mean square, over that at a tenth of t", growth, 1.01, a=a, c=c)
        growth = steps * mean[-1] / (steps / 10 * mean[steps // 10 - 1])
        yield at_most("t times that of the average, over a tenth of t", growth, 1.01, a=a, c=c)
        x = torch.ones(runs, requires_grad=True)
        optimizer = torch.optim.SGD([x], lr=c)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 / (t + 1))
        for _ in range(50):
            x.grad = a * x.detach() + sigma * torch.randn(runs)
            optimizer.step()
            scheduler.step()
        found, exact = x.detach().square().mean(), last[49]
        off = (found / exact - 1).abs() / (2 / runs) ** 0.5
        yield at_most("mean over runs, off the exact one, in standard errors", off, 6.0, a=a)


def _moments_of_average(a: float, c: float, sigma: float, T: int) -> tuple[Tensor, Tensor]:
    """The mean squares of the iterate after each step, and of the mean of those so far, from 1."""
    xx, sx, ss, last, mean = 1.0, 0.0, 0.0, [], []
    for t in range(1, T + 1):
        keep, noise = 1 - c * a / t, (c * sigma / t) ** 2
        xx, sx = keep**2 * xx + noise, keep * sx
        ss, sx = ss + 2 * sx + xx, sx + xx
        last.append(xx)
        mean.append(ss / t**2)
    return torch.tensor(last), torch.tensor(mean)


sgd_smooth_rate.foil(
    "$2 c a < 1$: too short steps",
    refuted_by="t times the mean square, over that at a tenth of t",
    c=0.3,
)
sgd_smooth_rate.foil(
    "the limit without its $-1$",
    close="the limit is approached like $1 / t$: its tolerance is two in a thousand",
    limit="2 c a",
)
