"""DDPM: losses against closed forms, kinds of predictions against each other, training."""

# pyright: reportArgumentType=false, reportCallIssue=false

import math
import re

import pytest
import torch
from torch import nn

from tests.generative.exact_gaussians import exact
from vademecum.foundations import gaussian_kl
from vademecum.generative import (
    DDPM,
    ConditionalMLP,
    MixtureScore,
    NoiseSchedule,
    ddim_sample,
)
from vademecum.models import Replay, mlp

V0 = 0.25


class Wrapped(nn.Module):
    """A function as a network, with a parameter; maybe with a second half for the variance."""

    def __init__(self, function, raw=None):
        super().__init__()
        self.function, self.raw, self.scale = function, raw, nn.Parameter(torch.ones(()))

    def forward(self, x, t, context=None):
        out = self.scale * self.function(x, t)
        return out if self.raw is None else torch.cat([out, torch.full_like(x, self.raw)], 1)


def _exact(schedule, predicts="noise"):
    means = torch.zeros(1, 2)
    return MixtureScore(
        torch.ones(1), means, torch.tensor([V0]), process=schedule, predicts=predicts
    )


def _posterior_variance(schedule):
    """Of the clean entry given x_t, for each t from 1 on."""
    bar = schedule.alpha_bar[1:]
    return V0 * (1 - bar) / (bar * V0 + 1 - bar)


@pytest.mark.parametrize("predicts", ["noise", "x0", "v"])
def test_the_simple_loss_of_the_exact_predictor_is_what_cannot_be_known(predicts):
    schedule, dice = NoiseSchedule.linear(50), torch.Generator().manual_seed(0)
    model = DDPM(_exact(schedule, predicts), (2,), schedule=schedule, predicts=predicts)
    x = V0**0.5 * torch.randn(60_000, 2, generator=dice)
    left, bar = _posterior_variance(schedule), schedule.alpha_bar[1:]
    wanted = {"x0": left, "noise": left * bar / (1 - bar), "v": left / (1 - bar)}[predicts].mean()
    found = float(model.loss(x, generator=dice))
    # squared errors of normal numbers, in the mean over t: their second moment is 3 m_t^2
    spread = math.sqrt(3 * float(wanted) ** 2 * 6 / (2 * len(x)))
    assert found == pytest.approx(float(wanted), abs=5 * spread)


@pytest.mark.parametrize("predicts", ["noise", "x0", "v"])
@pytest.mark.parametrize("variance", ["small", "large"])
def test_the_loss_of_the_bound_is_the_divergence_of_the_steps(predicts, variance):
    """For one t at a time, against the general divergence of two normal laws."""
    schedule = NoiseSchedule([0.1, 0.3, 0.2, 0.4])
    seen = []

    def off(x, t):
        seen.append((x, t))
        return exact(schedule, 0.6, 0.2, predicts=predicts)(x, t) + 0.3

    model = DDPM(Wrapped(off), (3,), schedule=schedule, predicts=predicts, variance=variance,
                 weighting="bound").double()  # fmt: skip
    for _ in range(8):
        x = torch.randn(1, 3).double()
        loss = float(model.loss(x).detach())
        xt, t = seen[-1]
        true, mine = schedule.posterior(x, xt, t), model.reverse(xt, t)
        step = int(t)
        if step == 1:
            apart = (true.mean - mine.mean).square() / (2 * mine.variance)
            wanted = float(apart.detach().mean())
        else:
            spread = true.variance.expand(1, 3), mine.variance.expand(1, 3)
            both = [
                gaussian_kl(mean, spread[0], mine.mean.detach(), spread[1], diagonal=True)
                for mean in (true.mean, mine.mean.detach())
            ]
            wanted = float(both[0] - both[1]) / 3  # less what does not depend on the mean
        assert loss == pytest.approx(4 * wanted, rel=1e-9), step


def test_reverse_gives_the_chosen_variances():
    schedule = NoiseSchedule([0.1, 0.3, 0.2])
    t, x = torch.tensor([1, 2, 3]), torch.randn(3, 2)
    small, large = schedule.beta_tilde[1:].clone(), schedule.betas[1:]
    small[0] = small[1]
    for knobs, wanted in (
        ({"variance": "small"}, small),
        ({"variance": "large"}, large),
        ({"variance": "learned", "raw": 0.0}, (small * large).sqrt()),
        ({"variance": "learned", "raw": 1.0}, large),
    ):
        net = Wrapped(exact(schedule, 1.0), knobs.get("raw"))
        model = DDPM(net, (2,), schedule=schedule, variance=knobs["variance"])
        law = model.reverse(x, t)
        found = law.variance.expand(3, 2).double()
        torch.testing.assert_close(found, wanted[:, None].expand(3, 2), rtol=1e-5, atol=1e-8)
        guess = exact(schedule, 1.0, predicts="x0")(x, t)
        torch.testing.assert_close(law.mean, schedule.posterior(guess, x, t).mean)


