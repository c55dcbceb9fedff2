"""Confidence: exact intervals for a probability."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import scipy.special
import scipy.stats
import torch
from torch import Tensor
from torch.distributions import Binomial

from vademecum.claims import Evidence, at_least, at_most, claim, equals
from vademecum.foundations import clopper_pearson, clopper_pearson_sample_size


def wald(k: Tensor, n: int, *, confidence: float, **_: str) -> tuple[Tensor, Tensor]:
    """The interval of the normal approximation."""
    z = math.sqrt(2) * float(torch.special.erfinv(torch.tensor(confidence)))
    half = z * (k / n * (1 - k / n) / n).sqrt()
    return k / n - half, k / n + half


def binomial(n: int, p: Tensor) -> Tensor:
    """The probabilities of all numbers of successes, a row for each p."""
    return Binomial(n, p[:, None]).log_prob(torch.arange(n + 1.0)).exp()


def longest(n: int, confidence: float) -> float:
    """The length of the longest two-sided interval for n trials, by SciPy's beta law."""
    k, alpha = np.arange(n + 1), (1 - confidence) / 2
    low = np.where(k > 0, scipy.stats.beta.ppf(alpha, np.maximum(k, 1), n - k + 1), 0.0)
    high = np.where(k < n, scipy.stats.beta.isf(alpha, k + 1, np.maximum(n - k, 1)), 1.0)
    return float((high - low).max())


@claim(
    by="identity",
    budget=0.5,
    full={"sizes": (1, 2, 5, 10, 30, 100, 300), "grid": 2000},
    short=r"P_p(\mathrm{low}_k \le p \le \mathrm{high}_k) \ge 1 - \alpha \;\; \text{for all } p",
)
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

    Checked by the coverage summed over all $k$, on a grid of $p$ and just outside every limit,
    where it is least; by the tails at the limits; and by the sample size for a given length, which
    is the first for which no interval is longer.

    Knobs:
        interval: The limits as a function of the numbers of successes and trials.
        sizes: The numbers of trials.
        grid: How many values of p are tried, beside the limits.
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
                yield at_least("coverage", coverage, confidence, **at)
                alpha = (1 - confidence) / (2 if side == "both" else 1)
                if side != "upper":
                    tail = binomial(n, low).triu().sum(1)[1:] / alpha
                    yield equals(
                        "tail at the lower limit, over $\\alpha$ or its half", tail, 1.0, **at
                    )
                if side != "lower":
                    tail = binomial(n, high).tril().sum(1)[:-1] / alpha
                    yield equals(
                        "tail at the upper limit, over $\\alpha$ or its half", tail, 1.0, **at
                    )
    yield from _many_trials()
    for epsilon, confidence in ((0.1, 0.95), (0.2, 0.999), (0.35, 0.5)):
        n = clopper_pearson_sample_size(epsilon, confidence=confidence)
        at = {"epsilon": epsilon, "confidence": confidence}
        yield at_most(
            "longest interval at the sample size", longest(n, confidence), 2 * epsilon, **at
        )
        short = longest(n - 1, confidence) if n > 1 else 1.0
        yield at_least("longest interval with one trial less", short, 2 * epsilon, **at)


def _many_trials(n: int = 10**9) -> Iterator[Evidence]:
    """Limits for so many trials that SciPy's inverse of the beta function can miss them."""
    for k in (1000, n - 1000):
        low, high = clopper_pearson(k, n, confidence=0.9)
        for name, tail in (
            ("lower", scipy.special.bdtrc(k - 1, n, low)),
            ("upper", scipy.special.bdtr(k, n, high)),
        ):
            yield equals(
                f"tail at the {name} limit, over its half", tail / 0.05, 1.0, tol=1e-6, k=k
            )


clopper_pearson_coverage.foil(
    "the normal approximation (Wald) covers next to nothing near p = 0", interval=wald
)
clopper_pearson_coverage.foil(
    "from 0 to 1 is covered with certainty, and says nothing",
    interval=lambda k, n, **_: (0.0 * k, 0.0 * k + 1),
)
