"""Locally connected layers and softmax pooling against loops and torch's layers."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vademecum.convolution import LocallyConnected2d, SoftmaxPool

KNOBS = [{}, {"stride": 2}, {"stride": (1, 2), "padding": (0, 1)}, {"bias": False, "padding": 1}]


@pytest.mark.parametrize("knobs", KNOBS)
def test_locally_connected2d_is_a_sum_over_each_window(knobs):
    layer = LocallyConnected2d(2, 3, (5, 6), (2, 3), **knobs).double()
    x = torch.randn(4, 2, 5, 6).double()
    pad = layer.padding
    wide = F.pad(x, (pad[1], pad[1], pad[0], pad[0]))
    found = layer(x)
    assert tuple(found.shape[2:]) == layer.output_size == layer.weight.shape[:2]
    for s, t in itertools.product(*map(range, layer.output_size)):
        top, left = s * layer.stride[0], t * layer.stride[1]
        window = wide[:, :, top : top + 2, left : left + 3]
        wanted = torch.einsum("nuij,ruij->nr", window, layer.weight[s, t])
        wanted = wanted if layer.bias is None else wanted + layer.bias[:, s, t]
        assert torch.allclose(found[:, :, s, t], wanted, atol=1e-13)


@pytest.mark.parametrize("knobs", KNOBS)
def test_with_equal_weights_it_is_the_convolution(knobs):
    peer = nn.Conv2d(2, 3, (2, 3), **knobs).double()
    layer = LocallyConnected2d(2, 3, (5, 6), (2, 3), **knobs).double()
    layer.weight.data = peer.weight.data.expand_as(layer.weight)
    if layer.bias is not None and peer.bias is not None:
        layer.bias.data = peer.bias.data[:, None, None].expand_as(layer.bias)
    x = torch.randn(4, 2, 5, 6).double()
    assert torch.allclose(layer(x), peer(x), atol=1e-13)


def test_weights_are_drawn_like_those_of_a_convolution():
    layer = LocallyConnected2d(3, 50, 4, 3)
    limit = 27**-0.5  # torch's for 27 inputs
    for values in layer.state_dict().values():
        assert 0.9 * limit < float(values.abs().max()) <= limit
        assert abs(float(values.square().mean()) / (limit**2 / 3) - 1) < 0.2
    text = "LocallyConnected2d(3, 50, (4, 4), (3, 3))"
    assert repr(layer) == text
    assert repr(LocallyConnected2d(1, 1, 4, 3, stride=2, padding=1, bias=False)) == (
        "LocallyConnected2d(1, 1, (4, 4), (3, 3), stride=(2, 2), padding=(1, 1), bias=False)"
    )


@pytest.mark.parametrize("beta", [-2.0, 0.0, 0.7])
@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "padding"),
    [
        ((2, 3, 9), 3, None, 0),
        ((2, 3, 7), 2, 3, 1),
        ((2, 1, 5, 6), (2, 3), (2, 1), (1, 0)),
        ((1, 2, 4, 3, 5), (2, 1, 3), 1, (1, 0, 1)),
    ],
)
def test_softmax_pool_is_the_weighted_mean_of_each_window(shape, kernel, stride, padding, beta):
    x = torch.randn(shape).double()
    found = SoftmaxPool(kernel, stride=stride, padding=padding, beta=beta)(x)
    d = len(shape) - 2
    k, s, p = (
        (v,) * d if isinstance(v, int) else v
        for v in (kernel, kernel if stride is None else stride, padding)
    )
    for place in np.ndindex(*found.shape[2:]):
        ends = zip(place, k, s, p, shape[2:], strict=True)
        cuts = [slice(max(i * b - c, 0), min(i * b - c + a, n)) for i, a, b, c, n in ends]
        window = x[(slice(None), slice(None), *cuts)].flatten(2)
        weights = (beta * window).exp()
        wanted = (weights * window).sum(2) / weights.sum(2)
        assert torch.allclose(found[(slice(None), slice(None), *place)], wanted, atol=1e-13)


def test_its_limits_are_torchs_layers_also_for_large_numbers():
    x = 1000 * torch.randn(2, 3, 8, 8)
    assert torch.allclose(SoftmaxPool(2, beta=0.0)(x), F.avg_pool2d(x, 2), atol=1e-3)
    assert torch.allclose(SoftmaxPool(2, beta=1e4)(x), F.max_pool2d(x, 2))
    assert torch.allclose(SoftmaxPool(2, beta=-1e4)(x), -F.max_pool2d(-x, 2))
    padded = SoftmaxPool(3, stride=2, padding=1, beta=0.0)(x)
    assert torch.allclose(padded, F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_does_not_overflow(dtype):
    x = torch.tensor([[[100.0, 300.0, 1.0, 1.0078125]]]).to(dtype)  # 400 * 300 is beyond float16
    found = SoftmaxPool(2, beta=400.0)(x)
    assert found.dtype == dtype
    wanted = SoftmaxPool(2, beta=400.0)(x.double()).to(dtype)
    assert torch.equal(found, wanted)


def test_beta_can_be_learnt():
    pool = SoftmaxPool(2, beta=0.5, learn_beta=True).double()
    assert [name for name, _ in pool.named_parameters()] == ["beta"]
    x = torch.randn(2, 3, 6).double()
    assert torch.autograd.gradcheck(lambda b: torch.func.functional_call(pool, {"beta": b}, x),
                                    torch.tensor(0.5).double().requires_grad_())  # fmt: skip
    assert repr(pool) == "SoftmaxPool(2, stride=2, padding=0, beta=0.5, learn_beta=True)"
    assert not list(SoftmaxPool(2).parameters())


IMAGE = torch.zeros(1, 1, 4, 4)
ERRORS = [
    (lambda: LocallyConnected2d(0, 1, 4, 3), "in_channels must be >= 1, got 0"),
    (lambda: LocallyConnected2d(1, 1, 4, 5), "kernel_size must span at most the padded input"),
    (lambda: LocallyConnected2d(1, 1, 4, 3, stride=0), "stride must be >= 1, got 0"),
    (lambda: LocallyConnected2d(1, 1, (4, 4, 4), 3), r"input_size must have 2 entries, got \(4,"),
    (lambda: LocallyConnected2d(1, 1, 5, 3)(IMAGE), r"shape \(n, 1, 5, 5\), got \(1, 1, 4, 4\)"),
    (lambda: SoftmaxPool(0), "kernel_size must be >= 1, got 0"),
    (lambda: SoftmaxPool(2, stride=0), "stride must be >= 1, got 0"),
    (lambda: SoftmaxPool(2, padding=-1), "padding must be >= 0, got -1"),
    (lambda: SoftmaxPool(2, beta=float("inf")), "beta must be finite, got inf"),
    (lambda: SoftmaxPool(2)(torch.zeros(3, 3)), r"x must have the shape \(n, c, ...\), 1 to 3"),
    (lambda: SoftmaxPool((2, 2))(torch.zeros(1, 1, 3)), "x must have 2 spatial axes, got 1"),
    (lambda: SoftmaxPool(5)(IMAGE), "kernel_size must span at most the padded input, got 5"),
    (lambda: SoftmaxPool(3, padding=2)(IMAGE), r"at most half of kernel_size \(3, 3\), got \(2,"),
]  # fmt: skip


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
