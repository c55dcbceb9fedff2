"""Definiteness and minors against planted spectra, fractions and enumeration."""

import inspect
import math
from itertools import combinations

import pytest
import sympy
import torch

from vademecum.foundations.minors import characteristic, leading_minors, principal_minors
from vademecum.foundations.quadratic_forms import definiteness

SPECTRA = {
    "positive definite": [3.0, 2.0, 2.0, 0.5],
    "positive semidefinite": [3.0, 0.0, 2.0, 0.0],
    "negative definite": [-3.0, -0.1, -0.1, -5.0],
    "negative semidefinite": [-3.0, 0.0, 0.0, 0.0],
    "indefinite": [3.0, -1e-3, 0.0, 2.0],
    "zero": [0.0, 0.0, 0.0, 0.0],
}


def planted(spectrum: list[float], dtype: torch.dtype) -> torch.Tensor:
    turn = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
    A = turn @ torch.diag(torch.tensor(spectrum, dtype=torch.float64)) @ turn.mT
    return ((A + A.mT) / 2).to(dtype)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("verdict", SPECTRA)
def test_planted_spectra(verdict, dtype, scale):
    spectrum = SPECTRA[verdict]
    A = scale * planted(spectrum, dtype)
    found = definiteness(A, tol=scale * 1e-5 if 0.0 in spectrum else None)
    assert found.verdict == verdict
    signs = [sum(v > 0 for v in spectrum), sum(v < 0 for v in spectrum), spectrum.count(0.0)]
    assert found.inertia.tolist() == signs
    for x, value, extreme in (
        (found.low, found.least, min(spectrum)),
        (found.high, found.largest, max(spectrum)),
    ):
        assert x.dtype == value.dtype == dtype
        assert float(x.norm()) == pytest.approx(1.0)
        quotient = float(x.double() @ A.double() @ x.double()) / scale
        assert quotient == pytest.approx(extreme, abs=2e-5)
        assert float(value) / scale == pytest.approx(quotient, abs=2e-6)
    if verdict == "indefinite":
        assert found.low @ A @ found.low < 0 < found.high @ A @ found.high


def test_tolerance():
    A = torch.diag(torch.tensor([1.0, 1e-7, -1e-7], dtype=torch.float32))
    assert definiteness(A).verdict == "positive semidefinite"
    assert float(definiteness(A).tol) == 3 * 2.0**-23
    assert definiteness(A.double()).verdict == "indefinite"
    assert definiteness(A, tol=0).verdict == "indefinite"
    assert definiteness(A, tol=2).verdict == "zero"
    assert definiteness(torch.diag(torch.tensor([3, -1])), tol=1).verdict == "positive semidefinite"


def test_batch_and_complex():
    A = torch.stack([torch.eye(2), -torch.eye(2), torch.zeros(2, 2), torch.ones(2, 2)])
    found = definiteness(A.reshape(2, 2, 2, 2))
    assert found.verdict == [
        ["positive definite", "negative definite"],
        ["zero", "positive semidefinite"],
    ]
    assert found.inertia.tolist() == [[[2, 0, 0], [0, 2, 0]], [[0, 0, 2], [1, 0, 1]]]
    assert found.tol.shape == (2, 2)
    H = torch.tensor([[1.0, 2.0j], [-2.0j, 1.0]])
    found = definiteness(H)
    assert found.verdict == "indefinite"
    assert float((found.low.conj() @ H @ found.low).real) == pytest.approx(-1.0)
    assert definiteness(torch.tensor([[7]])).verdict == "positive definite"


def test_first_derivative_of_the_quotients():
    A = planted(SPECTRA["indefinite"], torch.float64)
    here, there = (A.clone().requires_grad_() for _ in range(2))
    definiteness(here).least.backward()
    torch.linalg.eigvalsh(there)[0].backward()
    assert here.grad is not None
    assert there.grad is not None
    torch.testing.assert_close(here.grad, (there.grad + there.grad.mT) / 2)


def test_integers_are_exact_where_floats_are_not():
    n = 2**26
    A = torch.tensor([[n * n, n * n + n], [n * n + n, n * n + 2 * n + 1]])
    assert int(A[0, 0] * A[1, 1] - A[0, 1] ** 2) == 0
    assert definiteness(A[:1, :1]).verdict == "positive definite"
    with pytest.raises(ValueError, match=r"Hadamard bound below 2\*\*63.*, got one of 2\*\*105"):
        definiteness(A)
    k = 2**14 - 1
    B = torch.tensor([[k * k, k * k + k], [k * k + k, k * k + 2 * k + 1]])
    assert definiteness(B).verdict == "positive semidefinite"
    B[1, 1] -= 1  # the least eigenvalue is about -1/2, the largest about 2**29
    assert definiteness(B).verdict == "indefinite"
    assert definiteness(B).tol == 0
    assert definiteness(B.float()).verdict == "positive semidefinite"


