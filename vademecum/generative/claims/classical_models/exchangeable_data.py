"""Exchangeable data: mixtures of independent draws, partitions and features without end."""

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations, product
from typing import Literal

import numpy as np
import torch
from scipy.optimize import linprog
from scipy.special import betaln
from scipy.stats import chisquare

from vademecum.claims import Evidence, at_least, claim, consistent, equals
from vademecum.generative import crp_log_prob, sample_crp, sample_ibp

COINS = np.linspace(0, 1, 1001)


def partitions(n: int) -> list[list[int]]:
    """All partitions of n, each by labels in the order in which they first appear."""
    found = [[0]]
    for _ in range(n - 1):
        found = [[*p, t] for p in found for t in range(max(p) + 2)]
    return found


def sizes(labels: list[int]) -> list[int]:
    """The sizes of the blocks."""
    return [labels.count(k) for k in sorted(set(labels))]


def rising(x: Fraction, n: int) -> Fraction:
    """The product x (x + 1) ... (x + n - 1)."""
    return math.prod((x + i for i in range(n)), start=Fraction(1))


def moment(k: int, n: int, a: int, b: int) -> Fraction:
    """The integral of z^k (1 - z)^(n - k) under Beta(a, b), term by term."""

    def integral(p: int, q: int) -> Fraction:
        terms = (Fraction((-1) ** i * math.comb(q, i), p + i + 1) for i in range(q + 1))
        return sum(terms, start=Fraction(0))

    return integral(a + k - 1, b + n - k - 1) / integral(a - 1, b - 1)


def urn(x: tuple[int, ...], a: int, b: int) -> Fraction:
    """The probability of colours drawn from an urn, each put back with another of its colour."""
    p, balls = Fraction(1), [b, a]
    for colour in x:
        p *= Fraction(balls[colour], sum(balls))
        balls[colour] += 1
    return p


def distance_to_mixtures(pair: np.ndarray) -> float:
    """The least sum of |differences| between a table of two draws and a mixture of 1001 coins."""
    tables = np.stack([(1 - COINS) ** 2, COINS * (1 - COINS), COINS * (1 - COINS), COINS**2])
    equal = np.hstack([tables, np.eye(4), -np.eye(4)])
    equal = np.vstack([equal, np.r_[np.ones(len(COINS)), np.zeros(8)]])
    cost = np.r_[np.zeros(len(COINS)), np.ones(8)]
    return float(linprog(cost, A_eq=equal, b_eq=np.r_[pair, 1.0]).fun)


@claim(
    by="identity",
    sources=("E-259", "E-260"),
    budget=0.4,
    short=r"\text{infinite, exchangeable} \Rightarrow"
    r" P(x_1, \dots, x_N) = \int \prod_i p(x_i | z)\, d\mu(z) \text{ for all } N",
)
def de_finetti(extends: bool = True, spread: int = 0):
    r"""De Finetti's representation theorem.

    An *infinite* exchangeable sequence is a mixture of i.i.d. sequences: for every $N$, $P(x_1,
    \dots, x_N) = \int \prod_{i=1}^N p(x_i \mid z)\, d\mu(z)$ with one mixing measure $\mu$; this
    theorem of the 1930s motivates latent variable models. A finite exchangeable vector need not
    have such a representation unless it extends to an infinite exchangeable sequence.

    *Checked* for the Pólya urn of $a$ and $b$ balls, in fractions: the probabilities of all binary
    sequences up to length 6 are those of the mixture with $\mu = \mathrm{Beta}(a, b)$, and those
    of colours of the tables of a Chinese restaurant (`crp_log_prob`) with $\alpha = a + b$; the
    table of two draws is a mixture of coins, by a linear program, with covariance at least 0. Two
    draws without replacement from $\{0, 1\}$ are exchangeable, have covariance $-\frac14$ and are
    at distance 1 from all mixtures, which have $P(X_1 = X_2) \ge \frac12$. Quoted beyond.

    Knobs:
        extends: Whether the pair is the first two of an infinite exchangeable sequence, or two
            draws without replacement.
        spread: What is added to both numbers of the mixing measure.
    """
    a, b = (int(i) for i in torch.randint(1, 5, (2,)))
    for n in range(1, 7):
        sequences = list(product((0, 1), repeat=n))
        drawn = [float(urn(x, a, b)) for x in sequences]
        mixed = [float(moment(sum(x), n, a + spread, b + spread)) for x in sequences]
        yield equals("probabilities of all sequences", drawn, mixed, tol=1e-15, n=n, a=a, b=b)
    labels = partitions(5)
    p = crp_log_prob(torch.tensor(labels), float(a + b)).exp()
    for x in ((0, 0, 1, 1, 0), (1, 1, 1, 1, 1), (0, 1, 0, 1, 1)):
        total = 0.0
        for weight, seats in zip(p.tolist(), labels, strict=True):
            colours = [{x[i] for i in range(5) if seats[i] == t} for t in range(max(seats) + 1)]
            if all(len(c) == 1 for c in colours):
                total += weight * math.prod((b, a)[c.pop()] / (a + b) for c in colours)
        yield equals("colours of tables", total, float(urn(x, a, b)), tol=1e-12, a=a, b=b)
    pair = [float(urn(x, a, b)) for x in product((0, 1), repeat=2)]
    pair = np.array(pair if extends else [0.0, 0.5, 0.5, 0.0])
    yield equals("exchangeable: P(0, 1) against P(1, 0)", pair[1], pair[2], tol=1e-15)
    yield equals("distance of the pair from mixtures of coins", distance_to_mixtures(pair), 0.0)
    covariance = pair[3] - (pair[3] + pair[2]) * (pair[3] + pair[1])
    yield at_least("covariance of the pair", covariance, 0.0)


