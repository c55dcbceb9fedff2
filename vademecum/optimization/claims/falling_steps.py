"""Step sizes that fall: fast enough to settle, slowly enough to arrive."""

import math
from collections.abc import Callable
from fractions import Fraction

import torch
from torch import nn

from vademecum.claims import at_least, at_most, claim, equals, in_mean
from vademecum.optimization import robbins_monro as conditions

SCHEDULES: dict[str, Callable[[float], float]] = {
    "1 / t": lambda t: 1 / t,
    "1 / sqrt(t)": lambda t: t**-0.5,
    "constant": lambda t: 0.5,
}


def mean_squares(schedule: Callable[[float], float], steps: int, start: float = 1.0) -> list[float]:
    r"""Of the iterates on $x^2 / 2$ with noise of variance 1: $m \to (1 - a)^2 m + a^2$."""
    m, found = start, []
    for t in range(1, steps + 1):
        a = schedule(t)
        m = (1 - a) ** 2 * m + a * a
        found.append(m)
    return found


@claim(
    by="identity",
    sources=("B-233", "D-164", "D-166"),
    budget=0.8,
    full={"n": 100_000},
    short=r"\text{noisy } \tfrac12 x^2,\ \alpha_t = 1/t: \mathbb E\, x_t^2 = \sigma^2 / t \to 0",
)
def robbins_monro(
    settling: tuple[str, ...] = ("1 / t", "1 / sqrt(t)"),
    curvature: float = -1.0,
    n: int = 4000,
):
    r"""Robbins-Monro conditions.

    With unbiased gradients of bounded variance and $L$-smooth $f$, steps with
    $\sum_t \alpha_t = \infty$ (any distance can be covered) and $\sum_t \alpha_t^2 < \infty$ (the
    accumulated noise is finite) suffice for SGD to converge almost surely to the minimiser in the
    strongly convex case and, for $f$ bounded below, to have vanishing gradients, that is to
    approach stationary points, in the non-convex case. The conditions are sufficient, not
    necessary: for convergence in mean square on strongly convex $f$, $\alpha_t \to 0$ with infinite
    sum is enough. (Robbins and Monro, 1951; the theorem is quoted.)

    Checked on $x^2 / 2$ with noise of variance $\sigma^2$, where the mean square obeys
    $m \leftarrow (1 - \alpha_t)^2 m + \alpha_t^2 \sigma^2$: $\alpha_t = 1 / t$ gives exactly
    $\sigma^2 / t$, also in runs of torch's `SGD`; a constant step stays at
    $\frac{\alpha \sigma^2}{2 - \alpha}$; $t^{-1/2}$ violates the second condition and still gives
    $m_t \approx \frac12 t^{-1/2} \to 0$. On $(x^2 - 1)^2 / 4$ without noise the gradient vanishes
    from every start, from 0 at a maximum.

    Knobs:
        settling: The schedules for which the mean square is said to vanish.
        curvature: The least second derivative that a limit is said to have on $(x^2 - 1)^2 / 4$.
        n: How many noisy runs there are, side by side.
    """
    for name in settling:
        end = mean_squares(SCHEDULES[name], 100_000)[-1]
        yield at_most("mean square after 100,000 steps", end, 2e-3, tol=0.0, schedule=name)
    exact = Fraction(5)
    for t in range(1, 40):
        a = Fraction(1, t)
        exact = (1 - a) ** 2 * exact + a * a
        yield equals("mean square for 1 / t, times t", float(exact * t), 1.0, tol=0.0, t=t)
    slow = mean_squares(SCHEDULES["1 / sqrt(t)"], 100_000)[-1]
    yield equals("mean square for 1 / sqrt(t), over its limit", slow / (0.5 * 1e5**-0.5), 1.0,
                 tol=0.005)  # fmt: skip
    constant = mean_squares(SCHEDULES["constant"], 200)[-1]
    yield equals("mean square for the step 1/2", constant, 1 / 3)
    for power, both in ((1, True), (0.5, False), (0, False)):
        yield equals("verdict on both conditions", int(conditions(power, terms=10).satisfied or 0),
                     int(both), power=power)  # fmt: skip
    x = nn.Parameter(torch.full((n,), 3.0))
    optimizer = torch.optim.SGD([x])
    for t in range(1, 51):
        optimizer.param_groups[0]["lr"] = 1 / t
        x.grad = x.detach() + 2 * torch.randn(n)
        optimizer.step()
    yield in_mean("mean square of noisy runs, times t", 50 * x.detach().square(), 4.0, t=50)
    starts = torch.tensor([0.0, 0.3, -1.2, 1.4])
    x = starts.clone()
    for t in range(1, 401):
        x = x - t**-0.6 * (x**2 - 1) * x
    yield equals("gradient at the end of a double well", (x**2 - 1) * x, 0.0, tol=1e-6)
    yield at_least("second derivative at the end of a double well", 3 * x**2 - 1, curvature)


