"""The company that words keep: pairs within a window, and the matrix that counts them."""

from fractions import Fraction
from typing import Literal

import numpy as np
import torch

from vademecum import language
from vademecum.claims import at_least, at_most, claim, equals
from vademecum.language.claims._texts import counted, near_pairs


@claim(
    by="identity",
    sources=("E-204", "E-205"),
    budget=0.5,
    short=r"C_R = \{(i, j) : 1 \le |i - j| \le R\},\quad |C_R| = 2RT - R(R + 1)\ (T > R)",
)
def cooccurrence_pairs(corrected: float = 1.0, least: int = 1, sides: int = 2):
    r"""Positions co-occur that are at most a window apart.

    For a text $(w_1, \dots, w_T)$ and a window $R$ these are the pairs
    $C_R = \{(i, j) : 1 \le |i - j| \le R\}$, regardless of the words in between: symmetric, without
    the diagonal, and $2 R T - R (R + 1)$ ordered pairs for $T > R$, else $T (T - 1)$.

    *Proof.* Each distance $r \le R$ occurs $T - r$ times in each order, and
    $2 \sum_{r \le R} (T - r) = 2 R T - R (R + 1)$. Texts whose words are all different show the
    pairs themselves; checked for $T$ up to 12 and $R$ up to 5.

    Knobs:
        corrected: How much of $R (R + 1)$ is subtracted for the pairs that reach beyond the ends.
        least: The least distance of a pair.
        sides: Whether pairs have both orders, 2, or one.
    """
    found = language.cooccurrence(["a b c d"], window=2)
    by_hand = ["ab", "ac", "ba", "bc", "bd", "ca", "cb", "cd", "db", "dc"]
    rows, columns = found.counts.nonzero()
    words = sorted(
        found.vocabulary[i] + found.vocabulary[j] for i, j in zip(rows, columns, strict=True)
    )
    yield equals("pairs of 'a b c d' that are not those by hand",
                 len(set(words) ^ set(by_hand)), 0)  # fmt: skip
    for T in range(1, 13):
        for R in range(1, 6):
            counts = language.cooccurrence(torch.arange(T), window=R).counts.toarray()
            pairs = np.zeros((T, T), dtype=int)
            for i, j in near_pairs(T, R, least):
                pairs[i, j] += i < j or sides == 2 or i == j
            yield equals("pairs of positions", counts, pairs, T=T, R=R)
            number = sides * R * T - corrected * R * (R + 1) if T > R else T * (T - 1)
            yield equals("number of pairs", int(counts.sum()), int(number), T=T, R=R)


cooccurrence_pairs.foil("no correction at the ends", corrected=0.0)
cooccurrence_pairs.foil("half of the correction", corrected=0.5)
cooccurrence_pairs.foil("a position co-occurs with itself", least=0)
cooccurrence_pairs.foil("words before only", sides=1)


