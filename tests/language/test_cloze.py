"""Hidden tokens, pairs of sentences and pseudo-likelihoods."""

import itertools
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vademecum.language import BERT, mask_tokens, nsp_pairs, pair_input, pseudo_likelihood

TOKENS = torch.arange(40).reshape(4, 10)


def test_mask_tokens_does_what_it_decided():
    tokens = torch.randint(50, (30, 40))
    lengths = torch.randint(41, (30,))
    found = mask_tokens(tokens, mask=3, V=50, special=(0, 7), lengths=lengths, rate=0.5)
    kinds = found.decisions
    real = torch.arange(40) < lengths[:, None]
    never = ~real | (tokens == 0) | (tokens == 7) | (tokens == 3)
    assert not kinds[never].any()
    assert torch.equal(found.tokens[kinds == 1], torch.full_like(tokens[kinds == 1], 3))
    untouched = (kinds == 0) | (kinds == 3)
    assert torch.equal(found.tokens[untouched], tokens[untouched])
    assert torch.equal(found.labels, torch.where(kinds > 0, tokens, -100))
    assert len(found.tokens[kinds == 2].unique()) > 10
    assert set(kinds.unique().tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("shares", [(1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_mask_tokens_with_one_share(shares):
    found = mask_tokens(TOKENS + 5, mask=2, V=45, rate=1.0, shares=shares)
    assert (found.decisions == 1 + shares.index(1)).all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_small_integers_are_hidden_as_large_ones_are(dtype):
    found, wanted = (
        mask_tokens(x, mask=300, V=45, rate=0.5, generator=torch.Generator().manual_seed(0))
        for x in (TOKENS.to(dtype), TOKENS)
    )
    assert found.tokens.tolist() == wanted.tokens.tolist()
    assert found.labels.tolist() == wanted.labels.tolist()


def test_pair_input_of_one_sentence():
    found = pair_input(torch.tensor([5, 6]), cls=1, sep=2)
    assert found.tokens.tolist() == [1, 5, 6, 2]
    assert found.segments.tolist() == [0, 0, 0, 0]


DOCUMENTS = [[[5], [6, 7], [8, 9, 10]], [[11, 12]], [[13], [14, 15]]]


def test_nsp_pairs_are_what_they_say():
    found = nsp_pairs(DOCUMENTS, 400, cls=1, sep=2)
    sentences = [row for document in DOCUMENTS for row in document]
    for i, (a, b) in enumerate(found.places.tolist()):
        wanted = [1, *sentences[a], 2, *sentences[b], 2]
        assert found.lengths[i] == len(wanted)
        assert found.tokens[i].tolist() == wanted + [0] * (len(found.tokens[i]) - len(wanted))
        first = len(sentences[a]) + 2
        assert not found.segments[i, :first].any()
        assert (found.segments[i, first : len(wanted)] == 1).all()
        assert a in (0, 1, 4)
        assert (found.labels[i] == 0) == (b == a + 1)
        assert b != a
    drawn = {tuple(p) for p, y in zip(found.places.tolist(), found.labels, strict=True) if y}
    assert drawn == {(a, b) for a in (0, 1, 4) for b in range(6) if b not in (a, a + 1)}


@pytest.mark.parametrize(
    ("context", "wanted"), [(12, (5, 4)), (9, (3, 3)), (8, (3, 2)), (20, (6, 4))]
)
def test_nsp_pairs_are_cut_where_they_are_long(context, wanted):
    documents = [[list(range(10, 16)), list(range(20, 24)), [5]]]
    found = nsp_pairs(documents, 60, cls=1, sep=2, context=context)
    pair = next(
        row for row, p in zip(found.tokens, found.places.tolist(), strict=True) if p == [0, 1]
    )
    a, b = wanted
    assert pair[pair != 0].tolist() == [1, *range(10, 10 + a), 2, *range(20, 20 + b), 2]


class Neighbours(nn.Module):
    """Logits of a token by the sum of its neighbours' numbers; -1 never, as the mask is 9."""

    V, context = 10, 6

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(60, 10).double())

    def forward(self, tokens: Tensor) -> Any:
        sums = tokens.roll(1, 1) + 2 * tokens.roll(-1, 1) + 3 * tokens
        return SimpleNamespace(logits=self.table[sums])


@pytest.mark.parametrize("memory", [None, 1])
def test_pseudo_likelihood_hides_one_token_at_a_time(memory):
    model, rows = Neighbours(), [[1, 2, 3, 4], [5], [6, 7, 8, 1], [0, 2]]
    found = pseudo_likelihood(model, rows, mask=9, special=(0, 7), memory=memory)
    wanted = torch.zeros(4, 4, dtype=torch.float64)
    for i, row in enumerate(rows):
        for t, own in enumerate(row):
            if own not in (0, 7):
                hidden = torch.tensor([[*row[:t], 9, *row[t + 1 :]]])
                wanted[i, t] = model(hidden).logits[0, t].log_softmax(0)[own]
    assert (found.log_probs - wanted).abs().max() < 1e-12
    assert (found.log_likelihood - wanted.sum(1)).abs().max() < 1e-12


def test_pseudo_likelihood_of_bert_asks_for_hidden_places_alone():
    model = BERT(V=11, d=8, layers=2, heads=2, context=6, pretraining=True).double().train()
    found = pseudo_likelihood(model, TOKENS[:1, 2:8], mask=1)
    full = pseudo_likelihood(model, TOKENS[:1, 2:8], mask=1, output="logits")
    assert model.training
    assert (found.log_probs - full.log_probs).abs().max() < 1e-12


def test_pseudo_likelihood_of_half_precision_adds_in_single():
    net = nn.Embedding.from_pretrained(torch.zeros(4, 3, dtype=torch.bfloat16))
    found = pseudo_likelihood(net, torch.zeros(1, 500, dtype=torch.long), mask=3)
    assert abs(float(found.log_likelihood) / (500 * math.log(3)) + 1) < 1e-5


def test_pseudo_likelihoods_of_a_uniform_model():
    model = nn.Embedding.from_pretrained(torch.zeros(5, 4, dtype=torch.float64))
    for row in itertools.product(range(4), repeat=2):
        found = pseudo_likelihood(model, list(row), mask=4)
        assert abs(float(found.log_likelihood) + 2 * math.log(4)) < 1e-14


MASKED: dict[str, Any] = {"mask": 3, "V": 40}
PAIRS: dict[str, Any] = {"cls": 1, "sep": 2}
BAD = [
    (lambda: mask_tokens(TOKENS, mask=-1, V=40), "mask must be >= 0, got -1"),
    (lambda: mask_tokens(TOKENS, mask=3, V=39), "tokens must be from 0 to 38, got 39 at"),
    (lambda: mask_tokens(TOKENS.float(), **MASKED), "tokens must be a tensor of integers"),
    (lambda: mask_tokens(TOKENS, rate=1.5, **MASKED), "rate must be <= 1, got 1.5"),
    (lambda: mask_tokens(TOKENS, shares=(0.8, 0.1, 0.2), **MASKED), "shares must be three"),
    (lambda: mask_tokens(TOKENS, shares=(math.nan, 0.1, 0.1), **MASKED), "shares must be three"),
    (lambda: mask_tokens(TOKENS.bool(), **MASKED), "tokens must be a tensor of integers"),
    (lambda: mask_tokens(TOKENS[0], lengths=torch.ones(1), **MASKED), r"must be \(n, T\) with"),
    (lambda: pair_input([], **PAIRS), "sentences of first must be rows of one token or more"),
    (lambda: pair_input([1], cls=-1, sep=2), "cls must be >= 0, got -1"),
    (lambda: nsp_pairs([[[1], [2]]], 3, **PAIRS), "documents must hold three sentences"),
    (lambda: nsp_pairs([[[1]], [[2]], [[3]]], 3, **PAIRS), "3 sentences, 0 with one"),
    (lambda: nsp_pairs(DOCUMENTS, 0, **PAIRS), "n must be >= 1, got 0"),
    (lambda: nsp_pairs(DOCUMENTS, 1, context=4, **PAIRS), "context must be >= 5, got 4"),
    (lambda: pseudo_likelihood(Neighbours(), [[1] * 7], mask=9), "at most context = 6 long, got 7"),
    (lambda: pseudo_likelihood(Neighbours(), [[10]], mask=9), "x must be from 0 to 9, got 10"),
    (lambda: pseudo_likelihood(Neighbours(), [[1]], mask=9, special=[1]), "that are not special"),
    (lambda: pseudo_likelihood(nn.Flatten(), [[1, 2]], mask=9), "model must give logits"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
