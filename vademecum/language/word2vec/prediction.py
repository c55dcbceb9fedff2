r"""Vectors of words that predict their neighbours: skip-gram and continuous bag of words.

Each word $w$ has a vector $x_w$ as evidence and a vector $z_w$ as what is predicted. The word at
place $t$ has a window of $r_t$ words on either side, with $r_t$ uniform on $1, \dots, c$ so that
near words count more. Over all pairs $(t, s)$ of a place and one in its window, what is maximised
is

- of `sgns`, $\sum_{(t, s)} \log \sigma(x_{w_t}^\top z_{w_s})
  + k\, \mathbb E_{v \sim q} \log \sigma(-x_{w_t}^\top z_v)$,
- of `softmax`, $\sum_{(t, s)} x_{w_t}^\top z_{w_s} - \log \sum_v \exp(x_{w_t}^\top z_v)$,
- of `cbow`, $\sum_t \log \sigma(h_t^\top z_{w_t})
  + k\, \mathbb E_{v \sim q} \log \sigma(-h_t^\top z_v)$, with $h_t$ the mean of $x_{w_s}$ over the
  window,

with the noise law $q(v) \propto p(v)^{0.75}$ of the words' frequencies $p$. Before that words are
dropped at random, and one of frequency $p$ is left with probability
$\min\{1, \sqrt{\tau / p} + \tau / p\}$. The gradients are those of these sums, of a block of words
at a time; words drawn from the noise serve a whole piece of it, 16 words or more
(`vademecum.language.word2vec._steps`). The optimum of `sgns` with free scores is
$x_w^\top z_v = \log \frac{P(v \mid w)}{k\, q(v)}$, a shifted pointwise mutual information (the
claim `sgns_optimum`).
"""

from typing import Any

import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vademecum.arguments import choice, number, whole
from vademecum.language.word2vec._descent import Descent, Options
from vademecum.language.word2vec._passes import read_corpus
from vademecum.language.word2vec.vocabularies import Neighbours, WordVectors

__all__ = ["SkipGram"]


