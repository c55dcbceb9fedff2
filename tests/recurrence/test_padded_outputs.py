"""Padding, dtypes of symbols, precision and temperature in models of sequences."""

import pytest
import torch

from tests.recurrence.strings import MODELS, all_strings, seq2seq
from vademecum.randomness import categorical
from vademecum.recurrence import FeedbackRNN, ProfessorForcing, sequence_log_prob


@pytest.mark.parametrize("end", [None, 1])
@pytest.mark.parametrize("how", [{"by": "beam", "beam": 3}, {}, {"by": "sample"}])
def test_padded_inputs_do_not_change_what_is_written(end, how):
    """Best strings by enumeration, and NaN in the padding."""
    model = FeedbackRNN(2, 5, 3, end=end).double()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3)
    lengths, x = [5, 2, 3, 1], torch.randn(4, 5, 2).double()
    outside = torch.arange(5) >= torch.tensor(lengths)[:, None]
    found = []
    for fill in (0.0, torch.nan, 9.0):
        padded = torch.where(outside[:, :, None], fill, x)
        source = torch.Generator().manual_seed(2)
        y = model.generate(padded, lengths=lengths, generator=source, **how)
        assert torch.all(y[outside[:, : y.shape[1]]] == (end or 0))
        found.append(y)
        if how.get("by") != "sample":
            for i, n in enumerate(lengths):
                alone = model.generate(x[i : i + 1, :n], **how)[0]
                m = min(len(alone), y.shape[1])
                assert torch.equal(y[i, :m], alone[:m])
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_a_search_over_padded_inputs_is_exact():
    model = FeedbackRNN(2, 5, 3).double()
    x, lengths = torch.randn(2, 5, 2).double() * 3, [2, 5]
    best = model.generate(x, by="beam", beam=3**5, lengths=lengths)[0]
    strings = all_strings(3, 2)
    law = sequence_log_prob(model, x[:1, :2].expand(9, 2, 2), strings)
    assert torch.equal(best, torch.cat((strings[law.argmax()], torch.zeros(3).long())))


def test_nan_in_padding_reaches_no_gradient():
    model = FeedbackRNN(2, 5, 3, end=0)
    x, y, lengths = torch.randn(3, 6, 2), torch.randint(3, (3, 6)), torch.tensor([6, 2, 4])
    x[torch.arange(6) >= lengths[:, None]] = torch.nan
    sequence_log_prob(model, x, y, lengths=lengths).sum().backward()
    losses = ProfessorForcing(model, width=3)(x, y, lengths)
    losses.generator.sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.int16])
def test_integers_of_any_kind_are_symbols(dtype):
    model = FeedbackRNN(2, 5, 256, end=1)
    x, y = torch.randn(2, 4, 2), torch.tensor([[255, 0, 1, 7], [3, 4, 255, 9]])
    assert torch.equal(sequence_log_prob(model, x, y.to(dtype)), sequence_log_prob(model, x, y))
    other = seq2seq(attention="dot")
    source, answer = torch.randint(7, (2, 6)), torch.randint(3, (2, 4))
    found = sequence_log_prob(other, source.to(dtype), answer.to(dtype))
    assert torch.equal(found, sequence_log_prob(other, source, answer))


@pytest.mark.parametrize("name", ["feedback", "dot", "captions"])
def test_half_precision_adds_up_in_single(name):
    make, draw = MODELS[name]
    model, x = make(), draw(2)
    y = torch.randint(3, (2, 4))
    wanted = sequence_log_prob(model, x, y)
    model = model.bfloat16()
    found = sequence_log_prob(model, x.bfloat16() if x.is_floating_point() else x, y)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1e-3, 1e-300])
def test_a_low_temperature_takes_the_most_probable(dtype, temperature):
    model, x = FeedbackRNN(2, 5, 3).to(dtype), torch.randn(9, 4, 2, dtype=dtype)
    with torch.no_grad():
        model.decoder.logits.weight.mul_(1e3)
    found = model.generate(x, by="sample", temperature=temperature)
    assert torch.equal(found, model.generate(x))


def test_categorical_inverts_the_distribution_function():
    p = torch.tensor([[0.0, 0.25, 0.0, 0.5, 0.25, 0.0], [0.5, 0.0, 0.0, 0.0, 0.25, 0.25]]).double()
    u = torch.tensor([0.0, 0.2499, 0.2501, 0.7499, 0.7501, 1 - 2**-53]).double()
    rows = p.log().repeat_interleave(6, 0)
    assert categorical(rows, u.repeat(2)).tolist() == [1, 1, 3, 3, 4, 4, 0, 0, 0, 4, 5, 5]
    assert categorical(rows.t().contiguous().t(), u.repeat(2)).tolist()[:6] == [1, 1, 3, 3, 4, 4]
    fine = torch.zeros(1, 4096, dtype=torch.bfloat16)
    assert categorical(fine, torch.tensor([0.3], dtype=torch.float64)).item() == int(0.3 * 4096)
