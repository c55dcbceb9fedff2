"""Counts of co-occurrence against a double loop, however the text is cut up and read."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vademecum.language import _corpora, cooccurrence


def by_hand(lines, window, words, weigh=lambda distance: 1):
    """All pairs of positions, one after the other."""
    number = {word: i for i, word in enumerate(words)}
    counts = np.zeros((len(words), len(words)))
    for line in lines:
        for i, v in enumerate(line):
            for j, w in enumerate(line):
                if 1 <= abs(i - j) <= window and v in number and w in number:
                    counts[number[v], number[w]] += weigh(abs(i - j))
    return counts


LINES = st.lists(st.lists(st.integers(0, 5), max_size=12), min_size=1, max_size=6).filter(any)


@settings(max_examples=60, deadline=None)
@given(LINES, st.integers(1, 8), st.integers(1, 9))
def test_equals_a_double_loop_in_blocks_of_any_size(lines, window, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_corpora, "PORTION", block)
        found = cooccurrence(lines, window=window, vocabulary=6)
        near = cooccurrence(iter(lines), window=window, weighting="harmonic", vocabulary=6)
    assert (found.counts.toarray() == by_hand(lines, window, range(6))).all()
    weighted = by_hand(lines, window, range(6), lambda distance: 1 / distance)
    np.testing.assert_allclose(near.counts.toarray(), weighted, rtol=0, atol=1e-12)
    assert (near.counts.toarray() == near.counts.toarray().T).all()
    tokens = [token for line in lines for token in line]
    assert found.frequencies.tolist() == [tokens.count(token) for token in range(6)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(alphabet="ab c\t", max_size=30), min_size=1, max_size=5),
    st.integers(1, 7),
    st.booleans(),
)
def test_a_file_gives_what_its_lines_give(tmp_path_factory, texts, block, closed):
    path = tmp_path_factory.mktemp("texts") / "text"
    path.write_text("\n".join(texts) + "\n" * closed)
    if not any(text.split() for text in texts):
        return
    found = cooccurrence(texts, window=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_corpora, "PORTION", block)
        read = cooccurrence(path, window=3)
        again = cooccurrence(str(path), window=3)
    assert read.vocabulary == again.vocabulary == found.vocabulary
    assert (read.counts.toarray() == found.counts.toarray()).all()
    assert (again.counts.toarray() == found.counts.toarray()).all()
    words = found.vocabulary
    assert (found.counts.toarray() == by_hand([t.split() for t in texts], 3, words)).all()


def test_all_kinds_of_lines_count_the_same():
    ids = [[0, 1, 2, 1], [1, 1, 0, 2]]
    letters = [["abc"[i] for i in line] for line in ids]
    kinds = [
        ids, torch.tensor(ids), np.array(ids), np.array(ids, dtype=np.uint8), iter(ids),
        [torch.tensor(line) for line in ids], (np.array(line) for line in ids), tuple(ids),
        letters, [" ".join(line) for line in letters], (tuple(line) for line in letters),
        np.array([" ".join(line) for line in letters]), lambda: iter(letters),
    ]  # fmt: skip
    wanted = by_hand(ids, 2, range(3))
    for lines in kinds:
        found = cooccurrence(lines, window=2)
        assert (found.counts.toarray() == wanted).all()
        assert list(found.vocabulary) in ([0, 1, 2], ["a", "b", "c"])
    one = cooccurrence(torch.tensor(ids).flatten(), window=2)  # a single line
    assert (one.counts.toarray() == by_hand([ids[0] + ids[1]], 2, range(3))).all()


def test_rare_and_unknown_words_keep_their_places():
    lines = ["a x b", "b a y a"]
    found = cooccurrence(lines, window=1, min_count=2)
    assert found.vocabulary == ["a", "b"]
    assert found.counts.toarray().tolist() == [[0, 1], [1, 0]]  # not across x or y
    assert found.frequencies.tolist() == [3, 2]
    told = cooccurrence(lines, window=1, vocabulary=["b", "a", "z"])
    assert told.vocabulary == ["b", "a", "z"]
    assert told.counts.toarray().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert told.frequencies.tolist() == [2, 3, 0]
    ids = cooccurrence([[4, 1, 4]], window=1, min_count=2)
    assert ids.vocabulary == [4]
    assert ids.counts.toarray().tolist() == [[0]]


def test_wide_windows():
    rng = np.random.default_rng(0)
    lines = [rng.integers(3, size=n).tolist() for n in (80, 1, 41)]
    for window in (16, 17, 40):
        found = cooccurrence(lines, window=window, vocabulary=3).counts.toarray()
        assert (found == by_hand(lines, window, range(3))).all()


def test_types_and_repr():
    found = cooccurrence([[0, 1]], window=1)
    assert found.counts.dtype == np.int64
    assert cooccurrence([[0, 1]], window=1, weighting="harmonic").counts.dtype == np.float64
    assert found.counts.has_sorted_indices
    assert "\n" not in repr(found)


MISTAKES = [
    (lambda: cooccurrence([[0, 1]], window=0), "window must be >= 1, got 0"),
    (lambda: cooccurrence([[0, 1]], weighting="square"), "weighting must be one of 'flat', 'harm"),
    (lambda: cooccurrence([[0, 1]], min_count=0), "min_count must be >= 1, got 0"),
    (lambda: cooccurrence([]), "texts must hold a token to count, got none"),
    (lambda: cooccurrence([[], []]), "texts must hold a token to count, got none"),
    (lambda: cooccurrence(["", " "]), "texts must hold a token to count, got none"),
    (lambda: cooccurrence(["a"], vocabulary=["b"]), "texts must hold a token to count, got none"),
    (lambda: cooccurrence([0, 1]), "each of texts must be a row of words or ids, got int"),
    (lambda: cooccurrence(3), "texts must be texts, a path or a function that gives them, got int"),
    (
        lambda: cooccurrence(b"a b"),
        "texts must be texts, a path or a function that gives them, got by",
    ),
    (
        lambda: cooccurrence(torch.tensor(3)),
        "each of texts must be a row of words or ids, got ndarray",
    ),
    (
        lambda: cooccurrence(list(torch.arange(3))),
        "each of texts must be a row of words or ids, got n",
    ),
    (lambda: cooccurrence([{"a", "b"}]), "each of texts must be a row of words or ids, got set"),
    (lambda: cooccurrence(torch.ones(3, requires_grad=True)), "got tokens of the type float32"),
    (lambda: cooccurrence([[["a"], ["b"]]]), "texts must hold words or ids, got tokens of"),
    (lambda: cooccurrence([["a", ["b"]]]), "texts must hold words or ids, got unhashable"),
    (lambda: cooccurrence([np.array([2**64 - 1], np.uint64)]), "ids must be < 2**31, got 18446"),
    (lambda: cooccurrence("/no/such/file"), "got no file '/no/such/file'"),
    (lambda: cooccurrence([[0, -1]]), "ids must be >= 0, got -1"),
    (lambda: cooccurrence([[0, 3]], vocabulary=3), "ids must be < 3, the vocabulary's size, got 3"),
    (lambda: cooccurrence([[0.5, 1.0]]), "texts must hold words or ids, got tokens of the type fl"),
    (lambda: cooccurrence([[True, False]]), "got tokens of the type bool"),
    (lambda: cooccurrence([[1], ["a"]]), "texts must hold words or ids, got tokens of the type <U"),
    (
        lambda: cooccurrence([["a"], [1]]),
        "texts must hold words only, or ids only, got the token 1",
    ),
    (
        lambda: cooccurrence(["a"], vocabulary=["a", "a"]),
        "vocabulary must name each word once, got",
    ),
    (lambda: cooccurrence(["a"], vocabulary=[]), "vocabulary must not be empty"),
    (lambda: cooccurrence([[0]], vocabulary=0), "vocabulary must be >= 1, got 0"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=[m[1][:40] for m in MISTAKES])
def test_bad_input(unchecked, call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_files_must_be_text(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(b"a b \xff c\n")
    with pytest.raises(ValueError, match="texts must be UTF-8, got the byte 0xff"):
        cooccurrence(path)
