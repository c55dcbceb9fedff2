"""Sparse examples: what dense ones give, and at no time a dense copy of them."""

import tracemalloc
import warnings

import numpy as np
import pytest
import torch
from scipy.sparse import coo_array, csr_array, csr_matrix, random_array
from sklearn.exceptions import ConvergenceWarning

from vademecum.connectionism import Perceptron
from vademecum.estimators import SparseRows
from vademecum.linear import (
    LMS,
    PCA,
    Lasso,
    LinearRegression,
    LogisticRegression,
    RidgeRegression,
    SoftmaxRegression,
)

REGRESSORS = [
    LinearRegression(),
    LinearRegression(fit_intercept=False),
    RidgeRegression(alphas=0.3),
    RidgeRegression(alphas=0.3, fit_intercept=False),
    Lasso(alpha=0.02, tol=1e-10),
    Lasso(alpha=0.02, tol=1e-10, fit_intercept=False),
]
CLASSIFIERS = [
    LogisticRegression(tol=1e-10),
    LogisticRegression(tol=1e-10, fit_intercept=False, class_weight="balanced"),
    SoftmaxRegression(tol=1e-10),
]


def data(n, d, seed=0, density=0.3):
    x = random_array((n, d), density=density, rng=np.random.default_rng(seed), format="csr")
    x.data = np.round(8 * x.data - 2, 3)
    rng = np.random.default_rng(seed + 1)
    return x, x @ rng.normal(size=d) + rng.normal(size=n)


def torch_csr(x):
    parts = (torch.from_numpy(part) for part in (x.indptr, x.indices, x.data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, that these are in beta
        return torch.sparse_csr_tensor(*parts, size=x.shape)


KINDS = [csr_array, csr_matrix, coo_array, torch_csr]


@pytest.mark.parametrize("model", [*REGRESSORS, *CLASSIFIERS], ids=repr)
@pytest.mark.parametrize(("n", "d"), [(200, 9), (20, 40)])
@pytest.mark.parametrize("weighted", [False, True])
def test_as_dense_ones(model, n, d, weighted):
    x, y = data(n, d)
    y = (y > np.median(y)).astype(int) if model in CLASSIFIERS else y
    s = np.arange(n) % 4 / 2 if weighted else None
    model.fit(x.toarray(), y, s)
    wanted = model.coef_, model.intercept_, model.predict(x.toarray())
    for kind in KINDS:
        tensor = kind is torch_csr
        model.fit(kind(x), torch.from_numpy(y) if tensor else y, s)
        found = model.coef_, model.intercept_, model.predict(kind(x))
        for a, b in zip(found, wanted, strict=True):
            size = max(1.0, np.abs(b).max())
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5, atol=2e-6 * size)
        assert isinstance(model.coef_, torch.Tensor) == tensor


@pytest.mark.parametrize("kind", [csr_array, torch_csr])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_perceptron_follows_its_rule(classes, kind):
    x, y = data(700, 12)
    x.data = np.round(x.data)
    y = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    for shuffle in (False, True):
        unit = Perceptron(max_iter=5, tol=None, shuffle=shuffle, random_state=3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            dense = unit.fit(x.toarray(), y)
            wanted = dense.coef_, dense.intercept_, dense.mistakes_, dense.margin_
            sparse = unit.fit(kind(x), y)
        found = sparse.coef_, sparse.intercept_, sparse.mistakes_, sparse.margin_
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(a), b)
        np.testing.assert_array_equal(unit.predict(kind(x)), unit.predict(x.toarray()))
    parts = Perceptron().partial_fit(kind(x[:300]), y[:300], np.arange(classes))
    whole = Perceptron().partial_fit(x[:300].toarray(), y[:300], np.arange(classes))
    np.testing.assert_array_equal(np.asarray(parts.coef_), whole.coef_)


def test_separated_sparse_examples_have_a_bound():
    x = csr_array(np.array([[3.0, 0.0], [0.0, 2.0], [-2.0, 0.0]]))
    dense, sparse = (Perceptron(shuffle=False).fit(v, [1, 1, 0]) for v in (x.toarray(), x))
    assert sparse.novikov_bound_ == pytest.approx(dense.novikov_bound_)


@pytest.mark.parametrize("model", [LinearRegression(), RidgeRegression(alphas=1e-3)], ids=repr)
def test_columns_in_any_unit(model):
    x, y = data(200, 5)
    units = 2.0 ** np.array([27, -27, 0, 13, -13])
    scaled = csr_array(x * units[None])
    dense = model.fit(scaled.toarray(), y).coef_
    np.testing.assert_allclose(model.fit(scaled, y).coef_, dense, rtol=1e-6)


@pytest.mark.parametrize("model", [*REGRESSORS[::2], CLASSIFIERS[0]], ids=repr)
def test_constant_columns_have_no_weight(model):
    x, y = data(200, 5)
    y = (y > np.median(y)).astype(int) if model in CLASSIFIERS else y
    wide = np.c_[x.toarray(), np.full(200, 0.1), np.zeros(200), 1000 + x.toarray()[:, :1] ** 2]
    wanted = model.fit(wide, y).coef_
    found = model.fit(csr_array(wide), y).coef_
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    if model not in CLASSIFIERS:
        assert found[5] == found[6] == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("model", [*REGRESSORS[:3], CLASSIFIERS[0]], ids=repr)
def test_the_dtype_is_kept(model, dtype):
    x, y = data(100, 4)
    y = (y > 0).astype(dtype)
    single = x.astype(dtype)
    assert model.fit(single, y).coef_.dtype == dtype
    wanted = model.fit(single.toarray().astype(float), y).coef_
    np.testing.assert_allclose(model.fit(single, y).coef_, wanted, rtol=1e-4, atol=1e-4)


def test_repeated_entries_add_up():
    parts = np.array([1.0, 2.0, 4.0, 1.0]), np.array([0, 0, 1, 0]), np.array([0, 2, 3, 4])
    x = SparseRows(csr_array(parts, shape=(3, 2)))
    assert x.dense().tolist() == [[3.0, 0.0], [0.0, 4.0], [1.0, 0.0]]
    assert x.square().dense().tolist() == [[9.0, 0.0], [0.0, 16.0], [1.0, 0.0]]
    assert x[1:].columns(torch.tensor([1])).tolist() == [[4.0], [0.0]]
    assert x.gram().tolist() == [[10.0, 0.0], [0.0, 16.0]]
    assert x.pull(torch.ones(1, 3).double()).tolist() == [[4.0, 4.0]]


@pytest.mark.parametrize(
    "model",
    [LinearRegression(), RidgeRegression(), Lasso(alpha=0.05), LogisticRegression(max_iter=20),
     SoftmaxRegression(max_iter=20), Perceptron(max_iter=2)],
    ids=repr,
)  # fmt: skip
def test_never_dense(model):
    """The dense matrix would take 64 times what the sparse one does."""
    n, d = 3000, 6000
    x, y = data(n, d, density=0.002)
    y = (y > 0).astype(int) if hasattr(model, "predict_proba") or "Perc" in repr(model) else y
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y).predict(x)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < n * d * 8 / 4  # NumPy's memory; torch's is not seen


