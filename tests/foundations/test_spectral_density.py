"""Lanczos quadrature against dense spectra: moments, densities, determinants."""

import math

import pytest
import torch

from vademecum.foundations._probes import random_block
from vademecum.foundations.lanczos_quadrature import log_det, spectral_density
from vademecum.foundations.operators import LinearOperator, aslinearoperator

DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def planted(values, dtype=torch.float64):
    values = torch.as_tensor(values, dtype=torch.float64)
    Q = torch.linalg.qr(torch.randn(len(values), len(values), dtype=torch.complex128)).Q
    Q = Q if dtype.is_complex else torch.linalg.qr(Q.real).Q
    return ((Q * values) @ Q.mH).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_quadrature_is_exact_on_polynomials(dtype):
    A = planted(torch.linspace(-1, 1.5, 40), dtype)
    found = spectral_density(A, probes=5, steps=4, generator=torch.Generator().manual_seed(2))
    V = random_block(aslinearoperator(A), 5, torch.Generator().manual_seed(2), signs=True) / 40**0.5
    eps = torch.finfo(dtype).eps
    powers = V
    for degree in range(8):
        form = (V.conj() * powers).sum(0).real
        moments = (found.weights * found.nodes**degree).sum(1)
        torch.testing.assert_close(moments, form, rtol=0, atol=200 * eps)
        powers = A @ powers
    assert (found.weights >= 0).all()
    assert found.applications == 20


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("dtype", DTYPES)
def test_exact_if_the_probes_cover_n(n, dtype):
    values = torch.linspace(0.5, 3, n).double()
    found = spectral_density(planted(values, dtype), probes=7)
    torch.testing.assert_close(found.nodes[0].double(), values, rtol=1e-5, atol=0)
    assert log_det(planted(values, dtype), probes=7).standard_error == 0
    determinant = float(log_det(planted(values, dtype), probes=7).value)
    assert determinant == pytest.approx(float(values.log().sum()), abs=1e-5)


@pytest.mark.parametrize("values", [[2.0], [0.0], [0.0, 0.0, 3.0], [1.0, -1.0], [5.0, 1e-3]])
def test_few_distinct_eigenvalues(values):
    n = 60
    spectrum = torch.tensor(values * n)[:n].double()
    found = spectral_density(planted(spectrum), probes=6, steps=20)
    assert ((found.nodes[..., None] - spectrum).abs().amin(-1)[found.weights > 1e-9] < 1e-9).all()
    assert found.nodes.max() <= spectrum.max() + 1e-12
    assert found.nodes.min() >= spectrum.min() - 1e-12
    torch.testing.assert_close(found.weights.sum(1), torch.ones(6).double())
    value = found.trace(lambda x: x)
    exact = spectrum.sum()
    assert abs(float(value.value - exact)) <= 6 * float(value.standard_error) + 1e-9


def test_density_integrates_to_one_and_is_the_smoothed_spectrum():
    values = torch.cat([torch.linspace(-1, 1, 300), torch.full((100,), 3.0)]).double()
    A = planted(values)
    found = spectral_density(A, probes=30, steps=40)
    grid = torch.linspace(-3, 5, 801).double()
    density, error = found(grid, width=0.2)
    assert float(torch.trapezoid(density, grid)) == pytest.approx(1.0, abs=1e-6)
    gap = (grid[:, None] - values) / 0.2
    exact = (torch.exp(-(gap**2) / 2) / (0.2 * math.sqrt(2 * math.pi))).mean(1)
    assert ((density - exact).abs() <= 6 * error + 1e-6).all()
    assert error.max() < 0.05
    default, _ = found(grid.reshape(3, 267))
    assert default.shape == (3, 267)
    spread = float(found.nodes.max() - found.nodes.min())
    torch.testing.assert_close(default.flatten(), found(grid, width=spread / 40)[0])
    fine = spectral_density(A, probes=4, steps=60)
    spread = float(fine.nodes.max() - fine.nodes.min())
    torch.testing.assert_close(fine(grid)[0], fine(grid, width=spread / 50)[0])