class Spread(nn.Module):
    """The exact prediction, shifted, and a raw variance, each with a parameter."""

    def __init__(self, schedule, raw=0.3):
        super().__init__()
        self.inner = exact(schedule, V0)
        self.shift, self.raw = nn.Parameter(torch.tensor(0.2)), nn.Parameter(torch.tensor(raw))

    def forward(self, x, t):
        return torch.cat([self.inner(x, t) + self.shift, self.raw.expand_as(x)], 1)


def test_a_learned_variance_is_trained_by_the_bound_and_the_mean_is_not():
    schedule, x = NoiseSchedule.linear(30), 0.5 * torch.randn(30_000, 2)
    model = DDPM(Spread(schedule), (2,), schedule=schedule, variance="learned").double()
    x = x.double()
    net = model.network
    half = Wrapped(lambda x, t: net(x, t)[:, :2])
    plain = DDPM(half, (2,), schedule=schedule)
    losses = [m.loss(x, generator=torch.Generator().manual_seed(1)) for m in (model, plain)]
    slopes = [torch.autograd.grad(loss, net.shift, retain_graph=True)[0] for loss in losses]
    torch.testing.assert_close(*slopes)
    found = float((losses[0] - losses[1]).detach())
    bound = model.bound(x[:2000])  # a thousandth of its terms but the first, for each entry
    terms = (bound.total - bound.prior) / 2
    error = 1e-3 * float(terms.std()) * (1 / math.sqrt(2000) + math.sqrt(30 / 30_000) * 2)
    assert found == pytest.approx(1e-3 * float(terms.mean()), abs=5 * error)
    assert float(torch.autograd.grad(losses[0], net.raw)[0].abs()) > 0


def test_contexts_are_dropped_as_often_as_said_and_replaced_by_null():
    seen = []

    class Net(nn.Module):
        null = 7

        def forward(self, x, t, context=None):
            seen.append(context)
            return 0 * x

    model = DDPM(Net(), (1,), schedule=NoiseSchedule([0.5, 0.5]), drop=0.25)
    model.loss(torch.randn(4000, 1), torch.zeros(4000, dtype=torch.long))
    share = float(seen[0].eq(7).double().mean())
    assert set(seen[0].tolist()) == {0, 7}
    assert abs(share - 0.25) < 5 * math.sqrt(0.1875 / 4000)
    model = DDPM(Net(), (1,), schedule=NoiseSchedule([0.5, 0.5]), drop=0.25, null=torch.ones(2))
    model.loss(torch.randn(4000, 1), torch.zeros(4000, 2))
    assert bool((seen[-1][:, 0] == seen[-1][:, 1]).all())
    assert 0 < float(seen[-1].mean()) < 1
    DDPM(Net(), (1,), schedule=NoiseSchedule([0.5])).loss(torch.randn(4, 1), torch.zeros(4))
    assert not seen[-1].any()


def test_steps_are_drawn_from_all_and_alike():
    seen = []

    def net(x, t):
        seen.append(t)
        return 0 * x

    model = DDPM(Wrapped(net), (1,), schedule=NoiseSchedule([0.5] * 4))
    model.loss(torch.randn(8000, 1))
    counts = torch.bincount(seen[0], minlength=6)
    assert counts[0] == counts[5] == 0
    assert bool(((counts[1:5] - 2000).abs() < 5 * math.sqrt(8000 * 0.1875)).all())


def test_training_comes_near_the_loss_of_the_exact_predictor():
    """Two modes in the plane: the excess loss of a small network falls below a tenth."""
    torch.manual_seed(0)
    schedule = NoiseSchedule.linear(100)
    means = torch.tensor([[-1.0, 0.0], [1.0, 0.5]])
    mixture = torch.tensor([0.3, 0.7]), means, torch.tensor([0.05, 0.05])
    ideal = DDPM(MixtureScore(*mixture, process=schedule), (2,), schedule=schedule)
    model = DDPM(ConditionalMLP(2, hidden=(64, 64), horizon=100), (2,), schedule=schedule)
    adam = torch.optim.Adam(model.parameters(), 3e-3)
    before = _loss(model, ideal)
    for _ in range(300):
        adam.zero_grad()
        model.loss(ideal.network.sample(256)).backward()
        adam.step()
    assert _loss(model, ideal) - _loss(ideal, ideal) < 0.1 * (before - _loss(ideal, ideal))


def _loss(model, ideal):
    with torch.no_grad():
        dice = torch.Generator().manual_seed(5)
        x = ideal.network.sample(4000, generator=dice)
        return float(model.loss(x, generator=dice))


