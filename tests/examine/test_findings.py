"""Findings: both sides of every threshold, their order, and that error bars count."""

import math
from dataclasses import replace

import pytest

from vademecum.examine import Finding, Measurement, Section
from vademecum.examine.findings import RULES, findings

PLAIN = {  # the measurement whose value is the number of a rule
    "dead": "dead_share", "vanishing": "vanishing_index", "exploding": "vanishing_index",
    "steep": "critical_learning_rate", "saddle": "negative_share",
    "unlearnable": "unlearnable_share", "shifts": "shift_changes_answers", "gap": "gap",
    "calibration": "calibration_error", "too sure": "best_temperature",
    "too unsure": "best_temperature",
}  # fmt: skip
BESIDE = {  # what else a rule wants to know
    "gap": (Measurement("test_error", 0.5),),
    "calibration": (Measurement("best_temperature", 1.0),),
}


def made(rule, number: float) -> Section:
    """A section in which a rule sees a number."""
    if rule.name in PLAIN:
        found = (Measurement(PLAIN[rule.name], number), *BESIDE.get(rule.name, ()))
    else:
        found = OTHERS[rule.name](number)
    return Section(rule.section, "measured", found)


OTHERS = {
    "unused": lambda v: (Measurement("unused_parameters", ("w",) * math.ceil(v)),),
    "unaligned": lambda v: (
        Measurement("alignment", 0.25 + v), Measurement("alignment_by_chance", 0.25, 1.0)),
    "guessing": lambda v: (
        Measurement("test_error", 0.5 + v), Measurement("test_error_of_constant", 0.5)),
    "constant": lambda v: (Measurement("train_gain_over_constant", -v),),
    "relative gap": lambda v: (
        Measurement("gap", 2 * v), Measurement("train_squared_error", 2.0)),
    "masking": lambda v: (Measurement("masked", v > 0.5),),
    "fragile": lambda v: (
        Measurement("accuracy", 0.5 * v), Measurement("clean_accuracy", 0.5),
        Measurement("radius", 0.1)),
    "collapse": lambda v: (
        Measurement("layers", ("a", "b")), Measurement("least_hidden_rank", v)),
    "forgotten": lambda v: (
        Measurement("best_score", 0.5 + v, 0.0), Measurement("last_score", 0.5, 0.0),
        Measurement("best_layer", "a")),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
def test_both_sides_of_every_threshold(rule):
    step = 1.0 if rule.name == "unused" else 1e-6
    way = 1 if rule.above else -1
    (found,) = findings((made(rule, rule.threshold + way * step),))
    assert isinstance(found, Finding)
    assert found.section == rule.section
    assert found.threshold == rule.threshold
    assert found.text.endswith(".")
    assert found.advice.endswith(".")
    assert "{" not in found.text + found.advice
    assert not findings((made(rule, rule.threshold - way * step),))
    if rule.name not in (
        "unaligned",
        "fragile",
        "forgotten",
    ):  # whose numbers are rounded on the way
        assert not findings((made(rule, rule.threshold),))


@pytest.mark.parametrize("rule", [r for r in RULES if r.name in PLAIN], ids=lambda rule: rule.name)
@pytest.mark.parametrize("shape", ["interval", "standard error"])
def test_the_end_of_the_error_bar_decides(rule, shape):
    way = 1 if rule.above else -1
    size = 1 + abs(rule.threshold)
    value = rule.threshold + way * size

    def seen(reach: float) -> bool:
        section = made(rule, value)
        error = (value - reach, value + reach) if shape == "interval" else reach / 2
        first = section.measurements[0]._replace(error=error)
        section = replace(section, measurements=(first, *section.measurements[1:]))
        return bool(findings((section,)))

    assert seen(0.9 * size)
    assert not seen(1.1 * size)


def test_at_most_ten_and_the_most_serious_first():
    bad = tuple(made(rule, rule.threshold + (1 if rule.above else -0.1)) for rule in RULES)
    by_name: dict[str, list[Measurement]] = {}
    for section in bad:
        by_name.setdefault(section.name, []).extend(section.measurements)
    sections = tuple(Section(name, "measured", tuple(all_)) for name, all_ in by_name.items())
    found = findings(sections)
    assert len(found) == 10
    assert [f.severity for f in found] == sorted((f.severity for f in found), reverse=True)


def test_nothing_is_found_in_nothing():
    nan = Section("signal", "partly", (Measurement("dead_share", math.nan),))
    empty = tuple(Section(rule.section, "out of time") for rule in RULES)
    assert findings(()) == findings(empty) == findings((nan,)) == ()


def test_sections_that_were_cut_give_no_errors():
    """Whatever comes before the end of time, a finding has words."""
    for rule in RULES:
        whole = made(rule, rule.threshold + (1 if rule.above else -0.1)).measurements
        for count in range(len(whole) + 1):
            for finding in findings((Section(rule.section, "partly", whole[:count]),)):
                assert finding.advice


def test_calibration_without_a_best_temperature():
    """Where all answers are right, or none, more time would tell nothing."""
    error = (Measurement("calibration_error", 0.4, (0.3, 0.5)),)
    (whole,) = findings((Section("calibration", "measured", error),))
    (cut,) = findings((Section("calibration", "partly", error),))
    assert whole.advice.startswith("No temperature is best")
    assert "more time" in cut.advice


def test_targets_that_can_be_read_are_no_collapse():
    """Two classes on one line are how training ends, and nothing is lost."""
    rank = (Measurement("layers", ("a", "b")), Measurement("least_hidden_rank", 1.0))
    score = (Measurement("last_score", 0.99, (0.9, 1.0)), Measurement("chance", 0.5))
    other = (Measurement("best_score", 0.99, (0.9, 1.0)), Measurement("best_layer", "a"))
    assert findings((Section("representations", "measured", rank),))
    assert not findings((Section("representations", "measured", rank + score + other),))


@pytest.mark.parametrize(("n", "count"), [(2, 0), (3, 1), (None, 1)])
def test_two_examples_have_one_direction_in_any_layer(n, count):
    rank = Measurement("least_hidden_rank", 1.0, 0.0, n=n)
    layers = Measurement("layers", ("a", "b"))
    found = findings((Section("representations", "measured", (layers, rank)),))
    assert len(found) == count
    for finding in found:  # of targets nothing is known
        assert finding.text == "A hidden layer uses no more than 1 of its directions."


@pytest.mark.parametrize(("given", "error", "count"), [(1.0, 0.0, 0), (1.5, 0.0, 0),
                                                       (1.6, 0.06, 0), (1.6, 0.04, 1)])  # fmt: skip
def test_what_has_one_direction_from_the_beginning_is_no_collapse(given, error, count):
    """Layers on inputs of one number have no more."""
    numbers = (Measurement("layers", ("a", "b")), _one("least_hidden_rank", 1.0, 0.0),
               _one("input_effective_rank", given, error))  # fmt: skip
    assert len(findings((Section("representations", "measured", numbers),))) == count


@pytest.mark.parametrize(("left", "count"), [(0.1, 0), (0.100001, 1), (2.0, 1)])
def test_the_noise_of_targets_is_not_what_a_network_fails_to_learn(left, count):
    """A regression that has learned all but the noise has all of its residual beyond its reach."""
    numbers = Measurement("unlearnable_share", 0.9), Measurement("left_to_learn", left)
    assert len(findings((Section("kernel", "measured", numbers),))) == count


def test_a_constant_is_beaten_beyond_the_error_and_on_fresh_examples():
    def seen(*numbers: Measurement) -> int:
        return len(findings((Section("generalisation", "measured", numbers),)))

    assert seen(Measurement("train_gain_over_constant", 0.1, 0.051)) == 1
    assert seen(Measurement("train_gain_over_constant", 0.1, 0.049)) == 0
    train = Measurement("train_gain_over_constant", 0.5, 0.01)
    assert seen(train, Measurement("test_gain_over_constant", 0.0, 0.01)) == 1
    assert seen(train._replace(value=0.0), Measurement("test_gain_over_constant", 0.5, 0.01)) == 0


@pytest.mark.parametrize(
    ("name", "number", "severity"),
    [
        ("dead", 0.75, 4.5 + 0.99 * (0.25 / 0.75)),
        ("vanishing", -4.0, 4.0 + 0.99 * (1 / 4)),
        ("vanishing", -math.inf, 4.0 + 0.99),
        ("steep", 2.5e-4, 2.0 + 0.99 * 0.75),
        ("gap", 1.0, 4.0 + 0.99 * 0.9),
    ],
)
def test_severity_is_the_weight_and_how_far_it_is_beyond(name, number, severity):
    """The distance from the threshold, of the larger of both: less than one step of weights."""
    (rule,) = (rule for rule in RULES if rule.name == name)
    found = rule.judge(made(rule, number))
    assert found is not None
    assert found.severity == pytest.approx(severity, abs=5e-4)


@pytest.mark.parametrize(("number", "words"), [(-4.0, "loses 4.0"), (-math.inf, "loses inf")])
def test_what_is_lost_is_told_without_a_sign(number, words):
    found = findings((Section("signal", "measured", (_one("vanishing_index", number),)),))
    assert found[0].text.startswith(f"The gradient {words} decades")


def _one(name: str, value: float, error: float | tuple[float, float] | None = None) -> Measurement:
    return Measurement(name, value, error)


ENDS = [  # a rule, numbers that deserve it, and numbers whose errors speak against it
    ("guessing", (_one("train_error", 0.1), _one("train_error_of_constant", 0.5),
                  _one("test_error", 0.6), _one("test_error_of_constant", 0.5)),
     (_one("train_error", 0.6), _one("train_error_of_constant", 0.5),
      _one("test_error", 0.1), _one("test_error_of_constant", 0.5))),
    ("relative gap", (_one("gap", 1.2, 0.05), _one("train_squared_error", 2.0)),
     (_one("gap", 1.2, 0.2), _one("train_squared_error", 2.0))),
    ("fragile", (_one("accuracy", 0.2, (0.1, 0.2)), _one("clean_accuracy", 0.5)),
     (_one("accuracy", 0.2, (0.1, 0.3)), _one("clean_accuracy", 0.5))),
    ("collapse", (Measurement("layers", ("a", "b")), _one("least_hidden_rank", 1.4, 0.01)),
     (Measurement("layers", ("a", "b")), _one("least_hidden_rank", 1.4, 0.1))),
    ("collapse", (Measurement("layers", ("a", "b")), _one("least_hidden_rank", 1.0),
                  _one("last_score", 0.59), _one("chance", 0.5)),
     (Measurement("layers", ("a", "b")), _one("least_hidden_rank", 1.0),
      _one("last_score", 0.61), _one("chance", 0.5))),
    ("collapse", (Measurement("layers", ("a", "b")), _one("least_hidden_rank", 1.0)),
     (Measurement("layers", ("a",)), _one("least_hidden_rank", 1.0))),
    ("forgotten", (_one("best_score", 0.9, (0.8, 0.95)), _one("last_score", 0.6, (0.5, 0.72))),
     (_one("best_score", 0.9, (0.8, 0.95)), _one("last_score", 0.6, (0.5, 0.78)))),
    ("unaligned", (_one("alignment", 0.45), _one("alignment_by_chance", 0.25, 0.11)),
     (_one("alignment", 0.45), _one("alignment_by_chance", 0.25, 0.09))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "deserving", "control"), ENDS)
def test_numbers_of_several_measurements_are_at_the_end_that_speaks_against(
    name, deserving, control
):
    (rule,) = (rule for rule in RULES if rule.name == name)
    assert rule.judge(Section(rule.section, "measured", deserving)) is not None
    assert rule.judge(Section(rule.section, "measured", control)) is None
