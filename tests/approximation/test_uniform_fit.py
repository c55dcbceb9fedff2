"""Best uniform fits: Chebyshev's closed forms, their certificates, and brute force."""

import inspect
import itertools
import math

import pytest
import torch

from vademecum.approximation.uniform_fit import best_uniform_fit

GRID = torch.linspace(-1, 1, 201, dtype=torch.float64)


def powers(x, degree):
    return x[:, None] ** torch.arange(degree + 1)


@pytest.mark.parametrize("degree", [1, 2, 4, 8])
def test_chebyshev(degree):
    """The best fit of x^n by lower powers leaves the Chebyshev polynomial, 2^(1 - n)."""
    x = torch.cos(torch.arange(40 * degree + 1, dtype=torch.float64) * math.pi / (40 * degree))
    fit = best_uniform_fit(powers(x, degree - 1), x**degree)
    assert fit.error == pytest.approx(2.0 ** (1 - degree), rel=1e-8)
    rest = x**degree - powers(x, degree - 1) @ fit.coefficients
    torch.testing.assert_close(rest, 2.0 ** (1 - degree) * torch.cos(degree * x.acos()))
    on = fit.weights != 0
    assert int(on.sum()) == degree + 1
    assert (fit.weights[on][1:] * fit.weights[on][:-1] < 0).all()  # it alternates


def brute_force(a, y):
    """The largest of the errors on k + 1 points, by de la Vallée Poussin's formula."""
    best, k = 0.0, a.shape[1]
    for points in itertools.combinations(range(len(a)), k + 1):
        null = torch.linalg.svd(a[list(points)].T).Vh[-1]
        best = max(best, float((null @ y[list(points)]).abs() / null.abs().sum()))
    return best


@pytest.mark.parametrize(("n", "k"), [(4, 1), (8, 2), (9, 3)])
def test_brute_force(n, k):
    a, y = torch.randn(n, k, dtype=torch.float64), torch.randn(n, dtype=torch.float64)
    assert best_uniform_fit(a, y).error == pytest.approx(brute_force(a, y), rel=1e-8)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_certificate(scale):
    y = (GRID * 3).exp() * scale
    a = torch.cat([powers(GRID, 6), 2 * powers(GRID, 2)], 1)  # of rank 7
    fit = best_uniform_fit(a, y)
    assert fit.lower == pytest.approx(fit.error, rel=1e-6)
    assert fit.error == pytest.approx(float((a @ fit.coefficients - y).abs().max()))
    assert float(fit.weights.abs().sum()) == pytest.approx(1)
    assert float((a.T @ fit.weights).abs().max()) < 1e-13
    assert float(fit.weights @ y) == pytest.approx(fit.lower)


def test_exact_fits_and_zero():
    y = powers(GRID, 3) @ torch.tensor([1.0, -2.0, 0.5, 3.0]).double()
    fit = best_uniform_fit(powers(GRID, 3), y)
    assert fit.error < 1e-8
    assert fit.lower <= fit.error
    torch.testing.assert_close(fit.coefficients, torch.tensor([1.0, -2.0, 0.5, 3.0]).double())
    assert best_uniform_fit(powers(GRID, 3), 0 * y).error == 0
    nothing = best_uniform_fit(torch.zeros(3, 2), torch.tensor([1.0, -2.0, 0.0]))
    assert (nothing.error, nothing.lower) == (2.0, 2.0)


def test_float32():
    fit = best_uniform_fit(powers(GRID, 4).float(), GRID.exp().float())
    assert fit.coefficients.dtype == fit.weights.dtype == torch.float32
    exact = best_uniform_fit(powers(GRID, 4), GRID.exp())
    assert fit.error == pytest.approx(exact.error, rel=1e-3)


A, Y = torch.ones(3, 1), torch.ones(3)
ERRORS = [
    ((A, Y[:2]), "y must be 3 wide"),
    ((A[:, :0], Y), "A must not be empty"),
    ((A[0], Y), "A must have 2 axes"),
    ((A * math.inf, Y), "A must be finite"),
    ((A, Y * math.nan), "y must be finite"),
    ((A.long(), Y), "A must be floating point"),
    ((A, Y.double()), "y must be torch.float32"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("arguments", "message"), ERRORS)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(best_uniform_fit)(*arguments)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    a, y = powers(GRID, 5), GRID.abs()
    fit, other = best_uniform_fit(a.cuda(), y.cuda()), best_uniform_fit(a, y)
    assert fit.error == pytest.approx(other.error)
    torch.testing.assert_close(fit.coefficients.cpu(), other.coefficients, rtol=1e-6, atol=1e-6)