class SkipGram(BaseEstimator):
    r"""Word vectors by predicting a word's neighbours, from texts of any number and length.

    Args:
        d: How many entries a vector has.
        objective: "sgns" (negative sampling), "softmax" (exact, for small vocabularies: each pair
            costs as much as there are words) or "cbow" (a word from the mean of its window).
        window: The farthest neighbours $c$.
        dynamic: Whether each window's reach is drawn, from 1 to `window`; else all are whole.
        negatives: The $k$ words of the noise that each pair is set against.
        noise: The power of the frequencies that the noise is proportional to.
        subsample: The frequency $\tau$ above which words are often dropped; 0 drops none.
        min_count: Rarer words are left out of the texts, as if they were not there.
        epochs: How often the texts are gone through.
        rate: The rate at first; it falls linearly, to a ten-thousandth.
        device: Where the vectors are learnt; torch's default device if None.
        memory: Bytes to use at most beyond inputs and result; None chooses what is fastest. They
            hold the texts as numbers, 8 for each word, without a limit given up to 2**30; longer
            texts are read again in each epoch.
        progress: Whether to show a progress bar on standard error.
        random_state: Where random numbers come from, as in scikit-learn. On CUDA devices sums are
            added up in any order: the same seed gives the same vectors but for rounding.

    Attributes:
        words_: The vocabulary, the most frequent word first.
        counts_: How often each occurs.
        vectors_: The vectors $x$, (V, d).
        contexts_: The vectors $z$ of what is predicted, (V, d).
        losses_: Minus the objective, for each pair (of `cbow`, word), as an epoch met it: the mean
            over a few blocks.
        n_iter_: The number of epochs.

    References:
        Mikolov, Chen, Corrado and Dean, Efficient estimation of word representations in vector
        space, ICLR workshop, 2013.
        Mikolov, Sutskever, Chen, Corrado and Dean, Distributed representations of words and phrases
        and their compositionality, NeurIPS, 2013.
        Ji, Satish, Li and Dubey, Parallelizing word2vec in shared and distributed memory, IEEE
        Transactions on Parallel and Distributed Systems, 2019.

    Example:
        >>> texts = 50 * ["red apple", "red cherry", "blue sea", "blue sky"]
        >>> model = SkipGram(d=2, subsample=0, epochs=20, random_state=0).fit(texts)
        >>> model.words_, model.counts_.tolist()
        (('red', 'blue', 'apple', 'cherry', 'sea', 'sky'), [100, 100, 50, 50, 50, 50])
        >>> model.neighbours("apple", 1).words
        ('cherry',)
    """

    def __init__(
        self,
        *,
        d=100,
        objective="sgns",
        window=5,
        dynamic=True,
        negatives=5,
        noise=0.75,
        subsample=1e-3,
        min_count=5,
        epochs=5,
        rate=0.05,
        device=None,
        memory=None,
        progress=False,
        random_state=None,
    ):
        self.d = d
        self.objective = objective
        self.window = window
        self.dynamic = dynamic
        self.negatives = negatives
        self.noise = noise
        self.subsample = subsample
        self.min_count = min_count
        self.epochs = epochs
        self.rate = rate
        self.device = device
        self.memory = memory
        self.progress = progress
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    def fit(self, texts: Any, y: Any = None) -> "SkipGram":
        """Learn the vectors of the words of texts.

        Args:
            texts: A path to a file with a text on each line, texts, or a function that gives an
                iterator over texts, anew each time. A text is a string of words with spaces
                between them, or a list of words. What can be gone through only once will do while
                it fits into the memory.
            y: Ignored.

        Raises:
            ValueError: If there are no words, all are too rare, what is given is no text, or a
                parameter is out of range.
        """
        options = self._options()
        device = torch.device(self.device or torch.get_default_device())
        corpus = read_corpus(texts, min_count=self.min_count, memory=self.memory)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        descent = Descent(corpus, options, seed, device)
        self.losses_ = descent.run(progress=bool(self.progress))
        vectors, contexts = descent.X.rows, descent.Z.rows
        if not (vectors.isfinite().all() and contexts.isfinite().all()):
            raise ValueError(f"rate must be smaller for these texts, got {self.rate}: overflow")
        self.words_, self.counts_ = tuple(corpus.words), corpus.counts
        self.vectors_, self.contexts_ = vectors, contexts
        self.n_iter_ = self.epochs
        self._known = WordVectors(self.words_, self.vectors_)
        return self

    def transform(self, words: Any) -> Tensor:
        """The vectors of words, (n, d).

        Raises:
            ValueError: If a word is unknown, or a single string is given.
        """
        check_is_fitted(self)
        if isinstance(words, str):
            raise ValueError(f"words must be a list of words, got {words!r}")
        return self.vectors_[[self._known.place(word) for word in words]]

    def neighbours(self, word: str, k: int = 10) -> Neighbours:
        """The k words nearest to a word, as `WordVectors.neighbours` finds them."""
        check_is_fitted(self)
        return self._known.neighbours(word, k)

    def analogy(self, a: str, b: str, c: str, k: int = 10) -> Neighbours:
        """The k words that are to c what b is to a, as `WordVectors.analogy` finds them."""
        check_is_fitted(self)
        return self._known.analogy(a, b, c, k)

    def _options(self) -> Options:
        whole("min_count", self.min_count, low=1)
        if self.memory is not None:
            whole("memory", self.memory, low=0)
        return Options(
            d=whole("d", self.d, low=1),
            objective=choice("objective", self.objective, ("sgns", "softmax", "cbow")),
            window=whole("window", self.window, low=1, high=1000),
            dynamic=bool(self.dynamic),
            negatives=whole("negatives", self.negatives, low=1),
            noise=number("noise", self.noise, low=0.0),
            subsample=number("subsample", self.subsample, low=0.0),
            epochs=whole("epochs", self.epochs, low=1),
            rate=number("rate", self.rate, above=0.0, high=10.0),
        )
