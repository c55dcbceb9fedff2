"""Texts as blocks of words: every pair once, however texts, portions and blocks are cut."""

from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vademecum.language import _corpora
from vademecum.language._corpora import Portion
from vademecum.language.word2vec._feeding import Feed
from vademecum.language.word2vec._passes import read_corpus
from vademecum.language.word2vec._windows import piece, stretches


def pairs_by_hand(texts, reach):
    """Pairs of words within reach of the first, in a dictionary of counts."""
    found, at = Counter(), 0
    for text in texts:
        for t, s in product(range(len(text)), repeat=2):
            if 0 < abs(t - s) <= reach[at + t]:
                found[text[t], text[s]] += 1
        at += len(text)
    return found


def pairs_of_blocks(portions, c, blocks, reach):
    L, found, at = piece(c), Counter(), 0
    for stretch in stretches(portions, c):
        words = len(stretch.ids) - 2 * c
        count = -(-words // (blocks * L))
        feed = Feed(blocks * L, c, 1, 1, count, torch.device("cpu"))
        here = torch.tensor(reach[at : at + words])
        feed.fill(stretch, here, torch.zeros(count, blocks, 1).long(), np.ones(count))
        at += words
        for _ in range(count):
            block = feed.block()
            centres, around = block.pieces(block.words[:, None]), block.windows(block.around)
            for i, a, b in block.band.nonzero().tolist():
                found[int(centres[i, a, 0]), int(around[i, b])] += 1
            feed.at += 1
    return found


@given(
    st.lists(st.integers(0, 70), min_size=1, max_size=6),
    st.lists(st.integers(1, 150), max_size=4),
    st.integers(1, 9),
    st.integers(1, 3),
)
def test_every_pair_comes_once(lengths, cuts, c, blocks):
    n = sum(lengths)
    rng = np.random.default_rng(n + 7 * c)
    ids, texts = rng.integers(5, size=n).astype(np.int32), np.repeat(range(len(lengths)), lengths)
    reach = rng.integers(1, c + 1, size=n)
    places = sorted({min(cut, n) for cut in cuts})
    parts = zip(np.split(ids, places), np.split(texts, places), strict=True)
    portions = [Portion(i, t.astype(np.int32)) for i, t in parts]
    bounds = np.cumsum([0, *lengths])
    lines = [ids[a:b].tolist() for a, b in pairwise(bounds)]
    assert pairs_of_blocks(portions, c, blocks, reach) == pairs_by_hand(lines, reach)


LINES = ["b a a", "", "a c\tb  a", "d"]


def collected(corpus):
    portions = list(corpus.portions())
    ids, texts = (np.concatenate(parts) for parts in zip(*portions, strict=True))
    return [[corpus.words[i] for i in ids[texts == t]] for t in np.unique(texts)]


@pytest.mark.parametrize("memory", [None, 0])
@pytest.mark.parametrize("kind", ["list", "words", "function", "path"])
def test_texts_of_every_kind_are_the_same(kind, memory, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes("\r\n".join(LINES).encode())
    texts = {"list": LINES, "words": [line.split() for line in LINES],
             "function": lambda: iter(LINES), "path": path}[kind]  # fmt: skip
    corpus = read_corpus(texts, min_count=2, memory=memory)
    assert corpus.words == ["a", "b"]
    assert corpus.counts.tolist() == [4, 2]
    assert corpus.total == 6
    for _ in range(2):
        assert collected(corpus) == [["b", "a", "a"], ["a", "b", "a"]]


def test_what_is_read_once_will_do_while_it_fits():
    corpus = read_corpus(iter(LINES), min_count=1, memory=None)
    assert [collected(corpus)[1] for _ in range(2)] == [["a", "c", "b", "a"]] * 2


@pytest.mark.parametrize("gap", [" ", "\t"])
@pytest.mark.parametrize("memory", [None, 0])
def test_long_lines_are_read_in_runs(memory, gap, tmp_path, monkeypatch):
    words = [f"w{i % 37}" for i in range(2000)]
    path = tmp_path / "one_line.txt"
    path.write_text(gap.join(words) + "\nlast line")
    monkeypatch.setattr(_corpora, "PORTION", 64)
    corpus = read_corpus(path, min_count=1, memory=memory)
    assert collected(corpus) == [words, ["last", "line"]]
    assert len(list(corpus.portions())) > 20


def test_texts_that_change_are_noticed():
    texts = iter([["a a b"], ["a a"]])
    corpus = read_corpus(lambda: next(texts), min_count=1, memory=0)
    with pytest.raises(ValueError, match="same in every pass, got 3 words first and 2 now"):
        list(corpus.portions())