@claim(
    by="identity",
    sources=("E-206", "E-207"),
    budget=0.4,
    short=r"C_{vw} = |\{(i, j) \in C_R : w_i = v, w_j = w\}| = C_{wv},\quad"
    r" \sum C_{vw} = |C_R|",
)
def cooccurrence_matrix(contexts: Literal["both", "right"] = "both"):
    r"""The co-occurrence matrix counts near pairs of positions by their words.

    $C \in \mathbb N^{V \times V}$ counts for each ordered pair of words the pairs of positions in
    $C_R$ that carry them: $C = C^\top$, since the window is symmetric; its entries sum to $|C_R|$;
    and $C = \sum_{r = 1}^R (M_r + M_r^\top)$ with the lag matrices
    $M_r = O_{1 : T - r}^\top O_{1 + r : T}$ of the text's one-hot matrix $O$.

    Random texts of words and of ids, counted pair by pair in both ways; several lines, whose
    matrices add up; the library reads them from a list and from an iterator. With weights
    $1 / |i - j|$ each $M_r$ is divided by $r$.

    Knobs:
        contexts: Which of the words near a word are counted.
    """
    for T, R, V in ((60, 3, 5), (45, 7, 8), (4, 6, 3)):
        lines, at = torch.randint(V, (3, T)), {"T": T, "R": R, "V": V}
        counts = language.cooccurrence(lines, window=R, vocabulary=V).counts.toarray()
        by_hand, lags = np.zeros((V, V), dtype=int), torch.zeros(2, V, V)
        for line in lines:
            pairs = [(i, j) for i, j in near_pairs(T, R) if contexts == "both" or i < j]
            for (v, w), c in counted(line.tolist(), pairs).items():
                by_hand[v, w] += c
            one_hot = torch.nn.functional.one_hot(line, V).double()
            for r in range(1, min(R, T - 1) + 1):
                lag = one_hot[:-r].T @ one_hot[r:]
                both = lag + lag.T if contexts == "both" else lag
                lags += torch.stack((both, both / r))
        yield equals("counts, pair by pair", counts, by_hand, **at)
        yield equals("counts, by lag matrices", counts, lags[0].long().numpy(), **at)
        yield equals("counts against their transpose", by_hand, by_hand.T, **at)
        total = 3 * (2 * R * T - R * (R + 1) if T > R else T * (T - 1))
        yield equals("sum of all counts", int(by_hand.sum()), total, **at)
        near = language.cooccurrence(lines, window=R, weighting="harmonic", vocabulary=V).counts
        yield equals("weighted counts", near.toarray(), lags[1], tol=1e-12, **at)
        words = (["word" + str(token) for token in line] for line in lines.tolist())
        order = ["word" + str(token) for token in range(V)]
        read = language.cooccurrence(words, window=R, vocabulary=order).counts.toarray()
        yield equals("counts of words from an iterator", read, counts, **at)


cooccurrence_matrix.foil("only words behind are counted", contexts="right",
                         refuted_by="counts against their transpose")  # fmt: skip


@claim(
    by="identity",
    sources=("E-226",),
    budget=0.3,
    short=r"\frac{P(v | w)}{P(w | v)} = \frac{C_{v\cdot}}{C_{w\cdot}}"
    r"\quad \text{although}\ C_{vw} = C_{wv}",
)
def asymmetric_conditionals(ratio: Literal["C_v / C_w", "C_w / C_v", "1"] = "C_v / C_w"):
    r"""Symmetric counts have asymmetric conditionals.

    The joint estimate $C / C_{\cdot\cdot}$ is symmetric, but $P(v | w) = C_{vw} / C_{\cdot w}$
    differs from $P(w | v)$ wherever the pair occurs and the two frequencies differ:
    $P(v | w) / P(w | v) = C_{v\cdot} / C_{w\cdot}$.

    Random texts; conditionals are the shares of a word among all words near another, counted pair
    by pair in fractions.

    Knobs:
        ratio: What the ratio of the two conditionals is to be.
    """
    for T, R, V in ((50, 2, 6), (80, 4, 5)):
        text, at = torch.randint(V, (T,)) * torch.randint(2, (T,)), {"T": T, "R": R}
        text = text.tolist()
        found = language.cooccurrence([text], window=R, vocabulary=V).counts.toarray()
        yield equals("joint counts against their transpose", found, found.T, **at)
        sums = [int(total) for total in found.sum(1)]
        near = counted(text, near_pairs(T, R))
        ratios, wanted, gaps = [], [], []
        for (v, w), c in near.items():
            given_w = Fraction(c, sum(n for (_, b), n in near.items() if b == w))
            given_v = Fraction(c, sum(n for (a, _), n in near.items() if a == v))
            ratios.append(float(given_w / given_v))
            right = {"C_v / C_w": Fraction(sums[v], sums[w]), "1": Fraction(1),
                     "C_w / C_v": Fraction(sums[w], sums[v])}[ratio]  # fmt: skip
            wanted.append(float(right))
            gaps.append(float(abs(given_w - given_v)))
        yield equals("ratio of the conditionals", ratios, wanted, tol=0.0, **at)
        yield at_least("largest difference of conditionals", max(gaps), 1 / sum(sums) ** 2,
                       tol=0.0, **at)  # fmt: skip


asymmetric_conditionals.foil("symmetric conditionals", ratio="1")
asymmetric_conditionals.foil("the ratio upside down", ratio="C_w / C_v")


