"""Ways to train models of sequences: coins, the judge of two modes, and what is refused."""

import re
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, softplus

from tests.recurrence.strings import MODELS, seq2seq
from vademecum.recurrence import (
    CaptionModel,
    FeedbackRNN,
    ProfessorForcing,
    Seq2Seq,
    beam_search,
    scheduled_sampling,
    sequence_log_prob,
)
from vademecum.recurrence.sequences._decoder import Decoder

T = 4


def inputs(name, n=3):
    make, draw = MODELS[name]
    x = draw(n)
    return make().double(), x.double() if x.is_floating_point() else x


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("p", [0.0, 0.4, 0.999, 1.0])
def test_scheduled_sampling_is_teacher_forcing_on_what_was_fed(name, p):
    model, x = inputs(name)
    others = torch.tensor([symbol for symbol in range(3) if symbol != model.end])
    y = others[torch.randint(len(others), (3, T))]
    run = scheduled_sampling(model, x, y, p)
    assert torch.equal(run.outputs[run.given], y[run.given])
    fed = torch.cat((torch.full((3, 1), 3), run.outputs[:, :-1]), 1)
    start = model._start(x, None)
    wanted = model.decoder(fed, start.hidden, start.inputs, start.seen)
    torch.testing.assert_close(run.logits, wanted.logits)
    torch.testing.assert_close(run.states, wanted.states)
    if p == 1:
        assert run.given.all()


def test_scheduled_sampling_without_truth_is_free_running():
    model = FeedbackRNN(2, 5, 3)
    x, y = torch.randn(4, 9, 2), torch.randint(3, (4, 9))
    run = scheduled_sampling(model, x, y, 0.0, generator=torch.Generator().manual_seed(1))
    free = model.run(x, generator=torch.Generator().manual_seed(1))
    for one, other in zip(run, free, strict=True):
        assert torch.equal(one, other)


def test_coins_do_not_depend_on_what_is_drawn():
    """All symbols are equally probable, also among those that were not given."""
    model = FeedbackRNN(0, 4, 3)
    _ = [nn.init.zeros_(p) for p in model.parameters()]
    n, y = 2000, torch.randint(3, (2000, 3))
    source = torch.Generator().manual_seed(6)
    run = scheduled_sampling(model, torch.zeros(n, 3, 0), y, 0.6, generator=source)
    own = torch.bincount(run.outputs[~run.given], minlength=3)
    assert abs(int(own.sum()) - 2400) < 5 * 38  # five standard errors of 6000 coins
    assert torch.all((own - 800).abs() < 150)


def test_scheduled_sampling_trains():
    """A gradient reaches every parameter, and is that of the loss on the truth."""
    model = FeedbackRNN(2, 5, 3, cell="gru", layers=2)
    x, y = torch.randn(4, 9, 2), torch.randint(3, (4, 9))
    cross_entropy(scheduled_sampling(model, x, y, 0.5).logits.mT, y).backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


def test_padding_does_not_change_scheduled_sampling():
    model = seq2seq(attention="additive").double()
    x, y, lengths = torch.randint(7, (3, 6)), torch.randint(3, (3, 5)), [2, 6, 3]
    runs = []
    for pad in (-5, 6):
        padded = torch.where(torch.arange(6) >= torch.tensor(lengths)[:, None], pad, x)
        source = torch.Generator().manual_seed(2)
        runs.append(scheduled_sampling(model, padded, y, 0.5, lengths=lengths, generator=source))
    assert torch.equal(runs[0].logits, runs[1].logits)


