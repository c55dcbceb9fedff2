import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vademecum.connectionism._bit_rows import (
    active_units,
    at_least_set,
    count_set,
    pack,
    true_entries,
    unpack,
)

shapes = st.tuples(st.integers(1, 9), st.integers(1, 140))
densities = st.sampled_from([0.0, 0.02, 0.5, 1.0])


@given(shapes, densities, st.integers(0, 2**32))
def test_packing_loses_nothing_and_counts_right(shape, density, seed):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < density
    assert unpack(pack(x), shape[1]).equal(x)
    assert count_set(pack(x)).equal(x.sum(1))


@given(shapes, densities, st.integers(0, 2**32))
def test_true_entries_are_those_of_nonzero(shape, density, seed):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < density
    for view in (x, x[1:], x[:, ::2], x.T):  # odd offsets and strides too
        if view.numel():
            assert torch.stack(true_entries(view), 1).equal(view.nonzero())


def test_true_entries_of_rows_that_start_within_a_word():
    x = torch.eye(9, 3, dtype=torch.bool)[1:]  # 24 entries from the third on
    assert torch.stack(true_entries(x), 1).equal(x.nonzero())


@given(shapes, densities, st.integers(0, 2**32))
def test_active_units_name_each_unit_and_no_other(shape, density, seed):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < density
    units, counts = active_units(x)
    assert counts.equal(x.sum(1))
    for row, column, count in zip(x, units.T, counts, strict=True):
        assert column[:count].equal(row.nonzero().flatten())
        assert not count or set(column.tolist()) == set(row.nonzero().flatten().tolist())


@pytest.mark.parametrize("theta", range(1, 34))
def test_bit_planes_count_to_any_threshold(theta):
    x = torch.rand(33, 70) < 0.5
    units = torch.stack([torch.randperm(33) for _ in range(5)], 1)
    counts = torch.tensor([33, 32, 17, 1, 0])
    sums = torch.stack([x[u[:c]].sum(0) for u, c in zip(units.T, counts, strict=True)])
    assert unpack(at_least_set(pack(x), units, counts, theta), 70).equal(sums >= theta)
