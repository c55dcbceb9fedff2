"""Empirical laws: what samples stand for, and bootstrap samples."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import torch
from torch import Tensor

from vademecum.claims import at_least, at_most, claim, equals
from vademecum.foundations import (
    entropy_from_counts,
    kl_divergence,
    mutual_information_from_counts,
)
from vademecum.foundations.claims.information import random_laws

Divergence = Callable[[Tensor, Tensor], Tensor]


def empirical(counts: Tensor) -> Tensor:
    """The relative frequencies along the last axis."""
    return counts / counts.sum(-1, keepdim=True)


def multinomial(p: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """All counts of n draws from a law on two to four letters, and their probabilities."""
    first = torch.cartesian_prod(*[torch.arange(n + 1)] * (len(p) - 1)).view(-1, len(p) - 1)
    first = first[first.sum(1) <= n]
    counts = torch.cat([first, n - first.sum(1, keepdim=True)], 1)
    log = math.lgamma(n + 1) + (counts * p.log() - torch.lgamma(counts + 1.0)).sum(1)
    return counts, log.exp()


def plain_entropy(p: Tensor) -> Tensor:
    r"""$-\sum p \log p$ along the last axis."""
    return -torch.special.xlogy(p, p).sum(-1)


@claim(
    by="identity",
    sources=("D-128",),
    budget=0.5,
    short=r"\mathbb E[H(p) - H(\hat p)] = \mathbb E[\mathrm{KL}(\hat p \| p)]"
    r" = \frac{k - 1}{2 n} + O(n^{-2})",
)
def empirical_cross_entropy(offset: int = -1, divergence: Divergence = kl_divergence):
    r"""Learning minimises the empirical cross-entropy.

    The data law $p$ is known only through $n$ samples, and the model $q$ approximates it. Over all
    laws on $k$ letters the empirical cross-entropy $-\frac1n \sum_i \log q(x_i)$ is minimised by
    the empirical law $\hat p$, and the optimism is
    $\mathbb E[\mathrm{KL}(\hat p \| p)] = \frac{k - 1}{2 n} + O(n^{-2})$
    ($2 n\, \mathrm{KL}(\hat p \| p)$ is asymptotically $\chi^2_{k - 1}$). So the plug-in entropy
    falls short by as much: $\mathbb E[H(\hat p)] = H(p) - \mathbb E[\mathrm{KL}(\hat p \| p)]$; and
    the plug-in mutual information of a $k_X \times k_Y$ table exceeds the true one by
    $\frac{(k_X - 1)(k_Y - 1)}{2 n} + O(n^{-2})$. The corrections of Miller and Madow and of the
    jackknife take the first term away. The reversed $\mathrm{KL}(p \| \hat p)$ is infinite with
    positive probability.

    Checked over all samples of $n$ draws from laws on two and three letters and on a $2 \times 2$
    table. The next term of the optimism is $\frac{\sum_x 1/p_x - 1}{12 n^2}$; that all the rest is
    at most twice as large is observed. The law of $\chi^2$ is quoted.

    Knobs:
        offset: What is added to k in the optimism.
        divergence: The divergence of the empirical law and the true one.
    """
    counts = torch.randint(1, 9, (5,))
    hat = empirical(counts)
    x = torch.arange(5).repeat_interleave(counts)
    z = torch.randn(5, requires_grad=True)
    (slope,) = torch.autograd.grad(-z.log_softmax(0)[x].mean(), z)
    yield equals("gradient of the empirical cross-entropy", slope, z.softmax(0) - hat)
    loss = -random_laws(1000, 5)[:, x].log().mean(1)
    yield at_least("empirical cross-entropy of a model", loss, plain_entropy(hat))
    laws = [
        ([0.5, 0.5], (50, 200, 800)),
        ([0.3, 0.7], (50, 200, 800)),
        ([0.3, 0.3, 0.4], (50, 100)),
    ]
    for law, sizes in laws:
        p = torch.tensor(law)
        alone = kl_divergence(p, torch.eye(len(p)))  # one letter alone was drawn
        yield equals("reversed divergence after equal draws", alone, math.inf, k=len(p))
        for n in sizes:
            at, rest = {"n": n, "k": len(p)}, 2 * next_term(p) / n
            counts, weights = multinomial(p, n)
            optimism = weights @ divergence(counts / n, p.expand_as(counts))
            off = (n * optimism - (len(p) + offset) / 2).abs()
            yield at_most("optimism off its first term, times n", off, rest, **at)
            yield from entropy_optimism(p, counts, weights, optimism)
    table = torch.randint(1, 9, (3, 4))
    hat = table / table.sum()
    plug_in = plain_entropy(hat.sum(0)) + plain_entropy(hat.sum(1)) - plain_entropy(hat.flatten())
    found = mutual_information_from_counts(table)
    yield equals("plug-in information of a 3 x 4 table", found.value + found.bias, plug_in)
    yield equals("bias of the plug-in information, times n", found.bias * table.sum(), 2 * 3 / 2)
    yield from table_optimism(torch.tensor([[0.2, 0.3], [0.3, 0.2]]), 40)


def next_term(p: Tensor) -> Tensor:
    r"""$n^2$ times the second term of the optimism of n draws."""
    return ((1 / p).sum() - 1) / 12


def entropy_optimism(p: Tensor, counts: Tensor, weights: Tensor, optimism: Tensor):
    """The mean of the entropy estimated from counts, over all of them."""
    n, true = int(counts[0].sum()), plain_entropy(p)
    at, rest = {"n": n, "k": len(p)}, 2 * next_term(p) / n
    found = weights @ entropy_from_counts(counts, correction="none").value
    yield equals("mean plug-in entropy", found, weights @ plain_entropy(counts / n), **at)
    yield equals("mean shortfall of the entropy", true - found, optimism, **at)
    for rule in ("miller_madow", "jackknife"):
        corrected = entropy_from_counts(counts, correction=rule)
        off = n * (weights @ corrected.value - true).abs()
        yield at_most("bias of a corrected entropy, times n", off, rest, **at, rule=rule)
        whole = weights @ (corrected.value + corrected.bias)
        name = "mean of the corrected entropy and of its correction"
        yield equals(name, whole, found, **at, rule=rule)


def table_optimism(joint: Tensor, n: int):
    """The mean of the mutual information estimated from a table, over all tables of n draws."""
    counts, weights = multinomial(joint.flatten(), n)
    counts = counts.view(-1, *joint.shape)
    parts = (joint.sum(0), joint.sum(1), joint.flatten())
    signs = (1, 1, -1)
    true = sum(s * plain_entropy(p) for s, p in zip(signs, parts, strict=True))
    rest = -2 * sum(s * next_term(p) for s, p in zip(signs, parts, strict=True)) / n
    hats = (v / n for v in (counts.sum(1), counts.sum(2), counts.flatten(1)))
    plug_in = weights @ sum(s * plain_entropy(v) for s, v in zip(signs, hats, strict=True))
    found = weights @ mutual_information_from_counts(counts, correction="none").value
    yield equals("mean plug-in mutual information", found, plug_in, n=n)
    off = (n * (found - true) - 0.5).abs()
    yield at_most("excess of the information off its first term, times n", off, rest, n=n)
    for rule in ("miller_madow", "jackknife"):
        mean = weights @ mutual_information_from_counts(counts, correction=rule).value
        off = n * (mean - true).abs()
        yield at_most("bias of a corrected information, times n", off, rest, n=n, rule=rule)


empirical_cross_entropy.foil(r"all $k$ letters counted: $\frac{k}{2 n}$", offset=0)
empirical_cross_entropy.foil(
    "the reversed divergence has no finite mean", divergence=lambda p, q: kl_divergence(q, p)
)


@claim(
    by="sampling",
    sources=("B-338",),
    budget=0.5,
    full={"largest": 6, "s": 10**5},
    short=r"\mathbb E[\text{distinct share}] = 1 - (1 - \tfrac1s)^s \to 1 - e^{-1} \approx 0.632",
)
def bootstrap_distinct(
    left_out: bool = False,
    replace: bool = True,
    largest: int = 5,
    s: int = 1000,
    samples: int = 50,
):
    r"""Share of distinct examples in a bootstrap sample.

    A bootstrap sample ($s$ draws with replacement from $s$ examples) contains in expectation a
    fraction $1 - (1 - \frac1s)^s$ of the distinct examples. It decreases from 1 at $s = 1$ to
    $1 - e^{-1} \approx 0.632$, roughly two thirds.

    Checked over all samples of up to five examples; and on random samples, where each draw changes
    the share by at most $\frac1s$, so that McDiarmid's inequality bounds the deviation of the mean
    over $m$ samples by $\sqrt{\ln(2 / \alpha) / (2 m s)}$ at the level $\alpha = 10^{-7}$.

    Knobs:
        left_out: Whether the share that was not drawn is given instead.
        replace: Whether examples are drawn with replacement.
        largest: The most examples whose samples are all listed.
        s: How many examples the random samples have.
        samples: How many random samples are drawn.
    """

    def share(size: int) -> Fraction:
        missed = Fraction(size - 1, size) ** size
        return missed if left_out else 1 - missed

    for size in range(1, largest + 1):
        seen = sum(len(set(indices)) for indices in product(range(size), repeat=size))
        mean = float(Fraction(seen, size ** (size + 1)))
        yield equals("mean share of all samples", mean, float(share(size)), tol=0.0, s=size)
    n = torch.arange(2.0, 10**4)
    distinct = torch.cat([torch.ones(1), -torch.expm1(n * torch.log1p(-1 / n))])
    yield at_least("fall of the share from s to s + 1", distinct[:-1] - distinct[1:], 0.0, tol=0.0)
    off = (distinct[1:] - 1 + math.exp(-1)).abs()
    yield at_most("share off its limit, times s", n * off, 1 / math.e)
    draw = torch.multinomial(torch.ones(samples, s), s, replacement=replace).sort(1).values
    fresh = 1 + (draw[:, 1:] != draw[:, :-1]).sum(1)
    radius = math.sqrt(math.log(2e7) / (2 * samples * s))
    off = abs(float((fresh / s).mean()) - float(share(s)))
    yield at_most("sampled share off its mean", off, radius, s=s)


bootstrap_distinct.foil(r"$e^{-1}$ is the share that is left out", left_out=True)
bootstrap_distinct.foil("without replacement nothing is drawn twice", replace=False)
