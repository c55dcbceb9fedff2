r"""Descent over texts, block after block, with a rate that falls linearly to almost nothing.

The gradients of a block are summed, all taken at the vectors before it, so that no row may have too
large a share in it. A row moves by about $\eta$ times the number of its pairs in the block. Those
of a frequent word $v$ grow with the length $N$ of the block, $\eta k P q(v)$ of $P$ pairs in all;
those of a word that was drawn from the noise for a piece of $L$ words with $p$ pairs grow with
$L / M$, as $\eta k p / M$. So $N$ is as large as the most frequent word allows, and $M$ as small as
the rate allows.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from vademecum.arrays import one_torch_thread
from vademecum.language._corpora import PORTION, Portion
from vademecum.language.word2vec._feeding import Feed
from vademecum.language.word2vec._passes import Corpus
from vademecum.language.word2vec._steps import LOSSES, STEPS, Table
from vademecum.language.word2vec._windows import piece, stretches
from vademecum.models import Replay
from vademecum.progress import ticking

__all__ = ["Descent", "Options"]

LEAST_RATE = 1e-4  # of the first, where the last step is
SHARE = 30.0  # pairs times rate in a block, of the most frequent word
LUMP = 0.75  # pairs times rate in a piece, of each word drawn from the noise
FINE = 128  # words of a piece up to which lumps are so small; up to four times with longer ones
MEASURED = 16  # blocks whose loss is taken, of those that are put in at a time
LONGEST = {"cpu": 1024, "cuda": 2048}  # words of a block


class Options(NamedTuple):
    """What the estimator was told."""

    d: int
    objective: str
    window: int
    dynamic: bool
    negatives: int
    noise: float
    subsample: float
    epochs: int
    rate: float


class Descent:
    """The vectors of a vocabulary, X and Z, while they are learnt.

    Args:
        corpus: The texts.
        options: What the estimator was told.
        seed: Where random numbers begin.
        device: Where the vectors are.
    """

    def __init__(self, corpus: Corpus, options: Options, seed: int, device: torch.device):
        self.corpus, self.options, self.device = corpus, options, device
        self._rng = np.random.default_rng(seed)
        self._generator = torch.Generator(device).manual_seed(seed)
        V, d = len(corpus.words), options.d
        self.X = Table((self._uniform(V, d) - 0.5) / d)
        self.Z = Table(torch.zeros(V, d, device=device))
        law = corpus.counts / corpus.total
        self._kept = kept(law, options.subsample)
        noise = (law / law.max()) ** options.noise  # also where a power of all would be 0
        self._noise = torch.tensor(noise.cumsum() / noise.sum(), device=device)
        left = law * self._kept
        N, M = self._sizes(float(noise.max() / noise.sum()), float((left / left.sum()).max()))
        blocks = -(-min(PORTION, corpus.total) // N)
        self._feed = Feed(N, options.window, M, options.negatives, blocks, device)
        self._step = Replay(self._learn_block, [self.X.rows, self.Z.rows, self._feed.at])

    def _uniform(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.rand(shape, generator=self._generator, device=self.device, dtype=dtype)

    def _sizes(self, noisiest: float, most: float) -> tuple[int, int]:
        """How many words a block has, and how many words of the noise serve a piece of it."""
        _, objective, c, dynamic, k, *_, eta = self.options
        each = 1 if objective == "cbow" else (c + 1) if dynamic else 2 * c
        busiest = max(0.0 if objective == "softmax" else k * noisiest, 2 * most)
        L = piece(c)
        fits = min(SHARE / (eta * each * busiest), LONGEST.get(self.device.type, 1024))
        N = L * max(1, int(fits) // L)
        lump = LUMP * min(max(1.0, L / FINE), 4.0)
        return N, 8 * max(1, round(eta * k * each * L / lump / 8))

    def run(self, *, progress: bool = False) -> list[float]:
        """Go through all texts as often as asked; the mean loss of each pass.

        Products with a few words take one thread: with two they took a fifth less where nothing
        else ran, and 3 to 28 times as long where something did (d = 100, two cores).
        """
        n, losses = self.corpus.total, []
        threads = nullcontext() if self.options.objective == "softmax" else one_torch_thread()
        with threads, ticking("words", self.options.epochs * n, progress=progress) as tick:
            for epoch in range(self.options.epochs):
                done, found = epoch * n, []
                for stretch, words in self._stretches():
                    found += self._learn(stretch, done, done + words)
                    done += words
                    tick(words)
                total, terms = torch.stack(found).sum(0).tolist() if found else (0.0, 0.0)
                losses.append(total / terms if terms else np.nan)
        return losses

    def _stretches(self) -> Iterator[tuple[Portion, int]]:
        """Stretches of the words that are left when some are dropped at random.

        Each comes with how many words were read for it.
        """
        read = 0

        def left() -> Iterator[Portion]:
            nonlocal read
            for portion in self.corpus.portions():
                read += len(portion.ids)
                chosen = self._rng.random(len(portion.ids)) < self._kept[portion.ids]
                yield Portion(portion.ids[chosen], portion.texts[chosen])

        for stretch in stretches(left(), self.options.window):
            yield stretch, read
            read = 0

    def _learn(self, stretch: Portion, start: int, end: int) -> Iterator[Tensor]:
        """Learn from a stretch; the losses of a few blocks on the way, and how many terms they had.

        The rate falls as if the words that were read, from `start` to `end`, were spread evenly.
        """
        c, feed, total = self.options.window, self._feed, self.options.epochs * self.corpus.total
        words, room = len(stretch.ids) - 2 * c, feed.blocks * feed.N
        for first in range(0, words, room):
            last = min(first + room, words)
            blocks = -(-(last - first) // feed.N)
            part = Portion(*(x[first : last + 2 * c] for x in stretch))
            way = first + feed.N * np.arange(blocks)
            share = (start + (end - start) * way / words) / total
            eta = self.options.rate * np.maximum(1 - share, LEAST_RATE)
            feed.fill(part, self._reach(blocks * feed.N), self._drawn(blocks), eta)
            every = -(-blocks // MEASURED)
            for i in range(blocks):
                if i % every == every // 2:
                    yield self._measure()
                self._step()

    def _measure(self) -> Tensor:
        """The loss of the block that comes next, summed over its terms, and how many it has.

        Both stay on the device, for which nothing waits here.
        """
        block, objective = self._feed.block(), self.options.objective
        terms = ((block.pairs > 0) if objective == "cbow" else block.pairs).sum().double()
        loss = LOSSES[objective](self.X, self.Z, block)
        return torch.stack((torch.where(terms > 0, terms * loss, 0.0), terms))

    def _learn_block(self) -> None:
        STEPS[self.options.objective](self.X, self.Z, self._feed.block())
        self._feed.at += 1

    def _reach(self, n: int) -> Tensor:
        """How far each word reaches: the whole window, or any part of it alike."""
        c = self.options.window
        if not self.options.dynamic:
            return torch.full((n,), c, device=self.device)
        return (self._uniform(n) * c).long() + 1

    def _drawn(self, blocks: int) -> Tensor:
        """Words of the noise law for each piece of each block."""
        pieces = self._feed.N // piece(self.options.window)
        place = self._uniform(blocks, pieces, self._feed.M, dtype=torch.float64)
        found = torch.searchsorted(self._noise, place, right=True)
        return found.clamp_(max=len(self._noise) - 1)


def kept(law: np.ndarray, subsample: float) -> np.ndarray:
    r"""The probabilities $\min\{1, \sqrt{t / p} + t / p\}$ with which words are left in the texts.

    Example:
        >>> kept(np.array([0.16, 0.01]), 0.04).round(2), kept(np.array([0.5]), 0.0)
        (array([0.75, 1.  ]), array([1.]))
    """
    if subsample == 0:
        return np.ones_like(law)
    ratio = subsample / law
    return np.minimum(np.sqrt(ratio) + ratio, 1.0)
