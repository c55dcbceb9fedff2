"""What negative sampling learns: shifted information, and the posterior of a true pair."""

import math
from fractions import Fraction
from typing import Literal

import torch

from vademecum.claims import at_least, claim, equals
from vademecum.language.claims._blocks import (
    best,
    block_of,
    free_scores,
    noise_law,
    root,
    sigmoid,
    small_corpus,
    turned,
)


@claim(
    by="sampling",
    sources=("C-119", "E-219", "E-234"),
    budget=0.9,
    short=r"x_v^\top z_w = \log \frac{P(v \mid w)}{k\, q(v)}"
    r" = \mathrm{pmi}(v, w) - \log k\ \text{for } q = p",
)
def sgns_optimum(shift: float = 1.0, law: Literal["general", "unigram"] = "general"):
    r"""Skip-gram with negative sampling factorises shifted pointwise mutual information.

    With free scores (vectors of dimension at least $|\mathcal V|$) the optimum of its objective is
    $x_v^\top z_w = \log \frac{P(v \mid w)}{k\, q(v)}$ for any noise law $q > 0$; if $q$ is the law
    of the predicted words, that is $\mathrm{pmi}(v, w) - \log k$. So it factorises a shifted matrix
    of pointwise mutual information, and is not inherently worse than doing so explicitly.

    *Proof.* Cell by cell the derivative $C_{vw} \sigma(-u) - k\, C_{\cdot w} q(v) \sigma(u)$
    vanishes where $e^u = C_{vw} / (k\, C_{\cdot w} q(v))$, and falls in $u$.

    The derivative's root by halving; and vectors of full rank that minimise `SkipGram`'s loss, by
    L-BFGS on its steps, for texts whose counts are all positive: the noise of the general law, and
    of the law of the words.

    Knobs:
        shift: What $\log k$ is multiplied by.
        law: The noise law in the formula: the one drawn from, or always that of the words.
    """
    for V, k in ((5, 2), (4, 5)):
        texts, C = small_corpus(V, 10)
        p = C.sum(0) / C.sum()
        own = (C.sum(0)).long()
        listed, q = noise_law(V)
        words = torch.arange(V).repeat_interleave(own).tolist()
        pmi, at = (C / C.sum() / (p * p[:, None])).log(), {"V": V, "k": k}
        for name, noise, drawn in (("unigram", words, p), ("general", listed, q)):
            used = drawn if law == "general" else p
            wanted = (C / C.sum(1, keepdim=True) / used).log() - shift * math.log(k)
            weights = k * C.sum(1, keepdim=True) * drawn
            roots = free_scores(C, weights)
            yield equals(f"root in a cell, {name} noise", roots, wanted, tol=1e-10, **at)
            if name == "unigram":
                yield equals("shifted information", roots, pmi - shift * math.log(k), tol=1e-10,
                             **at)  # fmt: skip
            block = block_of(texts, 1, noise=noise, k=k)
            X, Z = best("sgns", turned(V), turned(V), block)
            yield equals(f"scores of the best vectors, {name} noise", X @ Z.T, wanted, tol=1e-3,
                         **at)  # fmt: skip


sgns_optimum.foil("no shift", shift=0.0, refuted_by="shifted information")
sgns_optimum.foil("the information whatever the noise", law="unigram",
                  refuted_by="root in a cell, general noise")  # fmt: skip

Means = Literal["a pair and not noise", "the conditional"]


@claim(
    by="sampling",
    sources=("E-230",),
    budget=0.8,
    short=r"\sigma(x_v^\top z_w) \to \frac{P(v \mid w)}{P(v \mid w) + k\, q(v)},"
    r"\ \text{not}\ P(v \mid w)",
)
def noise_classifier(means: Means = "a pair and not noise"):
    r"""The output of negative sampling is the probability that a pair is true and not noise.

    With $k$ words of noise from $q$ the optimum of $\sigma(x_v^\top z_w)$ is
    $\frac{P(v \mid w)}{P(v \mid w) + k\, q(v)}$, the posterior of "true" if one true and $k$ noise
    words are mixed. It is no approximation of $P(v \mid w)$: it does not sum to one over $v$, and
    for independent words with $k = 1$ and the law of the words as noise it is $1/2$ for every pair.

    The posterior by Bayes' rule in fractions; the optimum as the outputs of vectors of full rank
    that minimise `SkipGram`'s loss.

    Knobs:
        means: What the output is said to be.
    """
    rare = torch.tensor([1e-6, 0.3, 0.7 - 1e-6])  # of independent words
    half = torch.tensor([sigmoid(root(lambda u, a=a: a * sigmoid(-u) - a * sigmoid(u)))
                         for a in rare.tolist()])  # fmt: skip
    said = torch.full((3,), 0.5) if means == "a pair and not noise" else rare
    yield equals("output for independent words", half, said, tol=1e-10)
    for V, k in ((4, 1), (5, 3)):
        texts, C = small_corpus(V, 12)
        listed, q = noise_law(V)
        at = {"V": V, "k": k}
        P = C / C.sum(1, keepdim=True)
        posterior = torch.tensor([
            [float(bayes(int(C[w, v]), int(C[w].sum()), listed.count(v), len(listed), k))
             for v in range(V)] for w in range(V)
        ])  # fmt: skip
        formula = P / (P + k * q) if means == "a pair and not noise" else P
        yield equals("posterior of a true pair", posterior, formula, tol=1e-14, **at)
        X, Z = best("sgns", turned(V), turned(V), block_of(texts, 1, noise=listed, k=k))
        output = (X @ Z.T).sigmoid()
        yield equals("output of the best vectors", output, formula, tol=1e-3, **at)
        off = (posterior.sum(1) - 1).abs().max()
        yield at_least("distance of a sum over words from one", off, 0.01, **at)


def bayes(seen: int, total: int, listed: int, noise: int, k: int) -> Fraction:
    """The probability that a word is the true one of a mixture of one true and k noise words."""
    true = Fraction(1, k + 1) * Fraction(seen, total)
    return true / (true + Fraction(k, k + 1) * Fraction(listed, noise))


noise_classifier.foil("the conditional probability", means="the conditional",
                      refuted_by="posterior of a true pair")  # fmt: skip
noise_classifier.erratum(
    "E-230",
    printed=r"$P_\theta(w_i \mid w_j) \approx P_\theta(D_{w_i,w_j} = 1 \mid x_{w_i}, z_{w_j})"
    r" = \sigma(x_{w_i}^\top z_{w_j})$",
    right=r"$\sigma(x_{w_i}^\top z_{w_j}) \approx P(w_i \mid w_j)"
    r" / (P(w_i \mid w_j) + k\, q(w_i))$",
    why="The two are not close: for independent words with k = 1 the best output is 1/2 for every"
    " pair, although the conditional probability may be 0.000001, and outputs do not sum to one.",
    weight="hard",
    refuted_by="output for independent words",
    means="the conditional",
)
