"""Frechet distances against closed forms, SciPy, many digits, and laws that are known."""

import math

import mpmath
import numpy as np
import pytest
import scipy.linalg
import torch
from torch import nn

from tests.generative.drawn_features import batched, normal
from vademecum.generative import FeatureMoments, feature_moments, frechet_distance
from vademecum.models import mlp, peak_bytes
from vademecum.testing import check_instrument


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows_with(covariance: torch.Tensor, n: int, seed: int = 0) -> torch.Tensor:
    """Rows whose covariance is exactly this, and whose mean is 0; n must exceed its size."""
    z = normal(n, len(covariance), seed=seed)
    z = torch.linalg.qr(z - z.mean(0)).Q * math.sqrt(n - 1)
    values, vectors = torch.linalg.eigh(covariance)
    return z @ (vectors * values.clamp(min=0).sqrt()).T


def by_digits(x: torch.Tensor, y: torch.Tensor) -> float:
    """The formula with 60 digits, from the definition of the moments."""
    with mpmath.workdps(60):
        means, covariances = [], []
        for rows in (x, y):
            m = mpmath.matrix(rows.tolist())
            n, d = m.rows, m.cols
            mean = [mpmath.fsum(m[i, j] for i in range(n)) / n for j in range(d)]
            c = mpmath.matrix(n, d)
            for i in range(n):
                for j in range(d):
                    c[i, j] = m[i, j] - mean[j]
            means.append(mean)
            covariances.append(c.T * c / (n - 1))
        gap = mpmath.fsum((a - b) ** 2 for a, b in zip(*means, strict=True))
        product = covariances[0] * covariances[1]
        values = mpmath.eig(product, left=False, right=False)
        root = mpmath.fsum(mpmath.sqrt(max(mpmath.re(v), 0)) for v in values)
        trace = mpmath.fsum(c[i, i] for c in covariances for i in range(c.rows))
        return float(gap + trace - 2 * root)


@pytest.mark.parametrize("power", [-490, -330, 330, 490])
@pytest.mark.parametrize(("n", "m", "d"), [(4, 5, 6), (3, 12, 5), (9, 4, 5), (9, 8, 3), (8, 9, 1)])
def test_products_of_variances_that_leave_the_range(n, m, d, power):
    """In another unit the distance is the same, though products of variances are inf or 0."""
    x, y, unit = normal(n, d, seed=1), 2 * normal(m, d, seed=2) + 1, 2.0**power
    wanted, found = frechet_distance(x, y), frechet_distance(unit * x, unit * y)
    assert found.value / unit**2 == pytest.approx(wanted.value, rel=1e-11)
    assert found.covariances / unit**2 == pytest.approx(wanted.covariances, rel=1e-9)


@pytest.mark.parametrize(("n", "m", "d"), [(4, 5, 6), (3, 12, 5), (12, 4, 5), (9, 8, 3), (2, 2, 3)])
def test_many_digits_of_full_and_missing_rank(n, m, d):
    x, y = normal(n, d, seed=1), 2 * normal(m, d, seed=2) + 1
    found = frechet_distance(x, y)
    assert found.value == pytest.approx(by_digits(x, y), rel=1e-11)
    assert found.value == pytest.approx(found.means + found.covariances)
    assert found.means == pytest.approx(float((x.mean(0) - y.mean(0)).square().sum()))


def test_scipy_where_it_is_right():
    x, y = normal(500, 20, seed=3), normal(400, 20, seed=4) @ normal(20, 20, seed=5) / 4 + 0.3
    s, r = (np.cov(t.numpy(), rowvar=False) for t in (x, y))
    gap = ((x.mean(0) - y.mean(0)) ** 2).sum().item()
    expected = gap + np.trace(s + r - 2 * np.real(scipy.linalg.sqrtm(s @ r)))
    assert frechet_distance(x, y).value == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("n", [7, 40, 300])
def test_covariances_that_commute_and_have_no_inverse(n):
    """The closed form, with directions in which one set, the other or both do not vary."""
    d, q = 30, torch.linalg.qr(normal(30, 30, seed=6)).Q
    a, b = torch.zeros(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)
    a[:5], b[2:6] = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), torch.tensor([9.0, 1.0, 16.0, 4.0])
    x = rows_with(torch.diag(a[:6]), n, seed=7) @ q[:6]
    y = rows_with(torch.diag(b[:6]), n, seed=8) @ q[:6]
    expected = float((a.sqrt() - b.sqrt()).square().sum())
    found = frechet_distance(x, y + q[7])
    tol = 1e-11 if n <= d else 1e-6  # roots of rounding errors of covariances, at most 2e-8 each
    assert found.value == pytest.approx(1 + expected, rel=tol)
    moments = frechet_distance(feature_moments(x), feature_moments(y + q[7]))
    assert moments.value == pytest.approx(1 + expected, rel=1e-6)


