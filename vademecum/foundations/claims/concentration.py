"""What the course claims of tails and their bounds, and of exact confidence intervals."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Binomial

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations.concentration import chebyshev_bound, hoeffding_bound, markov_bound
from vademecum.foundations.confidence import clopper_pearson


def laws(count: int, *, low: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random laws on six integer atoms, with integer weights and their totals."""
    x, w = torch.randint(low, 10, (count, 6)), torch.randint(1, 10, (count, 6))
    return x, w, w.sum(1, keepdim=True)


@claim(by="sampling", sources=("A-004", "B-017"), budget=0.5, full={"count": 10**5})
def markov_inequality(nonnegative: bool = True, power: int = 1, count: int = 1000):
    r"""Markov's inequality.

    For a random variable $X \ge 0$ and $a > 0$: $P(X \ge a) \le \frac{\mathbb E[X]}a$, with
    equality if and only if $X \in \{0, a\}$ almost surely.

    *Proof.* $a \mathbf 1[X \ge a] \le X$; take expectations.

    *Check.* Random laws with integer atoms and weights, $a$ over all positive atoms and the
    half-integers below them; equality in integers; the law on $\{0, a\}$ attains the bound.
    """
    x, w, total = laws(count, low=0)
    x[0] = torch.tensor([0, 5, 0, 5, 5, 0])
    if not nonnegative:
        x[1], w[1], total[1] = torch.tensor([-1, 1, -1, 1, -1, 1]), 1, 6
    mean = (w * x).sum(1, keepdim=True) / total
    left = (w * x).sum(1, keepdim=True) - x * (w[:, None] * (x[:, None] >= x[:, :, None])).sum(-1)
    two_atoms = ((x[:, None] == 0) | (x[:, None] == x[:, :, None])).all(-1)
    yield equals((left == 0)[x > 0], two_atoms[x > 0])
    for shift in (0.0, 0.5):
        a = x - shift
        tail = (w[:, None] * (x[:, None] >= a[:, :, None])).sum(-1) / total
        bound = markov_bound(mean.expand_as(a)[a > 0], a[a > 0])
        yield at_most(tail[a > 0], bound, shift=shift)
    for a in (1.0, 2.0, 7.0):
        yield equals(markov_bound(0.25 * a, a**power), 0.25, a=a)


_SIGN = r"without $X \ge 0$: $X = \pm 1$ has $P(X \ge 1) = \frac12 > 0 = \mathbb E[X]$"
markov_inequality.foil(_SIGN, nonnegative=False)
markov_inequality.foil(r"$\mathbb E[X] / a^2$ fails for $X \in \{0, 2\}$, $a = 2$", power=2)
markov_inequality.erratum(
    "B-017",
    printed=r"$\mathbb P(X \geq a) \leq \frac{\mathbb E[X]}{a}$ without hypotheses",
    right=r"$X \ge 0$ and $a > 0$ are needed",
    why=_SIGN,
    weight="soft",
    nonnegative=False,
)


@claim(by="sampling", sources=("D-031", "E-032"), budget=0.5, full={"count": 10**5})
def chebyshev_inequality(factor: float = 1.0, power: float = 1.0, count: int = 1000):
    r"""Chebyshev's inequality.

    If $\mathbb E[X] = \mu$ and $\mathrm{Var}[X] = \sigma^2 < \infty$ then
    $P(|X - \mu| \ge \epsilon) \le \frac{\sigma^2}{\epsilon^2}$ for every $\epsilon > 0$; for
    $\epsilon \ge \sigma$ the law with $P(\mu \pm \epsilon) = \frac{\sigma^2}{2 \epsilon^2}$ each
    and the rest at $\mu$ attains it. One-sided (Cantelli):
    $P(X - \mu \ge \epsilon) \le \frac{\sigma^2}{\sigma^2 + \epsilon^2}$, attained by two atoms.

    *Proof.* Markov's inequality for $(X - \mu)^2$; one-sided for $(X - \mu + \sigma^2/\epsilon)^2$.

    *Check.* Random laws with integer atoms and weights, $\epsilon$ over all distances
    $|x - \mu|$ that occur, tails counted in integers.
    """
    x, w, total = laws(count, low=-9)
    off = total * x - (w * x).sum(1, keepdim=True)  # the deviations times the total weight
    variance = (w * off**2).sum(1, keepdim=True) / total**3
    for two_sided in (True, False):
        size = off.abs() if two_sided else off
        tail = (w[:, None] * (size[:, None] >= size[:, :, None])).sum(-1) / total
        far = size > 0
        bound = chebyshev_bound(
            variance.expand_as(tail)[far] ** power, (size / total)[far], two_sided=two_sided
        )
        yield at_most(tail[far], factor * bound, two_sided=two_sided)
    for sigma, epsilon in ((1.0, 1.0), (1.0, 2.0), (1.0, 3.0), (2.0, 2.0)):
        mass = sigma**2 / (2 * epsilon**2)
        bound = chebyshev_bound(sigma ** (2 * power), epsilon)
        yield at_most(2 * mass, factor * bound, epsilon=epsilon)
        yield equals(factor * bound, 2 * mass, epsilon=epsilon)
        above = 1 / (1 + epsilon**2 / sigma**2)  # atoms at epsilon and -sigma^2 / epsilon
        one_sided = chebyshev_bound(sigma**2, epsilon, two_sided=False)
        below = -(sigma**2) / epsilon
        yield equals(above * epsilon + (1 - above) * below, 0.0, epsilon=epsilon)
        yield equals(above * epsilon**2 + (1 - above) * below**2, sigma**2, epsilon=epsilon)
        yield equals(one_sided, above, epsilon=epsilon)


