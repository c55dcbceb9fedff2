"""Matrices of layers against what the layers do to unit vectors."""

from typing import Any

import pytest
import torch
from torch import nn

from vademecum.convolution import CausalConv1d, LocallyConnected2d, conv_matrix

C1, C2, C3 = nn.Conv1d, nn.Conv2d, nn.Conv3d
T1, T2, T3 = nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d
CUBES: list[Any] = [(C1, (5,)), (C2, (4, 5)), (C3, (3, 2, 4))]
LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "plain": (C1(2, 3, 3), (2, 6)),
    "strided": (C1(2, 3, 3, stride=2, padding=1), (2, 7)),
    "strided with a rest": (C2(1, 2, (2, 3), stride=(3, 2)), (1, 6, 8)),
    "dilated": (C1(2, 4, 3, dilation=2, padding=2, groups=2), (2, 7)),
    "depthwise": (C2(3, 6, (2, 3), groups=3, padding=(1, 0), stride=(2, 1)), (3, 5, 4)),
    "same": (C1(1, 2, 4, padding="same", dilation=1), (1, 6)),
    "valid": (C1(1, 2, 4, padding="valid", bias=False), (1, 6)),
    "volume": (C3(1, 2, (2, 1, 3), padding=(1, 0, 2), stride=(1, 2, 1)), (1, 3, 4, 2)),
    "causal": (CausalConv1d(2, 4, 3, dilation=2, groups=2), (2, 6)),
    "transposed": (T1(2, 3, 3), (2, 4)),
    "transposed and strided": (T2(4, 2, (3, 2), stride=(2, 3), groups=2, padding=1), (4, 3, 2)),
    "transposed, output padding": (T1(2, 2, 3, stride=3, output_padding=2, padding=1), (2, 4)),
    "transposed, dilated": (T1(2, 2, 3, stride=1, dilation=3, output_padding=2), (2, 4)),
    "transposed volume": (T3(1, 2, 2, stride=(1, 2, 1), output_padding=(0, 1, 0)), (1, 2, 3, 2)),
    "mean": (nn.AvgPool1d(2), (2, 5)),
    "mean with padding": (nn.AvgPool2d(3, stride=2, padding=1), (2, 5, 4)),
    "mean without": (nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), (2, 5, 4)),
    "mean rounded up": (nn.AvgPool1d(3, stride=2, ceil_mode=True, padding=1), (2, 6)),
    "mean of less than a window": (nn.AvgPool1d(3, stride=2, ceil_mode=True), (2, 2)),
    "mean up without": (
        nn.AvgPool2d((3, 2), stride=(2, 3), ceil_mode=True, padding=1, count_include_pad=False),
        (1, 6, 7),
    ),
    "mean of its own": (nn.AvgPool3d(2, ceil_mode=True, divisor_override=5), (1, 3, 4, 2)),
} | {
    f"{mode} {len(size)}": (
        conv(1, 2, 3, padding=(2, 1, 1)[: len(size)], padding_mode=mode, stride=2, dilation=1),
        (1, *size),
    )
    for mode in ("reflect", "replicate", "circular")
    for conv, size in CUBES
}  # fmt: skip
SAME = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")


def by_unit_vectors(layer, shape):
    """The matrix and the constant of a layer: what it makes of unit vectors and of zero."""
    n = torch.Size(shape).numel()
    with torch.no_grad():
        units = torch.eye(n, dtype=torch.float64).view(n, *shape)
        zero = layer(torch.zeros(1, *shape, dtype=torch.float64))
        return (layer(units) - zero).flatten(1).T, zero.flatten()


@SAME
@pytest.mark.parametrize("name", LAYERS)
def test_conv_matrix_is_what_the_layer_does_to_unit_vectors(name):
    layer, shape = LAYERS[name]
    layer = layer.double()
    matrix, constant = by_unit_vectors(layer, shape)
    A = conv_matrix(layer, torch.empty(2, *shape, dtype=torch.float64))
    assert A.shape == matrix.shape
    n, m = A.shape[1], A.shape[0]
    unit = torch.eye(n, dtype=torch.float64)
    with torch.no_grad():
        assert torch.allclose(A.dense(), matrix, rtol=0, atol=1e-14)
        assert torch.allclose(A @ unit, matrix, rtol=0, atol=1e-14)
        assert torch.allclose(A.T @ torch.eye(m).double(), matrix.T, rtol=0, atol=1e-14)
        bias = torch.zeros(m).double() if A.bias is None else A.bias
        assert torch.equal(bias, constant)
        x = torch.randn(1, *shape).double()
        assert torch.allclose(A @ x.flatten() + bias, layer(x).flatten(), atol=1e-13)
    assert layer(x).shape[1:] == A.out_shape


