"""Means of signals of infinite width: through norms, sums, pooling, and where they are refused."""

import math
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.kernels.test_infinite_width import B, W, inputs
from tests.kernels.test_wide_architectures import FIRST, kernels, layer, relu
from tests.kernels.test_wide_refusals import IMAGE, Code, X
from vademecum.kernels import infinite_width
from vademecum.kernels.wide._layouts import reshaped

T = 5
TOKENS = inputs(4, T, 3)
ROWS = TOKENS.reshape(-1, 3)


def active(k):
    """Products and means of ReLU features."""
    return relu(k)[0], (k.diagonal() / (2 * math.pi)).sqrt()


def normed(k, mean, over=1, eps=0.1):
    """LayerNorm of rows, a number of them together."""
    square, m = (
        t.view(-1, over).mean(1).repeat_interleave(over) for t in (k.diagonal().clone(), mean)
    )
    root = (square - m**2 + eps).sqrt()
    centred = k - torch.outer(mean, m) - torch.outer(m, mean) + torch.outer(m, m)
    return centred / torch.outer(root, root), (mean - m) / root


def pooled(k, mean):
    return k.view(4, T, 4, T).mean((1, 3)), mean.view(4, T).mean(1)


def hidden(x):
    return W * x @ x.T / 3 + B


def norm(x, *shape):
    return F.layer_norm(x, shape, eps=0.1)


def summed():
    k, mean = active(hidden(X))
    return 9 * (hidden(X) + k), 3 * mean


MEANS = {
    "a norm over tokens, and their sum": (
        lambda m, x: m.three(norm(torch.relu(m.one(x)), T, 3).sum(1)),
        TOKENS,
        lambda: T**2 * pooled(*normed(*active(hidden(ROWS)), over=T))[0],
    ),
    "a norm after pooling": (
        lambda m, x: m.three(norm(torch.relu(m.one(x)).mean(1), 3)),
        TOKENS,
        lambda: normed(*pooled(*active(hidden(ROWS))))[0],
    ),
    "a norm after another": (
        lambda m, x: m.three(norm(norm(torch.relu(m.one(x)), T, 3), 3).mean(1)),
        TOKENS,
        lambda: pooled(*normed(*normed(*active(hidden(ROWS)), over=T)))[0],
    ),
    "a layer after a norm over tokens": (
        lambda m, x: m.three(torch.relu(m.two(norm(torch.relu(m.one(x)), T, 3))).mean(1)),
        TOKENS,
        lambda: pooled(*active(W * normed(*active(hidden(ROWS)), over=T)[0] + B))[0],
    ),
    "a norm of a multiple of a sum": (
        lambda m, x: m.three(norm(3 * (m.one(x) + torch.relu(m.two(x))), 3)),
        X,
        lambda: normed(*summed())[0],
    ),
    "a norm with the least variance of torch": (
        lambda m, x: m.three(torch.layer_norm(m.one(x), (3,))),
        X,
        lambda: normed(hidden(X), 0 * X[:, 0], eps=1e-5)[0],
    ),
    "a norm of the input and more": (
        lambda m, x: m.three(norm(x + m.one(x), 3)),
        X,
        lambda: normed(X @ X.T / 3 + hidden(X), X.mean(1))[0],
    ),
}


@pytest.mark.parametrize("name", MEANS)
def test_norms_take_the_mean_that_came_to_them(name):
    code, x, wanted = MEANS[name]
    limit = infinite_width(Code(code), weight_variance=W, bias_variance=B)
    torch.testing.assert_close(limit.nngp(x), W * wanted() + B, rtol=1e-10, atol=1e-11)


class Normed(Code):
    """With a LayerNorm whose scale and shift train."""

    def __init__(self, code, *shape):
        super().__init__(code)
        self.norm = nn.LayerNorm(list(shape or (3,)), eps=0.1)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("scale", "shift"), [(True, True), (True, False), (False, True)])
