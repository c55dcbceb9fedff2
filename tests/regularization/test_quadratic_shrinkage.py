"""Shrinkage by decay and by early stopping, against solvers and steps one by one."""

from typing import Any

import numpy as np
import pytest
import torch

from vademecum.claims import with_eigenvalues
from vademecum.regularization import (
    equivalent_stopping_time,
    gd_closed_form,
    optimal_weight_decay,
    spectral_shrinkage,
)

H = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 0.3]])
END = torch.tensor([1.0, -2.0, 3.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_spectral_shrinkage_solves_the_penalised_system(dtype):
    tol = 1e-5 if dtype == torch.float32 else 1e-12
    for mu in (1e-2, 1.0, 50.0):
        found = spectral_shrinkage(H.to(dtype), END.to(dtype), decay=mu)
        A, b = (H.double() + mu * torch.eye(3)).numpy(), (H.double() @ END.double()).numpy()
        np.testing.assert_allclose(found.theta.numpy(), np.linalg.solve(A, b), atol=tol)
        values = torch.linalg.eigvalsh(H.to(dtype))
        torch.testing.assert_close(found.factors, values / (values + mu))
        assert found.theta.dtype == dtype
    assert repr(found).startswith("Shrinkage(theta=")


def test_directions_that_rounding_put_below_zero_count_as_flat():
    values = torch.tensor([0.0, 0.0, 1.0, 2.0]).double()
    found = spectral_shrinkage(with_eigenvalues(values), torch.ones(4).double(), decay=1e-15)
    assert (found.eigenvalues >= 0).all()
    assert float(found.factors.max()) <= 1


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_what_counts_as_rounding_grows_with_the_matrix(scale):
    flat = scale * with_eigenvalues(torch.tensor([0.0, 0.0, 0.0, 1.0, 2.0]).double())
    found = spectral_shrinkage(flat, torch.ones(5).double(), decay=scale)
    wanted = torch.tensor([0, 0, 0, 1 / 2, 2 / 3], dtype=torch.float64)
    torch.testing.assert_close(found.factors, wanted, rtol=0, atol=1e-14)
    bent = scale * with_eigenvalues(torch.tensor([-1e-6, 1.0, 2.0]).double())
    with pytest.raises(ValueError, match="H must be positive semidefinite, got the eigenvalue -1e"):
        spectral_shrinkage(bent, torch.ones(3).double(), decay=scale)


@pytest.mark.parametrize("eta", [0.1, 0.9, 1.3])  # slow, fast, divergent
def test_gd_closed_form_is_where_the_steps_lead(eta):
    A, end, start = H.double(), END.double(), torch.tensor([0.3, 0.1, -1.0]).double()
    path = [start]
    for _ in range(20):
        path.append(path[-1] - eta * A @ (path[-1] - end))
    times = torch.arange(21).view(3, 7)
    found = gd_closed_form(A, end, times, eta=eta, start=start)
    torch.testing.assert_close(found, torch.stack(path).view(3, 7, 3))
    torch.testing.assert_close(gd_closed_form(A, end, 5, eta=eta, start=start), path[5])
    from_zero = gd_closed_form(A, end, 7, eta=eta)
    torch.testing.assert_close(
        from_zero, gd_closed_form(A, end, 7, eta=eta, start=torch.zeros(3).double())
    )


def test_what_stays_is_differentiable():
    end = END.double().requires_grad_()
    spectral_shrinkage(H.double(), end, decay=1.0).theta.sum().backward()
    wanted = torch.linalg.solve(H.double() + torch.eye(3), H.double()).sum(0)
    torch.testing.assert_close(end.grad, wanted)


def test_equivalent_stopping_time_is_mutual():
    t = equivalent_stopping_time(0.03, eta=0.7)
    assert t == pytest.approx(1 / 0.021)
    assert equivalent_stopping_time(t, eta=0.7) == pytest.approx(0.03)


def test_optimal_weight_decay_of_mean_squares():
    """`nn.MSELoss` has no half, so that its decay is twice that of the mean with one."""
    torch.manual_seed(0)
    n, d, noise, signal = 11, 3, 0.4, 1.7
    X = torch.randn(n, d).double()

    def risk(mu):  # of the minimum of |Xw - y|^2 / n + mu |w|^2 / 2
        M = torch.linalg.solve(2 / n * X.T @ X + mu * torch.eye(d), 2 / n * X.T)
        bias = M @ X - torch.eye(d)
        return float(signal * bias.square().sum() + noise * M.square().sum())

    best = 2 * optimal_weight_decay(noise, signal, n=n)
    assert all(risk(best) < risk(share * best) for share in (0.5, 0.98, 1.02, 2.0))


@pytest.mark.usefixtures("unchecked")
def test_errors():
    half: Any = 2.5
    table = [
        (lambda: spectral_shrinkage(H, END, decay=0.0), "decay must be > 0, got 0"),
        (lambda: spectral_shrinkage(-H, END, decay=1.0), "H must be positive semidefinite, got"),
        (lambda: spectral_shrinkage(H, END[:2], decay=1.0), "minimum must be 3 wide"),
        (lambda: spectral_shrinkage(H, END.double(), decay=1.0), "of the dtype of H, torch.float3"),
        (lambda: spectral_shrinkage(H[:2], END, decay=1.0), "H must be square"),
        (lambda: spectral_shrinkage(H.triu(), END, decay=1.0), "H must be symmetric"),
        (lambda: spectral_shrinkage(H[None], END, decay=1.0), "H must have 2 axes"),
        (lambda: spectral_shrinkage(H * torch.nan, END, decay=1.0), "H must be finite, got nan"),
        (lambda: spectral_shrinkage(H.half(), END.half(), decay=1.0), "single or double precision"),
        (lambda: gd_closed_form(H, END, -1, eta=0.1), "t must be >= 0, got -1"),
        (lambda: gd_closed_form(H, END, torch.tensor([2, -3]), eta=0.1), "t must be >= 0, got -3"),
        (lambda: gd_closed_form(H, END, half, eta=0.1), "t must be an integer, got 2.5"),
        (lambda: gd_closed_form(H, END, torch.ones(2), eta=0.1), "t must be an integer, or a ten"),
        (lambda: gd_closed_form(H, END, 3, eta=-0.1), "eta must be > 0, got -0.1"),
        (lambda: gd_closed_form(H, END, 3, eta=0.1, start=END[:2]), "start must be like minimum"),
        (lambda: gd_closed_form(H, END, 3, eta=0.1, start=END.double()), "got torch.float64 of"),
        (lambda: equivalent_stopping_time(0.0, eta=0.1), "decay must be > 0, got 0"),
        (lambda: equivalent_stopping_time(0.1, eta=float("nan")), "eta must be"),
        (lambda: optimal_weight_decay(-1.0, 1.0), "noise_variance must be >= 0, got -1"),
        (lambda: optimal_weight_decay(1.0, 0.0), "weight_variance must be > 0, got 0"),
        (lambda: optimal_weight_decay(1.0, 1.0, n=0), "n must be >= 1, got 0"),
    ]
    for act, message in table:
        with pytest.raises(ValueError, match=message):
            act()
