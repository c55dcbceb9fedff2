"""Deep linear networks against autograd, and their balanced starts."""

import math
from typing import cast

import pytest
import torch

from vademecum.linear.deep_linear import DeepLinearNetwork

DOUBLE = torch.float64


@pytest.mark.parametrize("widths", [(3, 2), (4, 1, 5), (3, 4, 2, 5, 3)])
def test_output_product_and_gradients(widths):
    network = DeepLinearNetwork(widths).double()
    x, y = torch.randn(6, widths[0], dtype=DOUBLE), torch.randn(6, widths[-1], dtype=DOUBLE)
    dense = torch.linalg.multi_dot([torch.eye(widths[-1], dtype=DOUBLE), *network.weights[::-1]])
    torch.testing.assert_close(network.product(), dense)
    torch.testing.assert_close(network(x), x @ dense.mT)
    loss = (network(x) - y).square().sum() / 2
    wanted = torch.autograd.grad(loss, list(network.weights))
    found = network.gradients((network(x) - y).mT @ x)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)
        assert not a.requires_grad


def test_scale_of_the_start():
    network = DeepLinearNetwork([400, 900, 100], scale=0.5)
    for w in network.weights:
        assert w.std().item() == pytest.approx(0.5 / w.shape[1] ** 0.5, rel=0.02)
    assert not any(w.any() for w in DeepLinearNetwork([2, 3], scale=0.0).weights)


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
@pytest.mark.parametrize(("p", "q", "width"), [(3, 5, None), (5, 3, 4), (4, 4, 7), (4, 3, 2)])
def test_balanced(p, q, width, depth):
    matrix = torch.randn(p, q, dtype=DOUBLE)
    network = DeepLinearNetwork.balanced(matrix, depth=depth, width=width)
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    if depth > 1 and width == 2:
        s[2:] = 0
    torch.testing.assert_close(network.product(), (u * s) @ vh)
    for low, high in zip(network.weights, network.weights[1:], strict=False):
        torch.testing.assert_close(high.mT @ high, low @ low.mT)
    assert len(network.weights) == depth


def test_balanced_weights_of_low_rank_hold_no_rounding():
    u, v = torch.randn(2, 4, 1, dtype=DOUBLE)
    first, second = DeepLinearNetwork.balanced(u @ v.mT).weights
    assert not first[1:].any()
    assert not second[:, 1:].any()


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("width", [None, 2])
def test_aligned(depth, width):
    gamma = torch.randn(4, 3, dtype=DOUBLE)
    network = DeepLinearNetwork.aligned(gamma, 0.01, depth=depth, width=width)
    u, s, vh = torch.linalg.svd(gamma, full_matrices=False)
    kept = 2 if width == 2 and depth > 1 else len(s)
    torch.testing.assert_close(network.product(), 0.01 * u[:, :kept] @ vh[:kept])


def test_gradient_flow_keeps_the_balance():
    gamma = torch.randn(3, 4, dtype=DOUBLE)
    network = DeepLinearNetwork.balanced(torch.randn(3, 4, dtype=DOUBLE), depth=3)
    for _ in range(200):
        slopes = network.gradients(network.product() - gamma)
        with torch.no_grad():
            for w, slope in zip(network.weights, slopes, strict=True):
                w -= 1e-4 * slope
    for low, high in zip(network.weights, network.weights[1:], strict=False):
        assert (high.mT @ high - low @ low.mT).abs().max() < 1e-3
        assert (high.mT @ high).abs().max() > 0.1


X = torch.ones(3, 2)
ERRORS = [
    (lambda: DeepLinearNetwork([3]), r"widths must have at least 2 entries, got \[3\]"),
    (lambda: DeepLinearNetwork([3, 0]), "widths must be >= 1, got 0"),
    (lambda: DeepLinearNetwork([3, cast(int, 2.5)]), "widths must be an integer, got 2.5"),
    (lambda: DeepLinearNetwork([3, 2], scale=-1.0), "scale must be >= 0, got -1"),
    (lambda: DeepLinearNetwork([3, 2])(X), r"x must be 3 wide, got shape \(3, 2\)"),
    (lambda: DeepLinearNetwork([3, 2]).gradients(X), r"outer must have shape \(2, 3\)"),
    (lambda: DeepLinearNetwork.balanced(X * math.nan), "matrix must be finite, got nan"),
    (lambda: DeepLinearNetwork.balanced(X[0]), "matrix must have 2 axes"),
    (lambda: DeepLinearNetwork.balanced(X * 1j), "matrix must be real, got torch.complex64"),
    (lambda: DeepLinearNetwork.balanced(X, depth=0), "depth must be >= 1, got 0"),
    (lambda: DeepLinearNetwork.balanced(X, width=0), "width must be >= 1, got 0"),
    (lambda: DeepLinearNetwork.aligned(X, 0.0), "strength must be > 0, got 0"),
    (lambda: DeepLinearNetwork.aligned(X.long(), 1.0), "gamma must be floating point"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
@pytest.mark.usefixtures("unchecked")
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    gamma = torch.randn(4, 3, dtype=DOUBLE)
    cpu, gpu = (DeepLinearNetwork.balanced(g, depth=3) for g in (gamma, gamma.cuda()))
    torch.testing.assert_close(gpu.product().cpu(), gamma)
    for a, b in zip(gpu.gradients(gamma.cuda()), cpu.gradients(gamma), strict=True):
        torch.testing.assert_close(a.norm().cpu(), b.norm())