def test_scale_and_shift_of_a_norm_that_train(first, scale, shift):
    """The scale adds the product of normed features to the tangent kernel, the shift 1."""
    model = Normed(lambda m, x: m.three(m.norm(torch.relu(m.one(x)))))
    model.one.requires_grad_(first)
    model.norm.weight.requires_grad_(scale)
    model.norm.bias.requires_grad_(shift)
    value, mean = active(FIRST[0])
    top, _ = normed(value, mean)
    root = (value.diagonal() - mean**2 + 0.1).sqrt()
    theta = first * relu(FIRST[0])[1] * FIRST[1] / torch.outer(root, root) + scale * top + shift
    for found, wanted in zip(kernels(model), layer(top, theta), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-11)


TRAINS = "the scale or shift of submodule 'norm' (LayerNorm) trains, and before an activation"
UNEVEN = {
    "first summand": (lambda m, x: m.norm(m.one(x)) + m.two(x), (3,), X, TRAINS),
    "second summand": (lambda m, x: m.two(x) + m.norm(m.one(x)), (3,), X, TRAINS),
    "each position": (
        lambda m, x: m.norm(torch.relu(m.one(x))).mean(1),
        (T, 3),
        TOKENS,
        "submodule 'norm' (LayerNorm): its scale or shift trains for each position; freeze both",
    ),
}


@pytest.mark.parametrize("name", UNEVEN)
def test_norms_that_train_and_leave_units_uneven(name):
    code, shape, x, message = UNEVEN[name]
    last = (lambda h: h) if name == "each position" else torch.relu
    model = Normed(lambda m, x: m.three(last(code(m, x))), *shape)
    assert bool(torch.isfinite(infinite_width(model).nngp(x)).all())
    with pytest.raises(ValueError, match=re.escape(message)):
        infinite_width(model).ntk(x)
    model.norm.requires_grad_(False)
    assert bool(torch.isfinite(infinite_width(model).ntk(x)).all())


TWO = "it adds two signals whose means are not zero, so that they go together"
ALONE = "it is no layer that is known, and no function of each entry alone"
CODE = {
    "the mean of a sum": (lambda m, x: m.three(m.one(x) + torch.relu(m.two(x)) + x), X, TWO),
    "means left at tokens": (
        lambda m, x: m.three((norm(torch.relu(m.one(x)), T, 3) + x).mean(1)), TOKENS, TWO
    ),
    "a channel of its own": (
        lambda m, x: m.three(m.one(x).index_fill(1, torch.tensor([0]), 0.0)), X, ALONE
    ),
    "examples together": (lambda m, x: F.log_softmax(m.three(m.one(x)), 0), X, ALONE),
}  # fmt: skip


@pytest.mark.parametrize("name", CODE)
def test_code_that_is_refused(name):
    code, x, message = CODE[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        infinite_width(Code(code)).nngp(x)


PADS = {
    "channels": ((0, 0, 0, 0, 1, 1), 0.0, "it pads channels"),
    "ones": ((1, 1, 1, 1), 1.0, "it pads with numbers other than zero"),
}


@pytest.mark.parametrize("name", PADS)
def test_padding_that_is_refused(name):
    pad, value, message = PADS[name]

    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Conv2d(2, 4, 3), nn.Conv2d(6 if len(pad) > 4 else 4, 1, 3)

        def forward(self, x):
            return self.two(F.pad(self.one(x), pad, value=value)).mean((2, 3))

    with pytest.raises(ValueError, match=message):
        infinite_width(Padded()).nngp(IMAGE)


def test_views_that_cut_axes():
    with pytest.raises(ValueError, match=r"view in .*it cuts an axis of channels or positions"):
        infinite_width(
            Code(lambda m, x: m.three(m.one(x).view(len(x), 2, 2).flatten(1)), n=4)
        ).nngp(inputs(3, 4))
    assert reshaped(((-1,), (0,)), (4,), 3, (3,)) is None
    assert reshaped(((-1,), (0,)), (1,), 3, (3,)) == ((-1, 0),)
