"""Causal convolutions against torch's on padded inputs, and steps against whole sequences."""

import pytest
import torch
from torch import nn

from vademecum.convolution import CausalConv1d, CausalState

SIZES = [
    {"kernel_size": 1},
    {"kernel_size": 2, "dilation": 4},
    {"kernel_size": 3, "dilation": 2, "bias": False},
    {"kernel_size": 4, "groups": 2},
    {"kernel_size": 3, "dilation": 3, "groups": 2},
]


def made(**knobs):
    return CausalConv1d(4, 6, **knobs).double(), torch.randn(3, 4, 11).double()


@pytest.mark.parametrize("knobs", SIZES)
def test_causal_conv1d_is_the_beginning_of_torchs_padded_convolution(knobs):
    layer, x = made(**knobs)
    padding = knobs.get("dilation", 1) * (knobs["kernel_size"] - 1)
    peer = nn.Conv1d(4, 6, padding=padding, **knobs).double()
    peer.load_state_dict(layer.state_dict())
    assert torch.allclose(layer(x), peer(x)[:, :, :11], rtol=0, atol=1e-14)


@pytest.mark.parametrize("knobs", SIZES)
def test_steps_give_what_the_whole_sequence_gives(knobs):
    layer, x = made(**knobs)
    state, outputs = layer.initial_state(3), []
    for t in range(x.shape[2]):
        y, state = layer.step(x[:, :, t], state)
        outputs.append(y)
    assert torch.allclose(torch.stack(outputs, 2), layer(x), rtol=0, atol=1e-13)


@pytest.mark.parametrize("knobs", SIZES[1:])
def test_a_phase_in_a_tensor_gives_the_same(knobs):
    layer, x = made(**knobs)
    one = layer.initial_state(3)
    other = CausalState(one.inputs.clone(), torch.zeros(1, dtype=torch.long))
    for t in range(x.shape[2]):
        y, one = layer.step(x[:, :, t], one)
        z, other = layer.step(x[:, :, t], other)
        assert torch.equal(y, z)


def test_gradients_of_steps_are_those_of_the_sequence():
    layer, x = made(kernel_size=3, dilation=2)
    wanted = torch.autograd.grad(layer(x).tanh().sum(), layer.weight)[0]
    state, total = layer.initial_state(3), torch.zeros(()).double()
    for t in range(x.shape[2]):
        y, state = layer.step(x[:, :, t], state)
        total = total + y.tanh().sum()
    found = torch.autograd.grad(total, layer.weight)[0]
    assert torch.allclose(found, wanted, rtol=0, atol=1e-12)


def test_parameters_are_drawn_as_those_of_torch():
    torch.manual_seed(1)
    layer = CausalConv1d(4, 6, 3, groups=2)
    torch.manual_seed(1)
    peer = nn.Conv1d(4, 6, 3, groups=2)
    assert layer.state_dict().keys() == peer.state_dict().keys()
    assert all(
        torch.equal(a, b) for a, b in zip(layer.parameters(), peer.parameters(), strict=True)
    )


def test_a_state_knows_its_size_and_prints_on_one_line():
    layer = CausalConv1d(4, 6, 3, dilation=5)
    state = layer.initial_state(2)
    assert state.inputs.shape == (5, 2, 4, 2)
    assert "\n" not in repr(layer.step(torch.zeros(2, 4), state))
    assert repr(CausalConv1d(4, 6, 3, dilation=2, groups=2, bias=False)) == (
        "CausalConv1d(4, 6, 3, dilation=2, groups=2, bias=False)"
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CausalConv1d(0, 1, 1), "in_channels must be >= 1, got 0"),
        (lambda: CausalConv1d(1, 1, 0), "kernel_size must be >= 1, got 0"),
        (lambda: CausalConv1d(1, 1, 2, dilation=0), "dilation must be >= 1, got 0"),
        (lambda: CausalConv1d(4, 3, 2, groups=2), "out_channels must be divisible by groups = 2"),
        (lambda: CausalConv1d(3, 4, 2, groups=2), "in_channels must be divisible by groups = 2"),
        (lambda: CausalConv1d(2, 1, 2)(torch.zeros(1, 3, 5)), r"shape \(n, 2, T\)"),
        (lambda: CausalConv1d(2, 1, 2)(torch.zeros(1, 2, 0)), "T >= 1"),
        (lambda: CausalConv1d(2, 1, 2).initial_state(0), "n must be >= 1, got 0"),
        (lambda: _step(torch.zeros(3, 2)), r"x must have the shape \(1, 2\), got \(3, 2\)"),
    ],
)
def test_bad_input(call, message, unchecked):
    with pytest.raises(ValueError, match=message):
        call()


def _step(x):
    layer = CausalConv1d(2, 1, 2)
    return layer.step(x, layer.initial_state(1))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_steps_on_cuda_keep_the_phase_there():
    layer, x = made(kernel_size=3, dilation=2)
    layer, x = layer.cuda(), x.cuda()
    state = layer.initial_state(3)
    for t in range(x.shape[2]):
        y, state = layer.step(x[:, :, t], state)
        assert torch.allclose(y, layer(x)[:, :, t], rtol=0, atol=1e-12)
    assert isinstance(state.phase, torch.Tensor)
