"""Averages of iterates: what they are, and what they do to noise."""

import math
from collections.abc import Iterator
from fractions import Fraction

import torch
from torch import Tensor, nn

from vademecum.claims import at_least, at_most, claim, equals, in_mean
from vademecum.optimization import PolyakAveraging, averaged


class Point(nn.Module):
    """A model that is a vector."""

    def __init__(self, start: Tensor):
        super().__init__()
        self.x = nn.Parameter(start.detach().clone())


def averages(values: Tensor, **options) -> Tensor:
    """What `averaged` shows after each of these iterates."""
    model = Point(values[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    PolyakAveraging(optimizer, **options)
    shown = []
    for value in values:
        with torch.no_grad():
            model.x.copy_(value)
        optimizer.step()
        with averaged(model):
            shown.append(model.x.detach().clone())
    return torch.stack(shown)


def noisy_run(rates: list[float], start: float, chains: int) -> tuple[Tensor, Tensor]:
    """Last iterates and averages of SGD on half a square with noise of variance 1, many at once."""
    model = Point(torch.full((chains,), start))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    PolyakAveraging(optimizer)
    for eta in rates:
        optimizer.param_groups[0]["lr"] = eta
        model.x.grad = model.x.detach() + torch.randn(chains)
        optimizer.step()
    with averaged(model):
        mean = model.x.detach().clone()
    return model.x.detach(), mean


def moments(rates: Iterator[float] | list[float], start: float, a: float = 1.0, sigma: float = 1.0):
    r"""The second moments of the iterate and of the average, exactly, after each step.

    With $x_{t + 1} = (1 - \eta a) x_t - \eta \xi_t$ and $s_t = x_1 + \dots + x_t$ the moments
    $\mathbb E x^2$, $\mathbb E x s$ and $\mathbb E s^2$ follow a linear recursion.
    """
    square, cross, total = start**2, 0.0, 0.0
    for t, eta in enumerate(rates, 1):
        q = 1 - eta * a
        square, cross = q * q * square + (eta * sigma) ** 2, q * cross
        total += 2 * cross + square
        cross += square
        yield square, total / t**2


@claim(
    by="sampling",
    sources=("A-113", "B-229", "D-159", "D-161"),
    budget=1.0,
    short=r"\bar\theta_{t + 1} = \tfrac{t}{t + 1} \bar\theta_t + \tfrac{1}{t + 1} \theta_{t + 1}",
)
def polyak_averaging(shift: int = 0, last: bool = False, chains: int = 3000):
    r"""Polyak-Ruppert averaging.

    Return the running mean
    $\bar\theta_{t + 1} = \frac{t}{t + 1} \bar\theta_t + \frac{1}{t + 1} \theta_{t + 1}$,
    $\bar\theta_1 = \theta_1$, of the iterates instead of the last one. Its fluctuation
    $\|\bar\theta_{t + 1} - \bar\theta_t\| = \frac{\|\theta_{t + 1} - \bar\theta_t\|}{t + 1}$ dies
    out, and on a quadratic of curvature $a$ with gradient noise of variance $\sigma^2$ and a
    constant step its variance falls like $\frac{\sigma^2}{a^2 t}$, as with a batch that grows with
    $t$, while the last iterate stays at the noise floor $\frac{\eta \sigma^2}{a (2 - \eta a)}$.

    What `averaged` shows is compared with the recursion and with sums of the iterates, in
    dimensions 1 and 4. The variances follow from an exact recursion, for $a = \sigma = 1$,
    $\eta = 0.1$ and $a = 2$, $\sigma = 3$, $\eta = 0.05$, up to $t = 10^4$, where the start weighs
    $\frac{1}{\eta a t}$ and the limit is met to 1 per cent; and it is that of many runs with
    `PolyakAveraging` at $t = 100$.

    Knobs:
        shift: By how much the weights of the recursion are shifted.
        last: Whether the last iterate is offered as the average.
        chains: How many runs are averaged.
    """
    for n, d in ((40, 1), (25, 4)):
        values = torch.randn(n, d)
        shown = values if last else averages(values)
        mean = values[0]
        for t in range(1, n):
            weight = 1 / (t + 1 + shift)
            mean = (1 - weight) * mean + weight * values[t]
            yield equals("average by its recursion", shown[t], mean, t=t, d=d)
            moved, gap = ((a - b).norm() for a, b in ((shown[t], shown[t - 1]),
                                                     (values[t], shown[t - 1])))  # fmt: skip
            yield equals("fluctuation of the average", moved, gap / (t + 1 + shift), t=t, d=d)
        yield equals("average over iterates", shown[-1], values.sum(0) / n, d=d)
    for a, sigma, eta in ((1.0, 1.0, 0.1), (2.0, 3.0, 0.05)):
        *_, (square, mean) = moments([eta] * 10_000, 0.0, a, sigma)
        measured = 10_000 * (square if last else mean) * (a / sigma) ** 2
        yield equals("$t$ times the variance of the average", measured, 1.0, tol=0.005, a=a)
        floor = eta * sigma**2 / (a * (2 - eta * a))
        yield equals("variance of the last iterate", square, floor, a=a)
    *_, (square, mean) = moments([0.1] * 100, 2.0)
    x, average = noisy_run([0.1] * 100, 2.0, chains)
    yield in_mean("square of the average of a run", (x if last else average).square(), mean)
    yield in_mean("square of the last iterate of a run", x.square(), square)


polyak_averaging.foil("weights by which the first iterate counts twice", shift=1)
polyak_averaging.foil("weights by which the first iterate counts less", shift=-1)
polyak_averaging.foil(
    "the last iterate in place of the average",
    refuted_by="$t$ times the variance of the average",
    last=True,
)


@claim(
    by="sampling",
    sources=("D-162",),
    budget=1.0,
    short=r"\eta_t \propto t^{-\alpha},\ \tfrac12 < \alpha < 1: t\,\mathbb E \bar x_t^2 \to "
    r"\sigma^2 / a^2 \text{ on } \tfrac a2 x^2",
)
def averaging_long_steps(
    alphas: tuple[float, ...] = (0.55, 0.65),
    sizes: tuple[float, ...] = (0.5, 1.5),
    last: bool = False,
    chains: int = 3000,
):
    r"""Averaging permits longer steps.

    With steps $\eta_t = c\, t^{-\alpha}$, $\frac12 < \alpha < 1$, which decay slower than $1 / t$,
    the averaged iterate of a quadratic with curvature $a$ and gradient noise of variance $\sigma^2$
    attains the asymptotically optimal variance $\frac{\sigma^2}{a^2 t}$ (the level of Cramér and
    Rao) whatever $c$ is; the last iterate does not. (Polyak and Juditsky, 1992.)

    The second moments follow from an exact recursion, here for $a = \sigma = 1$ and a start at 1:
    for $\alpha = 0.55$ and $0.65$, $c = 0.5$ and $1.5$, $t$ times that of the average is within 5
    per cent of 1 at $t = 2 \cdot 10^4$ and nearer than at $10^3$; for the last iterate it is about
    $\frac{t \eta_t}{2}$ and grows. The limit itself is quoted: nearer to $\alpha = 1$ it comes
    slowly. Many runs with `PolyakAveraging` have these moments at $t = 150$.

    Knobs:
        alphas: The powers $\alpha$ of the steps.
        sizes: The sizes $c$ of the steps.
        last: Whether the last iterate is offered as the average.
        chains: How many runs are averaged.
    """
    for alpha in alphas:
        for c in sizes:
            found = list(moments([c * t**-alpha for t in range(1, 20_001)], 1.0))
            early, late = (t * found[t - 1][0 if last else 1] for t in (1000, 20_000))
            yield equals("$t$ times the second moment of the average", late, 1.0, tol=0.025,
                         alpha=alpha, c=c)  # fmt: skip
            yield at_most("its distance from 1, compared with that at $t = 1000$",
                          abs(late - 1), abs(early - 1), alpha=alpha, c=c)  # fmt: skip
            grown = [t * found[t - 1][0] for t in (1000, 20_000)]
            yield at_least("growth of $t$ times that of the last iterate", grown[1] / grown[0],
                           0.9 * 20 ** (1 - alpha), alpha=alpha, c=c)  # fmt: skip
    rates = [sizes[0] * t ** -alphas[0] for t in range(1, 151)]
    *_, (square, mean) = moments(rates, 1.0)
    x, average = noisy_run(rates, 1.0, chains)
    yield in_mean("square of the average of a run", (x if last else average).square(), mean)
    yield in_mean("square of the last iterate of a run", x.square(), square)


averaging_long_steps.foil(
    "the last iterate",
    refuted_by="$t$ times the second moment of the average",
    close="the limit is met to 5 per cent only",
    last=True,
)
averaging_long_steps.foil(
    r"steps $\eta_t = 0.3 / t$",
    refuted_by="$t$ times the second moment of the average",
    alphas=(1.0,),
    sizes=(0.3,),
)


@claim(
    by="identity",
    sources=("D-160",),
    budget=0.5,
    short=r"\bar\theta_t = (1 - \beta_t) \bar\theta_{t - 1} + \beta_t \theta_t",
)
def ema(exchanged: bool = False, halves: float = 1.0):
    r"""The exponential moving average of iterates.

    $\bar\theta_t = (1 - \beta_t) \bar\theta_{t - 1} + \beta_t \theta_t$ is the arithmetic mean for
    $\beta_t = 1 / t$. With constant $\beta$ it forgets geometrically: the iterate of $k$ steps ago
    weighs $\beta (1 - \beta)^k$, and for independent iterates of variance $\sigma^2$ its variance
    tends to $\frac{\beta}{2 - \beta} \sigma^2$. *Proof.*
    $\beta^2 \sum_k (1 - \beta)^{2 k} = \frac{\beta}{2 - \beta}$.

    The mean is compared in exact fractions. The weights are those that `averaged` shows when the
    iterates are unit vectors, one after the other, and the variance is $\sigma^2$ times the sum of
    their squares.

    Knobs:
        exchanged: Whether $\beta$ and $1 - \beta$ change their roles.
        halves: What is subtracted from 2 in units of $\beta$ in the limit of the variance.
    """
    values = [Fraction(int(v), 64) for v in torch.randint(-500, 500, (50,))]
    mean = Fraction(0)
    for t, value in enumerate(values, 1):
        beta = 1 - Fraction(1, t) if exchanged else Fraction(1, t)
        mean = (1 - beta) * mean + beta * value
    gap = 50 * mean - sum(values)
    yield equals("numerator of 50 averages minus the sum", gap.numerator, 0)
    shown = averages(torch.tensor([float(v) for v in values])[:, None], kind="uniform")
    yield equals("average with $\\beta_t = 1 / t$", shown[-1], float(sum(values)) / 50)
    for beta, n in ((0.1, 150), (0.25, 60)):
        kept = beta if exchanged else 1 - beta
        weights = averages(torch.eye(n), kind="exponential", decay=kept)[-1]
        yield equals("sum of the weights", weights.sum(), 1.0, beta=beta)
        k = torch.arange(n - 1.0)
        yield equals("weights, from the newest on", weights.flip(0)[:-1], beta * (1 - beta) ** k,
                     tol=1e-12, beta=beta)  # fmt: skip
        limit = beta / (2 - halves * beta)
        left = (1 - beta) ** (2 * n - 2)  # the square of what the first iterate still weighs
        yield equals("variance of the average over that of an iterate", weights.square().sum(),
                     limit, tol=2 * left, beta=beta)  # fmt: skip
    yield equals("weight after one step", averages(torch.ones(1, 1), kind="exponential"), 1.0)
    half = 1 + math.ceil(math.log(0.5) / math.log(0.9))  # the weights of the last seven
    recent = averages(torch.eye(80), kind="exponential", decay=0.9)[-1].flip(0)[:half].sum()
    yield at_least("weight of the last iterates", recent, 0.5)


ema.foil(
    r"$\beta$ and $1 - \beta$ exchanged",
    refuted_by="weights, from the newest on",
    exchanged=True,
)
ema.foil(
    r"the limit $\frac\beta2 \sigma^2$",
    refuted_by="variance of the average over that of an iterate",
    halves=0.0,
)
ema.foil(
    r"the limit $\frac{\beta}{2 - 2 \beta} \sigma^2$",
    refuted_by="variance of the average over that of an iterate",
    halves=2.0,
)
