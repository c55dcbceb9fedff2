"""Draws that gradients pass through, and the variances of two estimates of one gradient."""

import pytest
import torch
from scipy import stats
from torch.autograd import gradcheck

from vademecum.generative import estimator_variance, gradient_variance, reparameterize
from vademecum.models import peak_bytes

COV = torch.tensor([[2.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.5]]).double()


@pytest.mark.parametrize("root", ["cholesky", "symmetric"])
def test_reparameterize_draws_from_the_law(root):
    mean = torch.tensor([1.0, -2.0, 0.5]).double()
    z = reparameterize(mean, covariance=COV, root=root, n=50_000)
    away = z - mean
    distances = (away * torch.linalg.solve(COV, away.T).T).sum(1)
    assert stats.kstest(distances.numpy(), stats.chi2(3).cdf).pvalue > 1e-6
    variances = COV.diagonal()[:, None] * COV.diagonal() + COV**2
    assert ((torch.cov(z.T) - COV).abs() < 5 * (variances / len(z)).sqrt()).all()
    sources = (torch.Generator().manual_seed(1) for _ in range(2))
    again = [reparameterize(mean, covariance=COV, root=root, generator=g) for g in sources]
    assert torch.equal(*again)


def test_roots_differ_and_are_roots():
    """The same noise through both roots: the matrices can be read off unit vectors."""
    zero = torch.zeros(3).double()
    for root in ("cholesky", "symmetric"):
        noise = torch.randn(7, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        z = reparameterize(zero, covariance=COV, root=root, n=7,
                           generator=torch.Generator().manual_seed(2))  # fmt: skip
        R = torch.linalg.lstsq(noise, z).solution.T
        torch.testing.assert_close(R @ R.T, COV)
        assert torch.allclose(R, R.T) == (root == "symmetric")
        assert torch.allclose(R, R.tril()) == (root == "cholesky")


@pytest.mark.parametrize("root", ["cholesky", "symmetric"])
@pytest.mark.parametrize("cov", [COV, torch.eye(3).double(), 0.5 * COV.expand(2, 3, 3)])
def test_gradients_reach_mean_and_covariance(root, cov):
    """Also where eigenvalues are equal, of which eigenvectors have no derivative."""
    mean = torch.randn(cov.shape[:-1], dtype=torch.float64, requires_grad=True)
    cov = cov.clone().requires_grad_()

    def draw(mean, cov):
        both = (cov + cov.mT) / 2
        generator = torch.Generator().manual_seed(0)
        return reparameterize(mean, covariance=both, root=root, generator=generator)

    assert gradcheck(draw, (mean, cov))


def test_diagonal_covariances():
    mean, log_variance = torch.randn(2, 4).double(), torch.randn(2, 4).double()
    noise = torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = reparameterize(mean, log_variance, n=5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(z, mean + log_variance.exp().sqrt() * noise)
    singular = torch.diag(torch.tensor([1.0, 0.0]))
    assert reparameterize(torch.zeros(2), covariance=singular, root="symmetric")[1] == 0


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, "log_variance or covariance must be given, got neither"),
        ((torch.zeros(3),), {"covariance": torch.eye(3)}, "must be given, got both"),
        ((torch.zeros(1),), {}, r"must have the shape of the mean, \(3,\), got \(1,\)"),
        ((), {"covariance": torch.eye(2)}, r"covariance must have shape \(3, 3\), got \(2, 2\)"),
        ((), {"covariance": -torch.eye(3)}, "covariance must be positive definite"),
        ((), {"covariance": -torch.eye(3), "root": "symmetric"}, "semidefinite, got the eigenval"),
        ((), {"covariance": torch.eye(3), "root": "lower"}, "root must be one of"),
        ((), {"covariance": torch.eye(3).roll(1, 0)}, "covariance must be symmetric"),
        ((torch.zeros(3),), {"n": 0}, "n must be >= 1, got 0"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_has_no_root_is_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        reparameterize(torch.zeros(3), *arguments, **options)


@pytest.mark.usefixtures("unchecked")
def test_integers_are_no_means():
    with pytest.raises(ValueError, match=r"mean must be floating point, got torch\.int64"):
        reparameterize(torch.zeros(3, dtype=torch.int64), torch.zeros(3))


def test_gradient_variance_has_the_moments_of_the_formulas():
    """Densely, with the same draws: a quartic of two coordinates, and the score by hand."""
    mean, std = torch.tensor([0.5, -1.0]).double(), torch.tensor([0.8, 1.7]).double()

    def f(z):
        return z[:, 0] ** 3 * z[:, 1] + z[:, 1] ** 2

    found = gradient_variance(f, mean, std, draws=999, generator=torch.Generator().manual_seed(5))
    noise = torch.randn(999, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    z = mean + std * noise
    slope = torch.stack([3 * z[:, 0] ** 2 * z[:, 1], z[:, 0] ** 3 + 2 * z[:, 1]], 1)
    score = f(z)[:, None] * torch.stack([noise / std, (noise**2 - 1) / std])
    for got, each in ((found.pathwise, torch.stack([slope, slope * noise])), (found.score, score)):
        torch.testing.assert_close(got.gradient, each.mean(1))
        torch.testing.assert_close(got.variance, each.var(1))
        torch.testing.assert_close(got.standard_error, each.std(1) / 999**0.5)
        fourth = (each - each.mean(1, keepdim=True)).pow(4).mean(1)
        error = ((fourth - 996 / 998 * each.var(1) ** 2) / 999).sqrt()
        torch.testing.assert_close(got.variance_error, error)


def test_gradient_variance_of_a_square():
    """At mu = sigma = 1, where quadrature is exact: in mu the variances are 4 and 30."""
    import numpy as np

    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    eta, w = torch.tensor(nodes), torch.tensor(weights / weights.sum())
    z = 1 + eta
    each = {
        "pathwise": torch.stack([2 * z, 2 * z * eta]),
        "score": torch.stack([z**2 * eta, z**2 * (eta**2 - 1)]),
    }
    one = torch.ones(1).double()
    found = gradient_variance(lambda z: z.square().sum(1), one, one, draws=40_000)
    for name, values in each.items():
        got, mean = getattr(found, name), values @ w
        variance = values.square() @ w - mean**2
        assert ((got.gradient[:, 0] - mean).abs() < 5 * got.standard_error[:, 0]).all()
        assert ((got.variance[:, 0] - variance).abs() < 6 * got.variance_error[:, 0]).all()
        assert abs(variance[0] - {"pathwise": 4, "score": 30}[name]) < 1e-9


def test_the_score_keeps_its_digits_where_the_mean_is_far():
    """In single precision, where z - mean has lost all of its digits and the noise has not."""
    mean, std = torch.full((1,), 1e6), torch.full((1,), 1e-3)
    found = gradient_variance(lambda z: z[:, 0], mean, std, draws=4000, baseline=1e6).score
    plain = gradient_variance(lambda z: 0 * z[:, 0] + 1, mean, std, draws=4000).score
    assert abs(plain.variance[0, 0] / 1e6 - 1) < 0.2  # (noise / std) has the variance 1 / std^2
    assert abs(plain.variance[1, 0] / 2e6 - 1) < 0.4
    assert found.gradient.isfinite().all()


def test_a_baseline_lowers_the_variance_and_not_the_mean():
    mean, std = torch.zeros(2).double(), torch.ones(2).double()

    def f(z):
        return 10 + z.square().sum(1)

    plain, better = (
        gradient_variance(f, mean, std, draws=20_000, baseline=b).score
        for b in (0.0, "leave_one_out")
    )
    assert (better.variance < plain.variance / 5).all()
    wanted = torch.tensor([[0.0, 0.0], [2.0, 2.0]])
    assert ((better.gradient - wanted).abs() < 5 * better.standard_error).all()


def test_moments_of_portions_are_those_of_all():
    """Portions with other means than the first, about whose mean powers are summed."""
    parts = [size * torch.randn(2, n, 3).double() + at for n, at, size in ((5, 1, 1), (9, -2, 3))]
    moments, each = estimator_variance._Moments(), torch.cat(parts, 1)
    for part in parts:
        moments.add(part)
    found = moments.result(torch.float64)
    fourth = (each - each.mean(1, keepdim=True)).pow(4).mean(1)
    error = ((fourth - 11 / 13 * each.var(1) ** 2) / 14).sqrt()
    wanted = each.mean(1), each.std(1) / 14**0.5, each.var(1), error
    torch.testing.assert_close(tuple(found), wanted)


def test_no_draw_is_left_alone(monkeypatch):
    """Five draws, two at a time: the last one would have no others to leave it out of."""
    monkeypatch.setattr(estimator_variance, "_rows_at_once", lambda *_: 2)
    zero, one = torch.zeros(2), torch.ones(2)
    found = gradient_variance(lambda z: z.prod(1), zero, one, draws=5, baseline="leave_one_out")
    assert found.score.variance.isfinite().all()


def test_portions_of_draws_keep_to_the_memory():
    mean, std = torch.zeros(50), torch.ones(50)

    def f(z):
        return z.sin().prod(1) + z.square().sum(1)

    kept = peak_bytes(lambda: gradient_variance(f, mean, std, draws=3001, memory=10**6))
    assert kept < 1.1e6 < peak_bytes(lambda: gradient_variance(f, mean, std, draws=3001)) / 3
    found = gradient_variance(f, mean, std, draws=3001, memory=10**6, baseline="leave_one_out")
    assert ((found.pathwise.gradient[1] - 2).abs() < 6 * found.pathwise.standard_error[1]).all()
    with pytest.raises(ValueError, match=r"memory must be >= \d+ bytes for two draws, got 100"):
        gradient_variance(f, mean, std, memory=100)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((lambda z: z, torch.zeros(2), torch.ones(2)), "f must give one number for each of .*rows"),
        (
            (lambda z: z.detach().sum(1), torch.zeros(2), torch.ones(2)),
            "f must be a differentiable",
        ),
        ((lambda z: z.sum(1) / 0, torch.zeros(2), torch.ones(2)), "f must be finite"),
        ((lambda z: z.sum(1), torch.zeros(2), torch.zeros(2)), "std must be > 0, got 0"),
        ((lambda z: z.sum(1), torch.zeros(2), torch.ones(1)), r"shape of the mean, \(2,\), got"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_functions_that_have_no_gradient_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        gradient_variance(*arguments)
    with pytest.raises(ValueError, match="draws must be >= 2, got 1"):
        gradient_variance(lambda z: z.sum(1), torch.zeros(2), torch.ones(2), draws=1)


@pytest.mark.gpu
def test_on_a_gpu():
    mean, std = torch.zeros(2).cuda(), torch.ones(2).cuda()
    found = gradient_variance(lambda z: z.square().sum(1), mean, std, memory=10**7)
    assert found.score.variance.is_cuda
    z = reparameterize(mean, covariance=torch.eye(2).cuda(), root="symmetric", n=3,
                       generator=torch.Generator())  # fmt: skip
    assert z.is_cuda