class Mean(nn.Module):
    """A judge that can be computed by hand: the mean of the first unit over the steps counted."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(3.0, dtype=torch.float64))

    def forward(self, states, lengths):
        inside = torch.arange(states.shape[1]) < lengths[:, None]
        return self.scale * (states[:, :, 0] * inside).sum(1) / lengths


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("end", [None, 1])
def test_professor_forcing_against_its_equations(both, end):
    model = FeedbackRNN(2, 5, 3, end=end).double()
    judge, weight = Mean(), model.decoder.rnn.get_parameter("weight_hh_l0")
    professor = ProfessorForcing(model, discriminator=judge, both=both)
    x = torch.randn(6, T, 2).double()
    y = model.run(x, generator=torch.Generator().manual_seed(8)).outputs
    losses = professor(x, y, generator=torch.Generator().manual_seed(9))
    torch.testing.assert_close(losses.likelihood, -sequence_log_prob(model, x, y))
    forced, free = model.run(x, y), model.run(x, generator=torch.Generator().manual_seed(9))
    judged = []
    for run, outputs in ((forced, y), (free, free.outputs)):
        rows = []
        for states, row in zip(run.states, outputs.tolist(), strict=True):
            n = row.index(end) + 1 if end in row else T
            rows.append(3 * states[:n, 0].mean())
        judged.append(torch.stack(rows))
    torch.testing.assert_close(losses.on_forced, judged[0].detach())
    torch.testing.assert_close(losses.on_free, judged[1].detach())
    wanted = -judged[0].sigmoid().log() - (1 - judged[1].sigmoid()).log()
    torch.testing.assert_close(losses.discriminator, wanted)
    wanted = -judged[1].sigmoid().log() - both * (1 - judged[0].sigmoid()).log()
    torch.testing.assert_close(losses.generator, wanted)
    (own,) = torch.autograd.grad(losses.generator.sum(), [judge.scale],
                                 allow_unused=True, retain_graph=True)  # fmt: skip
    assert own is None
    (theirs,) = torch.autograd.grad(losses.discriminator.sum(), [weight],
                                    allow_unused=True, retain_graph=True)  # fmt: skip
    assert theirs is None
    mine = torch.autograd.grad(losses.generator.sum(), [weight])
    by_hand = softplus(-judged[1]) + both * softplus(judged[0])
    torch.testing.assert_close(mine, torch.autograd.grad(by_hand.sum(), [weight]))
    assert all(p.requires_grad for p in professor.parameters())


def test_a_judge_reads_no_padding():
    judge = ProfessorForcing(FeedbackRNN(0, 4, 3), width=5).discriminator.double()
    states, lengths = torch.randn(3, 6, 4).double(), torch.tensor([6, 2, 4])
    other = torch.where(torch.arange(6)[:, None] >= lengths[:, None, None], 9.0, states)
    torch.testing.assert_close(judge(states, lengths), judge(other, lengths))
    alone = judge(states[1:2, :2], lengths[1:2])
    torch.testing.assert_close(judge(states, lengths)[1:2], alone)


X, Y = torch.zeros(2, 5, 2), torch.zeros(2, 5, dtype=torch.long)
S, A = torch.zeros(2, 6, dtype=torch.long), torch.ones(2, 4, dtype=torch.long)


OTHER: Any = nn.RNN(2, 3)
BEST: Any = "best"
TANH: Any = "tanh"
SELF: Any = "self"
RNN: Any = "rnn"


def fed():
    return FeedbackRNN(2, 4, 3)


def nan_in(x):
    x = x.clone()
    x[1, 0] = torch.nan
    return x


MISTAKES = [
    (lambda: FeedbackRNN(0, 4, 3, feedback=False), "d must be >= 1, got 0"),
    (lambda: FeedbackRNN(2, 0, 3), "m must be >= 1, got 0"),
    (lambda: FeedbackRNN(2, 4, 3, end=3), "end must be <= 2, got 3"),
    (lambda: FeedbackRNN(2, 4, 3, cell=RNN), "cell must be one of 'tanh', 'gru', 'lstm'"),
    (lambda: fed()(X[:, :0], Y), "x must have the shape (n, T, 2), T >= 1, got (2, 0, 2)"),
    (lambda: fed()(X[..., :1], Y), "x must have the shape (n, T, 2), T >= 1, got (2, 5, 1)"),
    (lambda: fed()(X.double(), Y), "x must be torch.float32, as the parameters are, got"),
    (lambda: fed()(X.long(), Y), "x must be torch.float32, as the parameters are, got torch.int64"),
    (lambda: fed()(X, Y[:, :4]), "y must have the shape (2, 5) to go with x, got (2, 4)"),
    (lambda: fed()(X, Y + 3), "y must hold symbols from 0 to 2, got 3 at (0, 0)"),
    (lambda: fed()(X, Y.float()), "y must be symbols (n, T), got torch.float32"),
    (lambda: fed()(X, Y, [5, 6]), "lengths must be from 1 to 5, got 6"),
    (lambda: fed()(X, Y, [5, 0]), "lengths must be from 1 to 5, got 0"),
    (lambda: fed()(X, Y, [5]), "lengths must be 2 integers, got torch.int64 of shape (1,)"),
    (lambda: fed()(X, Y, torch.ones(2)), "lengths must be 2 integers, got torch.float32"),
    (lambda: fed().run(nan_in(X)), "logits must not be NaN, got such for example 1 of x"),
    (lambda: fed().generate(nan_in(X)), "must be <= 0 and not NaN, got nan for start 1"),
    (lambda: fed().generate(X, 6), "max_length must be <= 5, got 6"),
    (lambda: fed().generate(X, by=BEST), "by must be one of 'greedy', 'sample', 'beam'"),
    (lambda: fed().generate(X, temperature=0.0), "temperature must be > 0, got 0.0"),
    (lambda: fed().generate(X, by="beam", beam=0), "beam must be >= 1, got 0"),
    (lambda: scheduled_sampling(fed(), X, Y, 1.5), "p must be <= 1, got 1.5"),
    (lambda: scheduled_sampling(fed(), X, Y, -0.1), "p must be >= 0, got -0.1"),
    (lambda: scheduled_sampling(OTHER, X, Y, 0.5), "model must be a FeedbackRNN, Seq2Seq"),
    (lambda: sequence_log_prob(OTHER, X, Y), "model must be a FeedbackRNN, Seq2Seq"),
    (lambda: ProfessorForcing(OTHER), "model must be a FeedbackRNN, Seq2Seq"),
    (lambda: Seq2Seq(5, 3, attention=SELF), "attention must be one of 'none', 'dot', 'additive'"),
    (lambda: Seq2Seq(5, 3, cell=TANH), "cell must be one of 'gru', 'lstm', got 'tanh'"),
    (lambda: Seq2Seq(5, 3, padding=5), "padding must be <= 4, got 5"),
    (lambda: seq2seq()(S - 1, A), "got -1 at (0, 0); are these padded? Then lengths must be given"),
    (lambda: seq2seq()(S + 7, A), "x must hold symbols from 0 to 6, got 7 at (0, 0)"),
    (lambda: seq2seq()(S, A[:1]), "y must have the shape (2, 4) to go with x, got (1, 4)"),
    (lambda: seq2seq()(S[0], A), "x must be symbols (n, T), got torch.int64 of shape (6,)"),
    (lambda: seq2seq()(S[:, :0], A), "x must be symbols (n, T), got torch.int64 of shape (2, 0)"),
    (lambda: seq2seq()(S, A[:, :0]), "y must be symbols (n, T), got torch.int64 of shape (2, 0)"),
    (lambda: seq2seq().generate(S), "max_length must be an integer, got None"),
    (lambda: CaptionModel(3)(S, A), "x must be images of floating-point numbers, got"),
    (lambda: CaptionModel(3)(torch.zeros(2, 3, 8, 8), A, [1, 1]), "lengths must be None: images"),
    (lambda: CaptionModel(3, encoder=nn.Flatten(), features=5)(torch.zeros(2, 4), A),
     "features must have the shape (2, 5, ...), got (2, 4)"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), MISTAKES)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.usefixtures("unchecked")
def test_asking_beyond_the_inputs_is_refused():
    step, start, state = fed().decoding(X)
    with pytest.raises(ValueError, match="max_length must be <= 5, the steps of x, got 6"):
        beam_search(step, start, state=state, beam=2, max_length=6)


@pytest.mark.parametrize("p", [0.5, 1.0])
def test_an_encoder_is_run_once(p):
    """Or the running means of a batch normalisation would move twice, and dropout be two draws."""
    encoder = nn.Sequential(nn.BatchNorm2d(3, momentum=None), nn.Flatten(2), nn.Dropout())
    model = CaptionModel(4, encoder=encoder, features=3, dimension=3, width=5)
    x, y = torch.randn(2, 3, 4, 4), torch.randint(1, 4, (2, 3))
    norm: Any = encoder[0]
    for i, use in enumerate((
        lambda: scheduled_sampling(model, x, y, p),
        lambda: model.generate(x, 3),
        lambda: model.generate(x, 3, by="sample"),
        lambda: sequence_log_prob(model, x, y),
    )):  # fmt: skip
        use()
        assert int(norm.num_batches_tracked) == i + 1


def test_a_given_encoder_draws_nothing():
    torch.manual_seed(3)
    small = CaptionModel(4, encoder=nn.Flatten(), features=5, dimension=3, width=5)
    torch.manual_seed(3)
    assert torch.equal(small.first.weight, _first_of(small))


def _first_of(model):
    again = Decoder(4, dimension=3, width=5, layers=1, cell="gru")
    assert torch.equal(again.logits.weight, model.decoder.logits.weight)
    return nn.Linear(5, 5).weight


def test_a_nan_stays_in_its_own_sequence():
    model = fed()
    clean, spoiled = model(X, Y), model(nan_in(X), Y)
    assert torch.equal(clean[0], spoiled[0])
    assert torch.isnan(spoiled[1]).all()
