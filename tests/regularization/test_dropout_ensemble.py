"""All masks against enumeration by hand, and in portions."""

import itertools
import math
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.regularization.dropping_models import (
    Adding,
    Attending,
    DropPath,
    Functional,
    Hiding,
    Recurrent,
)
from vademecum.models import SlowPathWarning
from vademecum.regularization import dropout_ensemble, mc_dropout
from vademecum.testing.laws import changes, snapshot


def law(keep):
    for b in itertools.product((0.0, 1.0), repeat=len(keep)):
        yield (
            torch.tensor(b),
            math.prod(q if bit else 1 - q for bit, q in zip(b, keep, strict=True)),
        )


@pytest.mark.parametrize("memory", [None, 3000])
def test_dropout_ensemble_of_channels_and_units(memory):
    net = nn.Sequential(nn.Dropout2d(0.3), nn.Conv2d(3, 2, 2), nn.Tanh(), nn.Flatten(),
                        nn.Dropout(0.6), nn.Linear(4, 3)).double()  # fmt: skip
    x = torch.randn(5, 3, 3, 2, dtype=torch.float64)
    conv, last = net[1], net[5]
    means = torch.zeros(5, 3), torch.zeros(5, 3)
    for b, chance in law([0.7] * 3 + [0.4] * 4):
        h = conv(x * (b[:3] / 0.7)[:, None, None]).tanh().flatten(1)
        logs = last(h * b[3:] / 0.4).log_softmax(1)
        means = means[0] + chance * logs.exp(), means[1] + chance * logs
    before = snapshot(net)
    found = dropout_ensemble(net, x, memory=memory)
    assert not list(changes(before, snapshot(net)))
    assert found.units == 7
    torch.testing.assert_close(found.arithmetic, means[0].detach())
    torch.testing.assert_close(found.geometric, means[1].softmax(1).detach())
    torch.testing.assert_close(found.rescaled, net.eval()(x).softmax(1).detach())


def test_attention_weights_are_units():
    net, x = Hiding(p=0.4).double(), torch.randn(3, 2, 4, dtype=torch.float64)
    q, k, v = net.qkv(x).chunk(3, -1)
    weights = (q @ k.mT / 2).softmax(-1)
    mean = torch.zeros(3, 2, 4)
    for b, chance in law([0.6] * 4):
        mean = mean + chance * (weights * b.view(2, 2) / 0.6) @ v
    found = dropout_ensemble(net, x, link="identity")
    assert found.units == 4
    torch.testing.assert_close(found.arithmetic, mean.detach())
    draws = mc_dropout(net, x, samples=2000, link="identity")
    assert ((draws.mean - mean).abs() < 5 * draws.standard_error).all()
    assert (draws.variance / found.variance - 1).abs().max() < 0.3


def test_alpha_dropout_keeps_mean_and_variance():
    x = torch.tensor([[0.5, -2.0]], dtype=torch.float64)
    found = dropout_ensemble(nn.AlphaDropout(0.3), x, link="identity")
    alpha = 1.7580993408473766
    a = (0.7 * (1 + alpha**2 * 0.3)) ** -0.5
    torch.testing.assert_close(found.arithmetic, a * 0.7 * x)
    torch.testing.assert_close(found.variance, a**2 * 0.21 * (x + alpha) ** 2)
    assert found.geometric is None


def test_units_that_are_always_dropped_do_not_count():
    layer = nn.Linear(30, 2)
    net = nn.Sequential(nn.Dropout(1.0), layer, nn.Dropout(0.5))
    found = dropout_ensemble(net, torch.ones(1, 30), link="identity")
    assert found.units == 2
    torch.testing.assert_close(found.arithmetic, layer.bias.detach()[None])


def test_what_cannot_be_mapped_is_enumerated_one_by_one():
    class Asking(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            h = self.drop(x)
            return h * 2 if float(h.detach().sum()) > 0 else h

    with pytest.warns(SlowPathWarning, match="passes are made one by one"):
        found = dropout_ensemble(Asking(), torch.ones(1, 3), link="identity")
    torch.testing.assert_close(found.arithmetic, 2 * torch.ones(1, 3))


def test_dropout_in_place_is_enumerated_one_by_one():
    net, x = Adding(inplace=True).double(), torch.randn(2, 4, dtype=torch.float64)
    with pytest.warns(SlowPathWarning, match="passes are made one by one"):
        found = dropout_ensemble(net, x, link="identity")
    h = net.a(x).detach()
    assert found.units == 4
    torch.testing.assert_close(found.arithmetic, 2 * h)
    torch.testing.assert_close(found.variance, 4 * h.square() * 0.3 / 0.7)


def test_attention_that_always_drops_does_not_in_evaluation():
    class Always(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, key=x, value=x, dropout_p=0.5)

    x = torch.randn(2, 3, 4)
    found = dropout_ensemble(Always(), x, link="identity")
    assert found.units == 9
    torch.testing.assert_close(found.rescaled, F.scaled_dot_product_attention(x, x, x))


def test_the_variance_of_large_outputs_is_not_rounded_away():
    layer = nn.Linear(2, 1).double()
    layer.bias.data.fill_(1e9)
    x = torch.ones(1, 2, dtype=torch.float64)
    found = dropout_ensemble(nn.Sequential(nn.Dropout(0.5), layer), x)
    wanted = layer.weight.detach().square().sum(1, keepdim=True)
    torch.testing.assert_close(found.variance, wanted, rtol=1e-5, atol=0)


BAD = [
    (nn.Dropout(), torch.ones(1, 21), "at most 20 units of an example, got 21 up to"),
    (nn.Linear(2, 2), torch.ones(1, 2), "model must have dropout with a rate above 0"),
    (Attending(weights=True), torch.ones(1, 2, 4), "a layer that draws by itself: 'attend'"),
    (Recurrent(), torch.ones(1, 2, 4), "a layer that draws by itself: 'rnn'"),
    (DropPath(), torch.ones(1, 2), "a layer that draws by itself"),
    (nn.Sequential(nn.Flatten(0), nn.Dropout()), torch.ones(2, 2),
     "2 examples along their first axis, got a mask of shape (4,)"),
    (Functional(), torch.ones(0, 4), "x must not be empty"),
    (Functional(), torch.full((1, 4), torch.nan), "x must be finite"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("model", "x", "message"), BAD, ids=[m for _, _, m in BAD])
def test_dropout_ensemble_refuses(model, x, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        dropout_ensemble(model, x)
