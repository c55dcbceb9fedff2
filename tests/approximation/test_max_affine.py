"""Max-affine functions by hand, and their decomposition into hinges with few pieces."""

import math

import pytest
import torch

from vademecum.approximation.hinges import hinge_decomposition
from vademecum.approximation.max_affine import MaxAffine
from vademecum.foundations.convexity import convexity_violation
from vademecum.foundations.regions import Box


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_by_loops(dtype):
    A, b, x = (torch.randn(*s, dtype=dtype) for s in ((5, 3), (5,), (2, 4, 3)))
    g = MaxAffine(A, b)
    for i in range(2):
        for j in range(4):
            wanted = max(float(A[k] @ x[i, j] + b[k]) for k in range(5))
            assert g(x)[i, j].item() == pytest.approx(wanted, rel=1e-5)
    assert g(x).dtype == dtype
    assert g(x[1, 3]).item() == pytest.approx(g(x)[1, 3].item(), rel=1e-5)  # a single point
    assert repr(g) == "MaxAffine(pieces=5, d=3)"


def test_parameters_are_copies_and_train():
    A, b = torch.tensor([[0.0], [1.0]]), torch.zeros(2)
    g = MaxAffine(A, b)
    A += 1
    assert g.A.tolist() == [[0.0], [1.0]]
    g(torch.tensor([[2.0], [3.0], [-1.0]])).sum().backward()
    assert g.A.grad is not None
    assert g.b.grad is not None
    assert g.A.grad.tolist() == [[-1.0], [5.0]]
    assert g.b.grad.tolist() == [1.0, 2.0]


def test_convex():
    g = MaxAffine(torch.randn(4, 2).double(), torch.randn(4).double())
    box = Box(-torch.ones(2).double(), torch.ones(2).double())
    assert not convexity_violation(g, box, chords=256, steps=20).found


@pytest.mark.parametrize(
    ("k", "n"), [(1, 1), (2, 1), (3, 1), (7, 1), (4, 2), (8, 2), (9, 3), (3, 5)]
)
def test_hinge_decomposition(k, n):
    g = MaxAffine(torch.randn(k, n).double(), torch.randn(k).double())
    parts = hinge_decomposition(g)
    x = 4 * torch.randn(500, n).double()
    assert max(len(h.b) for h in parts.hinges) <= n + 1
    bound = 1e-12 * sum(abs(c) for c in parts.coefficients)
    wanted = g(x).detach()
    size = 1 + float(wanted.abs().max())
    torch.testing.assert_close(parts(x).detach(), wanted, rtol=0, atol=bound * size)
    rows = {tuple(row) for row in g.A.tolist()}
    assert all(tuple(row) in rows for h in parts.hinges for row in h.A.tolist())


@pytest.mark.parametrize(
    "A",
    [
        [[0.0, 0.0]] * 5,
        [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]],
        [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0], [1.0, 1.0]],
        [[0.0, 0.0], [3.0, 0.0], [0.0, 3.0], [1.0, 1.0], [1.0, 1.0]],
    ],
    ids=["equal", "cross", "line", "inside"],
)
def test_hinges_in_special_position(A):
    for offset in (0.0, 1.0):
        g = MaxAffine(torch.tensor(A).double(), offset * torch.arange(len(A)).double())
        x = torch.randn(200, 2).double()
        torch.testing.assert_close(hinge_decomposition(g)(x), g(x), rtol=0, atol=1e-12)


def test_a_ready_hinge_is_left_alone():
    g = MaxAffine(torch.eye(2), torch.zeros(2))
    parts = hinge_decomposition(g)
    assert parts.coefficients == (1,)
    assert torch.equal(parts.hinges[0].A, g.A)


A, B = torch.ones(3, 2), torch.ones(3)
ERRORS = [
    (lambda: MaxAffine(A, B[:2]), "b must be 3 wide"),
    (lambda: MaxAffine(A[0], B), "A must have 2 axes"),
    (lambda: MaxAffine(A * math.nan, B), "A must be finite, got nan"),
    (lambda: MaxAffine(A, B * math.inf), "b must be finite, got inf"),
    (lambda: MaxAffine(A[:0], B[:0]), "A must not be empty"),
    (lambda: MaxAffine(A.long(), B), "A must be floating point, got torch.int64"),
    (lambda: MaxAffine(A, B.double()), "b must be torch.float32 on cpu as A is, got torch.float64"),
    (lambda: MaxAffine(A, B)(torch.ones(3)), r"x must be 2 wide, got shape \(3,\)"),
    (
        lambda: hinge_decomposition(MaxAffine(torch.ones(17, 2), torch.ones(17))),
        "the number of pieces of hinge must be <= 16, got 17",
    ),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    g = MaxAffine(torch.randn(6, 2).double(), torch.randn(6).double())
    x = torch.randn(50, 2).double()
    wanted = g(x)
    g, x = g.cuda(), x.cuda()
    torch.testing.assert_close(g(x).cpu(), wanted)
    torch.testing.assert_close(hinge_decomposition(g)(x).cpu(), wanted, rtol=0, atol=1e-11)
