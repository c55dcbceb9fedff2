"""Impulse responses of maps whose kernels are known, and of maps that have none."""

from typing import Any

import pytest
import torch
from torch import nn

from vademecum.convolution import convolve, impulse_response

X = torch.randn(7, generator=torch.Generator().manual_seed(0)).double()
IMAGE = torch.randn(4, 5, generator=torch.Generator().manual_seed(0)).double()


@pytest.mark.parametrize("x", [X, IMAGE, IMAGE.reshape(2, 2, 5), X.float(), X.to(torch.complex128)])
def test_impulse_response_is_the_kernel_of_a_convolution(x):
    h = torch.randn_like(x)
    found: Any = impulse_response(lambda x: convolve(x, h, mode="circular", method="fft"), x)
    assert torch.allclose(found.kernel, h, atol=1e-5 if x.dtype == torch.float32 else 1e-13)
    assert torch.equal(found.response, found.kernel)
    assert found.input is None
    assert found.shift is None
    assert 0 <= found.gap < 1e-5


def test_the_kernel_of_a_layer_is_its_weight_flipped():
    layer = nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular", bias=False).double()
    kernel: Any = impulse_response(lambda x: layer(x[None, None])[0, 0], X).kernel
    wanted = torch.zeros(7).double()
    wanted[[1, 0, -1]] = layer.weight.detach().flatten()
    assert torch.allclose(kernel, wanted)


MATRIX = torch.randn(7, 7, generator=torch.Generator().manual_seed(1)).double()
NONE = {
    "a dense layer": lambda x: MATRIX @ x,
    "multiplication": lambda x: x * torch.arange(1, 8),
    "zeros around": lambda x: convolve(x, X[:3], mode="same"),
    "a running maximum": lambda x: torch.maximum(x, x.roll(1)),
    "a square": lambda x: x.square(),
    "a constant": lambda x: x + 1,
    "every other one": lambda x: x[::2].repeat_interleave(2)[:7],
}
SHIFTED = ("a dense layer", "multiplication", "zeros around", "every other one")


@pytest.mark.parametrize("name", NONE)
def test_an_input_and_a_shift_show_what_is_no_convolution(name):
    f = NONE[name]
    found: Any = impulse_response(f, X)
    assert found.kernel is None
    assert found.shift == ((1,) if name in SHIFTED else (0,))
    moved = found.input.roll(found.shift, 0)
    wanted = convolve(moved, found.response, mode="circular")
    assert float((f(moved) - wanted).abs().max()) == pytest.approx(found.gap)
    assert found.gap > 1e-3


def test_the_tolerance_is_relative_to_the_largest_entry():
    almost = impulse_response(lambda x: x + 1e-6 * x.flip(0), X)
    assert almost.kernel is None
    assert impulse_response(lambda x: x + 1e-6 * x.flip(0), X, tol=1e-5).kernel is not None
    huge = impulse_response(lambda x: 1e9 * (x + x.roll(1)), X)
    assert huge.kernel is not None


def test_a_smooth_signal_does_not_convict_a_difference():
    x = torch.sin(2 * torch.pi * torch.arange(1000).double() / 1000 + 0.3)
    second = impulse_response(lambda x: (x.roll(1) - x) - (x - x.roll(-1)), x)
    assert second.kernel is not None  # though rounding is not small beside images of some 4e-5
    crooked = torch.linspace(1, 1 + 1e-9, 1000, dtype=torch.float64)
    assert impulse_response(lambda x: crooked * x, x).kernel is None


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("f", "x", "message"),
    [
        (lambda x: x[1:], X, r"map must keep the shape \(7,\), got \(6,\)"),
        (lambda x: (x,), X, r"map must keep the shape \(7,\), got tuple"),
        (lambda x: x / 0, X, "what map gives must be finite"),
        (lambda x: x, torch.arange(3), "x must be floating point, got torch.int64"),
        (lambda x: x, X[:0], "x must not be empty"),
        (lambda x: x, torch.ones(1, 1, 1, 1), r"x must have 1 to 3 axes, got shape \(1, 1, 1, 1\)"),
    ],
)
def test_bad_input(f, x, message):
    with pytest.raises(ValueError, match=message):
        impulse_response(f, x)
