"""Instruments on every module that torch itself tests, against plain autograd."""

import pytest

pytest.importorskip("expecttest")  # which torch's own tests want

from bench.outside.matrix import ask
from bench.outside.oracles import Oracle
from tests.outside.module_database import INFOS, cases_of

REFUSED: dict[str, str] = {}


def bad(name, *instruments):
    """What is amiss, in the order of the cases."""
    found = []
    for case in cases_of(name):
        subject, oracle = case.subject(), Oracle(case)
        for instrument in instruments:
            if case.not_asked(instrument, subject) is None:
                cell = ask(case, instrument, subject, oracle)
                found += [f"{cell.model}: {instrument}: {cell.outcome}: {cell.why}"] if cell.bad else []
    return found


@pytest.mark.parametrize("name", sorted(INFOS))
def test_functions_and_jacobians(name):
    assert not bad(name, "functional", "jacobian_theta", "jacobian_x", "jvp", "vjp")


@pytest.mark.parametrize("name", sorted(INFOS))
def test_losses(name):
    assert not bad(name, "gradient", "hessian", "hvp")


@pytest.mark.parametrize("name", sorted(INFOS))
def test_examples(name):
    assert not bad(name, "per_example_gradients", "gradient_norms")