def share_of_largest(p: torch.Tensor, cells: int) -> torch.Tensor:
    """Which pairs are the likeliest, as many as there are cells."""
    likely = torch.outer(p, p).flatten()
    largest = torch.zeros(len(likely), dtype=torch.bool)
    largest[likely.topk(cells).indices] = True
    return largest.unflatten(0, (len(p), len(p)))


def zipf_share(n: int, cells: int) -> float:
    """The share of the likeliest cells for p(r) ~ 1 / r: those whose product of ranks is least."""
    harmonic = sum(1 / r for r in range(1, n + 1))
    of_product = np.bincount(np.outer(np.arange(1, n + 1), np.arange(1, n + 1)).ravel())
    products = np.arange(len(of_product))
    room = np.clip(cells - (np.cumsum(of_product) - of_product), 0, of_product)
    return float((room[1:] / products[1:]).sum() / harmonic**2)


@claim(
    by="sampling",
    sources=("E-208", "E-209"),
    budget=0.9,
    short=r"\mathrm{nnz}(C) \le \min(V^2, 2RT - R(R + 1));\ \text{Zipf: } 1\%"
    r"\text{ of cells hold } 62\%",
)
def cooccurrence_sparsity(law: Literal["zipf", "uniform"] = "zipf", orders: int = 2):
    r"""The co-occurrence matrix is sparse and heavy-tailed.

    At most $\min(V^2, 2 R T - R (R + 1))$ entries are not zero for $T > R$, so for a large
    vocabulary almost all are zero; a text without repetitions has as many. Counts are peaky: for
    independent words of Zipf's law $p_r \propto 1 / r$ over 1000 words, the likeliest one percent
    of cells hold 62 % of the expected count (1 % for uniform words), which is why counts are
    reweighted by logarithms, pmi or tf-idf.

    The cells are $p_v p_w$, largest where the product of the two ranks is least, so their share is
    a sum over products of ranks: 0.6196. The share of the counts of 50,000 drawn pairs lies within
    five standard errors of it. A text of $10^5$ words of $10^4$ has a density of at most 0.004.

    Knobs:
        law: The law of the words.
        orders: How many orders of a pair the bound counts.
    """
    V, T, R = 10_000, 100_000, 2

    def drawn(size: int, *shape: int) -> torch.Tensor:
        p = 1 / torch.arange(1.0, size + 1) ** (law == "zipf")
        return torch.searchsorted((p / p.sum()).cumsum(0), torch.rand(*shape)).clamp(max=size - 1)

    text = language.cooccurrence(drawn(V, T), window=R, vocabulary=V).counts
    yield at_most("density", text.nnz / V**2, (orders * R * T - orders * R * (R + 1) / 2) / V**2)
    yield at_most("density, in numbers", text.nnz / V**2, 0.004, tol=0.0)
    for length, window in ((300, 2), (40, 5)):
        bound = orders * window * length - orders * window * (window + 1) // 2
        found = language.cooccurrence(torch.arange(length), window=window).counts.nnz
        yield equals("entries of a text without repetitions", found, bound, T=length, R=window)
    few = language.cooccurrence(torch.randint(3, (200,)), window=4, vocabulary=3).counts
    yield at_most("entries of a text of 3 words", few.nnz, 9)
    n, cells, pairs = 1000, 10_000, 50_000
    share = zipf_share(n, cells)
    yield equals("share of the likeliest cells", share, 0.6196, tol=1e-4)
    counts = language.cooccurrence(drawn(n, pairs, 2), window=1, vocabulary=n).counts.tocoo()
    p = 1 / torch.arange(1.0, n + 1)
    largest = share_of_largest(p / p.sum(), cells).numpy()
    held = float(counts.data[largest[counts.row, counts.col]].sum() / counts.sum())
    error = 5 * (share * (1 - share) / pairs) ** 0.5
    yield equals("share of the counts that they hold", held, share, tol=error / (1 + share))


cooccurrence_sparsity.foil(
    "uniform words have no heavy tail", law="uniform",
    refuted_by="share of the counts that they hold",
    close="five standard errors of 50,000 pairs are 0.01",
)  # fmt: skip
cooccurrence_sparsity.foil("a bound that counts one order", orders=1,
                           refuted_by="entries of a text without repetitions")  # fmt: skip
