"""How far inputs may change, and which examples are attacked."""

import pytest
import torch
from torch import nn

from vademecum.examine import _study
from vademecum.examine._study import Study
from vademecum.examine.sections._attacked import Subject, ball_of
from vademecum.examine.sections._fresh import best_examples


@pytest.mark.parametrize(
    ("ends", "box"),
    [
        ((0.0, 1.0), (0.0, 1.0)),
        ((0.2, 0.6), (0.0, 1.0)),
        ((-0.1, 1.0), None),  # below the range
        ((0.0, 1.1), None),  # beyond it
        ((0.0, 0.5), None),  # half of it is empty
    ],
)
def test_a_range_from_0_to_1_is_one_that_inputs_fill(ends, box):
    x = torch.tensor([ends, ends])
    ball = ball_of(x)
    assert ball.box == box
    half = (ends[1] - ends[0]) / 2
    spread = half * (4 / 3) ** 0.5  # of four numbers, two at each end
    assert ball.unit == pytest.approx(1.0 if box else 4 * spread)
    assert ball.radius(8) == pytest.approx(8 * ball.unit / 255)
    assert ("from 0 to 1" in ball.words) == bool(box)


def test_inputs_that_are_all_the_same_have_a_unit():
    assert ball_of(torch.full((4, 3), -2.0)).unit == 1.0


@pytest.mark.parametrize(("n", "most"), [(9, 9), (40, 20)])
def test_as_many_examples_are_attacked_as_are_planned_and_there(monkeypatch, n, most):
    monkeypatch.setattr(_study, "_PASS", 20 * 15)
    monkeypatch.setattr(_study, "_LEAST", 1)
    x = torch.randn(n, 5)
    study = Study(nn.Linear(5, 3), x, (torch.arange(n) % 3).int())
    examples = best_examples(study)
    assert examples is not None
    subject = Subject(study, study.network, ball_of(x), examples)
    assert subject.most == most
    some, y = subject.some(7)
    assert some.equal(examples.x[:7])
    assert y.tolist() == examples.y[:7].tolist()
    assert y.dtype == torch.int64
    assert subject.knobs("attack")["box"] is None
