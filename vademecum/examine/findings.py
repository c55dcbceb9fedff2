"""Findings: at most ten sentences on what is wrong and what to do, most serious first.

A rule looks at one number of a section and compares it with a threshold, at the end of its error
bar that speaks against the finding: two standard errors, or the end of the interval. So what is
found is there beyond its error; equal to the threshold is not beyond it.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from vademecum.examine.dossier import Finding, Measurement, Section
from vademecum.results import one_line

__all__ = ["RULES", "Rule", "findings"]

_MOST = 10
_ONE = 1.5  # directions: hardly more than one


class Rule(NamedTuple):
    """When a number is worth a sentence.

    Example:
        >>> rule = next(rule for rule in RULES if rule.name == "gap")
        >>> both = Measurement("gap", 0.3, (0.2, 0.4)), Measurement("test_error", 0.5)
        >>> rule.judge(Section("generalisation", "measured", both)).number
        0.2
    """

    name: str
    section: str
    number: Callable[[Section], float | None]
    """What is compared, or None where it was not measured."""
    above: bool
    """Whether a number above the threshold is found, or one below."""
    threshold: float
    weight: float
    """How serious it is, from 1 to 5."""
    text: str
    """What is wrong, with the number as {number}, without its sign as {size}, and what is measured
    before it by name."""
    advice: str
    """What to do, with measurements of the section by name."""
    otherwise: str = ""
    """What to do where a whole section has no such measurement."""

    __repr__ = one_line

    def judge(self, section: Section) -> Finding | None:
        """What is found in a section, if anything."""
        number = self.number(section)
        if number is None or math.isnan(number):
            return None
        if not (number > self.threshold if self.above else number < self.threshold):
            return None
        known = {m.name: m.value for m in section.measurements}
        known |= {"number": number, "size": abs(number)}
        text = self.text.format_map(known)
        try:
            advice = self.advice.format_map(known)
        except KeyError:
            cut = section.status != "measured" or not self.otherwise
            advice = "Examine it with more time to know what to do." if cut else self.otherwise
        severity = self.weight + 0.99 * _beyond(number, self.threshold)
        return Finding(text, self.section, number, self.threshold, advice, round(severity, 3))


def findings(sections: tuple[Section, ...]) -> tuple[Finding, ...]:
    """What is wrong, at most ten sentences, most serious first.

    Args:
        sections: What was measured.

    Example:
        >>> dead = Section("signal", "measured", (Measurement("dead_share", 1.0),))
        >>> findings((dead,))[0].text
        '100% of the units give the same for every example: they are dead.'
    """
    by_name = {section.name: section for section in sections}
    found = [rule.judge(by_name[rule.section]) for rule in RULES if rule.section in by_name]
    told = sorted(filter(None, found), key=lambda finding: -finding.severity)
    return tuple(told[:_MOST])


def _beyond(number: float, threshold: float) -> float:
    """How far a number is beyond a threshold, between 0 and 1."""
    gap, size = abs(number - threshold), max(abs(number), abs(threshold))
    return 1.0 if math.isinf(gap) else gap / size if size else 0.0


def _end(measurement: Measurement, side: int) -> float:
    """The lower (-1) or the upper (1) end of an error bar."""
    value, error = measurement.value, measurement.error
    assert isinstance(value, int | float)
    if isinstance(error, tuple):
        return float(error[0] if side < 0 else error[1])
    return float(value) + side * 2 * (error or 0.0)


def _low(name: str) -> Callable[[Section], float | None]:
    return lambda section: _end(section[name], -1) if name in section else None


def _high(name: str) -> Callable[[Section], float | None]:
    return lambda section: _end(section[name], 1) if name in section else None


def _count(name: str) -> Callable[[Section], float | None]:
    return lambda section: float(len(section[name].value)) if name in section else None  # pyright: ignore


def _over_guessing(section: Section) -> float | None:
    """By how much the error may exceed that of a constant answer, on fresh examples if any."""
    for which in ("test", "train"):
        if f"{which}_error_of_constant" in section:
            constant = section[f"{which}_error_of_constant"].value
            return _end(section[f"{which}_error"], 1) - float(constant)  # pyright: ignore
    return None


def _over_constant(section: Section) -> float | None:
    """By how much its errors may exceed a constant's, paired, on fresh examples if any."""
    for which in ("test", "train"):
        if f"{which}_gain_over_constant" in section:
            return -_end(section[f"{which}_gain_over_constant"], -1)
    return None


def _gap(section: Section) -> float | None:
    """By how much more often it certainly errs on new examples."""
    return _end(section["gap"], -1) if "gap" in section and "test_error" in section else None


def _relative_gap(section: Section) -> float | None:
    """How much larger the squared error certainly is on new examples, as a share."""
    if "gap" not in section or not section.get("train_squared_error"):
        return None
    return _end(section["gap"], -1) / float(section.get("train_squared_error"))


def _survival(section: Section) -> float | None:
    """The share of right answers that an attack leaves."""
    if "accuracy" not in section or not section.get("clean_accuracy"):
        return None
    return _end(section["accuracy"], 1) / float(section.get("clean_accuracy"))


def _collapse(section: Section) -> float | None:
    """The least rank of hidden layers, where no targets are known to be read off the last one."""
    if len(section.get("layers") or ()) < 2 or "least_hidden_rank" not in section:
        return None
    if section["least_hidden_rank"].n == 2:  # which have no more than one direction anywhere
        return None
    if "input_effective_rank" in section and _end(section["input_effective_rank"], -1) <= _ONE:
        return None  # layers have no more directions than what they are given may have
    if "last_score" in section and section.get("last_score") > (section.get("chance") or 0.0) + 0.1:
        return None
    return _end(section["least_hidden_rank"], 1)


