"""Instruments on every module that torch itself tests, against plain autograd."""

import pytest

from bench.outside.matrix import ask
from bench.outside.oracles import Oracle

pytest.importorskip("expecttest")  # which torch's own tests want
from tests.outside.module_database import INFOS, cases_of

INSTRUMENTS = (
    *("functional", "jacobian_theta", "jacobian_x", "jvp", "vjp", "gradient", "hessian", "hvp"),
    *("per_example_gradients", "gradient_norms"),
)


@pytest.mark.usefixtures("unchecked")  # type checkers draw random numbers
@pytest.mark.parametrize("name", sorted(INFOS))
def test_every_instrument_is_right_or_says_why_not(name):
    found = []
    for case in cases_of(name):
        subject, oracle = case.subject(), Oracle(case)
        for instrument in INSTRUMENTS:
            if case.not_asked(instrument, subject) is None:
                found.append(ask(case, instrument, subject, oracle))
    assert not [f"{c.model}: {c.instrument}: {c.outcome}: {c.why}" for c in found if c.bad]


def test_the_database_has_what_it_should():
    names = {"Linear", "Conv2d", "LSTM", "MultiheadAttention", "BatchNorm1d", "Embedding"}
    assert names <= set(INFOS)
    assert len(INFOS) > 100
