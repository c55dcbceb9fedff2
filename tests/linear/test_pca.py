"""Principal components against scikit-learn's, NumPy's decompositions, and by hand."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA as Peer
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.data import load
from vademecum.linear._principal import SOLVERS, principal_directions
from vademecum.linear.pca import PCA


@parametrize_with_checks(
    [PCA(), PCA(1, whiten=True), PCA(svd_solver="covariance_eigh"), PCA(1, svd_solver="randomized")]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def decaying(n, d, draw=0, shift=3.0):
    rng = np.random.default_rng(draw)
    scale = 0.8 ** np.arange(d)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return rng.normal(size=(n, d)) * scale @ basis + shift


FITTED = (
    *("components_", "explained_variance_", "explained_variance_ratio_"),
    *("singular_values_", "mean_", "noise_variance_"),
)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("n", "d", "k"), [(300, 8, 3), (300, 8, None), (9, 20, 4), (2, 3, 1)])
def test_equals_scikit_learn(n, d, k, solver):
    x = decaying(n, d)
    ours, peer = PCA(k, svd_solver=solver).fit(x), Peer(k, svd_solver="full").fit(x)
    top = peer.singular_values_ > 1e-6  # below, directions and squares are rounding
    for name in FITTED:
        a, b = getattr(ours, name), getattr(peer, name)
        if np.ndim(a) and name != "mean_":
            a, b = a[top], b[top]
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10, err_msg=name)
    assert ours.n_components_ == peer.n_components_
    np.testing.assert_allclose(ours.transform(x)[:, top], peer.transform(x)[:, top], atol=1e-8)


@pytest.mark.parametrize("whiten", [False, True])
def test_components_and_back(whiten):
    x = decaying(50, 6)
    pca = PCA(6, whiten=whiten).fit(x)
    z = pca.transform(x)
    np.testing.assert_allclose(pca.inverse_transform(z), x, atol=1e-12)
    wanted = np.eye(6) if whiten else np.diag(pca.explained_variance_)
    np.testing.assert_allclose(np.cov(z.T), wanted, atol=1e-10)
    kept = PCA(2, whiten=whiten).fit(x)
    lost = x - kept.inverse_transform(kept.transform(x))
    np.testing.assert_allclose((lost**2).sum(), (pca.singular_values_[2:] ** 2).sum())
    assert list(kept.get_feature_names_out()) == ["pca0", "pca1"]


@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1e8])
def test_white_whatever_the_unit(scale):
    x = scale * decaying(50, 3, shift=0.0)
    pca = PCA(whiten=True).fit(x)
    np.testing.assert_allclose(np.cov(pca.transform(x).T), np.eye(3), atol=1e-9)
    np.testing.assert_allclose(pca.inverse_transform(pca.transform(x)), x, atol=1e-12 * scale)


@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_a_share_of_the_variance(share):
    x = decaying(100, 7)
    ours, peer = PCA(share).fit(x), Peer(share, svd_solver="full").fit(x)
    assert ours.n_components_ == peer.n_components_
    assert ours.explained_variance_ratio_.sum() >= share


@pytest.mark.parametrize("far", [0.0, 1e3])
def test_single_precision_is_kept_far_from_zero(far):
    """Where scikit-learn's solver of the same name subtracts squares of the mean."""
    spread = decaying(5000, 5, shift=0.0).astype(np.float32)
    x = (spread + np.float32(far)).astype(np.float32)
    exact = Peer(5, svd_solver="full").fit(x.astype(np.float64))
    ours = PCA(svd_solver="covariance_eigh").fit(x)
    assert ours.components_.dtype == np.float32
    rtol = 1e-6 + 1e-7 * far  # the mean itself is rounded
    np.testing.assert_allclose(ours.explained_variance_, exact.explained_variance_, rtol=rtol)


def test_randomised_on_digits_is_close_from_below():
    x = load("digits").x.flatten(1).numpy().repeat(8, 1)
    x = x + 0.1 * np.random.default_rng(0).normal(size=x.shape).astype(np.float32)
    exact = Peer(5, svd_solver="full").fit(x)
    errors = []
    for power in (0, 1, 4):
        solver = {"svd_solver": "randomized", "iterated_power": power, "random_state": 3}
        ours = PCA(5, **solver).fit(x)
        gap = 1 - ours.explained_variance_ / exact.explained_variance_
        assert (gap > -1e-4).all()  # Ritz values are below, up to rounding
        assert np.array_equal(ours.components_, PCA(5, **solver).fit(x).components_)
        gram = ours.components_ @ ours.components_.T
        np.testing.assert_allclose(gram, np.eye(5), atol=1e-5)
        errors.append(gap.max())
    assert errors[2] < 1e-3 < errors[1] < errors[0]
    np.testing.assert_allclose(ours.noise_variance_, exact.noise_variance_, rtol=1e-3)