def test_few_rows_of_many_features_never_leave_the_real_numbers():
    """What SciPy's root gives imaginary parts for: 40 rows of 300 features, or repeated rows."""
    for seed in range(5):
        x, y = normal(40, 300, seed=seed), normal(50, 300, seed=seed + 99)
        values = [frechet_distance(x, y).value, frechet_distance(y, x).value]
        assert values[0] == pytest.approx(values[1], rel=1e-12)
        assert math.isfinite(values[0])
        assert values[0] > 0
        same = frechet_distance(x, x.flip(0)).value
        assert 0 <= same < 1e-11 * 300
        repeated = x[:5].repeat(200, 1)
        assert 0 <= frechet_distance(repeated, repeated).value < 1e-4  # roots of rounding errors
        assert math.isfinite(frechet_distance(repeated, y).value)


def test_rounding_never_makes_a_distance_negative():
    for seed in range(30):
        x = normal(5 + seed, 8, seed=seed)
        found = frechet_distance(x, x.flip(0))
        assert found.covariances >= 0
        assert found.value >= 0


def test_features_that_do_not_vary():
    x, y = normal(50, 4, seed=9), normal(60, 4, seed=10)
    x[:, 1], y[:, 1], y[:, 2] = 5.0, 3.0, 0.0
    live = frechet_distance(x[:, [0, 3]], y[:, [0, 3]])
    expected = live.covariances + float(x[:, 2].var())
    found = frechet_distance(x, y)
    assert found.covariances == pytest.approx(expected, rel=1e-12)
    ones = torch.ones(5, 3)
    found = frechet_distance(ones, 3 * ones)
    assert found == (12.0, 12.0, 0.0, None)
    assert frechet_distance(ones, normal(20, 3)).covariances == pytest.approx(
        float(normal(20, 3).var(0).sum())
    )


@pytest.mark.parametrize("batch", [1, 3, 7, 64])
@pytest.mark.parametrize("d", [3, 12])
def test_loaders_bring_what_tensors_hold(batch, d):
    x, y = normal(30, d, seed=11) + 5, normal(23, d, seed=12)
    whole = frechet_distance(x, y)
    targets = torch.zeros(23)
    loaders = batched(x, size=batch), batched(y, targets, size=batch)
    assert frechet_distance(*loaders).value == pytest.approx(whole.value, rel=1e-12)
    assert frechet_distance(x, y, memory=100).value == pytest.approx(whole.value, rel=1e-12)


@pytest.mark.parametrize("batch", [4, 30])
def test_feature_moments_are_those_of_numpy(batch):
    x = normal(30, 5, seed=24).float() + 3
    for given in (x, batched(x, size=batch)):
        found = feature_moments(given, features=nn.Dropout())
        exact = x.double().numpy()
        np.testing.assert_allclose(found.mean, exact.mean(0), rtol=1e-12)
        np.testing.assert_allclose(found.covariance, np.cov(exact, rowvar=False), rtol=1e-10)
        assert found.n == 30


def test_means_far_from_zero_cost_no_digits():
    x, y = normal(400, 5, seed=13), 2 * normal(300, 5, seed=14)
    near = frechet_distance(x, y).covariances
    far = frechet_distance(batched(x + 2.0**20, size=50), y + 2.0**20).covariances
    assert far == pytest.approx(near, rel=1e-8)


def test_features_of_a_module_in_evaluation_mode():
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Dropout(0.5)).double()
    x, y = normal(20, 1, 5, 5, seed=15), normal(30, 1, 5, 5, seed=16) + 1
    assert net.training
    net(x)
    expected_x, expected_y = (net.eval()(t).detach().flatten(1) for t in (x, y))
    net.train()
    wanted = frechet_distance(expected_x, expected_y)
    found = frechet_distance(x, batched(y, size=8), features=net, memory=5000)
    assert found.value == pytest.approx(wanted.value, rel=1e-9)
    assert net.training
    named = frechet_distance(x, y, features=Named(net), output="maps")
    assert named.value == pytest.approx(wanted.value, rel=1e-9)


