"""Estimates from a text: pmi from its counts, and information that fades with distance."""

import math
from fractions import Fraction
from itertools import product
from typing import Literal

import torch
from torch import Tensor

from vademecum import foundations, language
from vademecum.claims import at_most, claim, equals
from vademecum.language.claims._texts import near_pairs

ROSE = ["a", "rose", "is", "a", "rose", "is", "a", "rose", "is", "red"]
PAIRS = {("a", "rose"): 5, ("a", "is"): 5, ("rose", "is"): 5, ("is", "red"): 1, ("rose", "red"): 1,
         ("a", "a"): 0, ("rose", "rose"): 0, ("is", "is"): 0, ("a", "red"): 0}  # fmt: skip


@claim(
    by="identity",
    sources=("E-203",),
    budget=0.2,
    short=r"\widehat{\mathrm{pmi}}(v, w) ="
    r" \log \frac{C_{vw} C_{\cdot\cdot}}{C_{v\cdot} C_{\cdot w}}",
)
def pmi_from_counts(margins: Literal["pairs", "tokens"] = "pairs"):
    r"""PMI is estimated from counts of co-occurrence.

    With relative frequencies within a window in place of probabilities,
    $\widehat{\mathrm{pmi}}(v, w) = \log \frac{C_{vw} C_{\cdot\cdot}}{C_{v\cdot} C_{\cdot w}}$ with
    the sums of rows and columns and the total of the co-occurrence matrix. It does not change if
    all counts are multiplied by a constant.

    On "a rose is a rose is a rose is red" with the window 2, whose counts are written down by hand,
    and on random texts, counted pair by pair; ratios are fractions. The library's counts are
    sparse, its pmi is taken of sparse and of dense ones.

    Knobs:
        margins: What the frequencies of single words are: those among pairs, or among the tokens of
            the text.
    """
    texts = [
        (ROSE, 2),
        (torch.randint(5, (40,)).tolist(), 3),
        (torch.randint(9, (60,)).tolist(), 1),
    ]
    for text, R in texts:
        pairs = near_pairs(len(text), R)
        at, found = {"T": len(text), "R": R}, language.cooccurrence([text], window=R)
        dense = torch.from_numpy(found.counts.toarray())
        sparse, plain = language.pmi(found.counts).toarray(), language.pmi(dense)
        sevenfold = language.pmi(7 * dense)
        single = text if margins == "tokens" else [text[i] for i, _ in pairs]
        for (i, v), (j, w) in product(enumerate(found.vocabulary), repeat=2):
            count = sum(text[s] == v and text[t] == w for s, t in pairs)
            if text is ROSE and (v, w) in PAIRS:
                yield equals("counts by hand", count, PAIRS[v, w])
            if not count:
                yield equals("pmi of a pair never seen", plain[i, j], -math.inf, tol=0.0, **at)
                continue
            ratio = Fraction(count * len(single), single.count(v) * single.count(w))
            for kind, value in (("dense", plain[i, j]), ("sparse", sparse[i, j]),
                                ("sevenfold", sevenfold[i, j])):  # fmt: skip
                yield equals(f"pmi of {kind} counts", value, math.log(ratio), tol=1e-14, **at)


pmi_from_counts.foil("frequencies among tokens beside counts of pairs", margins="tokens")


def stationary(P: Tensor) -> Tensor:
    """The law that a chain keeps."""
    k = len(P)
    system = torch.cat((P.T - torch.eye(k), torch.ones(1, k)))
    return torch.linalg.lstsq(system, torch.eye(k + 1)[k][:, None]).solution[:, 0].clamp(min=0)


def at_distance(P: Tensor, p: Tensor, d: int, source: str) -> Tensor:
    """The joint law of two words d apart."""
    if source == "two turns":
        return torch.diag(p) if d % 2 == 0 else torch.outer(p, p)
    joint = p[:, None] * torch.linalg.matrix_power(P, d)
    return joint / joint.sum()


@claim(
    by="identity",
    sources=("E-198",),
    budget=0.6,
    short=r"I(X_t; X_{t + d + 1}) \le I(X_t; X_{t + d}) \to 0"
    r"\ \text{for an ergodic Markov source}",
)
def information_decay(
    source: Literal["markov", "two turns", "cycle"] = "markov", rate: float = 0.75, chains: int = 20
):
    r"""Nearby words share more information.

    Words that occur near one another are related more than by chance. For a stationary Markov
    source this is exact: $I(X_t; X_{t + d})$, the mean pmi at distance $d$, never increases with
    $d$, and it tends to 0 for an ergodic aperiodic chain.

    *Proof.* $X_t \to X_{t + d} \to X_{t + d + 1}$, and processing cannot add information. If all
    $k$ transition probabilities of each word are at least $\delta$, a step contracts divergences by
    $1 - k \delta$ (Dobrushin), so $I(X_t; X_{t + d}) \le (1 - k \delta)^d \log k$. Checked for 5
    words and $\delta = 0.05$ up to $d = 60$, also for the lazy chain that stays where it is with
    probability 0.8.

    Knobs:
        source: A Markov chain; two independent words that take turns, which is no Markov chain; or
            a chain that goes round in a circle, which is periodic.
        rate: The contraction by a step.
        chains: How many random chains there are.
    """
    k, delta = 5, 0.05
    lazy = (1 - k * delta) * torch.eye(k) + delta
    drawn = [delta + (1 - k * delta) * torch.distributions.Dirichlet(torch.ones(k)).sample((k,))
             for _ in range(chains)]  # fmt: skip
    distances = torch.arange(1, 61)
    for number, P in enumerate([lazy, *drawn]):
        P = torch.eye(k).roll(1, 1) if source == "cycle" else P
        p = stationary(P)
        joints = torch.stack([at_distance(P, p, d, source) for d in distances.tolist()])
        found = foundations.mutual_information(joints)
        for d, joint in enumerate(joints[:3], 1):
            mean = (joint * language.pmi(joint))[joint > 0].sum()
            yield equals("mean pmi", mean, found[d - 1], tol=1e-12, chain=number, d=d)
        yield at_most("information one step further", found[1:], found[:-1], tol=1e-13,
                      chain=number)  # fmt: skip
        bounds = rate**distances * math.log(k)
        yield at_most("information", found, bounds, tol=1e-13, chain=number)


information_decay.foil("two words that take turns", source="two turns",
                       refuted_by="information one step further")  # fmt: skip
information_decay.foil("a periodic chain", source="cycle", refuted_by="information")
information_decay.foil("a faster contraction", rate=0.5)
