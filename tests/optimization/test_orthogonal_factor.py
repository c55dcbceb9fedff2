"""Orthogonal factors against decompositions, grids and linear programs."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from vademecum.optimization import orthogonalize
from vademecum.optimization._polar_polynomials import best_quintic, express

CUBIC = (1.5, -0.5, 0.0)
EXACT: tuple[dict[str, Any], ...] = (
    {"method": "svd"},
    {"method": "polar_express", "steps": 9},
    {"coefficients": CUBIC, "steps": 40},
)


def factor(M):
    U, _, Vh = torch.linalg.svd(M, full_matrices=False)
    return U @ Vh


@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (5, 5), (2, 3, 6, 4), (3, 1, 5)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.float32])
def test_orthogonalize_is_the_polar_factor(shape, dtype):
    M = torch.randn(shape, dtype=dtype)
    tol = {"rtol": 0, "atol": 1e-5 if dtype == torch.float32 else 1e-11}
    wanted = factor(M)
    for knobs in EXACT:
        found = orthogonalize(M, **knobs)
        assert found.dtype == dtype
        torch.testing.assert_close(found, wanted, **tol)


@pytest.mark.parametrize("low", [0.3, 1e-2, 1e-3, 1e-5])
def test_best_quintic_is_what_a_linear_program_finds(low):
    (a, b, c), error = best_quintic(low, 1.0)
    x = np.unique(np.concatenate([np.geomspace(low, 1, 4000), np.linspace(low, 1, 4000)]))
    powers = np.stack([x, x**3, x**5], 1)
    one = np.ones((len(x), 1))
    rows = np.concatenate([np.hstack([powers, -one]), np.hstack([-powers, -one])])
    found = linprog([0, 0, 0, 1], rows, np.concatenate([one, -one]), bounds=[(None, None)] * 4)
    assert found.x[3] == pytest.approx(error, rel=1e-5)
    assert abs(1 - powers @ [a, b, c]).max() == pytest.approx(error, rel=1e-9)


def test_express_reaches_its_error_and_composes_the_best():
    x = np.geomspace(1e-3, 1, 100_001)
    y, low, high = x, 1e-3, 1.0
    for steps in range(1, 9):
        quintics, error = express(steps, 1e-3)
        a, b, c = quintics[-1]
        assert best_quintic(low, high)[0] == (a, b, c)
        y = a * y + b * y**3 + c * y**5
        assert abs(1 - y).max() == pytest.approx(error, rel=1e-6, abs=1e-14)
        low, high = 1 - error, 1 + error


def test_narrow_intervals_keep_the_third_order():
    for width in (1e-4, 1e-6):
        (a, b, c), error = best_quintic(1 - width, 1 + width)
        x = np.linspace(1 - width, 1 + width, 101)
        gap = abs(1 - (a * x + b * x**3 + c * x**5)).max()
        assert gap <= 1.01 * error + 1e-15


def test_newton_schulz_is_the_polynomial_on_singular_values():
    U, V = (torch.linalg.qr(torch.randn(6, 4, dtype=torch.float64)).Q for _ in range(2))
    s = torch.tensor([5.0, 2.0, 1.0, 0.05], dtype=torch.float64)
    x = s / s.norm()
    for _ in range(5):
        x = 3.4445 * x - 4.7750 * x**3 + 2.0315 * x**5
    wanted = (U * x) @ V.T
    torch.testing.assert_close(orthogonalize((U * s) @ V.T), wanted, rtol=0, atol=1e-12)
    assert ((x > 0.68) & (x < 1.14)).all()


@pytest.mark.parametrize("method", ["newton_schulz", "polar_express", "svd"])
def test_scale_and_lost_ranks(method):
    M = torch.randn(3, 5)
    for scale in (2.0**-120, 2.0**120):
        assert orthogonalize(scale * M, method=method).equal(orthogonalize(M, method=method))
    assert not orthogonalize(torch.zeros(2, 3, 4), method=method).any()
    u, v = torch.randn(6).double(), torch.randn(4).double()
    steps = 9 if method == "polar_express" else None
    found = orthogonalize(torch.outer(u, v), method=method, steps=steps)
    wanted = torch.outer(u / u.norm(), v / v.norm())
    close = 1e-5 if method != "newton_schulz" else 0.4
    torch.testing.assert_close(found, wanted, rtol=0, atol=close)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_half(dtype):
    M = torch.randn(2, 20, 30).to(dtype)
    for method in ("newton_schulz", "polar_express", "svd"):
        found = orthogonalize(M, method=method)
        assert found.dtype == dtype
        wanted = orthogonalize(M.double(), method=method)
        torch.testing.assert_close(found.double(), wanted, rtol=0, atol=0.01)
    rough = orthogonalize(M, method="polar_express", steps=6, dtype=torch.bfloat16)
    torch.testing.assert_close(rough.double(), factor(M.double()), rtol=0, atol=0.1)


def test_gradients_flow():
    M = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda m: orthogonalize(m, method="polar_express", steps=3), M)


@pytest.mark.parametrize(
    ("M", "knobs", "message"),
    [
        (torch.ones(3), {}, r"M must have at least 2 axes, got shape \(3,\)"),
        (torch.ones(2, 2).long(), {}, "M must be floating point, got torch.int64"),
        (torch.full((2, 2), torch.nan), {}, r"M must be finite, got nan at \(0, 0\)"),
        (torch.ones(0, 2), {}, "M must not be empty"),
        (torch.ones(2, 2), {"method": "qr"}, "method must be one of 'newton_schulz', .*, got 'qr'"),
        (torch.ones(2, 2), {"steps": 0}, "steps must be >= 1, got 0"),
        (torch.ones(2, 2), {"method": "svd", "steps": 3}, "steps must be None for method 'svd'"),
        (torch.ones(2, 2), {"coefficients": (1.0, 2.0)}, "coefficients must be three numbers"),
        (torch.ones(2, 2), {"coefficients": (1.0, 2.0, torch.nan)}, r"coefficients\[2\] must be"),
        (
            torch.ones(2, 2),
            {"method": "polar_express", "coefficients": CUBIC},
            "coefficients must be None for method 'polar_express'",
        ),
        (torch.ones(2, 2), {"dtype": torch.int32}, "dtype must be a floating-point dtype"),
        (torch.ones(2, 2), {"dtype": torch.complex64}, "dtype must be real, got torch.complex64"),
    ],
)
def test_bad_input(M, knobs, message, unchecked):
    with pytest.raises(ValueError, match=message):
        orthogonalize(M, **knobs)
