"""Singular values of layers against those of their dense matrices."""

from typing import Any

import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from vademecum.convolution import conv_matrix, conv_singular_values

C1, C2, C3 = nn.Conv1d, nn.Conv2d, nn.Conv3d
ROUND: dict[str, Any] = {"padding_mode": "circular"}
EXACT: dict[str, tuple[Any, tuple[int, ...]]] = {
    "one channel": (C1(1, 1, 3, padding=1, **ROUND), (1, 7)),
    "wide": (C1(2, 5, 3, padding=1, **ROUND), (2, 6)),
    "narrow": (C1(5, 2, 3, padding=1, **ROUND), (5, 7)),
    "strided": (C1(2, 3, 3, padding=1, stride=2, **ROUND), (2, 8)),
    "strided by three": (C1(1, 5, 4, padding=1, stride=3, **ROUND), (1, 9)),
    "dilated": (C1(2, 3, 3, padding=2, dilation=2, **ROUND), (2, 6)),  # d divides n
    "even": (C1(2, 2, 4, padding="same", **ROUND), (2, 6)),
    "grouped": (C2(4, 6, 3, padding=1, groups=2, **ROUND), (4, 4, 5)),
    "image": (C2(2, 3, (3, 5), padding=(1, 2), stride=(2, 1), **ROUND), (2, 6, 5)),
    "volume": (C3(2, 2, 3, padding=1, stride=(1, 2, 1), **ROUND), (2, 3, 4, 3)),
    "one by one": (C2(3, 4, 1), (3, 3, 2)),
    "one by one, strided": (C2(3, 2, 1, stride=2), (3, 5, 4)),
    "patches": (C2(2, 4, 3, stride=3), (2, 6, 7)),
    "holes": (C1(2, 20, 2, stride=4, dilation=2), (2, 9)),
    "complex": (C1(2, 3, 3, padding=1, dtype=torch.complex128, **ROUND), (2, 6)),
    "pooling": (nn.AvgPool2d(2), (2, 4, 5)),
    "pooling by another number": (nn.AvgPool2d(2, divisor_override=3), (2, 4, 5)),
}
ITERATED: dict[str, tuple[Any, tuple[int, ...]]] = {
    "zeros": (C1(2, 3, 3, padding=1), (2, 30)),
    "wide": (C2(2, 6, 3, padding=1), (2, 7, 6)),
    "narrow": (C2(6, 2, 3, stride=2), (6, 9, 9)),
    "reflect": (C1(2, 3, 5, padding=2, padding_mode="reflect"), (2, 40)),
    "a stride that does not divide": (C1(2, 3, 3, padding=1, stride=2, **ROUND), (2, 41)),
    "transposed": (nn.ConvTranspose2d(3, 2, 3, stride=2), (3, 5, 4)),
    "a stride that leaves a rest": (C1(2, 3, 4, padding=1, stride=2, **ROUND), (2, 41)),
    "complex": (C1(2, 3, 3, padding=1, dtype=torch.complex128), (2, 30)),
    "pooling": (nn.AvgPool1d(3, stride=1, padding=1), (2, 40)),
    "pooling rounded up": (nn.AvgPool1d(3, stride=2, ceil_mode=True), (1, 40)),
}


def dense(layer, shape):
    wide = layer if next(layer.parameters(), torch.ones(1)).is_complex() else layer.double()
    x = torch.empty(1, *shape, dtype=torch.float64)
    return wide, x, torch.linalg.svdvals(conv_matrix(wide, x).dense().detach())


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("name", EXACT)
def test_conv_singular_values_are_all_where_the_signal_repeats(name):
    layer, x, wanted = dense(*EXACT[name])
    found = conv_singular_values(layer, x)
    assert found.exact
    assert found.converged
    assert found.values.shape == wanted.shape
    assert torch.allclose(found.values, wanted, rtol=0, atol=1e-13 * len(wanted))
    assert not found.residuals.any()
    assert torch.equal(conv_singular_values(layer, x, k=2).values, found.values[:2])
    tight = conv_singular_values(layer, x, memory=6000)
    assert torch.allclose(tight.values, found.values, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ITERATED)
