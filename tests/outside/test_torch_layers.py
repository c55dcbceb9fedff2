"""Instruments on models of torch's own layers, and of odd code, against plain autograd."""

import pytest

from bench.outside import odd_cases, torch_cases
from bench.outside.matrix import INSTRUMENTS, cells

CASES = (*torch_cases.CASES, *odd_cases.CASES)


@pytest.mark.usefixtures("unchecked")  # type checkers draw random numbers
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_instrument_is_right_or_says_why_not(case):
    found = list(cells(case, list(INSTRUMENTS)))
    assert not [f"{c.instrument}: {c.outcome}: {c.why}" for c in found if c.bad]
