"""Models of sequences: enumeration of all strings, padding, laws of parts."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from tests.recurrence.strings import MODELS, all_strings, distinct_strings, seq2seq
from vademecum.recurrence import (
    CaptionModel,
    FeedbackRNN,
    ProfessorForcing,
    Seq2Seq,
    beam_search,
    sequence_log_prob,
)
from vademecum.testing import check_part

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
T = 4


def embedded(model, fed):
    assert model.decoder.embedding is not None
    return model.decoder.embedding(fed)


def repeated(x, n):
    return x.expand(n, *x.shape[1:])


def by_steps(model, x, y):
    """Log-probabilities of strings, asked symbol by symbol."""
    step, start, state = model.decoding(x)
    total, tokens, ended = torch.zeros(len(y)).double(), start, torch.zeros(len(y)).bool()
    for t in range(y.shape[1]):
        log_probs, state = step(tokens, state)
        own = log_probs.gather(1, y[:, t : t + 1])[:, 0]
        total += torch.where(ended, 0, own)
        ended |= y[:, t] == model.end
        tokens = y[:, t]
    return total


@pytest.mark.parametrize("name", MODELS)
def test_sequence_log_prob_is_that_of_the_steps_and_sums_to_one(name):
    make, draw = MODELS[name]
    model, x = make().double(), draw(2)
    x = x.double() if x.is_floating_point() else x
    for i in range(2):
        y = distinct_strings(3, T, model.end)
        given = repeated(x[i : i + 1], len(y))
        found = sequence_log_prob(model, given, y).detach()
        torch.testing.assert_close(found, by_steps(model, given, y), rtol=0, atol=1e-12)
        assert math.isclose(float(found.exp().sum()), 1, abs_tol=1e-12)
        search = {"beam": 3**T, "max_length": T, "end": model.end}
        step, start, state = model.decoding(x[i : i + 1])
        beams = beam_search(step, start, state=state, **search)
        n = len(y)
        torch.testing.assert_close(
            beams.log_probs[0, :n].exp(), found.exp().sort(descending=True).values
        )
        again = sequence_log_prob(model, given, beams.tokens[0, :n])
        torch.testing.assert_close(again, beams.log_probs[0, :n])
        best = model.generate(x[i : i + 1], T, by="beam", beam=3**T)
        assert torch.equal(best, beams.tokens[:, 0])


@pytest.mark.parametrize("name", MODELS)
def test_greedy_outputs_are_the_largest_logits(name):
    make, draw = MODELS[name]
    model, x = make(), draw(5)
    found = model.generate(x, T)
    filled = nn.functional.pad(found, (0, T - found.shape[1]), value=model.end or 0)
    logits = model(x, filled)
    counted = model.counted(filled)
    assert torch.equal(logits.argmax(2)[counted], filled[counted])
    if model.end is not None:
        assert torch.all(filled[~counted] == model.end)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_free_running_follows_the_model_s_law(name, temperature):
    """Counts of the first three outputs against the enumerated law: chi-squared."""
    make, draw = MODELS[name]
    torch.manual_seed(1)
    model, n = make().double(), 4_000
    x = repeated(draw(1), n)
    x = x.double() if x.is_floating_point() else x
    if temperature == 1:
        y = model.run(x, max_length=3, generator=torch.Generator().manual_seed(3)).outputs
    else:
        with torch.no_grad():
            model.decoder.logits.weight *= 2
            model.decoder.logits.bias *= 2
        source = torch.Generator().manual_seed(3)
        y = model.generate(x, 3, by="sample", generator=source, temperature=2.0)
        with torch.no_grad():
            model.decoder.logits.weight /= 2
            model.decoder.logits.bias /= 2
    strings = distinct_strings(3, 3, model.end)
    if name.startswith(("feedback", "no ")):
        x = x[:, :3]
    p = sequence_log_prob(model, x[: len(strings)], strings).exp().detach()
    y = nn.functional.pad(y, (0, 3 - y.shape[1]), value=model.end or 0)
    base = torch.tensor([9, 3, 1])
    counts = torch.bincount((y * base).sum(1), minlength=27)[(strings * base).sum(1)]
    assert counts.sum() == n, "only strings that are possible"
    chi = ((counts - n * p).square() / (n * p)).sum()
    degrees = len(strings) - 1
    assert chi < degrees + 6 * math.sqrt(2 * degrees) + 10


@pytest.mark.parametrize("attention", ["none", "dot", "additive"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_padding_never_changes_a_result(attention, cell):
    model = seq2seq(attention=attention, cell=cell, layers=2).double()
    lengths = torch.tensor([3, 6, 1, 4])
    x, y = torch.randint(7, (4, 6)), torch.randint(3, (4, 5))
    outside = torch.arange(6) >= lengths[:, None]
    together = {pad: model(torch.where(outside, pad, x), y, lengths) for pad in (-100, 0, 6, 99)}
    log_probs = sequence_log_prob(model, x, y, lengths=lengths)
    written = model.generate(x, 9, lengths=lengths, by="beam", beam=3)
    for i, n in enumerate(lengths.tolist()):
        alone = model(x[i : i + 1, :n], y[i : i + 1])
        for found in together.values():
            torch.testing.assert_close(found[i : i + 1], alone, rtol=0, atol=1e-12)
        own = sequence_log_prob(model, x[i : i + 1, :n], y[i : i + 1])
        torch.testing.assert_close(log_probs[i : i + 1], own, rtol=0, atol=1e-12)
        best = model.generate(x[i : i + 1, :n], 9, by="beam", beam=3)
        length = best.shape[1]
        assert torch.equal(written[i : i + 1, :length], best)
        assert torch.all(written[i, length:] == model.end)
    single = model.float()
    for i, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(
            single(x, y, lengths)[i : i + 1], single(x[i : i + 1, :n], y[i : i + 1]),
            rtol=0, atol=1e-6,
        )  # fmt: skip


def test_lengths_are_told_from_a_padding_symbol():
    model = seq2seq(attention="dot", padding=6).double()
    x, y = torch.randint(6, (3, 5)), torch.randint(3, (3, 4))
    x[0, 3:], x[2, 1:] = 6, 6
    assert torch.equal(model(x, y), model(x, y, lengths=[3, 5, 1]))
    broken = x.clone()
    broken[1, 2] = 6
    with pytest.raises(ValueError, match=r"padding \(6\) at the end only"):
        model(broken, y)
    with pytest.raises(ValueError, match="and more than that"):
        model(torch.full_like(x, 6), y)


def test_what_follows_the_end_does_not_count():
    model = FeedbackRNN(2, 5, 3, end=1).double()
    x, y = torch.randn(2, 6, 2).double(), torch.tensor([[0, 2, 1, 0, 2, 0], [2, 2, 0, 0, 2, 0]])
    other = y.clone()
    other[0, 3:] = torch.tensor([-1, 99, 1])
    assert torch.equal(sequence_log_prob(model, x, y), sequence_log_prob(model, x, other))
    short = sequence_log_prob(model, x[:1, :3], y[:1, :3])
    torch.testing.assert_close(sequence_log_prob(model, x, y)[:1], short, rtol=0, atol=1e-12)
    cut = sequence_log_prob(model, x, y, lengths=[6, 4])[1:]
    alone = sequence_log_prob(model, x[1:, :4], y[1:, :4])
    torch.testing.assert_close(cut, alone, rtol=0, atol=1e-12)


def test_attention_against_its_definition():
    for kind in ("dot", "additive"):
        model = seq2seq(attention=kind).double()
        x, y = torch.randint(7, (1, 6)), torch.randint(1, 3, (1, 4))
        e, last = model.encoder(model.embedding(x))
        run = model.run(x, y)
        fed = torch.cat((torch.tensor([[3]]), y[:, :-1]), 1)
        h, _ = model.decoder.rnn(embedded(model, fed), last)
        torch.testing.assert_close(run.states, h)
        look: Any = model.decoder.attention
        for t in range(4):
            if kind == "dot":
                a = torch.stack([h[0, t] @ e[0, s] for s in range(6)])
            else:
                v, one = look.score.weight[0], look.query(h[0, t])
                a = torch.stack([v @ torch.tanh(one + look.key.weight @ e[0, s]) for s in range(6)])
            w = a.exp() / a.exp().sum()
            c = torch.stack([w[s] * e[0, s] for s in range(6)]).sum(0)
            read = torch.tanh(look.combine.weight @ torch.cat((c, h[0, t])))
            torch.testing.assert_close(run.logits[0, t], model.decoder.logits(read))


DRAWS = {
    "determinism": "it draws", "untouched": "it draws", "independence": "it draws",
    "save_load": "it draws", "device": "it draws",
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_models_keep_the_laws(name):
    make, draw = MODELS[name]
    check_part(make(), (draw(3), torch.randint(3, (3, T))), devices=("cpu", "meta"))


@pytest.mark.parametrize("both", [False, True])
def test_professor_forcing_keeps_the_laws(both):
    professor = ProfessorForcing(FeedbackRNN(2, 5, 3), width=4, both=both)
    check_part(professor, (torch.randn(3, 6, 2), torch.randint(3, (3, 6))), skip=DRAWS)


@CUDA
@pytest.mark.gpu
@pytest.mark.parametrize("name", MODELS)
def test_models_on_a_gpu_are_those_of_the_cpu(name):
    make, draw = MODELS[name]
    model, x = make().double(), draw(3)
    x = x.double() if x.is_floating_point() else x
    y = torch.randint(3, (3, T))
    wanted = sequence_log_prob(model, x, y)
    drawn = model.run(x, max_length=T, generator=torch.Generator().manual_seed(1)).outputs
    best = model.generate(x, T, by="beam")
    model = model.cuda()
    found = sequence_log_prob(model, x.cuda(), y.cuda())
    torch.testing.assert_close(found.cpu(), wanted)
    again = model.run(x.cuda(), max_length=T, generator=torch.Generator().manual_seed(1)).outputs
    assert torch.equal(again.cpu(), drawn)
    assert torch.equal(model.generate(x.cuda(), T, by="beam").cpu(), best)
    if isinstance(model, Seq2Seq):
        lengths = torch.tensor([6, 2, 4])
        one = model(x.cuda(), y.cuda(), lengths.cuda())
        torch.testing.assert_close(one.cpu(), model.cpu()(x, y, lengths))


def test_any_encoder_gives_captions():
    encoder = nn.Sequential(nn.Conv2d(3, 7, 3), nn.BatchNorm2d(7))
    model = CaptionModel(4, encoder=encoder, features=7, dimension=3, width=5).double().eval()
    x, y = torch.randn(2, 3, 8, 9).double(), torch.randint(4, (2, 3))
    pooled = encoder(x).mean((2, 3))
    first = torch.tanh(model.first(pooled))[None]
    fed = torch.cat((torch.full((2, 1), 4), y[:, :-1]), 1)
    states, _ = model.decoder.rnn(embedded(model, fed), first)
    torch.testing.assert_close(model(x, y), model.decoder.logits(states))


def test_a_string_longer_than_a_float_can_hold():
    model = FeedbackRNN(0, 4, 3)
    x, y = torch.zeros(1, 600, 0), all_strings(3, 6)[7].repeat(100)[None]
    found = sequence_log_prob(model, x, y)
    assert found < -300
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("cell", ["tanh", "gru", "lstm"])
def test_states_begin_at_zero(cell):
    model = FeedbackRNN(2, 5, 3, cell=cell, layers=2).double()
    x, y = torch.randn(2, T, 2).double(), torch.randint(3, (2, T))
    fed = torch.cat((torch.full((2, 1), 3), y[:, :-1]), 1)
    wanted, _ = model.decoder.rnn(torch.cat((x, embedded(model, fed)), 2))
    torch.testing.assert_close(model.run(x, y).states, wanted, rtol=0, atol=1e-14)


def test_the_default_encoder_of_captions_keeps_the_size_of_its_signal():
    encoder: Any = CaptionModel(3, features=64).encoder
    for layer, inputs in ((2, 16), (4, 32)):
        spread = float(encoder[layer].weight.detach().std()) / math.sqrt(2 / (9 * inputs))
        assert abs(spread - 1) < 0.1
