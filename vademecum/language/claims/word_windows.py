"""Windows around words: all pairs within reach, taken as independent and unordered."""

import math
from itertools import pairwise, permutations
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from vademecum.claims import at_least, claim, equals
from vademecum.language.claims._blocks import ascent, block_of, loss, pairs_of


@claim(
    by="identity",
    sources=("E-215", "E-216"),
    budget=0.4,
    short=r"C_c = \{(t, s) : 0 < |s - t| \le c\}:\ \text{from each word } w_t \text{ all } 2c"
    r" \text{ around it}",
)
def skip_gram(objective: Literal["sgns", "cbow"] = "sgns", extra: int = 0):
    r"""Skip-gram predicts each neighbour from the word in the middle.

    For each place $t$ the words $w_{t-c}, \dots, w_{t-1}, w_{t+1}, \dots, w_{t+c}$ are predicted
    from $w_t$: its vector is looked up, and there is one prediction for each place, with the same
    output vectors for all. A place with $c$ words on either side has exactly $2 c$ pairs, and one
    near an end of its text as many as there are words.

    The pairs are those of the blocks that `SkipGram` works on. How often a word is predicted is
    read off its step: with $x = e$ for all words and $z = 0$ the gradient in $z_v$ along $e$ is
    half the number of predictions of $v$; the noise is a word that does not occur.

    Knobs:
        objective: Which predictions are counted.
        extra: How much farther than $c$ the list of pairs reaches.
    """
    for lengths, c in (((8,), 2), ((5, 9, 1), 3), ((40,), 5)):
        starts = np.cumsum((0, *lengths))
        texts = [list(range(a, b)) for a, b in pairwise(starts)]
        n, at = int(starts[-1]), {"c": c, "words": int(starts[-1])}
        wanted = pairs_of(texts, c + extra)
        block = block_of(texts, c, noise=(n,))
        piece, here, there = block.band.nonzero().T
        L = block.band.shape[1]
        found = torch.stack((piece * L + here, piece * L + there - c), 1)
        yield equals("pairs", len(found), len(wanted), **at)
        yield equals("words of the pairs", found[: len(wanted)].tolist(), wanted, **at)
        ones, zeros = torch.ones(n + 1, 1), torch.zeros(n + 1, 1)
        times = 2 * ascent(objective, ones, zeros, block)[1][:n, 0]
        counts = np.bincount([v for _, v in wanted], minlength=n)
        yield equals("how often a word is predicted", times, counts, tol=1e-9, **at)
        middle = [v for text in texts for v in text[c : len(text) - c]]
        yield equals("pairs within a text", times[middle], 2.0 * c, tol=1e-9, **at)


skip_gram.foil("each word once, from the sum of its window", objective="cbow",
               refuted_by="how often a word is predicted")  # fmt: skip
skip_gram.foil("a window that reaches one farther", extra=1, refuted_by="pairs")


def window_loss(window: list[int], X: Tensor, Z: Tensor, outputs: str) -> float:
    """The loss of the middle word's window, by `SkipGram`, or with output vectors by place."""
    middle = len(window) // 2
    if outputs == "shared":
        reach = [middle if t == middle else 0 for t in range(len(window))]
        return loss("softmax", X, Z, block_of([window], middle, reach=reach))
    total = 0.0
    for s, word in enumerate(window):
        if s != middle:
            turned = Z.roll(s, 1)  # other vectors for each place
            total -= float((turned @ X[window[middle]]).log_softmax(0)[word])
    return total


@claim(
    by="identity",
    sources=("E-217", "E-218"),
    budget=0.7,
    short=r"P(w_{t-c}, \dots, w_{t+c} \mid w_t) = \prod_s P(w_s \mid w_t):"
    r"\ \text{order is ignored}",
)
def context_independence(outputs: Literal["shared", "by place"] = "shared", chain: float = 1.0):
    r"""Skip-gram takes the words of a window for independent and unordered.

    It assumes $W_i \perp W_j \mid W_t$ for different places in the window of $t$: the probability
    of a window is the product over its words, so that its loss does not change when they are
    permuted. Order is ignored on purpose; only the meaning of the middle word matters. Of texts the
    assumption is false: in a Markov chain $W_{t+1}$ and $W_{t+2}$ have positive mutual information
    given $W_t$, exactly $\sum_i p_i \sum_{jk} a_{ij} a_{jk} \log (a_{jk} / (a^2)_{ik})$.

    Losses are those of `SkipGram`: for 4 words all 16 windows with two neighbours of each word, and
    the 24 orders of a window with four.

    Knobs:
        outputs: Whether all places share their output vectors.
        chain: How far the chain is from independent words; at 0 each row is the same.
    """
    X, Z = torch.randn(4, 3), torch.randn(4, 3)
    for w in range(4):
        P = torch.tensor([[math.exp(-window_loss([a, w, b], X, Z, outputs)) for b in range(4)]
                          for a in range(4)])  # fmt: skip
        yield equals("probability of all windows", P.sum(), 1.0, tol=1e-13, word=w)
        product_ = P.sum(1)[:, None] * P.sum(0)
        yield equals("probability of a window", P, product_, tol=1e-13, word=w)
    X, Z = torch.randn(5, 3), torch.randn(5, 3)
    losses = [window_loss([a, b, 4, c, d], X, Z, outputs) for a, b, c, d in permutations(range(4))]
    yield equals("loss of a permuted window", torch.tensor(losses), losses[0], tol=1e-13)
    for V in (3, 5):
        rows = (1 + chain * 4 * torch.rand(V, V)) if chain else torch.ones(V, V)
        a = rows / rows.sum(1, keepdim=True)
        p = torch.linalg.matrix_power(a, 200)[0]
        joint = p[:, None, None] * a[:, :, None] * a[None]  # W_t, W_t+1, W_t+2
        given = joint / p[:, None, None]
        split = given.sum(2, keepdim=True) * given.sum(1, keepdim=True)
        information = float((joint * (given / split).log()).sum())
        yield at_least("information between neighbours", information, 1e-4, V=V)
        formula = (joint * (a[None] / (a @ a)[:, None]).log()).sum()
        yield equals("the same by the formula", information, formula, tol=1e-12, V=V)


context_independence.foil("output vectors of their own for each place", outputs="by place",
                          refuted_by="loss of a permuted window")  # fmt: skip
context_independence.foil("texts of independent words", chain=0.0)
