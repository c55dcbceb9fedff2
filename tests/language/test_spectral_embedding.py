"""Spectral embeddings against dense decompositions, on small matrices and large sparse ones."""

import re

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, random_array
from sklearn.utils.estimator_checks import parametrize_with_checks

from vademecum.language import SpectralEmbedding, cooccurrence, pmi


@parametrize_with_checks([SpectralEmbedding(), SpectralEmbedding(1, which="largest")])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def symmetric(n, draw=0):
    A = np.random.default_rng(draw).normal(size=(n, n))
    return A + A.T


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("which", ["magnitude", "largest"])
@pytest.mark.parametrize("k", [1, 4, 9])
def test_equals_a_dense_decomposition(k, which):
    A = symmetric(9)
    values, vectors = np.linalg.eigh(A)
    order = np.argsort(-np.abs(values) if which == "magnitude" else -values)[:k]
    low = (vectors[:, order] * values[order]) @ vectors[:, order].T
    for X in (A, csr_array(A), torch.from_numpy(A), torch.from_numpy(A).to_sparse_csr()):
        found = SpectralEmbedding(k, which=which).fit(X)
        np.testing.assert_allclose(found.eigenvalues_, values[order], atol=1e-12)
        x = np.asarray(found.embedding_)
        np.testing.assert_allclose((x * np.sign(values[order])) @ x.T, low, atol=1e-12)
        columns = np.asarray(found.eigenvectors_)
        assert (np.abs(columns).argmax(0) == columns.argmax(0)).all()
        np.testing.assert_allclose(found.transform(X), x, atol=1e-10)
        back = found.inverse_transform(found.embedding_)
        np.testing.assert_allclose(back, low, atol=1e-12)
        projected = found.to_one_hot(found.embedding_)
        kept = vectors[:, order]
        np.testing.assert_allclose(projected, kept @ kept.T, atol=1e-12)
        nearest = found.nearest_words(found.embedding_)
        assert np.array_equal(nearest, (kept @ kept.T).argmax(1))
        if k == 9:
            assert nearest.tolist() == list(range(9))


def test_large_sparse_matrices_are_not_made_dense():
    blocks = random_array((900, 900), density=0.01, rng=0)
    A = csr_array(blocks + blocks.T)
    found = SpectralEmbedding(6, random_state=0).fit(A)
    values = np.linalg.eigvalsh(A.toarray())
    wanted = values[np.argsort(-np.abs(values))[:6]]
    np.testing.assert_allclose(found.eigenvalues_, wanted, atol=1e-9)
    np.testing.assert_allclose(A @ found.eigenvectors_, found.eigenvectors_ * wanted, atol=1e-6)
    np.testing.assert_allclose(found.transform(A), found.embedding_, atol=1e-6)
    again = SpectralEmbedding(6, random_state=0).fit(A)
    assert (again.embedding_ == found.embedding_).all()
    dense = SpectralEmbedding(6, random_state=0).fit(torch.from_numpy(A.toarray()))
    np.testing.assert_allclose(dense.eigenvalues_, wanted, atol=1e-9)


def test_eigenvalues_that_are_zero_give_zeros():
    A = torch.diag(torch.tensor([2.0, 0.0, 0.0]))
    found = SpectralEmbedding(3).fit(A)
    assert found.embedding_[:, 1:].abs().max() == 0
    assert found.transform(A).isfinite().all()
    assert found.to_one_hot(found.embedding_)[0].tolist() == pytest.approx([1.0, 0.0, 0.0])


def test_dtypes_and_names():
    A = torch.from_numpy(symmetric(4)).float()
    found = SpectralEmbedding(2).fit(A)
    assert found.embedding_.dtype == found.transform(A).dtype == torch.float32
    counts = np.array([[1, 2], [2, 0]])
    assert SpectralEmbedding(1).fit(counts).embedding_.dtype == np.float64
    names = SpectralEmbedding(2).fit(A.numpy()).get_feature_names_out()
    assert names.tolist() == ["spectralembedding0", "spectralembedding1"]


def test_a_new_word_is_placed_beside_one_with_the_same_contexts():
    found = cooccurrence(["red apple pie", "red cherry pie", "blue sky"] * 20, window=2)
    table = pmi(found.counts, positive=True)
    spectral = SpectralEmbedding(3).fit(table)
    apple, cherry = (found.vocabulary.index(word) for word in ("apple", "cherry"))
    np.testing.assert_allclose(spectral.embedding_[apple], spectral.embedding_[cherry], atol=1e-9)
    new = spectral.transform(table[[apple]])
    np.testing.assert_allclose(new[0], spectral.embedding_[cherry], atol=1e-9)


FITTED = SpectralEmbedding(2).fit(np.eye(3))
MISTAKES = [
    (lambda: SpectralEmbedding(2).fit(np.ones((2, 3))), "X must be square, a row and a column for"),
    (
        lambda: SpectralEmbedding(2).fit(np.triu(np.ones((3, 3)))),
        "X must be symmetric, got entries",
    ),
    (lambda: SpectralEmbedding(2).fit(csr_array(np.triu(np.ones((3, 3))))), "X must be symmetric"),
    (lambda: SpectralEmbedding(4).fit(np.eye(3)), "n_components must be <= 3, got 4"),
    (lambda: SpectralEmbedding(0).fit(np.eye(3)), "n_components must be >= 1, got 0"),
    (lambda: SpectralEmbedding(1, which="smallest").fit(np.eye(3)), "which must be one of 'magnit"),
    (lambda: SpectralEmbedding(1).fit(torch.eye(2) + 0j), "X must be real, got torch.complex64"),
    (lambda: SpectralEmbedding(1).fit(torch.full((2, 2), torch.nan)), "X must be finite, got nan"),
    (lambda: FITTED.inverse_transform(np.ones((1, 3))), "X must be 2 wide, got shape (1, 3)"),
    (lambda: FITTED.to_one_hot(np.ones(2)), "X must have 2 axes, got shape (2,)"),
    (lambda: FITTED.nearest_words(np.array([[np.nan, 1.0]])), "X must be finite, got nan"),
    (lambda: FITTED.transform(np.ones((1, 2))), "X has 2 features, but SpectralEmbedding is expec"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=[m[1][:40] for m in MISTAKES])
def test_bad_input(unchecked, call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
