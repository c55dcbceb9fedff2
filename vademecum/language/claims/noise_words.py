"""Negative sampling: telling pairs that occur from pairs that were drawn."""

import math
from itertools import product
from typing import Literal

import torch
from torch import Tensor

from vademecum.claims import at_most, claim, equals, in_mean
from vademecum.language.claims._blocks import (
    ascent,
    block_of,
    free_scores,
    log_sigmoid,
    loss,
    noise_law,
    pairs_of,
    root,
    sigmoid,
    small_corpus,
)

Second = Literal["noise", "seen"]
WORDS = {"sgns": "skip-gram", "cbow": "a bag of words"}


@claim(
    by="identity",
    sources=("E-228", "E-229", "E-231", "E-232", "E-233"),
    budget=0.5,
    short=r"\sum_D \log \sigma(u_{ij}) + \sum_{\bar D} \log \sigma(-u_{ij}),\quad"
    r" P(D = 0) = \sigma(-u)",
)
def negative_sampling(second: Second = "noise", trick: Literal["both", "softmax"] = "both"):
    r"""Negative sampling tells pairs that occur from pairs that were drawn.

    In place of the softmax stands logistic regression on the label $D = 1$ of pairs that occur and
    $D = 0$ of pairs that were drawn:
    $\sum_D \log \sigma(u_{ij}) + \sum_{\bar D} \log \sigma(-u_{ij})$ is maximised, with
    $u_{ij} = x_{w_i}^\top z_{w_j}$ and $P(D = 0) = 1 - \sigma(u) = \sigma(-u)$. That is minus the
    binary cross-entropy and needs no partition function. The trick, a relative of noise-contrastive
    estimation, is negative sampling, and serves bags of words as well; plain skip-gram has a
    softmax. With free scores a pair that is drawn $b$ times and seen $a$ times ends at
    $\sigma(u) = a / (a + b)$, below one half if it is drawn more often than seen.

    Losses and steps are those of `SkipGram`; each word of a pair is set against the same $k$ drawn
    words. The set of the pairs is counted in its blocks.

    Knobs:
        second: What the second sum rewards: that what was drawn is called noise, or a pair.
        trick: Which objectives are trained by classification.
    """
    sign = -1.0 if second == "noise" else 1.0
    for V, d, c, k in ((6, 3, 2, 2), (5, 4, 1, 3)):
        X, Z, at = torch.randn(V, d), torch.randn(V, d), {"V": V, "k": k}
        text, noise = torch.randperm(V).tolist(), torch.randint(V, (k,)).tolist()
        block, pairs = block_of([text], c, noise=noise, k=k), pairs_of([text], c)
        labels = torch.zeros(V, V, dtype=torch.long)
        for w, v in pairs:
            labels[w, v] = 1
        hits = block.band.nonzero()
        seen = torch.zeros_like(labels)
        seen[block.words[hits[:, 1]], block.around[hits[:, 2]]] = 1
        yield equals("labels of pairs", seen, labels, **at)
        u = X @ Z.T
        sums = [log_sigmoid(float(u[w, v])) for w, v in pairs]
        sums += [log_sigmoid(sign * float(u[w, v])) for w, _ in pairs for v in noise]
        yield equals("log-likelihood of labels", -loss("sgns", X, Z, block), math.fsum(sums),
                     tol=1e-13, **at)  # fmt: skip
        both = torch.tensor([sigmoid(a) + sigmoid(-a) for a in u.flatten().tolist()])
        yield equals("probabilities of both labels", both, 1.0, tol=1e-15, **at)
        w, v, *drawn = torch.randperm(V)[: 2 + k].tolist()
        one = block_of([[w, v]], 1, reach=(1, 0), noise=drawn, k=k)
        for objective in WORDS if trick == "both" else ("softmax",):
            moved = int((ascent(objective, X, Z, one)[1] != 0).any(1).sum())
            yield at_most(f"rows that one pair moves in {WORDS.get(objective, 'skip-gram')}", moved,
                          k + 1, **at)  # fmt: skip
    for a, b in ((1, 3), (2, 5), (4, 1)):
        top = root(lambda s, a=a, b=b: a * sigmoid(-s) + b * sign * sigmoid(sign * -s))
        yield equals("best output of a pair", sigmoid(top), a / (a + b), tol=1e-12, seen=a, drawn=b)


negative_sampling.foil("plain skip-gram, which has a softmax", trick="softmax")
negative_sampling.erratum(
    "E-232",
    printed=r"second sum: $\sum_{(i,j) \in \bar D} \log(1 - P_\theta(D_{w_i,w_j} = 0"
    r" \mid x_{w_i}, z_{w_j}))$",
    right=r"$\sum_{(i,j) \in \bar D} \log P_\theta(D_{w_i,w_j} = 0 \mid x_{w_i}, z_{w_j})$",
    why="1 - P(D = 0) is P(D = 1), so that the term rewards calling drawn pairs co-occurring: a"
    " pair seen once and drawn three times goes to 1 and not to 1/4. The sheet's next line is right"
    " and contradicts it.",
    weight="hard",
    refuted_by="best output of a pair",
    second="seen",
)
negative_sampling.erratum(
    "E-228",
    printed="credits the binary-classification trick to skip-grams",
    right="the trick is negative sampling; skip-gram is the task",
    why="Skip-gram is the prediction task, with a softmax: one of its pairs moves the vectors of"
    " all words. The classification is negative sampling, moves k + 1 of them, and works for bags"
    " of words as well.",
    weight="soft",
    refuted_by="rows that one pair moves in skip-gram",
    trick="softmax",
)