robbins_monro.foil("a constant step", settling=("constant",))
robbins_monro.erratum(
    "D-164",
    printed="to guarantee convergence to a local minimum (in non-convex cases) or global minimum"
    " (in convex cases), the step size schedule must satisfy two conditions",
    right="two conditions suffice for convergence to a stationary point (in non-convex cases) or"
    " the minimum (in strongly convex cases)",
    why=r"In the non-convex case the theorem yields stationary points: on $(x^2 - 1)^2 / 4$ without"
    r" noise $x_0 = 0$, a local maximum with second derivative $-1$, stays put. And the conditions"
    r" are not necessary: $\alpha_t = t^{-1/2}$ violates the second, yet on noisy $x^2 / 2$ the"
    r" mean square error tends to 0 like $\frac12 t^{-1/2}$.",
    weight="hard",
    refuted_by="second derivative at the end of a double well",
    curvature=0.0,
)


def left_over(power: int, steps: int) -> Fraction:
    r"""What is left of $x_0$ on $x^2 / 2$ after steps $\alpha_t = (t + 1)^{-p}$, exactly."""
    x = Fraction(1)
    for t in range(1, steps + 1):
        x *= 1 - Fraction(1, (t + 1) ** power)
    return x


@claim(
    by="identity",
    sources=("D-165",),
    budget=0.3,
    full={"steps": 2000},
    short=r"\alpha_t = (t+1)^{-2}: x_t \to x_0 / 2, \quad"
    r" \alpha_t = (t+1)^{-1}: x_t \to 0 \quad (f = x^2 / 2)",
)
def summable_steps(limit: float = 0.5, steps: int = 200):
    r"""Summable steps stall before the optimum.

    If $\sum_t \alpha_t < \infty$ and $f$ is $L$-smooth, the noiseless iterate covers only a bounded
    distance: on $f = x^2 / 2$ with $\alpha_t = 1 / (t + 1)^2$ it stops at
    $x_0 \prod_{t \ge 1} (1 - (t + 1)^{-2}) = x_0 / 2$, while $\alpha_t = 1 / (t + 1)$ (infinite
    sum) drives it to 0.

    *Proof.* $1 - (t + 1)^{-2} = \frac{t (t + 2)}{(t + 1)^2}$ telescopes to
    $\frac{T + 2}{2 (T + 1)}$ after $T$ steps, and $1 - \frac{1}{t + 1} = \frac{t}{t + 1}$ to
    $\frac{1}{T + 1}$. Checked in fractions, and in runs of torch's `SGD`; `robbins_monro` knows
    which sum is infinite.

    Knobs:
        limit: Where the first schedule stops, in units of $x_0$.
        steps: How many steps are taken.
    """
    for T in (1, 2, 7, steps):
        for power, closed in ((2, Fraction(T + 2, 2 * (T + 1))), (1, Fraction(1, T + 1))):
            gap = left_over(power, T) - closed
            yield equals("what is left after T steps, less its closed form", float(gap), 0.0,
                         tol=0.0, T=T, power=power)  # fmt: skip
    # (T + 2) / (2 T + 2) is 1 / (2 T + 2) above its limit.
    end = left_over(2, steps) - Fraction(1, 2 * (steps + 1))
    yield equals("where the summable schedule stops", float(end), limit, tol=1e-15)
    for power, far in ((2, False), (1, True)):
        x = nn.Parameter(torch.tensor([3.0, -8.0]))
        optimizer = torch.optim.SGD([x])
        for t in range(1, steps + 1):
            optimizer.param_groups[0]["lr"] = (t + 1.0) ** -power
            x.grad = x.detach().clone()
            optimizer.step()
        stated = float(left_over(power, steps)) * torch.tensor([3.0, -8.0])
        yield equals("iterate of SGD", x.detach(), stated, tol=1e-12, power=power)
        found = conditions(power, terms=10).sum_diverges
        yield equals("whether the sum is infinite", int(found or 0), int(far), power=power)
    at = conditions(lambda t: (t + 1) ** -2, terms=10**5).sums[-1]
    yield equals("sum of the summable steps", at, math.pi**2 / 6 - 1, tol=1.1e-5)


