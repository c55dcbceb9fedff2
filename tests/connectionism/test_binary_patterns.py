import math
from itertools import combinations
from typing import Any

import jaxtyping
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from vademecum.connectionism.binary_patterns import sparse_capacity_bound, sparse_patterns

fraction: Any = 2.5


@given(st.integers(1, 20), st.integers(1, 90), st.data())
def test_each_pattern_has_exactly_r_active_units(count, n, data):
    r = data.draw(st.integers(0, n))
    x = sparse_patterns(count, n, r)
    assert x.shape == (count, n)
    assert x.sum(1).eq(r).all()


@pytest.mark.parametrize(("n", "r"), [(5, 1), (5, 2), (6, 4), (4, 3)])
def test_all_sets_are_equally_likely(n, r):
    generator = torch.Generator().manual_seed(0)
    x = sparse_patterns(8000, n, r, generator=generator)
    units = x.nonzero()[:, 1].view(-1, r)
    sets = list(combinations(range(n), r))
    counts = torch.tensor([[(units == torch.tensor(s)).all(1).sum() for s in sets]])
    assert counts.sum() == 8000
    assert chisquare(counts.flatten().numpy()).pvalue > 1e-3


def test_patterns_of_a_batch_are_independent():
    x = sparse_patterns(20000, 4, 2, generator=torch.Generator().manual_seed(1))
    same = (x[::2] == x[1::2]).all(1).double().mean()
    assert same.item() == pytest.approx(1 / 6, abs=5 * math.sqrt(5 / 36 / 10000))


def test_the_generator_decides():
    draws = [sparse_patterns(50, 30, 4, generator=torch.Generator().manual_seed(7)) for _ in "ab"]
    assert draws[0].equal(draws[1])
    torch.manual_seed(3)
    first = sparse_patterns(50, 30, 4)
    assert not first.equal(sparse_patterns(50, 30, 4))
    torch.manual_seed(3)
    assert first.equal(sparse_patterns(50, 30, 4))


@pytest.mark.parametrize(("n", "r"), [(2, 1), (10, 3), (50, 49), (4096, 12), (2**60, 60)])
def test_capacity_bound_against_integers(n, r):
    assert sparse_capacity_bound(n, r) == pytest.approx(n**2 / math.log2(math.comb(n, r)), 1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sparse_patterns(0, 5, 2), "count must be >= 1, got 0"),
        (lambda: sparse_patterns(1, 0, 0), "n must be >= 1, got 0"),
        (lambda: sparse_patterns(1, 5, 6), "r must be <= 5, got 6"),
        (lambda: sparse_patterns(1, 5, -1), "r must be >= 0, got -1"),
        (lambda: sparse_patterns(1, 5, fraction), "r must be an integer, got 2.5"),
        (lambda: sparse_capacity_bound(5, 0), "r must be >= 1, got 0"),
        (lambda: sparse_capacity_bound(5, 5), "r must be <= 4, got 5"),
        (lambda: sparse_capacity_bound(1, 1), "n must be >= 2, got 1"),
    ],
)
def test_bad_input_is_refused(call, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_patterns_on_cuda():
    generator = torch.Generator("cuda").manual_seed(0)
    x = sparse_patterns(1000, 300, 11, generator=generator)
    assert x.is_cuda
    assert x.sum(1).eq(11).all()
    assert sparse_patterns(10, 30, 20, device="cuda").is_cuda
