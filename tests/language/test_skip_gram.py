"""Word vectors by prediction: laws of what is drawn, losses, what is learnt, mistakes."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from vademecum.language import SkipGram
from vademecum.language.word2vec._descent import Descent
from vademecum.language.word2vec._passes import read_corpus
from vademecum.language.word2vec._windows import piece


def descent(texts, **options):
    model = SkipGram(min_count=1, **options)
    corpus = read_corpus(texts, min_count=1, memory=None)
    return Descent(corpus, model._options(), 0, torch.device("cpu"))


def test_words_of_the_noise_and_reaches_follow_their_laws():
    texts = [["a"] * 160 + ["b"] * 81 + ["c"] * 16 + ["d"]]
    run = descent(texts, d=2, window=4)
    found = run._drawn(2000)
    assert found.shape == (2000, run._feed.N // piece(4), run._feed.M)  # each piece has its own
    drawn = np.bincount(found.flatten(), minlength=4)
    law = np.array([160, 81, 16, 1]) ** 0.75
    assert chisquare(drawn, drawn.sum() * law / law.sum()).pvalue > 1e-6
    reach = np.bincount(run._reach(20_000))[1:]
    assert len(reach) == 4
    assert chisquare(reach).pvalue > 1e-6
    assert descent(texts, window=4, dynamic=False)._reach(9).tolist() == [4] * 9


@pytest.mark.parametrize(
    ("window", "rate", "wanted"), [(5, 0.05, 0.75), (20, 0.02, 0.75), (5, 1.0, 0.75), (300, 0.1, 3)]
)
def test_no_word_of_the_noise_moves_far_in_a_piece(window, rate, wanted):
    """Its pairs times the rate: k times those of the piece, shared by all that were drawn."""
    run = descent([["a", "b"]], window=window, rate=rate, negatives=5, d=1)
    moved = rate * 5 * piece(window) * (window + 1) / run._feed.M
    assert math.isclose(moved, wanted, rel_tol=0.05)


def test_noise_of_any_power_is_a_law():
    run = descent([["a"] * 3 + ["b"] * 2], noise=5000.0)
    assert (run._drawn(5) == 0).all()
    assert run._noise.isfinite().all()


def test_frequent_words_are_dropped():
    """With t = 0.01 a word of share p stays with probability sqrt(t/p) + t/p: 0.11 and 0.5, 1."""
    counts = {"a": 81_000, "b": 10_000, "c": 9_000}
    run = descent([[word] * n for word, n in counts.items()], subsample=0.0025)
    left = [np.bincount(s.ids[5:-5], minlength=3) for s, _ in run._stretches()]
    for found, n in zip(np.sum(left, 0), counts.values(), strict=True):
        p = n / 1e5
        kept = math.sqrt(0.0025 / p) + 0.0025 / p
        assert abs(found - n * kept) < 5 * math.sqrt(n * kept * (1 - kept))


def topics(n, *, words=40, length=12, share=4.0):
    """Texts on one of four topics, and the true pointwise mutual information of their words."""
    rng = np.random.default_rng(0)
    base = 1 / np.arange(4, words + 4)
    law = base * np.where(np.arange(words) % 4 == np.arange(4)[:, None], share, 1.0)
    law /= law.sum(1, keepdims=True)
    drawn = [rng.choice(words, length, p=law[t]) for t in rng.integers(4, size=n)]
    joint, p = law.T @ law / 4, law.mean(0)
    return [[f"w{i}" for i in text] for text in drawn], np.log(joint / (p * p[:, None]))


@pytest.mark.parametrize("objective", ["sgns", "softmax", "cbow"])
def test_skip_gram_learns_the_information_between_words(objective):
    texts, pmi = topics(2500)
    epochs = {"cbow": 8}.get(objective, 4)
    knobs: dict[str, Any] = {"d": 8, "subsample": 0, "epochs": epochs, "random_state": 1}
    model = SkipGram(objective=objective, noise=1.0, **knobs).fit(texts)
    order = [int(word[1:]) for word in model.words_]
    wanted = pmi[np.ix_(order, order)]
    x, z = model.vectors_.numpy(), model.contexts_.numpy()
    if objective == "sgns":  # by how much more information words of one topic have
        scores, gap = x @ z.T, wanted[wanted > 0].mean() - wanted[wanted < 0].mean()
        assert abs(scores[wanted > 0].mean() - scores[wanted < 0].mean() - gap) < 0.2
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosines = unit @ unit.T
    same = wanted > 0
    np.fill_diagonal(same, False)
    assert cosines[same].mean() > cosines[wanted < 0].mean() + 0.3
    assert model.losses_[-1] < model.losses_[0] + 0.05
    assert len(model.losses_) == model.n_iter_ == epochs


@pytest.mark.parametrize(("objective", "terms"), [("sgns", 60), ("softmax", 60), ("cbow", 30)])
def test_losses_are_weighed_by_their_terms(objective, terms):
    """Ten texts of three words have thirty words and sixty pairs; a text of one word has none."""
    knobs: dict[str, Any] = {"objective": objective, "dynamic": False, "subsample": 0}
    run = descent([["a", "b", "c"]] * 10 + [["d"]], rate=1e-9, **knobs)
    found = [loss for stretch, _ in run._stretches() for loss in run._learn(stretch, 0, 31)]
    total, count = torch.stack(found).sum(0).tolist()
    assert count == terms
    each = math.log(4) if objective == "softmax" else 6 * math.log(2)  # of scores that are zero
    assert math.isclose(total, terms * each, rel_tol=1e-6)


def test_blocks_without_pairs_have_no_part_in_losses():
    texts = [["a"]] * 5000 + [["a", "b"]] * 5000
    model = SkipGram(d=2, epochs=2, subsample=0, random_state=0).fit(texts)
    assert all(0 < loss < 6 for loss in model.losses_)
    assert np.isnan(SkipGram(d=2, epochs=1, min_count=1).fit([["a"], ["b"]]).losses_[0])


@pytest.mark.parametrize("V", [5, 30])
def test_the_loss_of_independent_words_is_known(V):
    """With the words' own law as noise the best score is -log k: the loss is that of k to 1.

    Few words come often in a block; still no epoch swings above the loss at the beginning.
    """
    rng = np.random.default_rng(3)
    texts = [[f"w{i}" for i in rng.integers(V, size=40)] for _ in range(400)]
    model = SkipGram(d=4, noise=1.0, subsample=0, random_state=0, negatives=3).fit(texts)
    wanted = math.log(4) + 3 * math.log(4 / 3)
    assert abs(model.losses_[-1] - wanted) < 0.1
    assert max(model.losses_) < 4 * math.log(2)


@pytest.mark.parametrize("objective", ["sgns", "softmax", "cbow"])
def test_the_same_seed_gives_the_same_vectors_also_when_texts_are_read_again(objective):
    texts = topics(60)[0]
    knobs: dict[str, Any] = {"d": 3, "epochs": 2, "min_count": 1, "objective": objective}
    first = SkipGram(random_state=5, **knobs).fit(texts)
    again = SkipGram(random_state=5, memory=0, **knobs).fit(lambda: iter(texts))
    other = SkipGram(random_state=6, **knobs).fit(texts)
    assert torch.equal(first.vectors_, again.vectors_)
    assert not torch.equal(first.vectors_, other.vectors_)


def test_one_long_text_loses_no_words():
    words = [f"w{i % 50}" for i in range(30_000)]
    model = SkipGram(d=2, epochs=1, random_state=0).fit([words])
    assert model.counts_.sum() == 30_000
    assert model.neighbours("w0", 3).words  # far words of a long text have been seen, too
    assert (model.contexts_.norm(dim=1) > 0).all()


@pytest.mark.parametrize("rate", [0.05, 1.0])
@pytest.mark.parametrize("objective", ["sgns", "softmax", "cbow"])
def test_few_words_that_come_often_stay_finite(objective, rate):
    texts = [["a", "b", "a", "a", "c"] * 20] * 20
    model = SkipGram(d=3, objective=objective, rate=rate, subsample=0, random_state=0).fit(texts)
    assert model.vectors_.isfinite().all()
    assert model.contexts_.norm(dim=1).max() < 100


def test_transform_and_analogy():
    model = SkipGram(d=3, epochs=1, min_count=1, random_state=0).fit(topics(30)[0])
    assert torch.equal(model.transform(["w3"])[0], model.vectors_[model.words_.index("w3")])
    assert len(model.analogy("w0", "w1", "w2", 4).words) == 4
    with pytest.raises(ValueError, match="words must be a list of words, got 'w3'"):
        model.transform("w3")
    with pytest.raises(ValueError, match="word must be in the vocabulary"):
        model.transform(["nothing like it"])
    fresh: Any = clone(model)
    assert fresh.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        fresh.neighbours("w0")


TEXTS = [["a", "b", "a"]]
MISTAKES = [
    ({"d": 0}, TEXTS, "d must be >= 1, got 0"),
    ({"objective": "nce"}, TEXTS, "objective must be one of 'sgns', 'softmax', 'cbow', got 'nce'"),
    ({"window": 0}, TEXTS, "window must be >= 1, got 0"),
    ({"negatives": 0}, TEXTS, "negatives must be >= 1, got 0"),
    ({"noise": -1.0}, TEXTS, "noise must be >= 0, got -1.0"),
    ({"subsample": -0.1}, TEXTS, "subsample must be >= 0, got -0.1"),
    ({"rate": 0.0}, TEXTS, "rate must be > 0, got 0.0"),
    ({"rate": 1e9}, TEXTS, "rate must be <= 10, got 1000000000.0"),
    ({"epochs": 1.5}, TEXTS, "epochs must be an integer, got 1.5"),
    ({"memory": -1}, TEXTS, "memory must be >= 0, got -1"),
    ({"min_count": 0}, TEXTS, "min_count must be >= 1, got 0"),
    (
        {"min_count": 3},
        TEXTS,
        "min_count must leave some words, got 3 where the most frequent,",
    ),
    ({}, [], "texts must have words, got none"),
    ({}, ["", "  "], "texts must have words, got none"),
    ({}, "no such file", "texts must be texts or the path of a file, got no file 'no such file'"),
    ({}, b"bytes", "texts must be texts, a path or a function that gives them, got bytes"),
    ({}, 3, "texts must be texts, a path or a function that gives them, got int"),
    ({}, [3], "each of texts must be a row of words or ids, got int"),
    ({}, [[1, 2]], "texts must hold words, got ids"),
    ({"memory": 0}, iter(TEXTS), "texts must be a function that gives an iterator where more than"),
]


@pytest.mark.parametrize(("knobs", "texts", "message"), MISTAKES)
def test_mistakes(knobs, texts, message, unchecked):
    with pytest.raises(ValueError, match=re.escape(message)):
        SkipGram(**{"min_count": 1, **knobs}).fit(texts)


def test_a_file_that_is_not_utf8(tmp_path):
    (tmp_path / "t").write_bytes(b"a b \xff c\n")
    with pytest.raises(ValueError, match=r"texts must be UTF-8, got the byte 0xff in .*t$"):
        SkipGram(min_count=1).fit(tmp_path / "t")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("objective", ["sgns", "softmax", "cbow"])
def test_vectors_on_a_gpu(objective):
    texts, _ = topics(2500)
    knobs: dict[str, Any] = {"d": 8, "subsample": 0, "epochs": 8, "objective": objective}
    losses = [
        SkipGram(device=device, random_state=1, **knobs).fit(texts).losses_[-1]
        for device in ("cpu", "cuda")
    ]
    assert abs(losses[0] - losses[1]) < 0.1