ERRORS = [
    (LMS(), torch_csr, "X must be dense, got torch.sparse_csr on cpu"),
    (RidgeRegression(alphas=[1.0]), torch_csr, "X must be dense, got torch.sparse_csr on cpu"),
    (LinearRegression(), lambda x: torch_csr(x * np.nan), "X must be finite, got nan"),
    (LinearRegression(), lambda x: torch_csr(x).to_dense().to_sparse(), "X must be dense, or in"),
    (LinearRegression(), lambda x: torch_csr(x[:0]), r"X must have shape \(n, 3\), got shape \(0"),
]


@pytest.mark.parametrize(("model", "kind", "message"), ERRORS)
def test_errors(model, kind, message):
    x, y = data(6, 3)
    with pytest.raises(ValueError, match=message):
        model.fit(kind(x), y)


@pytest.mark.parametrize("model", [LMS(), PCA(), RidgeRegression(alphas=[1.0, 2.0])])
def test_what_takes_none_says_so(model):
    x, y = data(6, 3)
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        model.fit(x, y)


def test_the_width_is_remembered():
    x, y = data(60, 3)
    with pytest.raises(ValueError, match=r"X must have shape \(60, 3\), got shape \(60, 2\)"):
        LinearRegression().fit(x, y).predict(torch_csr(csr_array(x[:, :2])))


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e8])
@pytest.mark.parametrize("weighted", [True, False])
def test_columns_that_hardly_vary(offset, weighted):
    rng = np.random.default_rng(0)
    x = np.c_[offset + rng.normal(size=(2000, 1)), rng.normal(size=(2000, 1)), np.full(2000, 0.1)]
    x[:1000, 1] = 0
    y = x[:, 0] - offset + x[:, 1] + 0.1 * rng.normal(size=2000)
    s = rng.uniform(0, 2, 2000) if weighted else None
    for model in (LinearRegression(), RidgeRegression()):
        sparse, dense = model.fit(csr_array(x), y, s).coef_, model.fit(x, y, s).coef_
        np.testing.assert_allclose(sparse, dense, atol=1e-14 * max(offset, 1e3))


@pytest.mark.parametrize("mean", [0.0, 0.3])
def test_squares_about_a_mean(mean):
    x, s = data(50, 6)[0], torch.from_numpy(np.random.default_rng(1).uniform(0, 2, 50))
    means = torch.full((6,), mean, dtype=torch.float64)
    dense = SparseRows(x).dense()
    wanted = s @ (dense - means).square()
    torch.testing.assert_close(SparseRows(x).squares_about(means, s), wanted)


def test_perceptrons_go_on_with_sparse_examples():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)), rng.integers(0, 3, 60)
    sparse, dense = Perceptron(), Perceptron()
    for _ in range(3):
        sparse.partial_fit(csr_array(x), y, classes=[0, 1, 2])
        dense.partial_fit(x, y, classes=[0, 1, 2])
    np.testing.assert_allclose(sparse.coef_, dense.coef_)
    np.testing.assert_array_equal(sparse.mistakes_, dense.mistakes_)