def _lost(section: Section) -> float | None:
    """What an earlier layer certainly knows more than the last."""
    if "best_score" not in section or section["best_score"].error is None:
        return None
    if "last_score" not in section:
        return None
    return _end(section["best_score"], -1) - _end(section["last_score"], 1)


def _unlearnable(section: Section) -> float | None:
    """What its gradients cannot change, where much is still wrong and not the noise of targets."""
    left = section.get("left_to_learn")
    return None if left is not None and left <= 0.1 else _low("unlearnable_share")(section)


def _chance_alignment(section: Section) -> float | None:
    """By how many spreads the kernel fits the targets better than random orders of them."""
    if "alignment_by_chance" not in section or not section["alignment_by_chance"].error:
        return None
    by_chance = section["alignment_by_chance"]
    return (section.get("alignment") - by_chance.value) / by_chance.error  # pyright: ignore


RULES = (
    Rule("unused", "anatomy", _count("unused_parameters"), True, 0, 2.0,
         "{number:.0f} parameter tensors are never used in a pass.",
         "Remove them, or find out why the code does not reach {unused_parameters[0]}."),
    Rule("dead", "signal", _low("dead_share"), True, 0.5, 4.5,
         "{number:.0%} of the units give the same for every example: they are dead.",
         "Begin anew with biases near 0 and a smaller learning rate, or take leaky units."),
    Rule("vanishing", "signal", _high("vanishing_index"), False, -3, 4.0,
         "The gradient loses {size:.1f} decades on its way to the first layer: it vanishes.",
         "Take the proposed scales of weights, normalisation, or shortcuts."),
    Rule("exploding", "signal", _low("vanishing_index"), True, 3, 4.0,
         "The gradient gains {number:.1f} decades on its way to the first layer: it explodes.",
         "Take the proposed scales of weights, normalisation, or clip the gradient."),
    Rule("steep", "curvature", _high("critical_learning_rate"), False, 1e-3, 2.0,
         "Plain gradient descent diverges beyond a learning rate of {number:.2g}.",
         "Scale inputs and outputs to order 1, warm up, or take an adaptive optimiser."),
    Rule("saddle", "curvature", _low("negative_share"), True, 0.1, 2.0,
         "{number:.0%} of the curvatures are negative: it is not near a minimum.",
         "Train on: there are directions in which the loss falls."),
    Rule("unlearnable", "kernel", _unlearnable, True, 0.1, 3.0,
         "{number:.0%} of what is still wrong lies where its gradients cannot change it.",
         "Take more parameters, or look for examples that are the same to it but for the targets."),
    Rule("unaligned", "kernel", _chance_alignment, False, 2, 2.0,
         "Its tangent kernel fits the targets no better than random ones ({number:.1f} spreads).",
         "Check the targets; if they are right, try other features or another architecture."),
    Rule("shifts", "geometry", _low("shift_changes_answers"), True, 0.1, 1.5,
         "A shift by one position changes at least {number:.0%} of the answers.",
         "Augment with shifts, pool before striding, or take convolutions."),
    Rule("guessing", "generalisation", _over_guessing, True, 0, 5.0,
         "As far as can be told it is no better than always giving the most frequent class.",
         "Check targets, preprocessing and learning rate before anything else."),
    Rule("constant", "generalisation", _over_constant, True, 0, 5.0,
         "As far as can be told it is no better than the same answer whatever the input.",
         "Check targets, preprocessing and learning rate before anything else."),
    Rule("gap", "generalisation", _gap, True, 0.1, 4.0,
         "On new examples it is worse by at least {number:.2g} than on those it was given.",
         "Get more data, or regularise: weight decay, augmentation, early stopping."),
    Rule("relative gap", "generalisation", _relative_gap, True, 0.5, 4.0,
         "The squared error on new examples is larger by at least {number:.0%}.",
         "Get more data, or regularise: weight decay, augmentation, early stopping."),
    Rule("masking", "robustness", lambda s: float(s.get("masked")) if "masked" in s else None,
         True, 0.5, 4.5,
         "Its gradients mislead attacks, so its accuracy under attack shows nothing.",
         "Divide the scores by a constant or attack without gradients before claiming robustness."),
    Rule("fragile", "robustness", _survival, False, 0.5, 2.5,
         "Small changes of inputs leave at most {number:.0%} of the right answers.",
         "If inputs may be tampered with or noisy, train with adversarial or noisy examples."),
    Rule("collapse", "representations", _collapse, False, _ONE, 4.0,
         "A hidden layer uses no more than {number:.2g} of its directions.",
         "Normalise between layers, or begin anew with the proposed scales of weights."),
    Rule("forgotten", "representations", _lost, True, 0.05, 1.5,
         "More can be read off an earlier layer than off the last one, by at least {number:.0%}.",
         "Take features off '{best_layer}' for other tasks, or train the layers behind it anew."),
    Rule("calibration", "calibration", _low("calibration_error"), True, 0.05, 3.0,
         "What it says of its sureness is off by at least {number:.0%}.",
         "Divide its scores by a number fitted on examples that it has not seen (on these"
         " {best_temperature:.3g}).",
         "No temperature is best on these examples: fit one on others, which it has not seen."),
    Rule("too sure", "calibration", _low("best_temperature"), True, 2, 2.5,
         "Its scores are at least {number:.3g} times too large for probabilities.",
         "Divide them by {best_temperature:.3g}."),
    Rule("too unsure", "calibration", _high("best_temperature"), False, 0.5, 2.5,
         "Its scores are too small for probabilities, by at least 1 / {number:.3g}.",
         "Divide them by {best_temperature:.3g}."),
)  # fmt: skip
"""All rules."""
