"""GloVe against its loss written densely, least squares and gradients."""

import re

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.language import GloVe, _ragged_rows, pmi


@parametrize_with_checks([GloVe(1, tol=1e-3)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def counts(V=10, draw=0, zeros=0.4):
    rng = np.random.default_rng(draw)
    found = rng.integers(1, 30, (V, V)) * (rng.random((V, V)) >= zeros)
    found[0], found[:, 0] = 4, 9
    return found.astype(float)


def objective(C, found, cutoff, power, penalty):
    """The loss, densely, as a function of what was fitted."""
    C = torch.as_tensor(C)
    weight = (C / cutoff).clamp(max=1) ** power * (C > 0)
    target = torch.where(C > 0, C, 1).log()
    names = ("word_vectors_", "context_vectors_", "word_biases_", "context_biases_")
    parts = [torch.as_tensor(getattr(found, n)).clone().requires_grad_() for n in names]
    x, y, b, c = parts
    scores = x @ y.T + b[:, None] + c
    loss = (weight * (scores - target).square()).sum()
    loss = loss + penalty * (x.square().sum() + y.square().sum())
    return loss.item(), torch.autograd.grad(loss, parts)


@pytest.mark.parametrize(("power", "penalty", "cutoff"), [(0.75, 0.0, 10.0), (1.0, 0.3, 5.0),
                                                          (0.0, 0.05, 100.0)])  # fmt: skip
@pytest.mark.parametrize("cells", [2**17, 30])
def test_ends_where_the_slopes_are_zero(monkeypatch, power, penalty, cutoff, cells):
    monkeypatch.setattr(_ragged_rows, "CELLS", cells)
    C = counts()
    knobs = {"cutoff": cutoff, "power": power, "penalty": penalty}
    found = GloVe(3, tol=1e-6, max_iter=3000, random_state=0, **knobs).fit(C)
    loss, slopes = objective(C, found, **knobs)
    assert found.losses_[-1] == pytest.approx(loss, rel=1e-10)
    assert found.converged_
    assert np.all(np.diff(found.losses_) <= 1e-9)
    words, contexts, word_biases, context_biases = (float(s.abs().max()) for s in slopes)
    assert max(words, word_biases) < 1e-5  # fitted last
    assert max(contexts, context_biases) < 0.3 * found.losses_[0] ** 0.5


def test_one_half_of_a_sweep_is_weighted_least_squares():
    C = counts(zeros=0.3)
    with pytest.warns(ConvergenceWarning, match="max_iter=1 reached while a sweep lowers the obj"):
        found = GloVe(2, penalty=0.2, cutoff=8.0, max_iter=1, random_state=0).fit(C)
    x, b = found.word_vectors_, found.word_biases_
    for j in range(len(C)):  # contexts are fitted last in a whole sweep
        seen = C[:, j] > 0
        root = np.minimum(C[seen, j] / 8.0, 1) ** 0.375
        rows = np.column_stack((x[seen], np.ones(seen.sum()))) * root[:, None]
        ridge = np.sqrt(0.2) * np.eye(3)[:2]
        target = np.concatenate((root * (np.log(C[seen, j]) - b[seen]), np.zeros(2)))
        wanted = np.linalg.lstsq(np.concatenate((rows, ridge)), target)[0]
        np.testing.assert_allclose(found.context_vectors_[j], wanted[:2], atol=1e-5)
        assert found.context_biases_[j] == pytest.approx(wanted[2], abs=1e-5)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_kinds_of_input_agree():
    C = counts()
    knobs = {"tol": 1e-3, "random_state": 0}
    dense = GloVe(2, **knobs).fit(C)
    explicit = csr_array(C + 1)
    explicit.data -= 1  # with zeros that are stored
    for X in (csr_array(C), explicit, torch.from_numpy(C), torch.from_numpy(C).to_sparse_csr()):
        found = GloVe(2, **knobs).fit(X)
        np.testing.assert_allclose(found.embedding_, dense.embedding_, atol=1e-9)
    total = dense.word_vectors_ + dense.context_vectors_
    assert (dense.fit_transform(C) == total).all()
    single = GloVe(2, **knobs).fit(torch.from_numpy(C).float())
    assert single.embedding_.dtype == torch.float32
    np.testing.assert_allclose(single.embedding_, dense.embedding_, atol=1e-4)


def test_words_with_fewer_contexts_than_dimensions():
    C = csr_array(np.eye(6) + np.eye(6, k=1) + np.eye(6, k=-1))
    found = GloVe(4, penalty=0.0, random_state=0).fit(C)
    assert np.isfinite(found.embedding_).all()
    assert found.losses_[-1] < 1e-8


def test_words_that_never_occur_stay_where_they_were():
    C = np.zeros((3, 3))
    C[0, 1] = C[1, 0] = 5.0
    found = GloVe(1, random_state=0).fit(C)
    assert np.isfinite(found.embedding_).all()


def test_scores_follow_pmi():
    rng = np.random.default_rng(0)
    V, z = 60, rng.normal(size=(60, 3)) * 0.7
    law = np.exp(z @ z.T) / np.arange(1, V + 1)[:, None] / np.arange(1, V + 1)
    C = rng.poisson(300_000 * law / law.sum())
    C = C + C.T
    found = GloVe(3, random_state=0).fit(C)
    scores = found.word_vectors_ @ found.context_vectors_.T
    centre = np.eye(V) - 1 / V
    seen = C > 5
    true = pmi(law)
    both = np.corrcoef((centre @ scores @ centre)[seen], (centre @ true @ centre)[seen])
    assert both[0, 1] > 0.9  # observed 0.97


MISTAKES = [
    (lambda: GloVe().fit(np.ones((2, 3))), "X must be square, a row and a column for each word, g"),
    (lambda: GloVe().fit(np.zeros((3, 3))), "X must have a count > 0, got 3 words that never meet"),
    (lambda: GloVe().fit(-np.ones((3, 3))), "X must be >= 0, got -1.0"),
    (lambda: GloVe().fit(torch.ones(2, 2) + 0j), "X must be real, got torch.complex64"),
    (lambda: GloVe(0).fit(np.eye(3)), "n_components must be >= 1, got 0"),
    (lambda: GloVe(cutoff=0.0).fit(np.eye(3)), "cutoff must be > 0, got 0.0"),
    (lambda: GloVe(power=-1.0).fit(np.eye(3)), "power must be >= 0, got -1.0"),
    (lambda: GloVe(penalty=-1.0).fit(np.eye(3)), "penalty must be >= 0, got -1.0"),
    (lambda: GloVe(tol=-1.0).fit(np.eye(3)), "tol must be >= 0, got -1.0"),
    (lambda: GloVe(max_iter=0).fit(np.eye(3)), "max_iter must be >= 1, got 0"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=[m[1][:40] for m in MISTAKES])
def test_bad_input(unchecked, call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
