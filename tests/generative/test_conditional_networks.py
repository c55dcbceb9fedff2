"""Networks that are told times and contexts."""

# pyright: reportArgumentType=false, reportCallIssue=false

import math
import re

import pytest
import torch

from vademecum.generative import ConditionalMLP, ConditionalUNet


def unet(**knobs):
    net = ConditionalUNet(**{"width": 8, "blocks": 1} | knobs)
    torch.nn.init.normal_(net.last.weight, std=0.1)
    return net


@pytest.mark.parametrize(("side", "channels"), [(28, 1), (32, 3), (8, 2)])
def test_conditional_unet_takes_images_of_any_channels_and_begins_at_zero(side, channels):
    x, t = torch.randn(2, channels, side, side), torch.tensor([1, 1000])
    begin = ConditionalUNet(channels, width=8, blocks=1)
    assert not begin(x, t).any()
    assert unet(channels=channels)(x, t).shape == x.shape
    assert unet(channels=channels, out=2 * channels)(x, t).shape[1] == 2 * channels
    assert unet(channels=channels, attention=False, multipliers=(1, 3))(x, t).shape == x.shape


@pytest.mark.parametrize("make", [lambda **k: unet(**k), lambda **k: ConditionalMLP(4, **k)])
def test_conditional_mlp_and_conditional_u_net_hear_times_and_contexts(make):
    torch.manual_seed(0)
    net = make(classes=3).eval()
    x = torch.randn(2, 1, 8, 8) if isinstance(net, ConditionalUNet) else torch.randn(2, 4)
    t, labels = torch.tensor([3, 700]), torch.tensor([0, 2])
    plain = net(x, t, labels)
    assert not torch.allclose(plain, net(x, t + 1, labels), atol=1e-7)
    assert not torch.allclose(plain, net(x, t, labels.flip(0)), atol=1e-7)
    none = torch.full((2,), net.null)
    torch.testing.assert_close(net(x, t), net(x, t, none))
    assert not torch.allclose(plain, net(x, t), atol=1e-7)
    one = net(x[1:], t[1:], labels[1:])
    torch.testing.assert_close(one, plain[1:], rtol=1e-4, atol=1e-5)
    vectors = make(context_width=5).eval()
    assert vectors.null == 0.0
    torch.testing.assert_close(vectors(x, t), vectors(x, t, torch.zeros(2, 5)))
    assert not torch.allclose(vectors(x, t), vectors(x, t, torch.ones(2, 5)), atol=1e-7)
    assert make().null is None


def test_times_are_measured_by_the_horizon():
    torch.manual_seed(0)
    steps = ConditionalMLP(2, hidden=(8,), horizon=200)
    real = ConditionalMLP(2, hidden=(8,), horizon=1.0)
    real.load_state_dict(steps.state_dict())
    x = torch.randn(3, 2)
    torch.testing.assert_close(
        steps(x, torch.tensor([0, 50, 200])), real(x, torch.tensor([0.0, 0.25, 1.0]))
    )


def test_waves_of_times_are_sines_and_cosines():
    net = ConditionalMLP(2, embedding=6, horizon=1000)
    found = net.told._waves(torch.tensor([0, 7]), torch.float64)
    omega = [1.0, 1e-2, 1e-4]
    wanted = [[math.sin(7 * w) for w in omega] + [math.cos(7 * w) for w in omega]]
    torch.testing.assert_close(found[1:], torch.tensor(wanted).double(), rtol=1e-5, atol=1e-6)
    assert found[0].tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("attention", [False, True])
def test_no_examples_have_no_outputs(attention):
    t = torch.zeros(0, dtype=torch.long)
    found = unet(attention=attention)(torch.zeros(0, 1, 8, 8), t)
    assert found.shape == (0, 1, 8, 8)
    assert ConditionalMLP(3)(torch.zeros(0, 3), t).shape == (0, 3)


X, T = torch.randn(2, 1, 28, 28), torch.tensor([1, 2])
REFUSED = {
    "x must be images (n, 1, height, width), got (2, 3, 28, 28)": lambda: unet()(
        X.expand(2, 3, 28, 28), T
    ),
    "x must have sides divisible by 4, got (28, 30)": lambda: unet()(torch.zeros(2, 1, 28, 30), T),
    "x must be floating point, got torch.uint8": lambda: unet()(X.byte(), T),
    "x must be floating point, got torch.int64": lambda: ConditionalMLP(2)(T[:, None] + T, T),
    "t must be 2 times, one for each example": lambda: unet()(X, T[:1]),
    "context must be None": lambda: unet()(X, T, T),
    "context must be 2 integers, the labels": lambda: unet(classes=3)(X, T, torch.ones(2)),
    "context must be labels from 0 to 2, or 3 for none, got 4": lambda: unet(classes=3)(
        X, T, torch.tensor([4, 0])
    ),
    "context must be labels from 0 to 2, or 3 for none, got -1": lambda: ConditionalMLP(
        2, classes=3
    )(torch.ones(2, 2), T, torch.tensor([-1, 0])),
    "context must have the shape (2, 4)": lambda: unet(context_width=4)(X, T, torch.ones(2, 3)),
    "width must be divisible by 8": lambda: ConditionalUNet(width=12),
    "blocks must be >= 1": lambda: ConditionalUNet(blocks=0),
    "multipliers must name one level": lambda: ConditionalUNet(multipliers=()),
    "dropout must be < 1": lambda: ConditionalUNet(dropout=1.0),
    "horizon must be > 0": lambda: ConditionalMLP(2, horizon=0.0),
    "classes must be None where context_width": lambda: ConditionalMLP(
        2, classes=2, context_width=3
    ),
    "hidden must name the width": lambda: ConditionalMLP(2, hidden=()),
    "x must have the shape (n, 2), got (2, 3)": lambda: ConditionalMLP(2)(torch.ones(2, 3), T),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message, unchecked):
    with pytest.raises(ValueError, match=re.escape(message)):
        REFUSED[message]()