@pytest.mark.parametrize("k", [1, 4])
def test_randomised_of_low_rank(k):
    """Blocks beyond the rank are rounding, and must not come back as copies of the others."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 300))
    exact = np.linalg.svd(x - x.mean(0), compute_uv=False)[:k]
    ours = PCA(k, svd_solver="randomized", n_oversamples=2, random_state=0).fit(x)
    np.testing.assert_allclose(ours.singular_values_, exact, rtol=1e-10, atol=1e-5 * exact[0])
    np.testing.assert_allclose(ours.components_ @ ours.components_.T, np.eye(k), atol=1e-10)


@pytest.mark.parametrize("solver", SOLVERS)
def test_constant_data(solver):
    pca = PCA(2, svd_solver=solver, whiten=True).fit(np.full((40, 3), 7.0))
    assert not pca.explained_variance_.any()
    assert not pca.explained_variance_ratio_.any()
    assert np.array_equal(pca.transform(np.full((1, 3), 7.0)), np.zeros((1, 2)))


def test_one_column():
    pca = PCA().fit(np.array([[1.0], [2.0], [6.0]]))
    assert pca.components_ == [[1.0]]
    np.testing.assert_allclose(pca.explained_variance_, [7.0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("solver", SOLVERS)
def test_tensors_in_tensors_out(dtype, solver):
    x = torch.from_numpy(decaying(100, 4)).to(dtype)
    pca = PCA(2, svd_solver=solver).fit(x)
    z = pca.transform(x)
    assert z.dtype == pca.components_.dtype == pca.inverse_transform(z).dtype == dtype
    reference = PCA(2).fit(x.double().numpy())
    tol = 20 * torch.finfo(dtype).eps
    np.testing.assert_allclose(pca.components_.double(), reference.components_, atol=tol)


def test_total_does_not_depend_on_the_solver():
    x = torch.from_numpy(decaying(200, 150))
    totals = [
        principal_directions(x, 2, solver=s, oversamples=2, power=1).total for s in SOLVERS[1:]
    ]
    assert totals == pytest.approx([float(x.square().sum())] * 3)


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("k", [1, 3, 6])
def test_likelihood_is_that_of_the_normal_distribution(k, whiten):
    x = decaying(50, 6)
    ours, peer = PCA(k, whiten=whiten).fit(x), Peer(k, svd_solver="full").fit(x)
    covariance = ours.get_covariance()
    np.testing.assert_allclose(covariance, peer.get_covariance(), rtol=1e-9, atol=1e-12)
    wanted = multivariate_normal(x.mean(0), covariance).logpdf(x[:7] + 1)
    np.testing.assert_allclose(ours.score_samples(x[:7] + 1), wanted, rtol=1e-8)
    assert ours.score(x) == pytest.approx(peer.score(x))
    tensor = PCA(k, whiten=whiten).fit(torch.from_numpy(x))
    np.testing.assert_allclose(tensor.score_samples(torch.from_numpy(x[:7] + 1)), wanted)
    np.testing.assert_allclose(tensor.get_covariance(), covariance)


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**40])
def test_likelihood_in_any_unit(scale):
    """Scaling d = 4 features by s divides the density by s^4."""
    x = decaying(60, 4).astype(np.float32)
    first, second = (PCA(2).fit(v).score(v) for v in (x, x * np.float32(scale)))
    assert second == pytest.approx(first - 4 * math.log(scale), rel=1e-5)


def test_no_density_without_variance():
    for x in (decaying(4, 6), np.c_[decaying(30, 2), np.zeros(30)]):
        with pytest.raises(ValueError, match="n_components must leave variance"):
            PCA(svd_solver="covariance_eigh").fit(x).score(x)


X = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
ERRORS = [
    ({"n_components": 3}, X, "n_components must be <= 2, got 3"),
    ({"n_components": 0}, X, "n_components must be >= 1, got 0"),
    ({"n_components": 1.5}, X, "n_components must be between 0 and 1 as a share, got 1.5"),
    ({"n_components": math.nan}, X, "n_components must be between 0 and 1 as a share, got nan"),
    ({"n_components": "mle"}, X, "n_components must be an integer, got 'mle'"),
    ({"svd_solver": "arpack"}, X, "svd_solver must be one of 'auto', .* got 'arpack'"),
    ({"n_oversamples": -1}, X, "n_oversamples must be >= 0, got -1"),
    ({"iterated_power": 0.5}, X, "iterated_power must be an integer, got 0.5"),
    ({}, X[:1], "X must have at least 2 rows, got 1"),
    ({}, X[0], "X must have 2 axes"),
    ({}, X[:0], "X must not be empty"),
    ({}, X * math.inf, "X must be finite, got inf"),
    ({}, X.long(), "X must be floating point, got torch.int64"),
    ({}, X * 1j, "X must be real, got torch.complex64"),
]


@pytest.mark.parametrize(("options", "x", "message"), ERRORS)
def test_errors(options, x, message):
    with pytest.raises(ValueError, match=message):
        PCA(**options).fit(x)


def test_errors_of_a_fitted_one():
    pca = PCA(1).fit(X)
    with pytest.raises(ValueError, match="X must be 2 wide"):
        pca.transform(X[:, :1])
    with pytest.raises(ValueError, match="X must be 1 wide"):
        pca.inverse_transform(X)
    with pytest.raises(ValueError, match="X must be finite, got nan"):
        pca.inverse_transform(np.array([[np.nan]]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 2, 0.99])
def test_little_noise_is_no_difference_of_large_numbers(k, dtype):
    x = np.random.default_rng(0).normal(size=(25, 3)) * [1e4, 1.0, 1e-1]
    peer = Peer(k, svd_solver="full").fit(x)
    ours = PCA(k).fit(x.astype(dtype))
    assert ours.noise_variance_ == pytest.approx(peer.noise_variance_, rel=1e-3)
    assert ours.score(x.astype(dtype)) == pytest.approx(peer.score(x), rel=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("solver", SOLVERS)
def test_cuda(solver):
    x = torch.from_numpy(decaying(500, 80))
    options = {"svd_solver": solver, "n_oversamples": 2, "iterated_power": 2, "random_state": 0}
    gpu, cpu = PCA(2, **options).fit(x.cuda()), PCA(2, **options).fit(x)
    assert gpu.components_.is_cuda
    assert gpu.transform(x.cuda()).is_cuda
    torch.testing.assert_close(gpu.components_.cpu(), cpu.components_, rtol=1e-8, atol=1e-8)