chebyshev_inequality.foil(r"the halved bound $\frac{\sigma^2}{2 \epsilon^2}$", factor=0.5)
chebyshev_inequality.foil(
    r"$\frac{\sigma}{\epsilon^2}$: at $\sigma = \epsilon = 2$ it is $\frac12$, the tail 1",
    power=0.5,
)


def tails(width: Tensor, p: Tensor, *, independent: bool) -> tuple[Tensor, Tensor]:
    """Deviations of a sum of variables `width[i] * Bernoulli(p[i])`, and their upper tails."""
    if not independent:  # all are copies of the first one
        pmf = torch.stack([1 - p[0], p[0]])
        return torch.stack([-p[0], 1 - p[0]]) * width.sum(), pmf.flip(0).cumsum(0).flip(0)
    pmf = torch.ones(1)
    for step, chance in zip(width.long().tolist(), p.tolist(), strict=True):
        wider = torch.zeros(len(pmf) + step)
        wider[: len(pmf)] += (1 - chance) * pmf
        wider[step:] += chance * pmf
        pmf = wider
    return torch.arange(len(pmf)) - width @ p, pmf.flip(0).cumsum(0).flip(0)


def one_sided(t: Tensor, width: Tensor) -> Tensor:
    """The library's bound for variables from 0 to their widths."""
    return hoeffding_bound(t, low=torch.zeros_like(width), high=width, two_sided=False)


def exponent(factor: float, power: int) -> Callable[[Tensor, Tensor], Tensor]:
    """The bound with a factor, and a power of n, of one's own."""
    return lambda t, w: (-factor * len(w) ** power * t**2 / w.square().sum()).exp()


@claim(
    by="sampling",
    sources=("A-002", "B-009", "B-010"),
    budget=0.5,
    full={"sizes": tuple(range(1, 61))},
)
def hoeffding_inequality(
    formula: Callable[[Tensor, Tensor], Tensor] = one_sided,
    independent: bool = True,
    sizes: tuple[int, ...] = (1, 2, 10, 40, 60),
):
    r"""Hoeffding's inequality.

    For independent $Z_i \in [a_i, b_i]$ and $t \ge 0$:
    $P \big( \frac1n \sum_i (Z_i - \mathbb E Z_i) \ge t \big) \le
    \exp \Big( -\frac{2 n^2 t^2}{\sum_i (b_i - a_i)^2} \Big)$, equivalently
    $\exp(-2 \tau^2 / \sum_i (b_i - a_i)^2)$ for the sum exceeding its mean by $\tau = n t$; for
    ranges $[0, 1]$ it is $\exp(-2 n t^2)$. The lower tail obeys the same bound.

    *Proof.* $\mathbb E[e^{s (Z - \mathbb E Z)}] \le e^{s^2 (b - a)^2 / 8}$ (Hoeffding's lemma);
    multiply, apply Markov's inequality and minimise over $s$. (Hoeffding, 1963.)

    *Check.* The logarithms of exact tails, by convolution, at all attainable levels.
    """
    for n in sizes:
        for p in (0.1, 0.3, 0.5, 0.9, None):
            chance = torch.rand(n) if p is None else torch.full((n,), p)
            for width in (torch.ones(n), torch.arange(n) % 3 + 1.0):
                for side in (chance, 1 - chance):  # the lower tail is the upper one of b - Z
                    off, tail = tails(width, side, independent=independent)
                    t, tail = off[off > 1e-9] / n, tail[off > 1e-9]
                    bound = formula(t, width)
                    yield at_most(tail.log(), bound.log(), tol=1e-11, n=n)
        t = torch.tensor([0.1, 0.3, 0.7])
        yield equals(formula(t, torch.ones(n)), (-2 * n * t**2).exp(), n=n)
        yield equals(hoeffding_bound(t, n, low=-1.0), 2 * (-n * t**2 / 2).exp().clamp(max=0.5), n=n)


