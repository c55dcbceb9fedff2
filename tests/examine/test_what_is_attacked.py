"""How far inputs may change, which examples are attacked, and what is told of how far it took."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from vademecum.examine import _study, examine
from vademecum.examine._clock import Clock
from vademecum.examine._study import Study
from vademecum.examine.sections import robustness
from vademecum.examine.sections._attacked import Subject, ball_of
from vademecum.examine.sections._fresh import best_examples
from vademecum.foundations import clopper_pearson


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
    ball = ball_of(torch.full((4, 3), -2.0))
    assert ball.unit == 1.0
    assert "standard deviations" not in ball.words


@pytest.mark.parametrize(("n", "most"), [(9, 9), (40, 20), (300, 256)])
def test_as_many_examples_are_attacked_as_are_planned_and_there(monkeypatch, n, most):
    monkeypatch.setattr(_study, "_PASS", (400 if n == 300 else 20) * 15)
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


def subject_of(model: nn.Module, x: torch.Tensor) -> Subject:
    study = Study(model, x, torch.arange(len(x)) % 3)
    examples = best_examples(study)
    assert examples is not None
    return Subject(study, study.network, ball_of(x), examples)


@pytest.mark.parametrize(
    ("radii", "median", "interval", "never", "half"),
    [
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 0.3, (0.1, 0.6), 0, True),
        ([0.1, 0.2, 0.3, math.inf, math.inf, 0.4], 0.3, (0.1, 1.0), 2, True),
        ([0.1, 0.2, math.inf, math.inf, math.inf, math.inf], 1.0, (0.1, 1.0), 4, False),
        ([0.0, 0.0, 0.3, math.inf, 0.0, 0.0], 0.0, (0.0, 1.0), 1, True),
        ([0.7, 0.8, 0.9, 1.0, math.inf, math.inf], 0.9, (0.7, 1.0), 2, True),
    ],
)
def test_changes_that_were_not_found_are_none(monkeypatch, radii, median, interval, never, half):
    found = SimpleNamespace(radius=torch.tensor(radii).double())
    monkeypatch.setattr(robustness, "minimal_radius", lambda *_, **__: found)
    monkeypatch.setattr(Subject, "right", lambda _, m: torch.ones(m).bool())
    x, said = torch.linspace(0, 1, 30).view(6, 5), dict[str, Any]()
    subject = subject_of(nn.Linear(5, 3), x)
    (told,) = robustness._radii(subject, Clock(math.inf), said)
    assert isinstance(told, robustness.Measurement)
    assert (told.value, told.error) == (pytest.approx(median), pytest.approx(interval))
    assert (f", 1 where none was found (of {never}); an upper" in told.method) is bool(never)
    words, up_to = robustness._sentence(subject.ball, said), f"changes of up to {median:g}"
    assert words == (
        "" if not median
        else f"with {up_to} half of the answers are wrong." if half
        else f"no {up_to} were found that leave half of the answers wrong."
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("one", [False, True])
def test_of_equal_scores_the_first_is_the_answer(dtype, one):
    """Two of three inputs have equal scores for both classes, or a score of 0 for the second."""
    model = nn.Linear(2, 1 if one else 2, bias=False)
    model.weight.data = torch.tensor([[1.0, 0.0]] if one else [[0.0, 0.0], [1.0, 0.0]])
    x, y = torch.tensor([[0.0, 1.0], [0.0, -1.0], [2.0, 1.0]] * 10), torch.tensor([0, 1, 1] * 10)
    section = examine(model.to(dtype), x.to(dtype), y, budget=math.inf,
                      sections=["generalisation", "robustness", "calibration"])  # fmt: skip
    assert section["generalisation"].train_error == pytest.approx(1 / 3)
    assert section["calibration"].accuracy == pytest.approx(2 / 3)
    found = section["robustness"]
    assert found.clean_accuracy == pytest.approx(2 / 3)
    assert found["clean_accuracy"].error == pytest.approx(tuple(clopper_pearson(20, 30)))
    assert set(found["clean_accuracy"].each) == {0.0, 1.0}
    assert found.curve_accuracy[0] == found.clean_accuracy
    assert found.accuracy <= found.clean_accuracy


def test_answers_are_right_or_not_however_many_go_at_a_time():
    subject = subject_of(nn.Linear(5, 3), torch.randn(10, 5))
    subject.study.batch = 4
    x, y = subject.some(9)
    assert subject.right(9).tolist() == (subject.model(x).argmax(1) == y).tolist()


def test_what_is_wrong_among_equal_scores_needs_no_change():
    """Two of three, though no change makes them any worse."""
    model, y = nn.Linear(5, 2), torch.tensor([0, 1, 1] * 10)
    for p in model.parameters():
        nn.init.zeros_(p)
    section: Any = examine(model, torch.randn(30, 5), y, sections=["robustness"])["robustness"]
    assert (section.median_radius, section["median_radius"].error[0]) == (0, 0)
    assert "half of the answers" not in section.sentence


def test_half_of_the_answers_are_wrong_before_half_of_them_change():
    """Nine of twenty are wrong without a change, and one change suffices."""
    model = nn.Linear(1, 2)
    model.weight.data, model.bias.data = torch.tensor([[-1.0], [1.0]]), torch.zeros(2)
    x = torch.tensor([[1.0]] * 9 + [[-1.0]] * 9 + [[0.125], [-0.125]]).double()
    y = torch.tensor([0] * 9 + [0] * 9 + [1, 0])
    section = examine(model.double(), x, y, sections=["robustness"])["robustness"]
    assert section.clean_accuracy == 0.55
    assert section.median_radius == pytest.approx(0.125, abs=1e-3)
    assert "with changes of up to 0.125 half of the answers are wrong" in section.sentence


def test_what_intervals_prove_stays_proven_where_linear_bounds_prove_less(monkeypatch):
    def none(model, x, y, **knobs):
        return SimpleNamespace(margin=-torch.ones(len(y)), assumes="")

    monkeypatch.setattr(robustness, "certified_accuracy", none)
    x = 9 * torch.tensor([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]]).repeat(2, 1)
    model = nn.Linear(3, 3)
    model.weight.data, model.bias.data = torch.eye(3), torch.zeros(3)
    told = list(robustness._certified(subject_of(model, x), Clock(math.inf), {}))
    assert [each.value for each in told if isinstance(each, robustness.Measurement)] == 3 * [1.0]


class Edges(nn.Module):
    """A layer over the nodes of a graph, which one alone has not."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x):
        if len(x) != 12:
            raise ValueError("there are 12 nodes")
        return self.layer(x - x.mean(0))


