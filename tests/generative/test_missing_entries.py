"""Entries that are missing: exact likelihoods and posteriors against SciPy's, and plain BFGS."""

import numpy as np
import pytest
import torch

from tests.generative.drawn_factors import (
    best_likelihood,
    observed_log_density,
    with_factors,
    with_gaps,
)
from vademecum.generative import FactorAnalysis, ProbabilisticPCA
from vademecum.generative.factors._climb import Rules
from vademecum.generative.factors._prepared import prepared


@pytest.mark.parametrize("k", [0, 1, 2])
def test_missing_entries_are_integrated_out(k):
    x = with_gaps(with_factors(n=90, d=4, shift=1.0))
    model = ProbabilisticPCA(k, method="em", random_state=0).fit(x)
    assert model.converged_
    assert model.loglike_[-1] == pytest.approx(best_likelihood(x, k, common=True), abs=1e-7)
    density = observed_log_density(x, model.mean_, model.get_covariance())
    np.testing.assert_allclose(model.score_samples(x), density, rtol=1e-9, atol=1e-12)
    assert model.score(x) == pytest.approx(model.loglike_[-1], rel=1e-9)
    assert model.score_samples(x)[3] == 0


def test_posterior_with_missing_entries():
    """By the conditional law of the factors in the joint normal law."""
    x = with_gaps(with_factors(n=60, d=5))
    model = ProbabilisticPCA(2, method="em", random_state=0).fit(x)
    mean, covariance = model.posterior(x)
    W = model.components_.T
    for i, row in enumerate(x):
        there = ~np.isnan(row)
        gain = W[there].T @ np.linalg.inv(model.get_covariance()[np.ix_(there, there)])
        np.testing.assert_allclose(mean[i], gain @ (row - model.mean_)[there], atol=1e-10)
        np.testing.assert_allclose(covariance[i], np.eye(2) - gain @ W[there], atol=1e-10)
    np.testing.assert_array_equal(model.transform(x), mean)
    np.testing.assert_allclose(covariance[3], np.eye(2), atol=1e-12)


def test_a_closed_form_scores_incomplete_rows():
    x = with_factors()
    model = ProbabilisticPCA(2).fit(x)
    gaps = with_gaps(x)
    wanted = observed_log_density(gaps, model.mean_, model.get_covariance())
    np.testing.assert_allclose(model.score_samples(gaps), wanted, rtol=1e-9, atol=1e-12)


def test_gaps_at_random_are_filled_better_than_by_means():
    full = with_factors(n=300, d=8, low=0.05, high=0.1)
    x = with_gaps(full, 0.2)
    model = ProbabilisticPCA(2, method="em", random_state=0).fit(x)
    filled = model.inverse_transform(model.transform(x))
    gone = np.isnan(x)
    gone[3] = False
    error = ((filled - full)[gone] ** 2).mean()
    assert error < 0.2 * ((np.nanmean(x, 0) - full)[gone] ** 2).mean()


def test_complete_examples_by_the_way_of_missing_ones():
    """One missing entry in a row of many hardly moves the fit."""
    x = with_factors(n=200)
    y = np.r_[x, np.full((1, 6), np.nan)]
    one = ProbabilisticPCA(2, method="em", random_state=0).fit(x)
    other = ProbabilisticPCA(2, method="em", random_state=0).fit(y)
    np.testing.assert_allclose(other.get_covariance(), one.get_covariance(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(other.mean_, x.mean(0), rtol=1e-5)


def test_portions_do_not_matter(monkeypatch):
    x = with_gaps(with_factors(n=80))
    model = ProbabilisticPCA(2, method="em", random_state=0).fit(x)
    wanted = model.score_samples(x), model.posterior(x)
    whole = with_factors(n=80)
    plain = model.score_samples(whole), model.transform(whole)
    monkeypatch.setattr("vademecum.generative.factors._law.MEMORY", 2000)
    np.testing.assert_allclose(model.score_samples(x), wanted[0], rtol=1e-12)
    for one, other in zip(model.posterior(x), wanted[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(model.score_samples(whole), plain[0], rtol=1e-12)
    np.testing.assert_allclose(model.transform(whole), plain[1], rtol=1e-10, atol=1e-12)
    again = ProbabilisticPCA(2, method="em", random_state=0).fit(x)
    np.testing.assert_allclose(again.get_covariance(), model.get_covariance(), rtol=1e-5)


@pytest.mark.parametrize("common", [False, True])
def test_a_step_of_em_by_regression_on_the_posterior(common):
    """Mean and loadings by least squares of a feature, where there is one, on its rows' factors."""
    x = with_gaps(with_factors(n=60, d=4))
    fits = []
    for steps in (3, 4):
        model = FactorAnalysis(2, max_iter=steps)
        if common:
            model = ProbabilisticPCA(2, method="em", max_iter=steps, random_state=0)
        with pytest.warns(UserWarning, match=f"is left after {steps} iterations"):
            fits.append(model.fit(x))
    mean, spread = fits[0].posterior(x)
    z = np.c_[np.ones(len(x)), mean]
    second = z[:, :, None] * z[:, None]
    second[:, 1:, 1:] += spread
    W, left, counts = np.zeros((4, 3)), np.zeros(4), np.zeros(4)
    for j in range(4):
        there = ~np.isnan(x[:, j])
        W[j] = np.linalg.solve(second[there].sum(0), z[there].T @ x[there, j])
        expected = (x[there, j] - z[there] @ W[j]) ** 2
        expected += np.einsum("k,nkl,l->n", W[j, 1:], spread[there], W[j, 1:])
        left[j], counts[j] = expected.sum(), there.sum()
    noise = np.full(4, left.sum() / counts.sum()) if common else left / counts
    np.testing.assert_allclose(fits[1].mean_, W[:, 0], rtol=1e-9)
    wanted = W[:, 1:] @ W[:, 1:].T + np.diag(noise)
    np.testing.assert_allclose(fits[1].get_covariance(), wanted, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("common", [False, True])
def test_gradient_by_differences(common, gaps):
    """The gradient that the climb follows is that of the log-likelihood it reports."""
    x = with_factors(n=50, d=4)
    made = prepared(torch.from_numpy(with_gaps(x) if gaps else x), common=common)
    rng = np.random.default_rng(0)
    W = made.start(torch.from_numpy(rng.normal(size=(4, 2))))
    noise = torch.full((4,), 0.6, dtype=torch.float64)
    if not common:
        noise = noise + torch.arange(4) / 10
    m, h = made.data.moments(W, noise), 1e-5

    def change(dW, rise):
        ends = [
            made.data.moments(W + s * dW, noise * (s * rise).exp()).log_likelihood for s in (h, -h)
        ]
        return (ends[0] - ends[1]) / (2 * h)

    for place in np.ndindex(*W.shape):
        unit = torch.zeros_like(W)
        unit[place] = 1.0
        found = float(m.pull(W)[place] / noise[place[0]])
        assert found == pytest.approx(change(unit, torch.zeros(4)), abs=1e-8)
    rises = Rules(common, 1e-6, 1e-6, 1).rise(m, W, noise)
    for j, found in enumerate(rises):
        unit = torch.ones(4) if common else torch.eye(4)[j]
        assert float(found) == pytest.approx(change(0 * W, unit.double()), abs=1e-8)
    assert Rules(common, 1e-6, 1e-6, 1, fixed=True).rise(m, W, noise).shape == (0,)
