"""Norms between spaces of p-th powers: enumeration, duality, gradients, refusals."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from vademecum.robustness import operator_norm

INF = math.inf
PAIRS = [
    *((1.0, q) for q in (1.0, 1.5, 2.0, INF)), *((p, INF) for p in (1.5, 2.0, 3.0, INF)),
    *((INF, q) for q in (1.0, 1.5, 2.0, 3.0)), *((p, 1.0) for p in (1.5, 2.0, 3.0)), (2.0, 2.0),
]  # fmt: skip


def dual(p: float) -> float:
    return INF if p == 1 else 1.0 if p == INF else p / (p - 1)


def by_hand(A: Tensor, p: float, q: float) -> Tensor:
    """From the definition, at the extreme points of one of two balls."""
    m, n = A.shape
    signs = {d: torch.tensor(list(itertools.product((-1.0, 1.0), repeat=d))).to(A) for d in (m, n)}
    if p == 1:
        return torch.linalg.vector_norm(A, q, dim=0).max()
    if p == INF:
        return torch.linalg.vector_norm(A @ signs[n].T, q, dim=0).max()
    if q == INF:
        return torch.linalg.vector_norm(A, dual(p), dim=1).max()
    if q == 1:
        return torch.linalg.vector_norm(A.T @ signs[m].T, dual(p), dim=0).max()
    return torch.linalg.svdvals(A)[0]


@pytest.mark.parametrize(("p", "q"), PAIRS)
@pytest.mark.parametrize("shape", [(3, 5), (6, 2), (1, 4), (4, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norms_are_those_of_the_definition(p, q, shape, dtype):
    torch.manual_seed(1)
    A = torch.randn(2, *shape, dtype=dtype)
    found = operator_norm(A, p, q)
    assert found.dtype == dtype
    torch.testing.assert_close(found, torch.stack([by_hand(a, p, q) for a in A]))
    torch.testing.assert_close(operator_norm(A.mT, dual(q), dual(p)), found)  # duality
    v = torch.randn(500, shape[1], dtype=dtype)
    v = v / torch.linalg.vector_norm(v, p, dim=1, keepdim=True)
    images = torch.linalg.vector_norm(v @ A.mT, q, dim=-1)
    assert (images <= found[:, None] * (1 + 1e-5)).all()


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_gradients(p, q):
    torch.manual_seed(2)
    A = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda A: operator_norm(A, p, q), (A,))


def test_signs_are_tried_in_blocks(monkeypatch):
    """The same with blocks of one, two and all of them."""
    from vademecum.robustness import matrix_norms

    A = torch.randn(3, 7, dtype=torch.float64)
    wanted = operator_norm(A, INF, 2)
    for cells in (1, 3, 6, 24, 3 * 2**5):
        monkeypatch.setattr(matrix_norms, "_CELLS", cells)
        torch.testing.assert_close(operator_norm(A, INF, 2), wanted)


def test_the_smaller_side_is_enumerated():
    A = torch.randn(2, 40, dtype=torch.float64)
    signs = torch.tensor([[1.0, 1.0], [1.0, -1.0]]).double()
    wanted = (signs @ A).abs().sum(1).max()
    torch.testing.assert_close(operator_norm(A, INF, 1), wanted)
    torch.testing.assert_close(operator_norm(A.T, INF, 1), wanted)
    torch.testing.assert_close(operator_norm(torch.zeros(2, 3), INF, 2), torch.tensor(0.0))


REFUSED = [
    ((torch.ones(2, 2), 2, 3), "p and q must fulfil p = 1, .* got p = 2 and q = 3"),
    ((torch.ones(2, 2), 0.5, 1), "p must be >= 1, got 0.5"),
    ((torch.ones(2, 2), 1, math.nan), "q must be >= 1, got nan"),
    ((torch.ones(2, 25), INF, 2), "matrix must have at most 24 columns .* got 25"),
    ((torch.ones(25, 2), 2, 1), "matrix must have at most 24 rows .* got 25"),
    ((torch.ones(25, 25), INF, 1), "matrix must have at most 24 columns .* got 25"),
    ((torch.ones(3), 2, 2), r"matrix must be a real matrix, or many, got shape \(3,\)"),
    ((torch.ones(2, 2, dtype=torch.complex64), 2, 2), "matrix must be a real matrix"),
    ((torch.ones(2, 2).long(), 2, 2), "matrix must be floating point, got torch.int64"),
    ((torch.full((2, 2), math.inf), 2, 2), "matrix must be finite, got inf"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
@pytest.mark.usefixtures("unchecked")
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        operator_norm(*arguments)
