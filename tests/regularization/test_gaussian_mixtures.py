"""Semi-supervised mixtures against scikit-learn's, dense formulas and its contract."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.regularization import SemiSupervisedGMM

KINDS = ["spherical", "diag", "tied", "full", 2.0]


@parametrize_with_checks([SemiSupervisedGMM(), SemiSupervisedGMM(covariance="full")])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def data(n=40, m=300, d=3, k=3, seed=0):
    rng = np.random.default_rng(seed)
    means, y = 3 * rng.normal(size=(k, d)), np.arange(n + m) % k
    x = means[y] + rng.normal(size=(n + m, d)) * (1 + np.arange(d))
    return x[:n], y[:n], x[n:]


@pytest.mark.parametrize("kind", KINDS)
def test_objective_is_its_formula_and_never_falls(kind):
    x, y, more = data()
    model = SemiSupervisedGMM(covariance=kind, unlabelled_weight=0.7, reg_covar=1e-2).fit(
        x, y, unlabelled=more
    )
    assert (model.objective_.diff() >= -1e-9).all()
    assert model.converged_
    assert len(model.objective_) == model.n_iter_ + 1
    gains = model.objective_.diff() / 340
    assert gains[-1] <= model.tol < gains[:-1].min()  # for each example
    spreads, eye = np.asarray(model.covariances_), np.eye(3)
    full = {
        "spherical": lambda: [s * eye for s in spreads],
        "diag": lambda: [np.diag(s) for s in spreads],
        "tied": lambda: [spreads] * 3,
        "full": lambda: spreads,
        2.0: lambda: [2 * eye] * 3,
    }[kind]()
    laws = [multivariate_normal(m, s) for m, s in zip(model.means_, full, strict=True)]
    joint = [p * law.pdf(np.concatenate([x, more])) for p, law in
             zip(model.weights_, laws, strict=True)]  # fmt: skip
    joint = np.stack(joint, 1)
    both = np.concatenate([x, more])
    r = 0 if kind == 2.0 else 1e-2 * both.var(0).mean() * (40 + 0.7 * 300)
    kept = full[:1] if kind == "tied" else full
    value = np.log(joint[np.arange(40), y]).sum() + 0.7 * np.log(joint[40:].sum(1)).sum()
    value -= r / 2 * sum(np.trace(np.linalg.inv(s)) for s in kept)
    assert value == pytest.approx(float(model.objective_[-1]), rel=1e-10)
    np.testing.assert_allclose(
        model.predict_proba(more), joint[40:] / joint[40:].sum(1, keepdims=True), atol=1e-9
    )
    np.testing.assert_allclose(model.score_samples(more), np.log(joint[40:].sum(1)), rtol=1e-9)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(x)), model.predict_proba(x))
    sure = np.full((1, 3), 1e3), np.full((1, 3), 1e4)
    for far in sure:
        assert model.predict_log_proba(far).max() == 0
        assert np.isfinite(model.predict_log_proba(far)).all()


def test_without_unlabelled_inputs_it_is_discriminant_analysis():
    x, y, more = data(n=90)
    for given in ({}, {"unlabelled": more}):
        weight = 0.0 if given else 1.0
        linear = SemiSupervisedGMM(covariance="tied", reg_covar=1e-12, unlabelled_weight=weight)
        theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(x, y)
        np.testing.assert_allclose(
            linear.fit(x, y, **given).predict_proba(more), theirs.predict_proba(more), atol=1e-6
        )
    full: Any = SemiSupervisedGMM(covariance="full", reg_covar=1e-12).fit(x, y)
    theirs = QuadraticDiscriminantAnalysis().fit(x, y)
    factor = np.array([np.sum(y == k) / (np.sum(y == k) - 1) for k in range(3)])
    for k in range(3):
        cov = np.cov(x[y == k].T)
        np.testing.assert_allclose(full.covariances_[k] * factor[k], cov, rtol=1e-6)
    assert (full.predict(more) == theirs.predict(more)).mean() > 0.98


@pytest.mark.parametrize("kind", ["spherical", "diag", "tied", "full"])
def test_covariances_of_labels_alone_are_scatters_and_the_term_on_them(kind):
    x, y, _ = data(n=90)
    model: Any = SemiSupervisedGMM(covariance=kind, reg_covar=0.3).fit(x, y)
    r, eye = 0.3 * x.var(0).mean() * 90, np.eye(3)
    scatters = np.stack([30 * np.cov(x[y == k].T, bias=True) + r * eye for k in range(3)])
    wanted = {
        "spherical": np.trace(scatters, axis1=1, axis2=2) / 3 / 30,
        "diag": np.stack([np.diag(s) for s in scatters]) / 30,
        "tied": (scatters.sum(0) - 2 * r * eye) / 90,
        "full": scatters / 30,
    }[kind]
    np.testing.assert_allclose(model.covariances_, wanted, rtol=1e-9, atol=1e-9)


def test_inputs_of_weight_zero_have_no_effect():
    x, y, _ = data()
    more = 100 * torch.randn(100_000, 3).double()
    model: Any = SemiSupervisedGMM(unlabelled_weight=0.0).fit(x, y, unlabelled=more)
    alone: Any = SemiSupervisedGMM().fit(x, y)
    np.testing.assert_array_equal(model.covariances_, alone.covariances_)
    np.testing.assert_array_equal(model.means_, alone.means_)


def test_where_labels_weigh_nothing_it_is_the_mixture_of_scikit_learn():
    x, y, more = data(n=3, m=600)
    ours: Any = SemiSupervisedGMM(
        covariance="diag", unlabelled_weight=1e7, tol=1e-6, max_iter=2000, reg_covar=1e-9
    )
    ours.fit(x, y, unlabelled=more)
    theirs: Any = GaussianMixture(
        3, covariance_type="diag", means_init=ours.means_, weights_init=ours.weights_,
        precisions_init=1 / ours.covariances_, tol=1e-9, max_iter=2000,
    ).fit(more)  # fmt: skip
    np.testing.assert_allclose(ours.means_, theirs.means_, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_give_tensors(dtype):
    x, y, more = (torch.as_tensor(v) for v in data())
    x, more = x.to(dtype), more.to(dtype)
    model = SemiSupervisedGMM(covariance="full").fit(x, y, unlabelled=more)
    arrays = SemiSupervisedGMM(covariance="full").fit(x.numpy(), y.numpy(), more.numpy())
    assert model.predict_proba(more).dtype == model.means_.dtype == dtype
    assert torch.equal(model.predict(more), torch.as_tensor(arrays.predict(more.numpy())))


def test_a_fit_that_is_cut_short_warns():
    x, y, more = data()
    with pytest.warns(ConvergenceWarning, match="max_iter=2 reached"):
        SemiSupervisedGMM(max_iter=2).fit(x, y, unlabelled=more)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"covariance": "round"}, "covariance must be one of"),
        ({"covariance": -1.0}, "covariance must be > 0, got -1.0"),
        ({"unlabelled_weight": -0.5}, "unlabelled_weight must be >= 0, got -0.5"),
        ({"reg_covar": 0.0}, "reg_covar must be > 0, got 0.0"),
        ({"tol": 0.0}, "tol must be > 0, got 0.0"),
        ({"max_iter": 0}, "max_iter must be >= 1, got 0"),
    ],
)
def test_bad_parameters(knobs, message):
    x, y, _ = data()
    with pytest.raises(ValueError, match=message):
        SemiSupervisedGMM(**knobs).fit(x, y)


def test_bad_data():
    x, y, more = (torch.as_tensor(v) for v in data())
    for kind in (torch.as_tensor, np.asarray):
        given = kind(more)
        with pytest.raises(ValueError, match="unlabelled must be 3 wide"):
            SemiSupervisedGMM().fit(x, y, unlabelled=given[:, :2])
        with pytest.raises(ValueError, match=r"unlabelled (must be finite|contains NaN)"):
            SemiSupervisedGMM().fit(x, y, unlabelled=given * torch.nan)
    with pytest.raises(ValueError, match="at least two classes"):
        SemiSupervisedGMM().fit(x, 0 * y)