summable_steps.foil("steps that tend to zero lead to the minimum", limit=0.0)
summable_steps.foil("a third is left", limit=1 / 3)


def from_half_on(a: Fraction) -> bool:
    """The powers that satisfy both conditions."""
    return Fraction(1, 2) < a <= 1


def with_half(a: Fraction) -> bool:
    """The same with the root, as printed."""
    return Fraction(1, 2) <= a <= 1


def without_one(a: Fraction) -> bool:
    """The same without 1 / t."""
    return Fraction(1, 2) < a < 1


@claim(
    by="identity",
    sources=("B-233", "D-167"),
    budget=0.8,
    full={"terms": 10**7},
    short=r"\alpha_t = t^{-a}: \textstyle\sum \alpha_t = \infty,\ \sum \alpha_t^2 < \infty"
    r" \iff \tfrac12 < a \le 1",
)
def robbins_monro_powers(both: Callable[[Fraction], bool] = from_half_on, terms: int = 10**5):
    r"""Which power schedules satisfy the Robbins-Monro conditions.

    $\alpha_t = t^{-a}$ satisfies both Robbins-Monro conditions if and only if $\frac12 < a \le 1$:
    $1 / t$ does, with $\sum 1 / t^2 = \pi^2 / 6$; $1 / \sqrt t$ and $t^{-1/3}$ satisfy only the
    first, since $\sum 1 / t$ and $\sum t^{-2/3}$ diverge.

    *Proof.* $\sum_t t^{-b}$ over $T < t \le 10\, T$ is $\int t^{-b}$ to leading order, that is
    $10^{1-b}$ times the sum over the decade before: the series converges if and only if that factor
    is below 1. Checked for `robbins_monro` and eight powers against these factors over the last two
    decades of partial sums.

    Knobs:
        both: Which powers are said to satisfy both conditions.
        terms: How many terms are summed, a power of ten.
    """
    for text in ("1/3", "1/2", "3/5", "3/4", "9/10", "1", "11/10", "3/2"):
        a = Fraction(text)
        found = conditions(a, terms=terms)
        for name, sums, b in (("steps", found.sums, a), ("squares", found.squares, 2 * a)):
            last, before = (sums[-1] - sums[-2], sums[-2] - sums[-3])
            # The sum over a decade differs from the integral by at most its first term.
            yield equals(f"sum of the {name} over the last decade, over the one before",
                         last / before, 10.0 ** (1 - float(b)), tol=2e-3, a=text)  # fmt: skip
            grows = float(last / before) > 1 - 2e-3
            known = found.sum_diverges if name == "steps" else not found.squares_converge
            yield equals(
                f"whether the sum of {name} is infinite", int(bool(known)), int(grows), a=text
            )
        ratio = (found.squares[-1] - found.squares[-2]) / (found.squares[-2] - found.squares[-3])
        bound = 0.9 if both(a) else math.inf
        yield at_most("sum of squares over a decade, over the one before", ratio, bound, a=text)
        yield equals(
            "whether both conditions hold", int(found.satisfied or 0), int(both(a)), a=text
        )
    squares = conditions(1, terms=terms).squares[-1]
    yield equals("sum of the squares of 1 / t", squares, math.pi**2 / 6, tol=1.1 / terms)


robbins_monro_powers.foil("$1 / t$ is said not to", both=without_one)
robbins_monro_powers.erratum(
    "D-167",
    printed=r"A schedule of $\alpha_t = \frac{1}{\sqrt t}$ satisfies both, whereas"
    r" $\alpha_t = \frac{1}{\sqrt[3] t}$ satisfies the first but not the second",
    right=r"A schedule of $\alpha_t = \frac1t$ satisfies both, whereas $\alpha_t ="
    r" \frac{1}{\sqrt t}$ satisfies the first but not the second",
    why=r"$\sum_t (1 / \sqrt t)^2 = \sum_t 1 / t = \infty$, so $1 / \sqrt t$ violates the second"
    " condition too: every decade adds as much as the one before, 2.303. The standard example that"
    r" satisfies both is $1 / t$.",
    weight="hard",
    refuted_by="sum of squares over a decade, over the one before",
    both=with_half,
)
