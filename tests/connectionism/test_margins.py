"""Margins by hand, by loops, and Novikov's bound by a search over angles."""

import inspect
import math

import pytest
import torch

from vademecum.connectionism.margins import augment, margin, novikov_bound, signed_distance


def test_signed_distance_by_hand():
    w, x = torch.tensor([3.0, 4.0]), torch.tensor([[0.0, 0.0], [1.0, 1.0], [-3.0, 1.0]])
    assert signed_distance(w, -5.0, x).tolist() == pytest.approx([-1.0, 0.4, -2.0])
    assert signed_distance(w, torch.tensor(-5.0), x).tolist() == pytest.approx([-1.0, 0.4, -2.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_margin_is_the_worst_signed_distance(dtype):
    torch.manual_seed(0)
    w, x = torch.randn(5, dtype=dtype), torch.randn(40, 5, dtype=dtype)
    y = torch.where(torch.rand(40) < 0.5, 1, -1)
    loop = min(float(y[i] * (x[i] @ w + 0.3)) for i in range(40)) / float(w.norm())
    assert float(margin(w, 0.3, x, y)) == pytest.approx(loop, rel=1e-5)
    assert margin(w, 0.3, x, y).dtype == dtype


def test_augment():
    assert augment(torch.tensor([1.0, 2.0])).tolist() == [1.0, 2.0, 1.0]
    assert augment(torch.tensor([[1], [2]]), -1).tolist() == [[1, -1], [2, -1]]


def test_novikov_bound():
    torch.manual_seed(0)
    y = torch.where(torch.arange(9) % 2 == 0, 1, -1)
    x = y[:, None] * (torch.randn(9, 2).double() + torch.tensor([4.0, 1.0]).double())
    turn = torch.linspace(0, 2 * math.pi, 200_001, dtype=torch.float64)
    margins = (y[:, None] * x) @ torch.stack([turn.cos(), turn.sin()])
    gamma = float(margins.amin(0).max())
    radius2 = float((x**2).sum(1).max())
    assert novikov_bound(x, y) == pytest.approx(radius2 / gamma**2, rel=1e-4)
    assert novikov_bound(x.float(), y) == pytest.approx(radius2 / gamma**2, rel=1e-4)
    theta = torch.tensor([2.0, 0.0]).double()
    expected = radius2 / float((y * x[:, 0]).min()) ** 2
    assert novikov_bound(x, y, theta=theta) == pytest.approx(expected)
    assert novikov_bound(x, y, theta=-theta) == math.inf
    assert novikov_bound(torch.zeros(1, 2), torch.tensor([1])) == math.inf
    twice = torch.ones(2, 3)
    assert novikov_bound(twice, torch.tensor([1, -1])) == math.inf


@pytest.mark.parametrize("scale", [1e-25, 1e25, 1e-200, 1e200])
def test_huge_and_tiny_hyperplanes(scale):
    dtype = torch.float32 if 1e-30 < scale < 1e30 else torch.float64
    w, x = torch.tensor([3.0, 4.0], dtype=dtype) * scale, torch.tensor([[1.0, 2.0]], dtype=dtype)
    assert signed_distance(w, 5 * scale, x).tolist() == pytest.approx([3.2])
    points, y = torch.eye(3, dtype=dtype) * scale, torch.tensor([1, -1, 1])
    assert novikov_bound(points, y) == pytest.approx(3)
    assert novikov_bound(points, y, theta=y.to(dtype)) == pytest.approx(3)


W, X, Y = torch.tensor([1.0, 1.0]), torch.ones(3, 2), torch.tensor([1, -1, 1])
ERRORS = [
    (signed_distance, (torch.zeros(2), 0.0, X), "w must not be zero"),
    (signed_distance, (W, math.nan, X), "b must be .*, got nan"),
    (signed_distance, (W, 0.0, torch.ones(3, 3)), r"x must be 2 wide, got shape \(3, 3\)"),
    (signed_distance, (W, 0.0, X * math.inf), "x must be finite, got inf"),
    (signed_distance, (W.long(), 0.0, X), "w must be floating point, got torch.int64"),
    (margin, (W, 0.0, X, torch.tensor([1, 0, 1])), "entries of y must be -1 or"),
    (margin, (W, 0.0, X, Y[:2]), "y must be 3 wide"),
    (margin, (W, 0.0, X[:0], Y[:0]), "x must not be empty"),
    (novikov_bound, (X, Y[:2]), "y must be 3 wide"),
    (novikov_bound, (X * math.nan, Y), "x must be finite"),
    (augment, (torch.tensor(1.0),), "x must have at least one axis"),
    (augment, (torch.tensor([[1]]), 0.5), "constant must be of the dtype of x, .*, got 0.5"),
    (augment, (torch.tensor([[1]], dtype=torch.uint8), -1), "constant must be .*, got -1"),
]


@pytest.mark.parametrize(("function", "arguments", "message"), ERRORS)
def test_errors(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(function)(*arguments)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    torch.manual_seed(0)
    y = torch.where(torch.arange(20) % 2 == 0, 1, -1)
    x = y[:, None] * (torch.randn(20, 3).double() + 4)
    assert novikov_bound(x.cuda(), y.cuda()) == pytest.approx(novikov_bound(x, y), rel=1e-9)
    w = torch.ones(3).double()
    assert float(margin(w.cuda(), 0.0, x.cuda(), y.cuda())) == pytest.approx(
        float(margin(w, 0.0, x, y))
    )