def smoothed(grid, values, weights, width):
    gap = (grid[:, None] - values) / width
    return (weights * torch.exp(-(gap**2) / 2)).sum(1) / (width * math.sqrt(2 * math.pi))


@pytest.mark.parametrize("steps", [8, 16, 32, 64])
@pytest.mark.parametrize("shape", ["even", "outliers", "clusters", "wide"])
def test_the_resolution_is_what_the_steps_resolve(shape, steps):
    even = torch.linspace(-1, 1, 500).double()
    values = {
        "even": even,
        "outliers": torch.cat([even[:490] / 50, torch.linspace(0.3, 1, 10).double()]),
        "clusters": (2 * even).round() + 1e-3 * even,
        "wide": even**3,
    }[shape]
    op = aslinearoperator(torch.diag(values))
    found = spectral_density(op, probes=2, steps=steps, generator=torch.Generator().manual_seed(0))
    spread = float(found.nodes.max() - found.nodes.min())
    assert found.resolution == pytest.approx(spread / steps)
    # The measures of these probes, signs over sqrt(n), are the spectral one itself here.
    grid = torch.linspace(-1.2, 1.2, 501).double()
    for factor in (1.0, 1.5, 2.0):
        width = factor * found.resolution
        exact = smoothed(grid, values, torch.full_like(values, 1 / 500), width)
        error = float((found(grid, width=width)[0] - exact).abs().max())
        assert error <= quadrature_error(steps, width, 1.0) + 1e-12
        assert factor > 1 or error <= 2e-3 * exact.max()


def quadrature_error(steps, width, half):
    """Bernstein's bound for a Gaussian on [-half, half], at the best ellipse.

    Polynomials of degree 2 s - 1 come within 2 M rho^(1 - 2 s) / (rho - 1) of what is at most M in
    the ellipse with the half axes (rho +- 1 / rho) / 2, and two laws differ by twice that at most.
    """
    rho = torch.linspace(1.001, 6, 5000).double()
    most = ((rho - 1 / rho) ** 2 / 8 * (half / width) ** 2).exp() / (width * math.sqrt(2 * math.pi))
    return float((4 * most * rho ** (1 - 2 * steps) / (rho - 1)).min())


def test_the_standard_error_is_that_of_the_density():
    A = planted(torch.linspace(-1, 1, 300).double())
    runs = [spectral_density(A, probes=8, steps=16) for _ in range(40)]
    width = 0.12  # about the resolution
    grid = torch.linspace(-1, 1, 33).double()
    densities = torch.stack([found(grid, width=width)[0] for found in runs])
    spread = float(densities.std(0).max() / densities.mean())
    stated = torch.tensor([found.standard_error for found in runs])
    assert 0.7 * spread < float(stated.mean()) < 2 * spread  # the largest of a few is above it
    assert spectral_density(A, probes=300).standard_error == 0
    assert spectral_density(A, probes=300).resolution == 0


def test_by_default_it_takes_128_products():
    calls = []

    def matvec(x):
        calls.append(x.shape[1])
        return x * torch.linspace(0, 1, 1000)[:, None]

    found = spectral_density(LinearOperator((1000, 1000), matvec))
    assert sum(calls) == found.applications == 128
    assert "resolution=" in repr(found)
    assert "standard_error=" in repr(found)