de_finetti.foil("another mixing measure", spread=1)
de_finetti.foil("every exchangeable pair", extends=False, refuted_by="covariance of the pair")
de_finetti.erratum(
    "E-260",
    printed=r"exchangeable data: $P(\mathbf x_1, \dots, \mathbf x_N) = \int \prod_{i=1}^N"
    r" p_\theta(\mathbf x_i \mid \mathbf z) p_\theta(\mathbf z)\, d\mathbf z$",
    right=r"the same for every $N$ of an infinite exchangeable sequence, with a measure $d\mu$ in"
    r" place of $p_\theta(\mathbf z)\, d\mathbf z$",
    why=r"The hypothesis of infinite exchangeability is missing (and a mixing measure need not have"
    r" a density). Two draws without replacement from $\{0, 1\}$ are exchangeable with covariance"
    r" $-\frac14$, impossible for a mixture of i.i.d. pairs.",
    weight="soft",
    refuted_by="distance of the pair from mixtures of coins",
    extends=False,
)

Seating = Literal["alpha", "one", "equal"]


def seated(labels: list[int], alpha: Fraction, new: Seating) -> Fraction:
    """The probability of seats, one customer after the other."""
    p, taken = Fraction(1), dict[int, int]()
    for i, table in enumerate(labels):
        if new == "equal":
            p *= Fraction(1, len(taken) + 1)
        else:
            c = alpha if new == "alpha" else Fraction(1)
            p *= taken.get(table, c) / (c + i)
        taken[table] = taken.get(table, 0) + 1
    return p


@claim(
    by="identity",
    sources=("E-271",),
    budget=0.5,
    short=r"P(\pi) = \frac{\alpha^K \prod_k (n_k - 1)!}{\alpha (\alpha + 1) \cdots"
    r" (\alpha + n - 1)}",
)
def chinese_restaurant_process(new: Seating = "alpha", power: int = 0, draws: int = 20_000):
    r"""Chinese restaurant process as the partition law of a Dirichlet process.

    A Dirichlet process with concentration $\alpha$ is a random discrete measure; integrating it
    out, $n$ samples induce the Chinese restaurant partition law $P(\pi) = \alpha^K \prod_{k=1}^K
    (n_k - 1)! / (\alpha (\alpha + 1) \cdots (\alpha + n - 1))$ for block sizes $n_1, \dots, n_K$.
    The two objects (a random measure, a random partition) are linked by de Finetti's theorem but
    are not the same: a sheet (E-271) has one as another name for the other.

    *Checked* in fractions: the probabilities of all 203 partitions of 6 sum to 1 and are those of
    customers who sit down at a table with probability proportional to its customers, or at a new
    one to $\alpha$; for all 52 partitions of 5 in every order of arrival. They are within
    $10^{-4}$ of what a symmetric Dirichlet law with $10^6$ weights of $\alpha / 10^6$ gives.
    `crp_log_prob` agrees, and draws of `sample_crp` have its frequencies.

    Knobs:
        new: How likely a new table is: in proportion to alpha, to 1, or as any other table.
        power: What is added to the number of tables in the power of alpha.
        draws: How many partitions are drawn.
    """
    alpha = Fraction(int(torch.randint(3, 12, ())), 2)  # 3/2 to 11/2

    def law(labels: list[int]) -> Fraction:
        blocks = sizes(labels)
        inside = math.prod(math.factorial(m - 1) for m in blocks)
        return alpha ** (len(blocks) + power) * inside / rising(alpha, len(labels))

    six, five, at = partitions(6), partitions(5), {"concentration": float(alpha)}
    yield equals("sum over 203 partitions", float(sum(map(law, six))), 1.0, tol=1e-15, **at)
    one_by_one = [float(seated(labels, alpha, new)) for labels in six]
    formula = [float(law(labels)) for labels in six]
    yield equals("seats of six, one by one", one_by_one, formula, tol=1e-15, **at)
    exact = [float(law(labels)) for labels in five]
    arrived = [
        [float(seated([labels[i] for i in order], alpha, new)) for labels in five]
        for order in permutations(range(5))
    ]
    yield equals("seats of five, in every order of arrival", arrived, [exact], tol=1e-15, **at)
    K = 10**6
    finite = [
        math.prod(K - i for i in range(max(labels) + 1))
        * math.prod(rising(alpha / K, m) for m in sizes(labels))
        / rising(alpha, 6)
        for labels in six
    ]
    ratios = [float(f) / p for f, p in zip(finite, formula, strict=True)]
    yield equals(
        "Dirichlet law of a million weights, over the formula", ratios, 1.0, tol=5e-5, **at
    )
    tensor = torch.tensor(five)
    found = crp_log_prob(tensor * 3 - 7, float(alpha)).exp()
    yield equals("crp_log_prob", found, exact, tol=1e-12, n=5, **at)
    place = 6 ** torch.arange(5)
    seen = sample_crp(5, float(alpha), draws=draws) @ place
    counts = [int((seen == row @ place).sum()) for row in tensor]
    yield equals("draws that are partitions", sum(counts), draws)
    expected = np.array(exact) * draws / sum(exact)
    yield consistent("p-value of 52 frequencies", chisquare(counts, expected).pvalue, **at)


