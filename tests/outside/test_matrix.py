"""The matrix tells a right answer from every kind of bad one."""

import pytest
import torch
from torch import nn

from bench.outside import matrix
from bench.outside.answers import complaint
from bench.outside.cases import Case, Subject
from bench.outside.oracles import Oracle
from vademecum.arguments import whole
from vademecum.gradients import gradient

pytestmark = pytest.mark.usefixtures("unchecked")  # type checkers draw random numbers


def case(**more):
    def make():
        x, y = torch.randn(3, 2), torch.randn(3, 1)
        return Subject(nn.Sequential(nn.Linear(2, 1), nn.Dropout()), x, y)

    return Case("small", make, **more)


def compared(s, o, factor=1.0):
    found = factor * gradient(s.model, s.x, s.y)
    yield complaint("gradient", found, o.gradient, torch.float32, o.sizes)


def right(s, o):
    yield from compared(s, o)


def off(s, o):
    yield from compared(s, o, 1.001)


def crashes(s, o):
    yield str(gradient(s.model, s.x[:, :1], s.y))


def refuses(s, o):
    yield str(whole("n", -1, low=0))


def leaves_attribute(s, o):
    s.model[0].cached = 3
    yield from compared(s, o)


def leaves_flag(s, o):
    s.model.eval()
    yield from compared(s, o)


def moves_generator(s, o):
    torch.rand(1)
    yield from compared(s, o)


def loses_gradient(s, o):
    s.model[0].weight.grad = None
    yield from compared(s, o)


def changes_data(s, o):
    yield from compared(s, o)
    s.x.add_(1)


def no_oracle(s, o):
    yield str(1 / 0)


OUTCOMES = [
    (right, "right", ""),
    (off, "wrong", "gradient is off by 0.001 of its norm"),
    (crashes, "crash", "RuntimeError"),
    (refuses, "unexpected", "n must be >= 0"),
    (leaves_attribute, "changed", "new: attribute cached"),
    (leaves_flag, "changed", "attribute training"),
    (moves_generator, "changed", "torch's random state"),
    (loses_gradient, "changed", "parameter weight"),
    (changes_data, "changed", "data 0"),
    (no_oracle, "oracle", "ZeroDivisionError"),
]


@pytest.mark.parametrize(("instrument", "outcome", "why"), OUTCOMES)
def test_every_outcome(monkeypatch, instrument, outcome, why):
    monkeypatch.setitem(matrix.INSTRUMENTS, "asked", instrument)
    found = next(matrix.cells(case(), ["asked"]))
    assert found.outcome == outcome
    assert why in found.why
    assert found.bad == (outcome != "right")


def test_a_refusal_that_is_expected_is_not_bad(monkeypatch):
    monkeypatch.setitem(matrix.INSTRUMENTS, "asked", refuses)
    subject = case(refused={"ask*": "must be >= 0"})
    assert [c.outcome for c in matrix.cells(subject, ["asked"])] == ["refused", "right"]
    subject = case(refused={"ask*": "another reason"})
    assert [c.outcome for c in matrix.cells(subject, ["asked"])] == ["unexpected", "right"]
    assert [c.outcome for c in matrix.cells(case(skip={"asked": "why"}), ["asked"])] == ["right"]


def test_a_small_part_cannot_be_wrong_behind_a_large_one():
    wanted = torch.cat([torch.full((90,), 1e3), torch.full((10,), 1e-1)]).double()
    found = wanted.clone()
    found[90:] *= 1.0001
    assert not complaint("x", found, wanted, torch.float64)
    assert "in part 1 of 2" in complaint("x", found, wanted, torch.float64, (90, 10))
    assert "not finite" in complaint("x", found / 0, wanted, torch.float64)
    assert "has shape" in complaint("x", found[1:], wanted, torch.float64)


def test_second_derivatives_by_differences_and_by_autograd_agree():
    def make():
        model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
        return Subject(model, torch.randn(4, 2).double(), torch.randn(4, 1).double())

    one, other = (Oracle(Case("two", make, differences=d)) for d in (False, True))
    v = torch.randn(13).double()
    torch.testing.assert_close(
        one.hessian_product(v), other.hessian_product(v), rtol=1e-7, atol=1e-7
    )