def test_what_is_nearly_symmetric_is_taken_on_request():
    A = planted(torch.linspace(1, 2, 100)) + 1e-6 * torch.randn(100, 100).double()
    for probes in (4, 100):
        for function in (spectral_density, log_det):
            with pytest.raises(ValueError, match="a relative asymmetry of"):
                function(A, probes=probes)
            function(A, probes=probes, symmetry_tol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_det(dtype):
    values = torch.logspace(-1, 2, 100).double()
    A = planted(values, dtype)
    found = log_det(A, probes=40, steps=50)
    error = float(found.standard_error)
    assert abs(float(found.value - values.log().sum())) <= 6 * error + 1e-3
    log = planted(values.log())  # whose entries, but for the diagonal, make the variance
    assert error == pytest.approx(
        float((2 / 40 * log.fill_diagonal_(0) ** 2).sum()) ** 0.5, rel=0.6
    )


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_scales_whose_squares_leave_the_range(scale):
    A = planted(torch.linspace(1, 5, 60), torch.float32)
    one, other = (
        spectral_density(x, probes=4, steps=10, generator=torch.Generator().manual_seed(0))
        for x in (A, scale * A)
    )
    torch.testing.assert_close(other.nodes.double() / scale, one.nodes.double(), rtol=1e-4, atol=0)
    here, there = (found.trace(lambda x: x) for found in (one, other))
    assert float(there.value) / scale == pytest.approx(float(here.value), rel=1e-4)
    error = float(there.standard_error) / scale
    assert error == pytest.approx(float(here.standard_error), rel=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_singular_operators_have_no_log_det(dtype):
    for n in (3, 6, 60):
        for _ in range(5):
            B = torch.randn(n, n - 1, dtype=dtype)
            for probes in (2, n):
                with pytest.raises(ValueError, match="op must be positive definite, got a form"):
                    log_det(B @ B.T, probes=probes, steps=n)
    ill = planted(torch.logspace(-4, 0, 20), dtype)  # which is far from singular
    assert float(log_det(ill, probes=20).value) == pytest.approx(-40 * math.log(10), rel=1e-2)


def test_functions_of_the_operator():
    A = planted(torch.linspace(-1, 1, 200))
    found = spectral_density(A, probes=50, steps=20).trace(torch.exp)
    exact = float(torch.linspace(-1, 1, 200).double().exp().sum())
    assert abs(float(found.value) - exact) <= 6 * float(found.standard_error)


def test_seeds():
    A, state = planted(torch.rand(50)), torch.get_rng_state()
    one, two = (
        spectral_density(A, probes=3, generator=torch.Generator().manual_seed(1)).nodes
        for _ in range(2)
    )
    assert one.equal(two)
    assert state.equal(torch.get_rng_state())


I, SKEW = torch.eye(30), torch.eye(30) + torch.ones(30, 30).triu(1)
ERRORS = [
    (spectral_density, (SKEW,), {"probes": 3}, "op must be symmetric"),
    (spectral_density, (SKEW,), {"probes": 30}, "op must be symmetric"),
    (spectral_density, (torch.ones(2, 3),), {}, "op must be square"),
    (spectral_density, (I.bfloat16(),), {}, "op must be in single or double precision"),
    (log_det, (I.half(),), {}, "op must be in single or double precision"),
    (spectral_density, (I,), {"probes": 1}, "probes must be >= 2, got 1"),
    (spectral_density, (I,), {"steps": 0}, "steps must be >= 1, got 0"),
    (log_det, (-I,), {"probes": 3}, r"op must be positive definite, got a form .* = -1"),
    (log_det, (-I,), {"probes": 30}, "op must be positive definite"),
    (log_det, (torch.diag(torch.linspace(-1, 9, 30)),), {"probes": 4}, "op must be positive"),
    (log_det, (I * 0,), {"probes": 3}, "op must be positive definite, got .* 0"),
    (log_det, (SKEW,), {"probes": 3}, "op must be symmetric"),
    (spectral_density(I), (I * math.nan,), {}, "grid must be finite"),
    (spectral_density(I), (I,), {"width": 0.0}, "width must be > 0"),
    (log_det, (LinearOperator((9, 9), lambda x: x * math.nan),), {"probes": 3}, "op must be"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("function", "arguments", "options", "message"), ERRORS)
def test_errors(function, arguments, options, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments, **options)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda():
    A = planted(torch.linspace(0.5, 2, 80))
    here, there = (
        log_det(x, probes=4, steps=10, generator=torch.Generator().manual_seed(0))
        for x in (A, A.cuda())
    )
    torch.testing.assert_close(there.value.cpu(), here.value)
    torch.testing.assert_close(there.standard_error.cpu(), here.standard_error)
