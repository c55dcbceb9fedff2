"""DDPM around networks of others: contexts that stand for none, and copies."""

# pyright: reportArgumentType=false

import copy
import math

import pytest
import torch
from torch import nn

from vademecum.generative import DDPM, NoiseSchedule, ddim_sample, ddpm_sample
from vademecum.models import mlp


def test_a_learned_variance_is_guided_by_the_null_that_was_given():
    """The network itself has none, and cannot do without a context."""

    class Strict(nn.Module):
        def forward(self, x, t, context):
            seen.append(context)
            return torch.cat([0 * x + context.float()[:, None], 0 * x], 1)

    seen, schedule = [], NoiseSchedule([0.5])
    model = DDPM(Strict(), (1,), schedule=schedule, variance="learned", null=9)
    torch.manual_seed(0)
    found = model.sample(2, torch.tensor([1, 2]), guidance=2.0)
    assert seen[-1].tolist() == [1, 2, 9, 9]
    torch.manual_seed(0)
    start = torch.randn(2, 1)
    noise = 3 * torch.tensor([[1.0], [2.0]]) - 2 * 9
    torch.testing.assert_close(found, (start - 0.5**0.5 * noise) / 0.5**0.5)
    assert model.training
    assert model.network.training
    assert model.bound(torch.ones(3, 1), torch.arange(3)).total.shape == (3,)
    clean = DDPM(Strict(), (1,), schedule=schedule, predicts="x0", variance="learned", null=9)
    assert clean.sample(2, torch.tensor([1, 2])).tolist() == [[1.0], [2.0]]


def test_tables_stay_out_of_the_state_and_follow_copies():
    model = DDPM(mlp([2, 2]), (2,), schedule=NoiseSchedule.linear(30), weighting="bound")
    model.network.forward = lambda x, t: 0 * x
    x = torch.randn(6, 2)
    losses = [
        m.loss(x, generator=torch.Generator().manual_seed(0)) for m in (model, copy.deepcopy(model))
    ]
    assert losses[0] == losses[1]
    assert set(model.state_dict()) == {f"network.{k}" for k in model.network.state_dict()}


class Labelled(nn.Module):
    """Half of the examples and a third of the label, or of minus one without."""

    null = -1

    def forward(self, x, t, context=None):
        label = -torch.ones(len(x)) if context is None else context.to(x)
        return x / 2 + label[:, None] / 3


@pytest.mark.parametrize("predicts", ["noise", "x0", "v"])
def test_sample_hands_on_all_that_it_is_asked(predicts):
    schedule, labels = NoiseSchedule.linear(25), torch.tensor([2, 0, 1])
    model = DDPM(Labelled(), (1,), schedule=schedule, predicts=predicts, variance="large")
    knobs = {"guidance": 1.5, "clip": 0.8}
    both = {**knobs, "schedule": schedule, "predicts": predicts, "context": labels}
    dice = [torch.Generator().manual_seed(5) for _ in range(4)]
    found = model.sample(3, labels, generator=dice[0], **knobs)
    wanted = ddpm_sample(model.network, (3, 1), variance="large", generator=dice[1], **both)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    found = model.sample(3, labels, steps=7, eta=0.5, generator=dice[2], **knobs)
    wanted = ddim_sample(model.network, (3, 1), steps=7, eta=0.5, generator=dice[3], **both)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert bool((found.abs() <= 0.8 + 1e-6).all())


@pytest.mark.parametrize("predicts", ["noise", "x0", "v"])
def test_the_learned_variance_is_weighed_by_the_clean_example_that_is_predicted(predicts):
    """One example at a time: a thousandth of T times the cost of its step, written out."""
    betas, seen = [0.1, 0.3, 0.2], []

    class Net(nn.Module):
        def forward(self, x, t):
            seen.append((x, int(t)))
            return torch.cat([0.4 * x + 0.1, 0 * x + 0.5], 1)

    schedule = NoiseSchedule(betas)
    model = DDPM(Net(), (1,), schedule=schedule, predicts=predicts, variance="learned")
    left = [1.0, 0.9, 0.63, 0.504]
    small = [(1 - left[t - 1]) / (1 - left[t]) * betas[t - 1] for t in (2, 2, 3)]
    for _ in range(8):
        x0 = torch.randn(1, 1, dtype=torch.float64)
        loss = model.loss(x0)
        xt, t = seen[-1]
        a, s = math.sqrt(left[t]), math.sqrt(1 - left[t])
        noise, out = (xt - a * x0) / s, 0.4 * xt + 0.1
        target = {"noise": noise, "x0": x0, "v": a * noise - s * x0}[predicts]
        guess = {"noise": (xt - s * out) / a, "x0": out, "v": a * xt - s * out}[predicts]
        share = math.sqrt(left[t - 1]) * betas[t - 1] / (1 - left[t])
        variance = small[t - 1] ** 0.25 * betas[t - 1] ** 0.75
        cost = math.log(variance) + float((share * (x0 - guess)) ** 2) / variance
        if t == 1:
            cost = cost + math.log(2 * math.pi)
        else:
            cost = cost - math.log(small[t - 1]) - 1 + small[t - 1] / variance
        wanted = float((out - target) ** 2) + 1e-3 * 3 * cost / 2
        assert float(loss) == pytest.approx(wanted, rel=1e-9), t