def test_exact_inertia_of_planted_congruence():
    for signs in ([1, 1, 1], [1, 0, -1], [0, 0, 1], [-1, -1, 0], [-1, 1, -1], [0, 0, 0]):
        for _ in range(20):
            L = torch.randint(-3, 4, (3, 3)).tril(-1) + torch.eye(3, dtype=torch.long)
            A = L @ torch.diag(torch.tensor(signs)) @ L.mT
            expected = [signs.count(s) for s in (1, -1, 0)]  # Sylvester's law of inertia
            assert definiteness(A).inertia.tolist() == expected


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_minors_against_symbols(d):
    A = torch.randint(-5, 6, (2, d, d))
    exact, rounded = principal_minors(A), principal_minors(A.double())
    assert exact.dtype == torch.int64
    torch.testing.assert_close(rounded, exact.double(), rtol=1e-12, atol=1e-9)
    sets = [S for k in range(1, d + 1) for S in combinations(range(d), k)]
    for matrix, minors in zip(A.tolist(), exact.tolist(), strict=True):
        symbolic = sympy.Matrix(matrix)
        assert minors == [symbolic.extract(list(S), list(S)).det() for S in sets]
        *_, p = characteristic(torch.tensor(matrix))
        assert p.tolist() == symbolic.charpoly().all_coeffs()
    leading = [sets.index(tuple(range(k))) for k in range(1, d + 1)]
    assert torch.equal(leading_minors(A), exact[:, leading])
    torch.testing.assert_close(leading_minors(A.double()), rounded[:, leading])


def test_minors_where_words_overflow_on_the_way():
    A = torch.randint(-3, 4, (5, 5))
    A[0, 0] = 2**40
    assert (2**40) ** 3 > 2**63  # which occurs in R M^3 S
    blocks = [sympy.Matrix(A[:k, :k].tolist()).det() for k in range(1, 6)]
    assert leading_minors(A).tolist() == blocks
    assert leading_minors(A.mT.contiguous().flip(0, 1))[-1].item() == blocks[-1]


M = torch.eye(3)
ERRORS = [
    (definiteness, M + torch.ones(3, 3).triu(1), {}, "A must be symmetric, got entries"),
    (definiteness, torch.tensor([[1, 2], [3, 1]]), {}, "A must be symmetric, got entries"),
    (definiteness, torch.tensor([[2**60, 1], [0, 1]]), {}, "symmetric, got integers that differ"),
    (definiteness, M[:2], {}, r"A must be square, got shape \(2, 3\)"),
    (definiteness, torch.ones(2, 3).long(), {}, r"A must be square, got shape \(2, 3\)"),
    (definiteness, M * math.nan, {}, "A must be finite, got nan"),
    (definiteness, M[:0, :0], {}, "A must not be empty"),
    (definiteness, [[1.0]], {}, "A must be a tensor, got list"),
    (definiteness, M, {"tol": -1.0}, "tol must be >= 0, got -1.0"),
    (definiteness, M, {"tol": math.nan}, "tol must be .*, got nan"),
    (leading_minors, M[0], {}, r"A must be square, got shape \(3,\)"),
    (leading_minors, M[:2].long(), {}, r"A must be square, got shape \(2, 3\)"),
    (leading_minors, 10**6 * torch.eye(4).long(), {}, r"Hadamard bound .* 2\*\*79.7"),
    (principal_minors, M * math.inf, {}, "A must be finite"),
    (principal_minors, torch.eye(21), {}, "A must be at most 20 wide, got 21"),
]


@pytest.mark.parametrize(("function", "A", "options", "message"), ERRORS)
def test_errors(function, A, options, message, unchecked):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(function)(A, **options)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    A = torch.randint(-3, 4, (50, 4, 4))
    A = A + A.mT
    for matrix in (A, A.double()):
        here, there = definiteness(matrix), definiteness(matrix.cuda())
        assert there.verdict == here.verdict
        assert torch.equal(there.inertia.cpu(), here.inertia)
        torch.testing.assert_close(there.least.cpu(), here.least)
        torch.testing.assert_close(principal_minors(matrix.cuda()).cpu(), principal_minors(matrix))