class Named(nn.Module):
    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, x):
        return {"maps": self.net(x), "other": x.sum()}


def test_laws_of_instruments():
    def of_halves(model, data):
        found = frechet_distance(data[::2], data[1::2], features=model)
        return torch.tensor([found.value, found.means])

    check_instrument(of_halves, mlp([6, 4, 2]), normal(8, 6, seed=17).float())


def test_estimates_are_too_large_and_extrapolation_mends_that():
    """Means over 40 pairs of sets; the truth is the formula of the laws' own moments."""
    d, n, repeats, g = 12, 48, 40, drawn(18)
    a, b = (torch.randn(d, d, dtype=torch.float64, generator=g) / math.sqrt(d) for _ in range(2))
    zero = torch.zeros(d, dtype=torch.float64)
    for first, second in ((a, b), (a, a)):
        laws = [FeatureMoments(zero, m @ m.T, 0) for m in (first, second)]
        truth = frechet_distance(*laws).value
        plain, better, errors = [], [], []
        for _ in range(repeats):
            x, y = (
                torch.randn(n, d, dtype=torch.float64, generator=g) @ m.T for m in (first, second)
            )
            found = frechet_distance(x, y, extrapolate=True)
            plain.append(found.means + found.covariances)
            better.append(found.value)
            assert found.standard_error is not None
            errors.append(found.standard_error)
        spread = np.std(better) / math.sqrt(repeats)
        bias, left = np.mean(plain) - truth, np.mean(better) - truth
        assert bias > 5 * np.std(plain) / math.sqrt(repeats)
        assert abs(left) < bias / 5 + 3 * spread
        if second is a:
            assert min(better) == 0  # where a distance below 0 was extrapolated
        else:
            assert 0.7 < np.mean(errors) / np.std(better) < 1.6


def test_extrapolation_is_the_jackknife_of_groups():
    x, y = normal(44, 2, seed=19), normal(31, 2, seed=20) * 2
    found = frechet_distance(x, y, extrapolate=True, groups=4)
    keep = [(torch.arange(len(t))[:, None] % 4 != torch.arange(4)).T for t in (x, y)]
    left = [frechet_distance(x[keep[0][j]], y[keep[1][j]]).value for j in range(4)]
    expected = 4 * frechet_distance(x, y).value - 3 * np.mean(left)
    assert found.value == pytest.approx(expected, rel=1e-10)
    assert found.standard_error == pytest.approx(math.sqrt(3) * np.std(left), rel=1e-8)
    loader = batched(x, size=7)
    assert frechet_distance(loader, y, extrapolate=True, groups=4).value == pytest.approx(
        found.value, rel=1e-10
    )


def test_modules_see_as_many_examples_as_there_is_room_for():
    net, x, sizes = mlp([16, 64, 8]), normal(600, 16, seed=25).float(), []

    def seen(z):
        sizes.append(len(z))
        return z

    found = frechet_distance(x[:300], x[300:], features=net, output=seen, memory=2**16)
    assert 10 < max(sizes) < 150  # some 500 bytes each
    whole = frechet_distance(x[:300], x[300:], features=net, output=seen)
    assert max(sizes) == 300
    assert found.value == pytest.approx(whole.value, rel=1e-4)


def test_memory_is_kept_to():
    x = torch.randn(20_000, 16)
    y = torch.randn(20_000, 16)
    assert peak_bytes(lambda: frechet_distance(x, y, memory=2**16)) < 2**17


@pytest.mark.gpu
@pytest.mark.parametrize("n", [10, 60])
def test_gpus(n):
    x, y = normal(n, 20, seed=22), 2 * normal(n + 4, 20, seed=23)
    on = frechet_distance(x.cuda(), y.cuda(), extrapolate=n > 20)
    assert on.value == pytest.approx(frechet_distance(x, y, extrapolate=n > 20).value, rel=1e-9)
    net = mlp([20, 5, 3]).double().cuda()
    loader = batched(x, size=7)
    on = frechet_distance(loader, y.cuda(), features=net)
    assert on.value == pytest.approx(frechet_distance(x, y, features=net.cpu()).value, rel=1e-8)
    with pytest.raises(ValueError, match="must be on one device"):
        frechet_distance(x, y.cuda())