hoeffding_inequality.foil("fair coins exceed the doubled exponent", formula=exponent(4, 2))
hoeffding_inequality.foil("copies of one variable do not concentrate", independent=False)
hoeffding_inequality.erratum(
    "B-010",
    printed=r"$\exp(-\frac{2 n t^2}{\sum_{i=1}^n (b_i - a_i)^2})$ for the mean exceeding its"
    r" expectation by $t$",
    right=r"$\exp(-\frac{2 n^2 t^2}{\sum_{i=1}^n (b_i - a_i)^2})$",
    why=r"valid but not Hoeffding's: it does not improve with n, and for ranges 1 it is "
    r"$e^{-2 t^2}$ instead of $e^{-2 n t^2}$ (0.835 against 0.165 at n = 10, t = 0.3)",
    weight="soft",
    formula=exponent(2, 1),
)


def wald(k: Tensor, n: int, *, confidence: float, **_: str) -> tuple[Tensor, Tensor]:
    """The interval of the normal approximation."""
    z = math.sqrt(2) * float(torch.special.erfinv(torch.tensor(confidence)))
    half = z * (k / n * (1 - k / n) / n).sqrt()
    return k / n - half, k / n + half


def binomial(n: int, p: Tensor) -> Tensor:
    """The probabilities of all numbers of successes, a row for each p."""
    return Binomial(n, p[:, None]).log_prob(torch.arange(n + 1.0)).exp()


@claim(by="exhaustion", budget=0.5, full={"sizes": (1, 2, 5, 10, 30, 100, 300), "grid": 2000})
def clopper_pearson_coverage(
    interval: Callable[..., tuple[Tensor, Tensor]] = clopper_pearson,
    sizes: tuple[int, ...] = (1, 2, 5, 10, 30),
    grid: int = 200,
):
    r"""Clopper and Pearson's interval covers with at least its confidence.

    Let $k$ of $n$ independent trials succeed, each with probability $p$. Whatever $p \in [0, 1]$,
    the interval $[\mathrm{low}_k, \mathrm{high}_k]$ contains it with a probability of at least the
    confidence $1 - \alpha$, and so do the one-sided intervals. The limits are as tight as the tails
    allow: $P(X \ge k) = \frac\alpha2$ at $p = \mathrm{low}_k$ for $k > 0$, and
    $P(X \le k) = \frac\alpha2$ at $p = \mathrm{high}_k$ for $k < n$ ($\alpha$ for one side).

    *Proof.* $p < \mathrm{low}_k$ means $P_p(X \ge k) < \frac\alpha2$, which happens with a
    probability below $\frac\alpha2$; likewise above. (Clopper and Pearson, 1934.)

    *Check.* The coverage summed over all $k$, on a grid of $p$ and just outside every limit, where
    it is least; and the tails at the limits.
    """
    for n in sizes:
        k = torch.arange(n + 1)
        for confidence in (0.5, 0.95, 0.999):
            for side in ("both", "lower", "upper"):
                low, high = interval(k, n, confidence=confidence, side=side)
                p = torch.cat([torch.linspace(0, 1, grid), low - 1e-12, high + 1e-12]).clamp(0, 1)
                covered = (low <= p[:, None]) & (p[:, None] <= high)
                coverage = (binomial(n, p) * covered).sum(1)
                at = {"n": n, "confidence": confidence, "side": side}
                yield at_least(coverage, confidence, **at)
                alpha = (1 - confidence) / (2 if side == "both" else 1)
                if side != "upper":
                    yield equals(binomial(n, low).triu().sum(1)[1:], alpha, **at)
                if side != "lower":
                    yield equals(binomial(n, high).tril().sum(1)[:-1], alpha, **at)


clopper_pearson_coverage.foil(
    "the normal approximation (Wald) covers next to nothing near p = 0", interval=wald
)
clopper_pearson_coverage.foil(
    "from 0 to 1 is covered with certainty, and says nothing",
    interval=lambda k, n, **_: (0.0 * k, 0.0 * k + 1),
)
