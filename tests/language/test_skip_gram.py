"""Word vectors by prediction: steps against autograd, laws of what is drawn, what is learnt."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch.nn import functional as F

from vademecum.language import SkipGram
from vademecum.language._corpora import Portion
from vademecum.language.word2vec._descent import Descent
from vademecum.language.word2vec._feeding import Feed
from vademecum.language.word2vec._passes import read_corpus
from vademecum.language.word2vec._steps import LOSSES, STEPS, Block, Table
from vademecum.language.word2vec._windows import band, offsets, piece


def some_block(V=9, pieces=2, c=3, k=4, noise=7, eta=2.0**-20):
    N = pieces * piece(c)
    texts = torch.arange(N + 2 * c) // 11
    reach = torch.randint(0, c + 1, (N,))
    pairs = band(texts, reach, offsets(c, torch.device("cpu")), c)
    words, far = torch.randint(V, (N + 2 * c,)), torch.randint(V, (pieces, noise))
    return Block(words, pairs, far, k, torch.tensor(eta))


@pytest.mark.parametrize("objective", STEPS)
def test_steps_follow_the_gradients_of_losses(objective):
    block, eta = some_block(), 2.0**-20
    rows = [torch.randn(9, 5).double().requires_grad_() for _ in range(2)]
    terms = int((block.pairs > 0).sum() if objective == "cbow" else block.pairs.sum())
    loss = LOSSES[objective](Table(rows[0]), Table(rows[1]), block)
    wanted = torch.autograd.grad(-terms * loss, rows)
    x, z = (Table(r.detach().clone()) for r in rows)
    STEPS[objective](x, z, block)
    for table, row, slope in zip((x, z), rows, wanted, strict=True):
        torch.testing.assert_close((table.rows - row.detach()) / eta, slope, rtol=1e-6, atol=1e-7)


def test_loss_of_a_bag_of_words():
    """By the definition, word by word."""
    X, Z = torch.randn(4, 2).double(), torch.randn(4, 2).double()
    words = [0, 1, 2, 1, 3]
    feed = Feed(16, 2, 2, 3, 1, torch.device("cpu"))
    far = torch.tensor([[[3, 0]]])
    padded = np.pad(words, 2), np.pad(np.zeros(5, int), 2, constant_values=-1)
    feed.fill(Portion(*padded), torch.full((5,), 2), far, np.ones(1))
    total = 0.0
    for t, word in enumerate(words):
        near = [words[s] for s in range(5) if 0 < abs(s - t) <= 2]
        h = X[near].mean(0)
        total -= float(F.logsigmoid(h @ Z[word]) + 1.5 * F.logsigmoid(-Z[[3, 0]] @ h).sum())
    found = LOSSES["cbow"](Table(X), Table(Z), feed.block())
    assert math.isclose(float(found), total / 5, rel_tol=1e-12)


def test_rows_that_are_pulled_too_hard_move_less():
    table = Table(torch.zeros(3, 1))
    words, change = torch.tensor([0, 1, 1]), torch.ones(3, 1)
    table.move(words, change.clone(), torch.tensor([1.0, 3.0, 1.0]))
    assert table.rows.flatten().tolist() == [1.0, 1.0, 0.0]  # 4 / 2 is twice too hard
    table.move(words, change.clone(), torch.ones(3))  # nothing is remembered
    assert table.rows.flatten().tolist() == [2.0, 3.0, 0.0]


def test_steps_are_shortened_by_the_weights_of_scores_and_the_mean_square_of_vectors():
    """By the definition, score by score, where some rows are pulled too hard and some are not."""
    eta, c, k, noise = 0.02, 3, 4, 7
    block = some_block(c=c, k=k, noise=noise, eta=eta)
    rows = [torch.randn(9, 5).double().requires_grad_() for _ in range(2)]
    loss = LOSSES["sgns"](Table(rows[0]), Table(rows[1]), block) * block.pairs.sum()
    slopes = torch.autograd.grad(-loss, rows)
    X, Z = (row.detach() for row in rows)
    words, met, pull = block.words.view(-1, piece(c)), [], torch.zeros(2, 9).double()
    for i, own in enumerate(words):
        around = block.around[i * len(own) :][: len(own) + 2 * c]
        met += [*around.tolist(), *block.noise[i].tolist()]
        for t, w in enumerate(own):
            near = around[block.band[i, t]]
            weights = [(v, torch.sigmoid(-X[w] @ Z[v])) for v in near]
            share = k * len(near) / noise
            weights += [(v, share * torch.sigmoid(X[w] @ Z[v])) for v in block.noise[i]]
            for v, weight in weights:
                pull[0, w] += eta * weight
                pull[1, v] += eta * weight
    squares = Z[met].square().sum(1).mean(), X[block.words].square().sum(1).mean()
    x, z = Table(X.clone()), Table(Z.clone())
    STEPS["sgns"](x, z, block)
    for table, old, slope, sum_, square in zip((x, z), (X, Z), slopes, pull, squares, strict=True):
        slow = (sum_ * square / 2).clamp(min=1)
        assert slow.min() == 1 < slow.max()
        wanted = old + eta * slope / slow[:, None]
        torch.testing.assert_close(table.rows, wanted, rtol=1e-6, atol=1e-7)


def descent(texts, **options):
    model = SkipGram(min_count=1, **options)
    corpus = read_corpus(texts, min_count=1, memory=None)
    return Descent(corpus, model._options(), 0, torch.device("cpu"))


def test_words_of_the_noise_and_reaches_follow_their_laws():
    texts = [["a"] * 160 + ["b"] * 81 + ["c"] * 16 + ["d"]]
    run = descent(texts, d=2, window=4)
    drawn = np.bincount(run._drawn(2000).flatten(), minlength=4)
    law = np.array([160, 81, 16, 1]) ** 0.75
    assert chisquare(drawn, drawn.sum() * law / law.sum()).pvalue > 1e-6
    reach = np.bincount(run._reach(20_000))[1:]
    assert len(reach) == 4
    assert chisquare(reach).pvalue > 1e-6
    assert descent(texts, window=4, dynamic=False)._reach(9).tolist() == [4] * 9


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
