"""Convolution gradients against autograd, over strides, paddings, dilations and groups."""

import math

import pytest
import torch
from torch.nn import functional as F

from vademecum.gradients.convolution_gradients import conv_input_grad, conv_weight_grad

CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
CASES = [  # input size, kernel size, and the layer's options
    ((7,), (3,), {}),
    ((9,), (3,), {"stride": 2}),
    ((8,), (3,), {"stride": 3, "padding": 1}),
    ((8,), (1,), {"padding": 2}),
    ((9,), (2,), {"dilation": 3, "padding": 1, "stride": 2}),
    ((6, 5), (3, 2), {}),
    ((6, 7), (2, 3), {"stride": (2, 3), "padding": (0, 2), "dilation": (3, 1)}),
    ((6, 5), (3, 3), {"groups": 2, "padding": 1}),
    ((5, 5), (3, 3), {"groups": 4, "stride": 2}),
    ((4, 3, 5), (2, 2, 3), {"padding": (1, 0, 2), "stride": (1, 2, 2)}),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("size", "kernel", "options"), CASES)
def test_equal_autograd(size, kernel, options, dtype):
    channels, maps = 4, 8
    x = torch.randn(3, channels, *size, dtype=dtype, requires_grad=True)
    shape = maps, channels // options.get("groups", 1), *kernel
    w = torch.randn(shape, dtype=dtype, requires_grad=True)
    y = CONVOLUTIONS[len(size) - 1](x, w, **options)
    g = torch.randn_like(y)
    in_x, in_w = torch.autograd.grad(y, (x, w), g)
    ours = conv_weight_grad(x.detach(), g, kernel, **options)
    torch.testing.assert_close(ours, in_w, **rounding(g[:, 0].numel(), dtype))
    ours = conv_input_grad(w.detach(), g, size, **options)
    torch.testing.assert_close(ours, in_x, **rounding(w[:, 0].numel(), dtype))
    assert ours.dtype == dtype


def rounding(terms, dtype):
    """Two sums of so many products of normal numbers, each below 16, in different orders."""
    return {"rtol": 0, "atol": 2 * 16 * terms * torch.finfo(dtype).eps}


X, G, W = torch.ones(2, 4, 7), torch.ones(2, 6, 5), torch.ones(6, 4, 3)
NAN = X * math.nan
ERRORS = [
    (conv_weight_grad, (NAN, G, 3), {}, "x must be finite, got nan"),
    (conv_weight_grad, (X.long(), G, 3), {}, "x must be floating point"),
    (conv_weight_grad, (X, G, 4), {}, r"upstream must have the spatial size \(4,\), got shape"),
    (conv_weight_grad, (X, G[:1], 3), {}, "upstream must have 2 examples"),
    (conv_weight_grad, (X, G[0], 3), {}, "one to three spatial axes"),
    (conv_weight_grad, (X[0], G[0], 3), {}, "one to three spatial axes"),
    (conv_weight_grad, (X, G, (3, 3)), {}, "size must have 1 entries"),
    (conv_weight_grad, (X, G, 3), {"groups": 3}, "groups must divide the 4 channels of x, got 3"),
    (conv_weight_grad, (X, G, 3), {"stride": 0}, "stride must be >= 1, got 0"),
    (conv_weight_grad, (X, G, 3), {"padding": -1}, "padding must be >= 0, got -1"),
    (conv_weight_grad, (X, G, 3), {"dilation": 1.5}, "dilation must be .*got 1.5"),
    (conv_input_grad, (W, G[:, :5], 7), {}, "upstream must have 6 maps"),
    (conv_input_grad, (W, G, 8), {}, r"upstream must have the spatial size \(6,\)"),
    (conv_input_grad, (W, G, 7), {"groups": 4}, "groups must divide the 6 channels of weight"),
    (conv_input_grad, (W[:0], G, 7), {}, "weight must not be empty"),
]


@pytest.mark.parametrize(("function", "arguments", "knobs", "message"), ERRORS)
def test_errors(function, arguments, knobs, message, unchecked):
    with pytest.raises(ValueError, match=message):
        function(*arguments, **knobs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    x, g, w = (torch.randn_like(t, dtype=torch.float64) for t in (X, G, W))
    torch.testing.assert_close(
        conv_weight_grad(x.cuda(), g.cuda(), 3).cpu(), conv_weight_grad(x, g, 3)
    )
    torch.testing.assert_close(
        conv_input_grad(w.cuda(), g.cuda(), 7).cpu(), conv_input_grad(w, g, 7)
    )