def test_sample_is_the_sampler_of_the_steps_that_are_asked_for():
    schedule = NoiseSchedule.linear(30)
    model = DDPM(_exact(schedule), (2,), schedule=schedule, variance="large")
    dice = [torch.Generator().manual_seed(0) for _ in range(2)]
    found = model.sample(5, steps=7, eta=0.5, generator=dice[0])
    wanted = ddim_sample(model.network, (5, 2), schedule=schedule, steps=7, eta=0.5,
                         generator=dice[1])  # fmt: skip
    torch.testing.assert_close(found, wanted)
    draws = model.sample(20_000, generator=torch.Generator().manual_seed(4))
    assert draws.shape == (20_000, 2)
    learned = DDPM(Wrapped(exact(schedule, V0), 1.0), (2,), schedule=schedule, variance="learned")
    both = [
        m.sample(3, generator=torch.Generator().manual_seed(1), clip=2.0) for m in (model, learned)
    ]
    torch.testing.assert_close(*both)
    both = [
        m.sample(3, generator=torch.Generator().manual_seed(1), steps=4) for m in (model, learned)
    ]
    torch.testing.assert_close(*both)


class Broken(nn.Module):
    def forward(self, x, t, context=None):
        return x * math.nan


REFUSED = {
    "x must be floating point, got torch.int64": lambda m: m.loss(torch.ones(2, 2).long()),
    "x must have the shape (n, *(2,)), got (2, 3)": lambda m: m.loss(torch.ones(2, 3)),
    "x must have the shape (n, *(2,)), got (0, 2)": lambda m: m.loss(torch.ones(0, 2)),
    "x must be finite": lambda m: m.loss(torch.full((2, 2), math.nan)),
    "got nan in its term 'prediction of noise'": lambda m: DDPM(Broken(), (2,)).loss(
        torch.ones(2, 2)
    ),
    "network must give the shape (2, 4), got (2, 2)": lambda m: DDPM(
        m.network, (2,), variance="learned"
    ).loss(torch.ones(2, 2)),
    "null must be given where drop > 0": lambda m: DDPM(mlp([2, 2]), (2,), drop=0.1),
    "drop must be < 1": lambda m: DDPM(mlp([2, 2]), (2,), drop=1.0),
    "predicts must be one of": lambda m: DDPM(mlp([2, 2]), (2,), predicts="score"),
    "variance must be one of": lambda m: DDPM(mlp([2, 2]), (2,), variance="none"),
    "weighting must be one of": lambda m: DDPM(mlp([2, 2]), (2,), weighting="none"),
    "predicts must be 'x0' or 'v' where the last step leaves no data": lambda m: DDPM(
        mlp([2, 2]), (2,), schedule=NoiseSchedule.linear(50, zero_terminal_snr=True)
    ),
    "schedule must be a NoiseSchedule": lambda m: DDPM(mlp([2, 2]), (2,), schedule=[0.1]),
    "shape must be >= 1": lambda m: DDPM(mlp([2, 2]), (0,)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message, unchecked):
    model = DDPM(ConditionalMLP(2, hidden=(4,)), (2,))
    with pytest.raises(ValueError, match=re.escape(message)):
        REFUSED[message](model)


@pytest.mark.gpu
def test_losses_and_samples_on_a_device():
    model = DDPM(ConditionalMLP(2, hidden=(32,), classes=3), (2,), drop=0.2).cuda()
    x, labels = torch.randn(8, 2, device="cuda"), torch.arange(8, device="cuda") % 3
    model.loss(x, labels).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.sample(8, labels, steps=5, guidance=1.0).is_cuda


@pytest.mark.gpu
def test_a_training_step_that_drops_labels_is_captured():
    model = DDPM(ConditionalMLP(2, hidden=(32,), classes=3), (2,), drop=0.5).cuda()
    x, labels = torch.randn(64, 2, device="cuda"), torch.arange(64, device="cuda") % 3
    rate, parameters = torch.tensor(0.0, device="cuda"), [*model.parameters()]
    steps = torch.optim.AdamW(parameters, rate, capturable=True)
    losses = torch.zeros(300, device="cuda")
    count = torch.zeros(1, dtype=torch.long, device="cuda")

    def step():
        steps.zero_grad(set_to_none=True)
        value = model.loss(x, labels)
        value.backward()
        steps.step()
        losses.index_copy_(0, count % 300, value.detach()[None])
        count.add_(1)

    before = [p.detach().clone() for p in parameters]
    take = Replay(step, [rate, losses, count])
    assert all(a.equal(b) for a, b in zip(before, parameters, strict=True))
    rate.fill_(1e-2)
    for _ in range(300):
        take()
    assert losses[-100:].mean() < 0.9 * losses[:20].mean()