@pytest.mark.parametrize("k", [1, 4])
def test_the_largest_ones_come_with_residuals(name, k):
    layer, x, wanted = dense(*ITERATED[name])
    found = conv_singular_values(layer, x, k=k)
    assert not found.exact
    assert found.converged
    assert torch.allclose(found.values, wanted[:k], rtol=1e-9)
    near = (found.values.detach()[:, None] - wanted).abs().min(1).values
    assert bool((near <= found.residuals + 1e-13).all())
    assert float(found.residuals.max()) < 1e-6 * float(wanted[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("channels", [(4, 2), (2, 4)])
def test_zeros_among_them_are_found_from_either_side(channels, dtype):
    layer = nn.Conv1d(channels[0], channels[1], 3, padding=1).to(dtype)
    twin = layer.weight.data.movedim(int(channels[0] < channels[1]), 0)
    twin[1] = twin[0]  # half of the smaller side is lost
    wanted = torch.linalg.svdvals(conv_matrix(layer, (channels[0], 4)).dense().detach())
    found = conv_singular_values(layer, (channels[0], 4), k=8)
    eps = torch.finfo(dtype).eps
    assert torch.allclose(found.values, wanted, rtol=0, atol=30 * eps)
    assert bool((found.residuals <= 10 * eps**0.5).all())


@pytest.mark.parametrize("name", ["wide", "strided", "dilated", "grouped", "one by one, strided"])
def test_derivatives_of_exact_values(name):
    layer, x, _ = dense(*EXACT[name])
    weight = layer.weight.detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda w: conv_norms(layer, x, w), weight, fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda w: conv_norms(layer, x, w), weight, fast_mode=True)


class _Call(nn.Module):
    def __init__(self, layer, x):
        super().__init__()
        self.layer, self.x = layer, x

    def forward(self, power):
        return (conv_singular_values(self.layer, self.x).values ** power).sum()


def conv_norms(layer, x, weight):
    """Sums of powers, which are smooth also where singular values meet."""
    model = _Call(layer, x)
    parameters = {"layer.weight": weight}
    return torch.stack([torch.func.functional_call(model, parameters, (p,)) for p in (2, 4)])


@pytest.mark.parametrize("name", ["zeros", "narrow", "reflect", "transposed", "complex"])
def test_derivatives_of_iterated_values_are_those_of_the_dense_matrix(name):
    layer, x, _ = dense(*ITERATED[name])
    c = torch.tensor([3.0, -1.0, 2.0]).double()
    value = conv_singular_values(layer, x, k=3, tol=1e-12).values @ c
    (found,) = torch.autograd.grad(value, layer.weight)
    exact = torch.linalg.svdvals(conv_matrix(layer, x).dense())[:3] @ c
    (wanted,) = torch.autograd.grad(exact, layer.weight)
    assert torch.allclose(found, wanted, rtol=0, atol=1e-8)


def test_second_derivatives_of_iterated_values_are_refused():
    layer, x, _ = dense(*ITERATED["zeros"])
    value = conv_singular_values(layer, x, k=1).values.sum()
    (grad,) = torch.autograd.grad(value, layer.weight, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(grad.sum(), layer.weight)


def test_it_is_not_the_norm_of_the_reshaped_kernel():
    layer = nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular")
    layer.weight.data.fill_(1.0)
    assert torch.allclose(conv_singular_values(layer, (1, 8, 8)).values[0], torch.tensor(9.0))
    assert torch.allclose(torch.linalg.matrix_norm(layer.weight.flatten(1), 2), torch.tensor(3.0))


def test_windows_that_show_padding_are_not_like_the_others():
    layer = nn.Conv1d(2, 3, 2, stride=2, padding=1)
    found = conv_singular_values(layer, (2, 9), k=1)
    wanted = torch.linalg.svdvals(conv_matrix(layer, (2, 9)).dense())
    assert not found.exact
    assert torch.allclose(found.values[0], wanted[0], atol=1e-5)


def test_what_does_not_converge_says_so():
    layer = nn.Conv1d(2, 2, 9, padding=4)
    with pytest.warns(ConvergenceWarning, match="max_iter=3 reached"):
        found = conv_singular_values(layer, (2, 400), max_iter=3)
    assert not found.converged


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("layer", "x", "knobs", "message"),
    [
        (C1(1, 2, 3), (1, 5), {"k": 6}, "k must be <= 5, got 6"),
        (C1(1, 2, 3), (1, 5), {"k": 0}, "k must be >= 1, got 0"),
        (C1(1, 2, 3), (1, 5), {"memory": 0}, "memory must be >= 1, got 0"),
        (C1(9, 9, 3), (9, 50), {"memory": 999}, r"at least 17280 bytes for k = 6, got 999"),
        (C2(4, 6, 3, padding=1, stride=2, **ROUND), (4, 6, 6), {"memory": 999},
         "memory must be at least the 1536 bytes of one frequency, got 999"),
        (nn.Linear(2, 2), (2, 3), {}, "layer must be a Conv"),
        (C1(1, 2, 3).half(), (1, 6), {}, "in single or double precision, got torch.float16"),
        (C1(1, 2, 1).bfloat16(), (1, 6), {}, "in single or double precision, got torch.bfloat16"),
    ],
)  # fmt: skip
def test_bad_input(layer, x, knobs, message):
    with pytest.raises(ValueError, match=message):
        conv_singular_values(layer, x, **knobs)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("name", [*EXACT, *ITERATED])
def test_cuda(name):
    layer, x, wanted = dense(*(EXACT | ITERATED)[name])
    found = conv_singular_values(layer.cuda(), x.cuda(), k=1)
    assert torch.allclose(found.values.cpu(), wanted[:1])
    layer.cpu()
