"""Nonnegative factors of binary data against sums over the hidden component of each entry."""

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.generative import BernoulliNMF
from vademecum.generative.binary_factors import _codes
from vademecum.generative.binary_factors._codes import best_codes
from vademecum.generative.binary_factors._expectations import pass_over


@parametrize_with_checks([BernoulliNMF(3, binarize=0.0), BernoulliNMF(1, binarize=0.0)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def drawn(n=20, d=15, k=3):
    x = (torch.rand(n, d) < 0.4).double()
    Z = torch.distributions.Dirichlet(torch.ones(k).double()).sample((n,))
    return x, Z, torch.rand(k, d).double()


def stepped(x, Z, B, steps=1):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return BernoulliNMF(len(B), init=(Z, B), max_iter=steps, tol=0.0).fit(x)


def by_enumeration(x, Z, B):
    """Expected counts of the hidden component, entry by entry, from Bayes' rule."""
    (n, d), k = x.shape, len(B)
    used, ones, total = np.zeros((n, k)), np.zeros((k, d)), np.zeros((k, d))
    for i, j in itertools.product(range(n), range(d)):
        joint = np.array([Z[i, c] * (B[c, j] if x[i, j] else 1 - B[c, j]) for c in range(k)])
        posterior = joint / joint.sum()
        used[i] += posterior
        total[:, j] += posterior
        ones[:, j] += posterior * float(x[i, j])
    return used / d, ones / total


@pytest.mark.parametrize(("n", "d", "k"), [(3, 2, 2), (5, 4, 3), (4, 7, 1), (2, 3, 5)])
def test_a_step_is_expectation_and_maximisation(n, d, k):
    x, Z, B = drawn(n, d, k)
    model = stepped(x, Z, B)
    codes, patterns = by_enumeration(x.numpy(), Z.numpy(), B.numpy())
    np.testing.assert_allclose(model.codes_, codes, rtol=1e-12)
    np.testing.assert_allclose(model.components_, patterns, rtol=1e-12)
    P = model.codes_ @ model.components_
    wanted = torch.distributions.Bernoulli(P).log_prob(x).sum()
    assert model.log_likelihood_ == pytest.approx(float(wanted))


def test_portions_make_no_difference(monkeypatch):
    x, Z, B = drawn(200, 30, 4)
    whole = stepped(x, Z, B, 5)
    codes = whole.set_params(max_iter=1000, tol=1e-3).transform(x[:50])
    for module in ("_expectations", "_codes"):
        name = f"vademecum.generative.binary_factors.{module}.BLOCK"
        monkeypatch.setattr(name, {"cpu": 5 * 8 * 132})
    parts = stepped(x, Z, B, 5)
    torch.testing.assert_close(parts.components_, whole.components_, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(parts.codes_, whole.codes_, rtol=1e-12, atol=1e-14)
    parts.set_params(max_iter=1000, tol=1e-3)
    torch.testing.assert_close(parts.transform(x[:50]), codes, rtol=1e-9, atol=1e-12)
    assert parts.log_likelihood_ == pytest.approx(whole.log_likelihood_, rel=1e-13)


def test_the_likelihood_never_falls():
    x, Z, B = drawn()
    x[:, 0], x[:, 1] = 0.0, 1.0  # patterns at the ends of their range
    last = -math.inf
    for _ in range(60):
        model = stepped(x, Z, B)
        assert model.log_likelihood_ >= last - 1e-9 * abs(last)
        last, Z, B = model.log_likelihood_, model.codes_, model.components_
        torch.testing.assert_close(Z.sum(1), torch.ones(20).double(), rtol=1e-14, atol=0)
        assert ((B >= 0) & (B <= 1)).all()
    assert B[:, 0].max() == 0
    assert B[:, 1].min() == 1


def test_codes_are_the_best_there_are():
    x, Z, B = drawn(6, 40, 3)
    model = stepped(x, Z, 0.05 + 0.9 * B, 30).set_params(tol=1e-7, max_iter=20_000)
    codes = model.transform(x)
    patterns = model.components_.numpy()

    def minus(z, row):
        p = z @ patterns
        return -np.log(np.where(row == 1, p, 1 - p)).sum()

    for row, z, value in zip(x.numpy(), codes.numpy(), model.score_samples(x), strict=True):
        best = minimize(
            minus, np.full(3, 1 / 3), args=(row,), method="SLSQP", bounds=[(0, 1)] * 3,
            constraints={"type": "eq", "fun": lambda z: z.sum() - 1}, options={"ftol": 1e-12},
        )  # fmt: skip
        assert minus(z, row) <= best.fun + 1e-4
        assert float(value) == pytest.approx(-minus(z, row), rel=1e-12)
    torch.testing.assert_close(codes.sum(1), torch.ones(6).double())
    torch.testing.assert_close(model.inverse_transform(codes), codes @ model.components_)


def gap(x, z, B):
    """How much better another code might be, for each row, from the definition."""
    chances = torch.where(x[:, None] > 0, B, 1 - B)  # (n, k, d)
    M = (chances / (z[:, :, None] * chances).sum(1, keepdim=True)).mean(2)
    return M.amax(1) - 1


@pytest.mark.parametrize(("k", "d"), [(1, 5), (2, 3), (9, 40), (40, 9)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_codes_within_a_few_steps(k, d, dtype):
    """For any patterns, also more of them than bits, equal ones, and ones that are 0 or 1."""
    tol = 1e-9 if dtype == torch.float64 else 1e-5
    x = (torch.rand(60, d) < 0.5).to(dtype)
    B = torch.rand(k, d, dtype=dtype)
    B[-1] = B[0]
    B[0, : d // 2], B[-1, 0] = 0.0, 1.0
    both = torch.stack([B, 1 - B])
    found = best_codes(x, both, tol=tol, max_iter=40)
    assert found.gap <= tol
    assert (found.codes >= 0).all()
    torch.testing.assert_close(found.codes.sum(1), torch.ones(60, dtype=dtype))
    possible = found.log_likelihood.isfinite()  # one pattern may rule out a row
    assert possible.all() or k == 1
    left = gap(x.double(), found.codes.double(), B.double())[possible]
    assert left.numel() == 0 or float(left.max()) < tol + 20 * torch.finfo(dtype).eps
    again = best_codes(x[:7], both, tol=tol, max_iter=40).codes
    torch.testing.assert_close(again, found.codes[:7], atol=1e-3, rtol=0)


def test_codes_go_on_by_em(monkeypatch):
    """Where steps of Newton end, or are not finite, EM finds the same likelihoods."""
    x, _, B = drawn(12, 40, 4)
    both = torch.stack([B, 1 - B])
    wanted = best_codes(x, both, tol=1e-6, max_iter=50)
    for steps, broken in ((2, False), (10**6, True)):
        with monkeypatch.context() as patch:
            patch.setattr(_codes, "STEPS", steps)
            if broken:
                patch.setattr(
                    _codes, "_curvature", lambda z, *_: z[:, None] * math.nan * z[..., None]
                )
            found = best_codes(x, both, tol=1e-6, max_iter=100_000)
        assert found.gap <= 1e-6
        torch.testing.assert_close(found.log_likelihood, wanted.log_likelihood, atol=40e-6, rtol=0)


def test_the_worst_row_tells_the_gap(monkeypatch):
    """Of equal codes, a row at a time: the first may lack 1.8 - 1, the last are the best."""
    monkeypatch.setattr(_codes, "BLOCK", {"cpu": 1})
    B = torch.tensor([[0.9, 0.1], [0.1, 0.9]]).double()
    x = torch.tensor([[1.0, 0.0], [1.0, 1.0]]).double()
    found = best_codes(x, torch.stack([B, 1 - B]), tol=1e-6, max_iter=0)
    assert found.gap == pytest.approx(0.8)


def test_a_pattern_that_nobody_uses_stays():
    x, _, B = drawn(6, 5, 2)
    model = stepped(x, torch.tensor([[1.0, 0.0]]).double().expand(6, 2), B, 3)
    torch.testing.assert_close(model.components_[1], B[1])
    torch.testing.assert_close(model.components_[0], x.mean(0))


def test_patterns_are_found_again():
    """Rows that each follow one of three patterns, whose entries are rarely wrong."""
    patterns = torch.tensor([[0.97, 0.03] * 10, [0.97] * 10 + [0.03] * 10, [0.03] * 20]).double()
    labels = torch.arange(300) % 3
    x = (torch.rand(300, 20).double() < patterns[labels]).double()
    model = max(
        (BernoulliNMF(3, random_state=s).fit(x) for s in range(4)), key=lambda m: m.log_likelihood_
    )
    gaps = torch.cdist(patterns, model.components_, p=1).amin(1) / 20
    assert gaps.max() < 0.08
    assert model.converged_
    assert model.score(x) * 300 >= model.log_likelihood_ - 1e-4 * x.numel()


def test_an_impossible_entry_says_so():
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    model = BernoulliNMF(2, random_state=0).fit(x)
    new = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    codes, scores = model.transform(new), model.score_samples(new)
    assert codes.isfinite().all()
    torch.testing.assert_close(codes.sum(1), torch.ones(2))
    assert scores[0] == -math.inf
    assert scores[1].isfinite()


def test_kinds_and_dtypes():
    x = torch.rand(30, 6) < 0.4
    models = [
        BernoulliNMF(2, random_state=0, tol=1e-3).fit(kind)
        for kind in (x, x.int(), x.float(), x.numpy().astype(np.float32))
    ]
    assert models[0].components_.dtype == torch.float32
    for model in models[1:]:
        np.testing.assert_array_equal(np.asarray(model.components_), models[0].components_)
    wide = BernoulliNMF(2, random_state=0, tol=1e-3).fit(x.double())
    torch.testing.assert_close(wide.components_.float(), models[0].components_, atol=1e-3, rtol=0)
    assert wide.get_feature_names_out().tolist() == ["bernoullinmf0", "bernoullinmf1"]


def test_unfinished_work_is_said():
    x = drawn()[0]
    with pytest.warns(ConvergenceWarning, match="max_iter=3 reached while .* tol=0.0001"):
        model = BernoulliNMF(3, max_iter=3, random_state=0).fit(x)
    assert not model.converged_
    assert model.n_iter_ == 3
    with pytest.warns(ConvergenceWarning, match="max_iter=3 reached for codes"):
        model.transform(x)


def test_fit_ends_where_it_says():
    """At the first look after which a hundred iterations at this pace would gain less than tol."""
    x, Z, B = drawn()
    before = float(torch.distributions.Bernoulli(Z @ B).log_prob(x).sum())
    seen = [before, *(stepped(x, Z, B, t).log_likelihood_ for t in range(10, 300, 10))]
    for tol in (1e-2, 1e-3):
        ends = [10 * (b - a) < tol * x.numel() for a, b in itertools.pairwise(seen)]
        model = BernoulliNMF(3, init=(Z, B), tol=tol).fit(x)
        assert model.converged_
        assert model.n_iter_ == 10 * (ends.index(True) + 1) + 1


BAD = [
    ({}, [[0.5, 1.0]], "entries of X must be 0 or 1, or binarize a threshold, got 0.5"),
    ({"n_components": 0}, None, "n_components must be >= 1"),
    ({"max_iter": 0}, None, "max_iter must be >= 1"),
    ({"tol": -1.0}, None, "tol must be >= 0"),
    ({"init": 3}, None, "init must be codes and patterns, got 3"),
    ({"init": (np.ones((3, 2)) / 2, np.ones((2, 4)))}, None, r"codes of init .* shape \(4, 2\)"),
    ({"init": (np.ones((4, 2)) / 2, np.ones((2, 3)))}, None, r"patterns of init .* \(2, 4\)"),
    ({"init": (np.ones((4, 2)), np.ones((2, 4)))}, None, "codes of init must sum to one"),
    ({"init": (np.ones((4, 2)) / 2, 2 * np.ones((2, 4)))}, None, r"in \[0, 1\], got 2"),
]


@pytest.mark.parametrize(("options", "x", "message"), BAD)
def test_refusals(options, x, message):
    with pytest.raises(ValueError, match=message):
        BernoulliNMF(**({"n_components": 2} | options)).fit(np.eye(4) if x is None else x)


def test_refusals_of_codes():
    model = BernoulliNMF(2, random_state=0).fit(torch.eye(4))
    with pytest.raises(ValueError, match="X must be 2 wide"):
        model.inverse_transform(torch.ones(1, 3))
    with pytest.raises(ValueError, match="sums from 2 to 2"):
        model.inverse_transform(torch.ones(1, 2))
    with pytest.raises(ValueError, match="X must be 4 wide"):
        model.transform(torch.ones(1, 3))


@pytest.mark.gpu
def test_on_a_gpu():
    x, Z, B = drawn(100, 40, 3)
    here = stepped(x, Z, B, 10)
    there = stepped(x.cuda(), Z.cuda(), B.cuda(), 10)
    assert there.components_.is_cuda
    torch.testing.assert_close(there.components_.cpu(), here.components_)
    here.set_params(max_iter=2000, tol=1e-3)
    there.set_params(max_iter=2000, tol=1e-3)
    torch.testing.assert_close(there.transform(x.cuda()).cpu(), here.transform(x))


@pytest.mark.parametrize("threads", [1, 3])
def test_a_pass_in_portions_of_several_threads_is_the_formula(threads: int) -> None:
    g, before = torch.Generator().manual_seed(0), torch.get_num_threads()
    x = torch.rand(2000, 50, generator=g, dtype=torch.float64).round()
    Z = torch.rand(2000, 3, generator=g, dtype=torch.float64).softmax(1)
    B = torch.rand(3, 50, generator=g, dtype=torch.float64)
    torch.set_num_threads(threads)
    try:
        found = pass_over(x, Z, torch.stack([B, 1 - B]), value=True)
    finally:
        torch.set_num_threads(before)
    P = Z @ B
    ones, zeros = B * (Z.T @ (x / P)), (1 - B) * (Z.T @ ((1 - x) / (1 - P)))
    codes = Z * ((x / P) @ B.T + ((1 - x) / (1 - P)) @ (1 - B).T) / 50
    torch.testing.assert_close(found.both[0], ones / (ones + zeros))
    torch.testing.assert_close(found.codes, codes)
    chance = torch.where(x > 0, P, 1 - P)
    assert found.log_likelihood == pytest.approx(float(chance.log().sum()), rel=1e-12)
