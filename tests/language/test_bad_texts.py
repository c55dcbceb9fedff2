"""What generation, scoring, probes and tokenisers refuse, and in which words."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from vademecum import language
from vademecum.language import (
    GPT,
    bits_per_byte,
    bradley_terry,
    few_shot,
    generate,
    kl_regularized_policy,
    linear_probe,
    noisy_channel,
    perplexity,
    stream_tokens,
    train_tokenizer,
    wordpiece,
)

NET = GPT(V=7, d=8, layers=1, heads=2, context=6)
CHAIN = nn.Embedding(7, 7)
NAN = nn.Embedding.from_pretrained(torch.full((7, 7), torch.nan))
TWO = torch.eye(2)


def generated(tokens: Any = (1, 2), net: Any = NET, **knobs: Any) -> Any:
    return generate(net, tokens, **{"max_new_tokens": 2, **knobs})


def probed(x: Any = None, y: Any = None, **knobs: Any) -> Any:
    x = torch.randn(8, 3) if x is None else x
    y = torch.arange(8) % 2 if y is None else y
    return linear_probe(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), x, y, **knobs)


ERRORS: dict[str, tuple[Any, str]] = {
    "token too large": (lambda: generated([1, 7]), r"from 0 to 6, got 7 at \(0, 1\)"),
    "token too small": (lambda: generated([[1], [2, -1]]), r"0 to 6, got -1 at \(1, 1\)"),
    "negative for a module": (lambda: generated([-1], CHAIN), r"tokens must be >= 0, got -1"),
    "empty prompt": (lambda: generated([[1], []]), "rows of tokens must have 1 tokens or more, got"
                     " 0 for row 1"),
    "no prompts": (lambda: generated(torch.zeros(0, 3).long()), "must have a row or more"),
    "words": (lambda: generated("abc"), "tokens must be tokens or rows of them, got str"),
    "several words": (lambda: generated(["abc"]), "rows of tokens must be tokens, got 'abc'"),
    "floats": (lambda: generated(torch.ones(2)), "tokens must be integers, got torch.float32"),
    "too many axes": (lambda: generated(torch.ones(2, 2, 2).long()), r"\(n, T\) or \(T,\)"),
    "beyond the context": (lambda: generated([1] * 6), r"fit into the context = 6, got 6 \+ 2"),
    "a stream beyond it": (lambda: stream_tokens(NET, [1] * 6, max_new_tokens=2), "context = 6"),
    "a context too small": (lambda: generated([1] * 4, CHAIN, context=4), "context = 4, got 4"),
    "temperature": (lambda: generated(temperature=-0.1), "temperature must be >= 0, got -0.1"),
    "temperature NaN": (lambda: generated(temperature=float("nan")), "temperature must be"),
    "top_k": (lambda: generated(top_k=0), "top_k must be >= 1, got 0"),
    "top_p zero": (lambda: generated(top_p=0.0), "top_p must be > 0, got 0"),
    "top_p": (lambda: generated(top_p=1.1), "top_p must be <= 1, got 1.1"),
    "no tokens": (lambda: generated(max_new_tokens=0), "max_new_tokens must be >= 1, got 0"),
    "stop": (lambda: generated(stop=9), "stop must be <= 6, got 9"),
    "beam": (lambda: generated(beam=0), "beam must be >= 1, got 0"),
    "beam that draws": (lambda: generated(beam=2, top_k=3), r"beam must be None with Choice\("),
    "beam and stops": (lambda: generated(beam=2, stop=[1, 2]), "stop must be one token with beam"),
    "no logits": (lambda: generated(net=nn.Identity()), r"model must give logits \(1, 2, V\)"),
    "NaN": (lambda: generated(net=NAN), "model must not give NaN, got it for row 0"),
    "stride": (lambda: perplexity(NET, [1, 2], stride=7), "stride must be <= 6, got 7"),
    "context": (lambda: perplexity(NET, [1, 2], context=0), "context must be >= 1, got 0"),
    "nothing to predict": (lambda: perplexity(NET, [[1], [2]]), "x must have a row of 2 tokens"),
    "a text out of range": (lambda: perplexity(NET, [1, 8]), "x must be from 0 to 6, got 8"),
    "start": (lambda: perplexity(NET, [1, 2], start=7), "start must be <= 6, got 7"),
    "memory": (lambda: perplexity(NET, [1, 2], memory=0), "memory must be >= 1, got 0"),
    "an empty loader": (lambda: perplexity(NET, DataLoader([])), "x must have a row of 2"),  # pyright: ignore
    "no bytes": (lambda: bits_per_byte(NET, [1, 2], 0), "n_bytes must be >= 1, got 0"),
    "no queries": (lambda: few_shot(NET, [], []), "queries must have a query or more"),
    "no options": (lambda: few_shot(NET, [], [([1], [])]), "options of query 0 must be rows"),
    "an empty option": (lambda: few_shot(NET, [], [([1], [[2], []])]), "got an empty one"),
    "no question": (lambda: few_shot(NET, [], [([], [[2]])]), "tokens before its options"),
    "words unencoded": (lambda: few_shot(NET, [], [("a", [[2]])]), "encode must be given where"),
    "no pair": (lambda: few_shot(NET, [[1, 2, 3]], [([1], [[2]])]), "examples must be pairs"),  # pyright: ignore
    "too many shots": (lambda: few_shot(NET, [([1] * 5, [2])], [([1], [[2]])]),
                       "fit into the context = 6, got 7 tokens"),
    "answers out of range": (lambda: few_shot(NET, [], [([1], [[2]])], [1]), "y must be numbers"),
    "answers by number": (lambda: few_shot(NET, [], [([1], [[2]])], [0, 0]), "y must be 1 numbers"),
    "labels": (lambda: probed(y="no"), "y must be labels or numbers, one for each input, got str"),
    "labels of others": (lambda: probed(y=torch.arange(7) % 2), r"must begin with the axes \(7,\)"),
    "surprise of NaN": (lambda: perplexity(NAN, [1, 2]), "model must not give NaN"),
    "answers by NaN": (lambda: few_shot(NAN, [], [([1], [[2], [3]])]), "model must not give NaN"),
    "memory for answers": (lambda: few_shot(CHAIN, [], [([1], [[2]])], memory=0), "memory must be"),
    "one number": (lambda: probed(y=torch.ones(8)), "y must have 2 values or more"),
    "one class": (lambda: probed(y=torch.ones(8).long()), "y must have 2 classes or more"),
    "NaN labels": (lambda: probed(y=torch.full((8,), torch.nan)), "y must be finite"),
    "NaN inputs": (lambda: probed(x=torch.full((8, 3), torch.nan)), "x must be finite"),
    "no such layer": (lambda: probed(layers="3"), "layers must be names of modules, got '3'"),
    "no layers": (lambda: probed(layers=[]), "layers must name a module or more"),
    "share": (lambda: probed(held_out=1.0), "held_out must be < 1, got 1"),
    "whom to hold out": (lambda: probed(held_out=torch.ones(8)), "held_out must be a share or 8"),
    "nobody": (lambda: probed(held_out=torch.zeros(8, dtype=torch.bool)), "leave inputs on both"),
    "decay": (lambda: probed(weight_decay=0.0), "weight_decay must be > 0, got 0"),
    "empty corpus": (lambda: train_tokenizer([], 300), "texts must hold some text, got none"),
    "empty text": (lambda: train_tokenizer("", 300), "texts must hold some text, got none"),
    "few tokens": (lambda: train_tokenizer("a", 256, special=["<end>"]), "V must be >= 257"),
    "kind": (lambda: train_tokenizer("a", 300, kind="words"), "kind must be one of"),  # pyright: ignore
    "none": (lambda: train_tokenizer(None, 300), "texts must be texts or paths of files, got None"),  # pyright: ignore
    "bytes": (lambda: train_tokenizer(b"a", 300), "must be texts or paths of files, got bytes"),  # pyright: ignore
    "a mapping": (lambda: train_tokenizer({"a": 1}, 300), "or paths of files, got dict"),
    "no text": (lambda: train_tokenizer([3], 300), "texts must be texts or paths of files, got 3"),  # pyright: ignore
    "no word": (lambda: wordpiece("", {"a"}), "word must be a word, got ''"),
    "a vocabulary in one": (lambda: wordpiece("a", "abc"), "vocabulary must be a collection"),
    "impossible": (lambda: noisy_channel(torch.zeros(2, 2).log(), torch.zeros(2)), "some target"),
    "shapes": (lambda: noisy_channel(torch.zeros(2, 3), torch.zeros(2)), "must broadcast"),
    "NaN logs": (lambda: noisy_channel(TWO, torch.full((2,), torch.nan)), "log_prior must hold"),
    "no logs": (lambda: noisy_channel(TWO.long(), TWO), "log_channel must be logarithms"),
    "unbeaten": (lambda: bradley_terry(torch.tensor([[0.0, 1.0], [0.0, 0.0]])),
                 r"these do not: \[1\], \[0\]"),
    "own games": (lambda: bradley_terry(torch.ones(2, 2)), "zeros on the diagonal"),
    "negative": (lambda: bradley_terry(-torch.ones(2, 2)), "wins must be >= 0"),
    "one answer": (lambda: bradley_terry(torch.zeros(1, 1)), "matrix of 2 answers or more"),
    "price": (lambda: kl_regularized_policy(TWO[0], TWO[0], beta=0.0), "beta must be > 0, got 0"),
    "no law": (lambda: kl_regularized_policy(TWO[0], TWO[0] * 2, beta=1.0), "must sum to one"),
    "unequal": (lambda: kl_regularized_policy(TWO, TWO[0], beta=1.0), "have the same shape"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_bad_input(name, unchecked):
    call, message = ERRORS[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r"pip install \"vademecum\[data\]\""):
        language.train_tokenizer("a", 300)