@claim(
    by="identity",
    sources=("C-119", "E-234"),
    budget=0.6,
    short=r"\sum_{(i,j)} \log \sigma(x_{w_i}^\top z_{w_j})"
    r" + k\, \mathbb E_{v \sim q} \log \sigma(-x_v^\top z_{w_j})",
)
def sgns(against: Literal["noise", "the pair"] = "noise", factor: float = 1.0):
    r"""Skip-gram with negative sampling sets each pair against words drawn from a noise law.

    What is maximised is $\sum_{(i, j) \in C_R} \big[\log \sigma(x_{w_i}^\top z_{w_j})
    + k\, \mathbb E_{v \sim q} \log \sigma(-x_v^\top z_{w_j})\big]$ with the evidence $w_j$: each
    pair is set against $k$ words $v$ drawn from $q$ with the same evidence. By counts that is
    $\sum_{v, w} \big[C_{vw} \log \sigma(u_{vw}) + k\, C_{\cdot w} q(v) \log \sigma(-u_{vw})\big]$,
    and the best score of a pair, if it were free, is $\log (C_{vw} / (k\, C_{\cdot w} q(v)))$.

    Losses and steps are those of `SkipGram` (which calls the vectors of the evidence $x$), with a
    list of words whose frequencies are exactly $q$, against the sum by counts; steps also against
    difference quotients of that sum. The mean of 4,000 losses with words drawn from $q$ lies within
    five standard errors.

    Knobs:
        against: Whether the second term scores words of the noise, or the pair itself.
        factor: What the second term is multiplied by.
    """
    for V, d, k in ((5, 3, 2), (4, 6, 5)):
        texts, C = small_corpus(V, 6)
        listed, q = noise_law(V)
        X, Z, at = torch.randn(V, d), torch.randn(V, d), {"V": V, "k": k}
        block = block_of(texts, 1, noise=listed, k=k)
        weights = C if against == "the pair" else k * C.sum(1, keepdim=True) * q

        def by_counts(X: Tensor, Z: Tensor, C=C, weights=weights) -> float:
            u, cells = X @ Z.T, product(range(len(C)), repeat=2)
            return math.fsum(
                float(C[w, v]) * log_sigmoid(float(u[w, v]))
                + factor * float(weights[w, v]) * log_sigmoid(-float(u[w, v]))
                for w, v in cells
            )

        found = loss("sgns", X, Z, block)
        yield equals("objective", -found, by_counts(X, Z), tol=1e-12, **at)
        dx, dz = ascent("sgns", X, Z, block)
        h, along, other = 1e-5, torch.randn(V, d), torch.randn(V, d)
        for name, moved, a, b in (("x", dx, along, 0 * other), ("z", dz, 0 * along, other)):
            ends = [by_counts(X + s * a, Z + s * b) for s in (h, -h)]
            slope = (ends[0] - ends[1]) / (2 * h)
            yield equals(f"derivative in {name}", float((moved * (a + b)).sum()), slope, tol=1e-6,
                         **at)  # fmt: skip
        free = (C / (k * C.sum(1, keepdim=True) * q)).log()
        top = free_scores(C, factor * weights)
        yield equals("best score of a pair", top, free, tol=1e-12, **at)
        yield from drawn_losses(texts, X, Z, q, k, by_counts(X, Z))


def drawn_losses(texts: list[list[int]], X: Tensor, Z: Tensor, q: Tensor, k: int, wanted: float):
    """The mean of the objective over draws of the noise: the sum over words, each drawn often."""
    V, draws = len(X), 4000
    seen = torch.tensor([-loss("sgns", X, Z, block_of(texts, 1, noise=[v], k=k)) for v in range(V)])
    words = torch.multinomial(q, draws, replacement=True)
    yield in_mean("objective with drawn words", seen[words], wanted, V=V, k=k)


sgns.foil("the noise counted twice", factor=2.0)
sgns.erratum(
    "E-234",
    printed=r"$\arg\max_\theta \sum_{(i,j) \in C_R} \log \sigma(x_{w_i}^\top z_{w_j})"
    r" + \log \sigma(-x_{w_i}^\top z_{w_j})$",
    right=r"$k\, \mathbb E_{v \sim q} \log \sigma(-x_v^\top z_{w_j})$ as the second term",
    why="Both terms carry the observed pair; log s(u) + log s(-u) is largest at u = 0, so that all"
    " scores become 0 and the texts do not matter. It also contradicts the line before it; a mark"
    " lost in scanning would mend it.",
    weight="scan",
    refuted_by="best score of a pair",
    against="the pair",
)
