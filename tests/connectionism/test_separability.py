"""Separability against enumeration and against duplicates, with every answer verified again."""

import inspect
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch

from vademecum.connectionism import separability
from vademecum.connectionism.separability import separable


def verify(x, y, *, bias):
    """The answer, after a check of it in rational arithmetic that shares no code."""
    found = separable(x, y, bias=bias)
    rows = [[Fraction(v) for v in row] + [Fraction(1)] * bias for row in x.double().tolist()]
    labels = [int(v) for v in y]
    if found.separable:
        assert found.w is not None
        assert found.b is not None
        theta = [Fraction(v) for v in found.w.tolist()] + [Fraction(found.b)] * bias
        scores = [
            s * sum(a * c for a, c in zip(row, theta, strict=True))
            for row, s in zip(rows, labels, strict=True)
        ]
        assert min(scores) > 0
        assert found.certificate is None
        length = math.hypot(*found.w.tolist())
        assert found.margin == pytest.approx(float(min(scores)) / length)
    else:
        lam = found.certificate
        assert lam is not None
        assert found.w is found.b is found.margin is None
        assert (lam >= 0).all()
        assert float(lam.sum()) == pytest.approx(1.0)
        size = max(abs(float(v)) for row in rows for v in row)
        for column in zip(*rows, strict=True):
            total = sum(
                float(v) * s * float(l) for v, s, l in zip(column, labels, lam, strict=True)
            )
            assert abs(total) <= 1e-12 * (1 + size)
        assert found.residual <= 1e-12 * (1 + size)
    return found.separable


@pytest.mark.parametrize(
    ("d", "bias", "count"), [(1, True, 4), (2, True, 14), (3, True, 104), (3, False, 14)]
)
def test_threshold_functions_of_bits(d, bias, count):
    # 2, 4, 14, 104, ...: the Boolean functions of a threshold unit (Muroga, 1971); without a bias
    # on the corners of {-1, 1}^3 the self-dual ones among them are left: those of two inputs
    corners = torch.tensor(list(product((0, 1) if bias else (-1, 1), repeat=d)))
    labels = product((-1, 1), repeat=2**d)
    assert sum(verify(corners, torch.tensor(y), bias=bias) for y in labels) == count


SETS = [
    ([[1.0]], [1], True, True),
    ([[0.0]], [1], False, False),
    ([[0.0]], [-1], True, True),
    ([[2.0], [2.0]], [1, -1], True, False),
    ([[2.0], [3.0]], [1, -1], True, True),
    ([[2.0], [3.0]], [1, -1], False, False),
    ([[1.0], [2.0], [3.0]], [1, -1, 1], True, False),
    ([[0.0, 0.0], [1.0, 1.0]], [-1, -1], True, True),
    ([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [1, 1, -1], False, True),
    ([[1e6], [1e6 + 1e-3], [1e6 + 2e-3]], [1, 1, -1], True, True),
    ([[1.0], [1.0 + 1e-12]], [1, -1], True, True),
    ([[1e-12, 1e9], [-1e-12, 1e9]], [1, -1], True, True),
    ([[5.0], [5.0]], [1, 1], True, True),
]


@pytest.mark.parametrize(("x", "y", "bias", "answer"), SETS)
def test_small_sets(x, y, bias, answer):
    x, y = torch.tensor(x, dtype=torch.float64), torch.tensor(y)
    assert verify(x, y, bias=bias) is answer


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int8])
@pytest.mark.parametrize("bias", [True, False])
def test_random_ternary_points(dtype, bias):
    torch.manual_seed(0)
    answers = []
    for n in (3, 5, 8, 12):
        for _ in range(10):
            x = torch.randint(-1, 2, (n, 3)).to(dtype)
            y = torch.randint(0, 2, (n,)) * 2 - 1
            answers.append(verify(x, y, bias=bias))
    assert True in answers
    assert False in answers


@pytest.mark.parametrize(("n", "d"), [(400, 4), (300, 60)])
def test_planted_and_spoilt(n, d):
    torch.manual_seed(1)
    x, w = torch.randn(n, d), torch.randn(d)
    y = torch.where(x @ w + 0.3 > 0, 1, -1)
    assert verify(x, y, bias=True)
    middle = (x[y > 0][: d + 1]).mean(0, keepdim=True)
    spoilt = torch.cat([x, middle]), torch.cat([y, torch.tensor([-1])])
    assert not verify(*spoilt, bias=True)


def test_large_certificates_are_checked_in_double_precision():
    torch.manual_seed(2)
    x = torch.randn(300, 60).double()
    found = separable(x, torch.where(torch.rand(300) < 0.5, 1, -1))
    assert not found.separable
    assert 0 < found.residual < 1e-13


def test_what_cannot_be_verified_is_refused(monkeypatch):
    def liar(x, y, bias):
        return -np.ones(x.shape[1] + bias), np.ones(len(x))

    monkeypatch.setattr(separability, "_programme", liar)
    with pytest.raises(ValueError, match="neither separated nor shown to be inseparable"):
        separable(torch.tensor([[1.0], [2.0], [5.0]]), torch.tensor([1, 1, -1]))


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
@pytest.mark.parametrize("bias", [True, False])
def test_huge_and_tiny_points(scale, bias):
    x, y = torch.tensor([[1.0, 0.0], [0.0, 3.0], [-1.0, -1.0]], dtype=torch.float64), [1, 1, -1]
    base, found = (separable(s * x, torch.tensor(y), bias=bias) for s in (1.0, scale))
    assert base.margin is not None
    assert found.margin == pytest.approx(scale * base.margin)


X, Y = torch.ones(3, 2), torch.tensor([1, -1, 1])
ERRORS = [
    ((X, torch.tensor([1, 0, 1])), "entries of y must be -1 or"),
    ((X, Y[:2]), "y must be 3 wide"),
    ((X[:0], Y[:0]), "x must not be empty"),
    ((X[0], Y), "x must have 2 axes"),
    ((X * math.nan, Y), "x must be finite, got nan"),
    ((X.numpy(), Y), "x must be a tensor, got ndarray"),
    ((X + 1j, Y), "x must be real, got torch.complex64"),
    ((torch.tensor([[2**53], [2**53 + 1]]), Y[:2]), "x must be integers that double precision"),
]


@pytest.mark.parametrize(("arguments", "message"), ERRORS)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(separable)(*arguments)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    x, y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([1, -1, 1])
    found, expected = (separable(*v).certificate for v in ((x.cuda(), y.cuda()), (x, y)))
    assert found is not None
    assert expected is not None
    assert found.is_cuda
    assert torch.equal(found.cpu(), expected)
