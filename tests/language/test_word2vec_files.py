"""Files of word vectors: both forms, and what is refused of damaged ones."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vademecum.language import WordVectors, read_word2vec, write_word2vec

WORDS = ("the", "naïve", "猫", "a\u00a0b", "1.5", "-")
VECTORS = torch.tensor([[0.1, -2.0, 1e-30], [3.0, 4e20, 5.0]] * 3)


@pytest.mark.parametrize("binary", [False, True])
def test_write_word2vec_and_read_word2vec(binary, tmp_path):
    write_word2vec(tmp_path / "v", WORDS, VECTORS, binary=binary)
    known = read_word2vec(tmp_path / "v")
    assert known.words == WORDS
    assert torch.equal(known.vectors, VECTORS)


@given(st.integers(1, 5), st.integers(1, 5), st.booleans(), st.integers(0, 2**31))
def test_all_numbers_come_back(V, d, binary, seed):
    from tempfile import TemporaryDirectory

    bits = np.random.default_rng(seed).integers(0, 2**32, (V, d), dtype=np.uint32)
    numbers = np.nan_to_num(bits.view(np.float32), nan=0.0, posinf=1.0, neginf=-1.0)
    words, vectors = [f"w{i}" for i in range(V)], torch.from_numpy(numbers)
    with TemporaryDirectory() as folder:
        write_word2vec(f"{folder}/v", words, vectors, binary=binary)
        assert torch.equal(read_word2vec(f"{folder}/v").vectors, vectors)


def test_line_breaks_after_binary_numbers_and_spaces_after_texts(tmp_path):
    row = np.array([1.5, -2.0], "<f4").tobytes()
    (tmp_path / "v").write_bytes(b"2 2\na " + row + b"\nb " + row + b"\n")
    assert read_word2vec(tmp_path / "v").words == ("a", "b")
    (tmp_path / "t").write_bytes(b"2 2\na 1 2 \nb 3 4 \n")
    assert read_word2vec(tmp_path / "t").vectors.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("binary", [False, True])
def test_a_file_that_is_cut_off_is_refused(binary, tmp_path):
    write_word2vec(tmp_path / "v", WORDS[:3], VECTORS[:3], binary=binary)
    whole = (tmp_path / "v").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(ValueError, match="must"):
            read_word2vec(tmp_path / "cut")


ROW = np.array([1.5, 2.0], "<f4").tobytes()
DAMAGE = [
    (b"", "must begin with two numbers, words and entries, got b''"),
    (b"a 1 2\n", "must begin with two numbers"),
    (b"1\na 1\n", "must begin with two numbers"),
    (b"-1 2\na 1 2\n", "must begin with two numbers"),
    (b"0 2\n", "must begin with two numbers"),
    (b"2 00\na b", "must begin with two numbers"),
    (b"2 " + 40 * b"9" + b"\na 1 2\n", "must hold 2 vectors of 9999"),
    (b"3 2\na 1 2\nb 3 4\n", "must have 2 numbers for word 3 of 3, got 0"),
    (b"1 2\na 1 2\nb 3 4\n", "must end after 1 words, got more"),
    (b"2 2\na 1 2\nb 3 4 5\n", "must have 2 numbers for word 2 of 2, got 3"),
    (b"2 2\na 1 2\nb 3 x\n", "must have numbers for word 2"),
    (b"2 2\na 1 2\nb 3 nan\n", "vectors must be finite, got nan at (1, 1)"),
    (b"2 2\na 1 2\na 3 4\n", "words must be different, got 'a' twice"),
    (b"2 2\na 1 2\n\xff 3 4\n", "must be UTF-8, got b'\\xff' as word 2"),
    (b"2 2\na " + ROW, "must hold 2 vectors of 2 numbers, got 14 bytes"),
    (b"2 2\na " + ROW + b"b " + ROW[:7], "must hold 2 words, got an end within word 2"),
    (b"1 2\na " + ROW + b"b " + ROW, "must end after 1 words, got more"),
    (b"99999999999 300\na " + ROW, "must hold 99999999999 vectors of 300 numbers, got"),
]


@pytest.mark.parametrize(("content", "message"), DAMAGE)
def test_damaged_files(content, message, tmp_path):
    (tmp_path / "v").write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(message)):
        read_word2vec(tmp_path / "v")


def test_words_that_are_not_utf8_can_be_replaced(tmp_path):
    (tmp_path / "v").write_bytes(b"2 1\n\xff 1\nb\xe9 2\n")
    assert read_word2vec(tmp_path / "v", errors="replace").words == ("\ufffd", "b\ufffd")
    assert read_word2vec(tmp_path / "v", errors="ignore").words == ("", "b")


@pytest.mark.parametrize(
    ("words", "vectors", "message"),
    [
        (["a b"], torch.zeros(1, 2), "words must have no space or line break and not be empty: 'a"),
        ([""], torch.zeros(1, 2), "not be empty: ''"),
        (["a"], torch.zeros(2, 2), "vectors must have a row for each of 1 words, got 2"),
        (["a", "a"], torch.zeros(2, 2), "words must be different, got 'a' twice"),
        (["a"], torch.full((1, 2), torch.inf), "vectors must be finite"),
        (["a"], torch.ones(1, 2).double() * 1e300, "vectors must be finite"),
        (["a"], torch.zeros(1, 2).long(), "vectors must be floating point"),
    ],
)
def test_what_is_not_written_leaves_the_file(words, vectors, message, tmp_path, unchecked):
    path = tmp_path / "v"
    path.write_text("before")
    with pytest.raises(ValueError, match=re.escape(message)):
        write_word2vec(path, words, vectors)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_gensim_reads_ours_and_we_read_gensims(tmp_path):
    models = pytest.importorskip("gensim.models")
    for binary in (False, True):
        write_word2vec(tmp_path / "v", WORDS[:3], VECTORS[:3], binary=binary)
        theirs = models.KeyedVectors.load_word2vec_format(tmp_path / "v", binary=binary)
        assert tuple(theirs.index_to_key) == WORDS[:3]
        assert np.array_equal(theirs.vectors, VECTORS[:3].numpy())
        theirs.save_word2vec_format(tmp_path / "w", binary=binary)
        ours = read_word2vec(tmp_path / "w")
        assert ours.words == WORDS[:3]
        assert torch.equal(ours.vectors, VECTORS[:3])


KNOWN = WordVectors(["one", "two", "three"], torch.tensor([[1.0, 0.0], [3.0, 4.0], [-1.0, 0.0]]))


def test_word_vectors_find_neighbours_by_cosine():
    near = KNOWN.neighbours("one")
    assert near.words == ("two", "three")
    torch.testing.assert_close(near.cosines, torch.tensor([0.6, -1.0]))
    assert KNOWN.neighbours("three", 1).words == ("two",)
    assert "\n" not in repr(near)


def test_neighbours_of_vectors_whose_squares_leave_the_range():
    vectors = torch.tensor([[1e30, 0.0], [1e30, 1e30], [1e-30, 1e-30], [0.0, 0.0]])
    found = WordVectors("abcd", vectors.requires_grad_()).neighbours("b")
    assert found.words == ("c", "a", "d")
    torch.testing.assert_close(found.cosines, torch.tensor([1.0, 0.5**0.5, 0.0]))


def test_unknown_words_are_refused_with_near_ones():
    with pytest.raises(ValueError, match=r"of 3 words, got 'tree'; near are 'three'"):
        KNOWN.neighbours("tree")
    with pytest.raises(ValueError, match=r"of 3 words, got 'zzz'$"):
        KNOWN.analogy("one", "two", "zzz")
    with pytest.raises(ValueError, match="k must be >= 1, got 0"):
        KNOWN.neighbours("one", 0)
