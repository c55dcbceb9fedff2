"""Tokenisers: bytes come back, vocabularies have their size, WordPiece as defined."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vademecum.language import train_tokenizer, wordpiece

TEXT = "The quick brown fox jumps over the lazy dog. The dog sleeps; the fox does not.\n" * 20
BPE = train_tokenizer(TEXT, 300)


@given(st.text())
def test_train_tokenizer_spells_every_text_out_again(text):
    assert BPE.decode(BPE.encode(text).ids) == text


@pytest.mark.parametrize("text", ["\x00\x01\r\n\t", "naïve 😀", "  two  spaces ", "\ufeff"])
def test_train_tokenizer_keeps_awkward_characters(text):
    assert BPE.decode(BPE.encode(text).ids) == text


def test_train_tokenizer_has_as_many_tokens_as_asked_for():
    assert BPE.get_vocab_size() == 300
    assert len(BPE.encode("the fox").ids) < len("the fox")
    special = train_tokenizer(TEXT, 300, special=["<end>", "<pad>"])
    assert special.token_to_id("<end>") == 0
    assert special.token_to_id("<pad>") == 1
    assert special.encode("fox<end>").ids[-1] == 0
    assert train_tokenizer(TEXT, 300).get_vocab() == BPE.get_vocab()


def test_train_tokenizer_reads_files_and_iterators(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(TEXT, encoding="utf-8")
    by_file = train_tokenizer(file, 300)
    by_lines = train_tokenizer(iter(TEXT.splitlines(keepends=True)), 300)
    assert by_file.get_vocab().keys() == by_lines.get_vocab().keys()
    assert train_tokenizer([file, file], 300).encode("fox").ids


def test_wordpiece_is_what_a_trained_tokenizer_does():
    tokenizer = train_tokenizer(TEXT, 60, kind="wordpiece")
    vocabulary = tokenizer.get_vocab()
    for word in ("the", "foxes", "jumps", "lazydog", "sleeper", "überfox", "T"):
        assert tokenizer.encode(word).tokens == wordpiece(word, vocabulary)
    assert tokenizer.decode(tokenizer.encode("The lazy fox").ids) == "The lazy fox"
    assert len(vocabulary) <= 60


def test_wordpiece_marks():
    assert wordpiece("abc", {"a", "+bc"}, mark="+") == ["a", "+bc"]
    assert wordpiece("abc", {"a", "##bc"}, mark="+", unknown="?") == ["?"]
