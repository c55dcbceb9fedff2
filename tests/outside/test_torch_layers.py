"""Instruments on models of torch's own layers, and of odd code, against plain autograd."""

import pytest

from bench.outside import odd_cases, torch_cases
from bench.outside.matrix import INSTRUMENTS, cells

OTHER_REASON = "not piecewise linear, and refused for another reason than that"
KNOWN = {
    **dict.fromkeys(("rnn", "lstm", "gru", "lstm, two layers, both ways"), OTHER_REASON),
    **dict.fromkeys(("lstm, an entry of its tuple", "attention", "encoder"), OTHER_REASON),
    "encoder, norm first, gelu": OTHER_REASON,
    "keeps what it saw": "fit_readout runs the features' own code, which counts in a buffer",
}


def cases():
    for case in (*torch_cases.CASES, *odd_cases.CASES):
        known = [pytest.mark.xfail(reason=KNOWN[case.name])] if case.name in KNOWN else []
        yield pytest.param(case, marks=known, id=case.name)


@pytest.mark.usefixtures("unchecked")  # type checkers draw random numbers
@pytest.mark.parametrize("case", list(cases()))
def test_every_instrument_is_right_or_says_why_not(case):
    found = list(cells(case, list(INSTRUMENTS)))
    assert not [f"{c.instrument}: {c.outcome}: {c.why}" for c in found if c.bad]