@pytest.mark.parametrize("section", ["robustness", "geometry"])
def test_examples_that_hang_together_are_the_reason(section):
    """Their input is one tensor of numbers that may change a little."""
    x, y = torch.randn(12, 5), torch.arange(12) % 3
    told = examine(Edges(), x, y, sections=[section])[section]
    assert told.status == "not applicable"
    assert told.reason.startswith("because its examples hang together")


def test_examples_that_there_was_no_time_for_are_told_with_what_they_were_for():
    now = [0.0]
    clock, subject = (
        Clock(10.0, now=lambda: now[0]),
        subject_of(nn.Linear(5, 3), torch.randn(30, 5)),
    )
    for _ in robustness._portions(subject, clock, 16, 30, 10**9, "the curve"):
        now[0] += 9.0
    assert clock.cut == "16 of 30 examples for the curve"


class AtLeastTwo(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x):
        if len(x) < 2:
            raise RuntimeError("one is too few")
        return self.layer(x)


def test_of_what_takes_no_single_example_nothing_is_proven():
    """An attack may come to its last example, and fail as well."""
    x, said = torch.randn(12, 5), dict[str, Any]()
    subject = subject_of(AtLeastTwo(), x)
    assert not list(robustness._certified(subject, Clock(math.inf), said))
    words = robustness._sentence(subject.ball, said)
    assert words.startswith("nothing was proven: model does not take inputs of shape (1, 5)")


def certified(subject: Subject, clock: Clock) -> Any:
    return list(robustness._certified(subject, clock, {}))[-1]


@pytest.mark.parametrize("linear", [0, 2**41])
def test_scores_that_are_equal_prove_nothing(monkeypatch, linear):
    """What a tie is taken for may change with the order of a sum."""
    model = nn.Linear(5, 3)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    monkeypatch.setattr(robustness, "_LINEAR", linear)
    told = certified(subject_of(model, torch.randn(70, 5)), Clock(math.inf))
    assert (told.value, told.n, len(told.each)) == (0.0, 64, 64)


def test_time_for_linear_bounds_is_not_missed_where_there_is_no_work_for_them(monkeypatch):
    monkeypatch.setattr(robustness, "_LINEAR", 0)
    monkeypatch.setattr(Clock, "pass_seconds", lambda *_: 1e9)
    clock = Clock(60.0, now=lambda: 0.0)
    assert "by interval bounds alone" in certified(subject_of(nn.Linear(5, 3), torch.randn(9, 5)),
                                                   clock).method  # fmt: skip
    assert not clock.cut


@pytest.mark.parametrize(("seconds", "cut"), [(0.08, ""), (0.1, "no Lipschitz constant")])
def test_a_lipschitz_constant_takes_700_passes(monkeypatch, seconds, cut):
    found = SimpleNamespace(slope=1 + 1e-9, upper=1.0)
    monkeypatch.setattr(robustness, "lipschitz", lambda *_, **__: found)
    monkeypatch.setattr(Clock, "pass_seconds", lambda *_: seconds)
    clock = Clock(60.0, now=lambda: 0.0)
    subject = subject_of(nn.Linear(5, 3), torch.randn(9, 5))
    told: list[Any] = list(robustness._lipschitz(subject, clock, {}))
    assert clock.cut == cut
    assert [each.value for each in told] == ([] if cut else [1.0, 1.0])  # never above its bound


class Doubling(nn.Linear):
    """Writes into its input."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input.mul_(2))


def test_what_a_network_writes_into_its_input_reaches_no_other_part():
    torch.manual_seed(0)
    model, x, y = Doubling(4, 3), torch.randn(40, 4), torch.arange(40) % 3
    study = Study(model, x, y)
    examples = best_examples(study)
    assert examples is not None
    before = examples.x.clone()
    subject = Subject(study, model, ball_of(x), examples)
    wanted = nn.functional.linear(2 * before, model.weight, model.bias).argmax(1) == examples.y
    for _ in range(2):
        assert subject.right(40).equal(wanted)
    Clock(math.inf).pass_seconds(model, examples.x)
    assert examples.x.equal(before)
