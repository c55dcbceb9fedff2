"""Layouts and the tensor chain rule: by hand, by index loops, against autograd's own Jacobian."""

import math
from itertools import product

import pytest
import torch
from torch import nn

from vademecum.gradients.layouts import denominator_layout, numerator_layout, tensor_chain

A, X = torch.arange(6.0).reshape(2, 3), torch.tensor([[1.0, 2.0, 0.0], [0.0, -1.0, 3.0]])


def test_textbook_table():
    vector, scalar = X[0], torch.tensor(2.0)
    torch.testing.assert_close(numerator_layout(lambda x: A @ x, vector), A)
    torch.testing.assert_close(denominator_layout(lambda x: A @ x, vector), A.T)
    torch.testing.assert_close(numerator_layout(lambda x: (A * x).sum(), X), A.T)
    torch.testing.assert_close(denominator_layout(lambda x: (A * x).sum(), X), A)
    torch.testing.assert_close(numerator_layout(lambda t: t**2 * A, scalar), 4 * A)
    torch.testing.assert_close(denominator_layout(lambda t: t**2 * A, scalar), 4 * A.T)
    assert numerator_layout(torch.square, scalar).item() == 4.0
    assert denominator_layout(torch.square, scalar).item() == 4.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_entry_by_entry(dtype):
    x, w = torch.randn(2, 3, dtype=dtype), torch.randn(3, 4, 2, dtype=dtype)
    f = lambda x: torch.tensordot(x.sin(), w, 1)  # noqa: E731
    numerator, denominator = numerator_layout(f, x), denominator_layout(f, x)
    reference = torch.autograd.functional.jacobian(f, x)
    assert numerator.dtype == denominator.dtype == dtype
    assert numerator.shape == (2, 4, 2, 3, 2)
    assert denominator.shape == (2, 3, 2, 4, 2)
    rounding = 4 * torch.finfo(dtype).eps  # a cosine and a product, here and there
    for i, j, k, p, q in product(*map(range, reference.shape)):
        wanted = pytest.approx(reference[i, j, k, p, q].item(), rel=rounding)
        assert numerator[i, j, k, q, p].item() == wanted
        assert denominator[p, q, k, j, i] == numerator[i, j, k, q, p]


def test_constants_hessians_and_no_grad():
    x = torch.tensor([1.0, 2.0])
    assert numerator_layout(lambda x: torch.ones(3), x).tolist() == [[0.0, 0.0]] * 3
    cubic = lambda x: x[0] ** 2 * x[1]  # noqa: E731
    with torch.no_grad():
        hessian = numerator_layout(lambda x: denominator_layout(cubic, x), x)
    assert hessian.tolist() == [[4.0, 2.0], [2.0, 0.0]]


def test_chain_of_layers_is_the_jacobian_of_the_network():
    model = nn.Sequential(
        nn.Conv2d(1, 2, 2), nn.Tanh(), nn.Flatten(0), nn.Linear(8, 3), nn.Sigmoid()
    ).double()
    before = [p.detach().clone() for p in model.parameters()]
    x = torch.randn(1, 3, 3).double()
    chain = tensor_chain(list(model), x)
    torch.testing.assert_close(chain.derivative, torch.autograd.functional.jacobian(model, x))
    torch.testing.assert_close(chain.values[-1], model(x))
    assert [tuple(f.shape) for f in chain.factors][2:] == [(8, 2, 2, 2), (3, 8), (3, 3)]
    for i, (layer, point) in enumerate(zip(model, (x, *chain.values), strict=False)):
        expected = torch.autograd.functional.jacobian(layer, point)
        torch.testing.assert_close(chain.factors[i], expected)
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


def test_chains_of_one_and_of_two():
    chain = tensor_chain([lambda x: x @ A.T], X)
    torch.testing.assert_close(chain.derivative, chain.factors[0])
    torch.testing.assert_close(chain.derivative, torch.einsum("ik,jl->ijkl", torch.eye(2), A))
    chain = tensor_chain([lambda x: x @ A.T, torch.sum], X)
    torch.testing.assert_close(chain.derivative, A.sum(0).expand(2, 3))


ERRORS = [
    (numerator_layout, torch.sum, [1.0], "x must be a tensor, got list"),
    (numerator_layout, torch.sum, X.long(), "x must be floating point, got torch.int64"),
    (numerator_layout, torch.sum, X * 1j, "x must be real, got torch.complex64"),
    (numerator_layout, torch.sum, X * math.nan, "x must be finite, got nan"),
    (numerator_layout, torch.sum, X[:0], "x must not be empty"),
    (numerator_layout, torch.argmax, X, "f must return a tensor of real floats, got torch.int64"),
    (denominator_layout, lambda x: (x, x), X, "f must return a tensor of real floats, got tuple"),
    (denominator_layout, lambda x: x * 1j, X, "f must return .*, got torch.complex64"),
    (denominator_layout, torch.log, X, "the value of f must be finite, got -inf"),
    (denominator_layout, torch.sqrt, X[0], "the derivative of f must be finite, got nan"),
    (denominator_layout, lambda x: x[:, :0], X, "the value of f must not be empty"),
    (lambda f, x: tensor_chain([torch.exp, f], x), torch.argmax, X, r"functions\[1\] must return"),
    (lambda f, x: tensor_chain([f], x), torch.sum, X.long(), "x must be floating point"),
    (lambda f, x: tensor_chain([], x), torch.sum, X, "functions must not be empty"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("function", "f", "x", "message"), ERRORS)
def test_errors(function, f, x, message):
    with pytest.raises(ValueError, match=message):
        function(f, x)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    x, w = torch.randn(2, 3).double(), torch.randn(3, 4).double()
    here = [lambda x: torch.tanh(x @ w), torch.exp]
    there = [lambda x: torch.tanh(x @ w.cuda()), torch.exp]
    ours = tensor_chain(there, x.cuda()).derivative
    assert ours.is_cuda
    torch.testing.assert_close(ours.cpu(), tensor_chain(here, x).derivative)
    assert denominator_layout(there[0], x.cuda()).is_cuda
