"""Perplexity and bits a byte: every token once, by any windows and batches, on any module."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from vademecum.language import GPT, bits_per_byte, perplexity
from vademecum.language.scoring import _row_scores
from vademecum.testing import check_instrument


def model(context: int = 8) -> GPT:
    made = GPT(V=7, d=12, layers=2, heads=3, context=context, dropout=0.3)
    for p in made.parameters():
        nn.init.normal_(p, 0, 0.5)
    return made.double()


@torch.no_grad()
def one_by_one(net: nn.Module, row: torch.Tensor, seen: Any) -> list[float]:
    """Negative log-probabilities, each by a pass of its own over what it is predicted from."""
    net.eval()
    return [
        -float(net(row[None, seen(i) : i])[0, -1].log_softmax(0)[row[i]])
        for i in range(1, len(row))
    ]


@pytest.mark.parametrize(("context", "stride"), [(8, 8), (8, 3), (8, 1), (5, 5), (5, 2), (1, 1)])
def test_perplexity_in_windows_token_by_token(context, stride):
    net, row = model(), torch.randint(7, (30,))

    def begin(i: int) -> int:
        """Where the window begins that predicts token i: the first that reaches it."""
        end = context
        while end < i:
            end += stride
        return max(0, min(end, len(row) - 1) - context)

    losses = one_by_one(net, row, begin)
    found = perplexity(net.train(), row, context=context, stride=stride)
    assert found.tokens == 29
    assert found.nats == pytest.approx(sum(losses) / 29, abs=1e-10)
    assert found.perplexity == pytest.approx(math.exp(sum(losses) / 29), rel=1e-9)
    assert found.bits == pytest.approx(found.nats / math.log(2), rel=1e-12)
    assert net.training


@pytest.mark.parametrize("memory", [None, 1, 2000])
def test_perplexity_counts_tokens_and_not_rows_in_any_batches(memory):
    net, rows = model(), [torch.randint(7, (T,)) for T in (2, 31, 9, 1, 8)]
    losses = [one_by_one(net, row, lambda i: max(0, (i - 1) // 8 * 8)) for row in rows]
    every = [loss for one in losses for loss in one]
    for x in (rows, [row.tolist() for row in rows], rows[::-1]):
        found = perplexity(net, x, memory=memory)
        assert found.tokens == len(every) == 46
    # windows of 8 inputs each: the last one of a row looks further back
    found = perplexity(net, [rows[0], rows[4]], memory=memory)
    assert found.nats == pytest.approx(sum(losses[0] + losses[4]) / 8, abs=1e-10)
    several = [perplexity(net, [row], memory=memory) for row in rows if len(row) > 1]
    total = sum(one.nats * one.tokens for one in several)
    assert perplexity(net, rows, memory=memory).nats == pytest.approx(total / 46, abs=1e-10)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_loader_stands_for_its_rows(size):
    net, rows = model(), torch.randint(7, (5, 9))
    loader = DataLoader(list(rows), batch_size=size)  # pyright: ignore[reportArgumentType]
    assert perplexity(net, loader).nats == pytest.approx(perplexity(net, rows).nats, abs=1e-12)
    assert bits_per_byte(net, loader, 40) == pytest.approx(bits_per_byte(net, rows, 40), abs=1e-12)


def test_a_start_predicts_the_first_token_too():
    net, row = model(), torch.randint(7, (6,))
    found = perplexity(net, row, start=3)
    with_it = perplexity(net, torch.cat([torch.tensor([3]), row]))
    assert found == with_it
    assert found.tokens == 6


def test_bits_per_byte_is_the_length_of_a_code():
    net, rows = model(), [torch.randint(7, (T,)) for T in (12, 3)]
    found = perplexity(net, rows)
    bits = found.bits * found.tokens + 2 * math.log2(7)  # first tokens as one of seven
    assert bits_per_byte(net, rows, 31) == pytest.approx(bits / 31, rel=1e-12)
    started = perplexity(net, rows, start=0)
    assert bits_per_byte(net, rows, 31, start=0) == pytest.approx(started.bits * 15 / 31, rel=1e-12)
    silent = nn.Embedding.from_pretrained(torch.zeros(5, 5))  # does not say how many tokens it has
    assert bits_per_byte(silent, [1, 2], 1) == pytest.approx(2 * math.log2(5), rel=1e-7)


def test_passes_are_larger_where_memory_allows(monkeypatch):
    sizes = []

    def noted(module, rows, device):
        sizes.append(len(rows))
        return scored(module, rows, device)

    scored = _row_scores._scored
    monkeypatch.setattr(_row_scores, "_scored", noted)
    rows = torch.randint(7, (20, 8))
    perplexity(model(), rows)
    assert sizes == [1, 19]
    sizes.clear()
    perplexity(model(), rows, memory=4 * 3 * 7 * 7 * 8)
    assert sizes == [1, 4, 4, 4, 4, 3]


def test_half_precision_is_summed_in_double():
    net = nn.Embedding.from_pretrained(torch.zeros(3, 3, dtype=torch.bfloat16))
    found = perplexity(net, torch.randint(3, (5000,)), context=50)
    assert found.perplexity == pytest.approx(3, rel=1e-6)


def test_a_text_beyond_all_belief_has_an_infinite_perplexity():
    sure = nn.Embedding.from_pretrained(torch.tensor([[0.0, 2000.0], [0.0, 2000.0]]))
    assert perplexity(sure, [0, 0, 0])[:2] == (math.inf, 2000)
    never = nn.Embedding.from_pretrained(torch.tensor([[0.0, 1.0], [0.0, 1.0]]).log())
    assert perplexity(never, [0, 0, 1])[:2] == (math.inf, math.inf)


def test_perplexity_keeps_the_laws_of_instruments():
    def nats(net: nn.Module, x: torch.Tensor) -> float:
        return perplexity(net, x, stride=4).nats

    check_instrument(nats, [model(), nn.Embedding(7, 7)], torch.randint(7, (5, 9)), outputs=None)


def test_models_of_transformers_have_their_perplexity():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=9, n_positions=6, n_embd=8, n_layer=1, n_head=2)
    net = transformers.GPT2LMHeadModel(config)
    row = torch.randint(9, (6,))
    loss = partial(net.eval(), row[None], labels=row[None])().loss
    assert perplexity(net, row).nats == pytest.approx(loss.item(), abs=1e-6)
    assert perplexity(net, torch.randint(9, (20,))).tokens == 19