def test_the_sparse_matrix_holds_the_windows_and_no_more():
    layer = nn.Conv2d(2, 3, 3, padding=1)
    S = conv_matrix(layer, (2, 5, 4)).to_sparse()
    windows = (3 * 5 - 2) * (3 * 4 - 2)  # along each axis all but one tap at either end
    assert S.is_coalesced()
    assert S.values().numel() == 2 * 3 * windows
    assert S.shape == (60, 40)


def test_shapes_and_inputs_mean_the_same():
    layer = nn.Conv1d(2, 3, 2)
    wanted = conv_matrix(layer, (2, 5)).dense()
    for x in (torch.zeros(2, 5), torch.zeros(7, 2, 5), torch.Size((2, 5)), [2, 5]):
        assert torch.equal(conv_matrix(layer, x).dense(), wanted)
    pool = conv_matrix(nn.AvgPool1d(2), torch.zeros(1, 4).double())
    assert pool.dtype == torch.float64


def test_gradients_reach_the_weights():
    layer = nn.Conv1d(2, 2, 3, padding=1, padding_mode="reflect").double()
    v, u = torch.randn(10).double(), torch.randn(10).double()
    A = conv_matrix(layer, (2, 5))
    wanted = torch.autograd.grad(u @ (layer(v.view(1, 2, 5)).flatten()), layer.weight)[0]
    for value in (u @ (A @ v), (A.T @ u) @ v, u @ A.dense() @ v):
        assert torch.allclose(torch.autograd.grad(value, layer.weight)[0], wanted, atol=1e-13)


def test_complex_weights():
    layer = nn.Conv1d(2, 3, 2, padding=1, bias=False, dtype=torch.complex128)
    A = conv_matrix(layer, (2, 4))
    with torch.no_grad():
        dense = A.dense()
        assert torch.allclose(A @ torch.eye(8).to(dense), dense)
        assert torch.allclose(A.H @ torch.eye(15).to(dense), dense.mH)


def test_reparametrised_layers_are_as_they_compute():
    layer: Any = nn.utils.parametrizations.weight_norm(nn.Conv1d(1, 2, 3)).double()
    matrix, _ = by_unit_vectors(layer, (1, 5))
    assert torch.allclose(conv_matrix(layer, (1, 5)).dense().detach(), matrix)


class Scaled(nn.Conv1d):
    def forward(self, input):
        return 2 * super().forward(input)


ERRORS: list[Any] = [
    (nn.Linear(2, 2), (2, 5), "layer must be a Conv, ConvTranspose or AvgPool layer of torch, or"),
    (Scaled(1, 1, 1), (1, 5), "or a CausalConv1d, got Scaled"),
    (LocallyConnected2d(1, 1, (4, 4), 2), (1, 4, 4), "got LocallyConnected2d"),
    (nn.MaxPool1d(2), (1, 4), "got MaxPool1d"),
    (C1(2, 3, 3), (3, 5), r"x must have 2 channels and 1 spatial axes, got shape \(3, 5\)"),
    (C1(2, 3, 3), (5,), r"x must have 2 channels and 1 spatial axes, got shape \(5,\)"),
    (C2(2, 3, 3), torch.zeros(1, 2, 5), r"x must have 2 channels and 2 spatial axes"),
    (C1(2, 3, 9), (2, 5), r"at most the padded input, got 9 places for 5 \+ 2 \* 0"),
    (nn.AvgPool1d(2, padding=2), (1, 4), r"padding of at most \(2,\) / 2, got \[2\]"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("layer", "x", "message"), ERRORS)
def test_bad_input(layer, x, message):
    with pytest.raises(ValueError, match=message):
        conv_matrix(layer, x)


def test_a_matrix_beyond_memory_is_refused_with_the_bytes_it_takes():
    A = conv_matrix(nn.Conv2d(64, 64, 3, padding=1), (64, 32, 32))
    with pytest.raises(ValueError, match="at least the 17179869184 bytes of the matrix, got 1000"):
        A.dense(memory=1000)
    with pytest.raises(ValueError, match="at least the 754974720 bytes of the matrix, got 1000"):
        A.to_sparse(memory=1000)
    small = conv_matrix(nn.Conv1d(1, 1, 2), (1, 3))
    assert small.dense(memory=24).shape == (2, 3)
    assert small.to_sparse(memory=80).shape == (2, 3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@SAME
@pytest.mark.parametrize("name", LAYERS)
def test_cuda(name):
    layer, shape = LAYERS[name]
    x = torch.empty(1, *shape, dtype=torch.float64)
    wanted = conv_matrix(layer.double(), x).dense()
    found = conv_matrix(layer.cuda(), x.cuda())
    assert torch.allclose(found.dense().cpu(), wanted)
    unit = torch.eye(found.shape[1], dtype=torch.float64, device="cuda")
    assert torch.allclose((found @ unit).cpu(), wanted, atol=1e-12)
    layer.cpu()
