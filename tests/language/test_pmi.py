"""Pointwise mutual information against its definition, in every kind of table."""

import math
import re

import numpy as np
import pytest
import torch
from scipy.sparse import coo_array, csr_array, csr_matrix

from vademecum.language import cooccurrence, pmi


def by_hand(counts, power=1.0, shift=0.0):
    """Cell by cell; -inf where there is nothing."""
    counts = np.asarray(counts, dtype=float)
    rows, columns = counts.sum(1) / counts.sum(), counts.sum(0)
    columns = columns**power * (columns > 0)
    columns = columns / columns.sum()
    found = np.full(counts.shape, -math.inf)
    for i, j in np.argwhere(counts > 0):
        found[i, j] = math.log(counts[i, j] / counts.sum() / (rows[i] * columns[j])) - shift
    return found


def table(draw=0, shape=(6, 9)):
    rng = np.random.default_rng(draw)
    counts = rng.integers(1, 20, shape) * (rng.random(shape) < 0.5)
    counts[3], counts[:, 4] = 0, 0  # a word and a context that never occur
    return counts


@pytest.mark.parametrize(("power", "shift"), [(1.0, 0.0), (0.75, 0.0), (1.0, 1.5), (0.0, -0.3)])
def test_pmi_equals_its_definition(power, shift):
    counts = table()
    wanted = by_hand(counts, power, shift)
    knobs = {"context_power": power, "shift": shift}
    dense = pmi(counts, **knobs)
    np.testing.assert_allclose(dense, wanted, rtol=0, atol=1e-13)
    for kind in (csr_array, csr_matrix, coo_array):
        sparse = pmi(kind(counts), **knobs)
        assert sparse.nnz == (counts > 0).sum()
        np.testing.assert_allclose(sparse.toarray()[counts > 0], wanted[counts > 0], atol=1e-13)
        cut = pmi(kind(counts), positive=True, **knobs)
        np.testing.assert_allclose(cut.toarray(), np.maximum(wanted, 0), atol=1e-13)
        assert cut.nnz == (wanted > 0).sum()
    positive = pmi(torch.from_numpy(counts), positive=True, **knobs).numpy()
    np.testing.assert_allclose(positive, np.maximum(wanted, 0), atol=1e-6)


def test_types():
    counts = torch.tensor([[2, 1], [1, 3]])
    assert pmi(counts).dtype == torch.float32
    assert pmi(counts.double()).dtype == torch.float64
    assert pmi(counts.bfloat16()).dtype == torch.bfloat16
    assert pmi(counts.numpy()).dtype == np.float64
    assert isinstance(pmi(counts.tolist()), np.ndarray)
    assert (pmi(counts.numpy().astype(np.uint64)) == pmi(counts.numpy())).all()
    assert pmi(csr_array(counts.numpy())).dtype == np.float64


def test_neither_overflows_nor_underflows():
    law = torch.tensor([[1e-200, 0.0], [0.0, 1.0]], dtype=torch.float64)
    assert pmi(law)[0, 0].item() == pytest.approx(200 * math.log(10))
    counts = torch.full((2, 2), 2**62)
    assert pmi(counts).abs().max() < 1e-6
    assert pmi(csr_array([[1e200, 1e200], [1e200, 1e200]])).nnz == 4
    for even in (counts, csr_array([[1e200, 1e200], [1e200, 1e200]]).toarray()):
        assert abs(pmi(even, context_power=3.0)).max() < 1e-6


def test_the_argument_is_left_alone():
    counts = csr_array(np.array([[2, 1], [1, 3]]))
    before = counts.toarray()
    pmi(counts, positive=True)
    assert (counts.toarray() == before).all()


def test_gradients_flow():
    counts = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(pmi, counts)


def test_words_that_go_together_come_out_on_top():
    found = cooccurrence(
        ["new york is in new york state", "york is old", "new is not old"], window=1
    )
    pairs = pmi(found.counts, positive=True).tocoo()
    best = pairs.data.argmax()
    assert {found.vocabulary[pairs.row[best]], found.vocabulary[pairs.col[best]]} & {"york", "not"}


MISTAKES = [
    (lambda: pmi(torch.ones(3)), "counts must have 2 axes, got shape (3,)"),
    (lambda: pmi(torch.tensor([[1.0, -2.0]])), "counts must be finite and >= 0, got -2.0"),
    (lambda: pmi(torch.tensor([[1.0, math.nan]])), "counts must be finite and >= 0, got nan"),
    (lambda: pmi(np.array([[1.0, math.inf]])), "counts must be finite and >= 0, got inf"),
    (lambda: pmi(csr_array([[1.0, -3.0]])), "counts must be finite and >= 0, got -3.0"),
    (lambda: pmi(np.full((2, 2), 1e308)), "counts must have a finite sum, got one beyond double"),
    (lambda: pmi(torch.zeros(2, 2)), "counts must not all be 0, got shape (2, 2)"),
    (lambda: pmi(csr_array((2, 2))), "counts must not all be 0, got shape (2, 2)"),
    (lambda: pmi(torch.zeros(0, 2)), "counts must not all be 0, got shape (0, 2)"),
    (lambda: pmi(torch.ones(2, 2) > 0), "counts must be numbers >= 0, got torch.bool"),
    (lambda: pmi(torch.ones(2, 2) + 1j), "counts must be numbers >= 0, got torch.complex64"),
    (lambda: pmi(torch.ones(2, 2), shift=math.nan), "shift must be a number, got nan"),
    (lambda: pmi(torch.ones(2, 2), context_power=-1), "context_power must be >= 0, got -1"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=[m[1][:40] for m in MISTAKES])
def test_bad_input(unchecked, call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
