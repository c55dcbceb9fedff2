r"""Rows of word vectors: time to gensim's own score, on texts whose information is known.

A text has one of 100 topics, pairs of two features of ten values each. Words have frequencies as
Zipf's law has them, and some are more frequent under some values, so that the pointwise mutual
information of any two words of a text is known. The score is the rank correlation of what vectors
say of it, $x_w^\top z_v$ less what the noise law adds, with the truth, over pairs of the 2,000
most frequent words. Both sides go through the texts equally often, gensim at its own rate and at
ours, with two workers that read the file themselves; we take one thread. Scores go to standard
error; the row stands only if ours is at least as high as both. Our rate, and how many negatives are
shared by a piece of the text, were chosen on other texts, drawn with the seed 0.
"""

import sys
import tempfile
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from bench.harness import Row, Skipped, in_turn
from vademecum.language import SkipGram

__all__ = ["rows"]

WORDS, FEATURES, LENGTH, POWER = 5000, 10, 50, 0.75
SEED = 1  # of texts on which nothing was chosen
RATES = (0.025, 0.05)  # gensim's default, and ours


def rows(device: torch.device) -> Iterator[Row | Skipped]:
    yield from in_turn(_to_gensims_score(device))


def _to_gensims_score(device: torch.device) -> Iterator[Row]:
    from gensim.models import Word2Vec  # type: ignore[import-not-found]

    for texts, epochs in ((20_000, 3),):
        path = str(_corpus(texts)[0])
        shared: dict[str, Any] = {"min_count": 5, "window": 5, "epochs": epochs}
        model = SkipGram(device=device, random_state=0, **shared)
        name = f"SkipGram to gensim's score, {texts * LENGTH:,} words, {epochs} epochs, d = 100"
        peer = partial(Word2Vec, corpus_file=path, vector_size=100, sg=1, negative=5, sample=1e-3,
                       workers=2, seed=1, **shared)  # fmt: skip
        peers = {f"gensim, 2 workers, rate {rate}": partial(peer, alpha=rate) for rate in RATES}
        yield Row(name, partial(model.fit, path), peers, partial(_as_good, _corpus(texts)[1]),
                  rounds=3)  # fmt: skip


@cache
def _corpus(texts: int) -> tuple[Path, np.ndarray]:
    """A file with texts, and the law of words under each topic."""
    rng = np.random.default_rng(SEED)
    base = 1 / np.arange(1, WORDS + 1)
    shape = (2, WORDS, FEATURES)
    lifts = 2 * rng.random(shape) * (rng.random(shape) < 0.2)
    laws = base * np.exp(lifts[0].T[:, None] + lifts[1].T[None]).reshape(-1, WORDS)
    laws /= laws.sum(1, keepdims=True)
    topics = rng.integers(len(laws), size=texts)
    path = Path(tempfile.mkdtemp()) / "texts.txt"
    with path.open("w") as file:
        for topic in topics:
            drawn = np.searchsorted(laws[topic].cumsum(), rng.random(LENGTH)).clip(max=WORDS - 1)
            file.write(" ".join(f"w{i}" for i in drawn) + "\n")
    return path, laws


def _score(words: list[str], x: np.ndarray, z: np.ndarray, laws: np.ndarray) -> float:
    rng = np.random.default_rng(1)
    one, other = rng.integers(min(2000, len(words)), size=(2, 100_000))
    ids = np.array([int(word[1:]) for word in words])
    w, v, p = ids[one], ids[other], laws.mean(0)
    information = np.log((laws[:, w] * laws[:, v]).mean(0) / (p[w] * p[v]))
    scores = (x[one] * z[other]).sum(1) - (1 - POWER) * np.log(p[v])
    found: Any = spearmanr(scores, information)
    return float(found.statistic)


def _as_good(laws: np.ndarray, ours: SkipGram, theirs: Any) -> None:
    x, z = ours.vectors_.cpu().numpy(), ours.contexts_.cpu().numpy()
    mine = _score(list(ours.words_), x, z, laws)
    peer = _score(theirs.wv.index_to_key, theirs.wv.vectors, theirs.syn1neg, laws)
    found = f"our score is {mine:.3f}, gensim's {peer:.3f} at rate {theirs.alpha}"
    print(found, file=sys.stderr)
    assert mine >= peer, found