chinese_restaurant_process.foil("a new table whatever alpha is", new="one")
chinese_restaurant_process.foil(
    "all tables alike", new="equal", refuted_by="seats of five, in every order of arrival"
)
chinese_restaurant_process.foil("one alpha less", power=-1)

Count = Literal["harmonic", "customers", "logarithm"]


@claim(
    by="sampling",
    sources=("E-272",),
    budget=0.3,
    short=r"E[\text{features of } n] = \alpha \sum_{i=1}^n \frac1i ="
    r" \lim_K K (1 - \prod_{j=1}^n \frac{j}{j + \alpha / K})",
)
def indian_buffet_process(count: Count = "harmonic", draws: int = 20_000):
    r"""Indian buffet process as the feature law of a Beta process.

    The Beta process is a random measure whose Bernoulli-process draws, with the measure integrated
    out, give the Indian buffet process, an exchangeable law on binary feature matrices with
    unboundedly many columns; in it the expected number of distinct features after $n$ customers is
    $\alpha \sum_{i=1}^n 1/i$. It is the limit $K \to \infty$ of $K$ columns with $\pi_k \sim
    \mathrm{Beta}(\alpha / K, 1)$. (The two live on different spaces: a sheet, E-272, has one as
    another name for the other.)

    *Checked*: the expected number of columns that are not empty, $K (1 - \mathbb E (1 -
    \pi)^n) = K (1 - \prod_{j=1}^n \frac j{j + \alpha / K})$, from the Beta function at $K = 7$ and
    within $10^{-5}$ of the limit at $K = 10^7$ for $n \le 50$. Draws of `sample_ibp` have, within
    six standard errors, that number of features, which is Poisson, $\alpha$ features a customer,
    and $\alpha / 2$ in common for the first two customers as for the last two (exchangeable).

    Knobs:
        count: The number of features: of all customers as if nobody shared, or by the logarithm.
        draws: How many matrices are drawn.
    """
    alpha = 0.5 + 3 * float(torch.rand(()))

    def features(n: int) -> float:
        known = {"harmonic": sum(1 / i for i in range(1, n + 1)), "customers": n}
        return alpha * known.get(count, math.log(n))

    def finite(n: int, K: float) -> float:
        return -K * math.expm1(-sum(math.log1p(alpha / (K * j)) for j in range(1, n + 1)))

    for n in (3, 8):
        empty = math.exp(betaln(alpha / 7, n + 1) - betaln(alpha / 7, 1))  # E (1 - pi)^n
        yield equals("columns of 7 not empty", 7 * (1 - empty), finite(n, 7), n=n, alpha=alpha)
    ratios = [finite(n, 1e7) / features(n) for n in range(2, 51)]
    yield equals("columns of ten million, over the limit, n = 2 to 50", ratios, 1.0, tol=5e-6)
    n = 5
    taken = sample_ibp(n, alpha, draws=draws)
    yield from _means(taken, alpha, features(n), draws)


def _means(taken: torch.Tensor, alpha: float, wanted: float, draws: int) -> Iterator[Evidence]:
    """Means of Poisson variables, whose standard errors are known."""
    error = 6 * math.sqrt(alpha * sum(1 / i for i in range(1, 6)) / draws)
    number = taken.any(1).sum(1).double()
    yield equals("mean number of features", number.mean(), wanted, tol=error / (1 + wanted), n=5)
    own = taken.sum(2).double().mean(0)
    tol = 6 * math.sqrt(alpha / draws) / (1 + alpha)
    yield equals("mean number of a customer's features", own, alpha, tol=tol, n=5)
    for i, j in ((0, 1), (3, 4), (0, 4)):
        shared = (taken[:, i] & taken[:, j]).sum(1).double().mean()
        tol = 6 * math.sqrt(alpha / 2 / draws) / (1 + alpha / 2)
        yield equals("features that two customers share", shared, alpha / 2, tol=tol, i=i, j=j)
    spread = number.var() / number.mean()
    tol = 6 * math.sqrt((2 + 1 / float(number.mean())) / draws)
    yield equals("variance over mean of the number", spread, 1.0, tol=tol, n=5)


indian_buffet_process.foil("all dishes of all customers are new", count="customers")
indian_buffet_process.foil("the logarithm", count="logarithm")
