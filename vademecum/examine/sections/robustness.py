r"""Robustness: what small changes of inputs do, found by attacks and bounded by certificates.

Changes are measured in the largest entry; where all inputs lie between 0 and 1 they stay there, and
the unit is that range; else it is four standard deviations of the inputs. An attack shows from
above how accurate a network is at a radius, a certificate from below. If `gradient_masking` raises
a flag, what attacks by gradients show is not to be trusted. Intervals are exact, at 95 %.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from vademecum.convolution import shape_trace
from vademecum.examine._clock import Clock
from vademecum.examine._section import Drawing, Item, NotApplicable, Sentence
from vademecum.examine._study import Study
from vademecum.examine.dossier import Measurement
from vademecum.examine.sections._fresh import Examples, best_examples
from vademecum.examine.sections._medians import median_interval
from vademecum.examine.sections._single_inputs import classifier, real_tensor
from vademecum.foundations import clopper_pearson
from vademecum.robustness import (
    RobustAccuracy,
    apgd,
    certified_accuracy,
    draw_robust_accuracy,
    gradient_masking,
    lipschitz,
    minimal_radius,
    robust_accuracy,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CLAIMS", "robustness"]

CLAIMS = (
    "robustness.attack_strength", "robustness.gradient_masking", "robustness.interval_bounds",
    "robustness.lipschitz_product", "robustness.minimal_vs_constrained",
)  # fmt: skip
"""Claims of the course that stand behind it."""
_STEPS = (1, 2, 4, 8, 16, 32)
"""Radii, in units of 1/255 of the range of inputs."""
_MAIN, _SURE = 8, 1
"""Those of the accuracy that is told first, and of certificates."""
_ATTACK = partial(apgd, steps=20)
_LIPSCHITZ = 700  # passes of 16 examples; observed for a small convolutional network
_OF_16 = 16


class _Ball(NamedTuple):
    """How inputs may change."""

    box: tuple[float, float] | None
    unit: float
    words: str

    def radius(self, steps: int) -> float:
        return steps * self.unit / 255


class _Subject(NamedTuple):
    """What is attacked, with what, and how far."""

    study: Study
    model: nn.Module
    ball: _Ball
    examples: Examples

    def some(self, m: int) -> tuple[Tensor, Tensor]:
        x, y = self.examples.take(m)
        return x, y.long()

    def knobs(self, name: str) -> dict[str, Any]:
        draw = self.study.generator(name)
        return {"box": self.ball.box, "memory": self.study.memory, "generator": draw}


def robustness(study: Study, clock: Clock) -> Iterator[Item]:
    """The attack curve, whether it can be trusted, radii, certificates, Lipschitz constants."""
    model = classifier(study)
    examples = best_examples(study)
    x = None if examples is None else real_tensor(examples.x)
    if x is None or examples is None:
        raise NotApplicable("because inputs are not one tensor of numbers that may change a little")
    ball, said = _ball(x), dict[str, Any](of=examples.words)
    cuts: list[str] = []
    for share, part in (
        (0.35, _curve), (0.35, _masking), (0.35, _radii), (0.5, _certified), (1.0, _lipschitz),
    ):  # fmt: skip
        clock.check()
        own = clock.spend(share)
        yield from part(_Subject(study, model, ball, examples), own, said)
        cuts.append(own.cut)
        yield Sentence(_sentence(ball, said))
    clock.cut = ", ".join(filter(None, cuts))


def _ball(x: Tensor) -> _Ball:
    low, high = (float(end) for end in torch.aminmax(x.detach()))
    if low >= 0 and 0.5 < high <= 1:
        return _Ball((0.0, 1.0), 1.0, "of the range from 0 to 1")
    unit = 4 * float(x.detach().double().std()) or 1.0
    return _Ball(None, unit, "of four standard deviations of the inputs")


def _curve(subject: _Subject, clock: Clock, said: dict[str, Any]) -> Iterator[Item]:
    model, ball = subject.model, subject.ball
    radii = [0.0, *(ball.radius(k) for k in _STEPS)]
    for m in clock.portions(16, min(256, subject.examples.n)):
        x, y = subject.some(m)
        knobs = subject.knobs("attack")
        found = robust_accuracy(model, x, y, radii=radii, attack=_ATTACK, **knobs)
        yield from _points(found, ball, said)
        yield Drawing(partial(_drawn, found, ball, said))


def _points(found: RobustAccuracy, ball: _Ball, said: dict[str, Any]) -> Iterator[Item]:
    n = len(found.distance)
    how = "share of right answers that 20 steps of adaptive ascent (apgd, linf) leave"
    for name, place in (("clean_accuracy", 0), ("accuracy", 1 + _STEPS.index(_MAIN))):
        radius = float(found.radii[place])
        each = (found.distance > radius).double()
        interval = (float(found.low[place]), float(found.high[place]))
        text = f"{how} at radius {radius:.3g}; n examples, exact interval of 95 %"
        text = text if place else "share of right answers; n examples, exact interval of 95 %"
        value = float(found.accuracy[place])
        said[name] = value
        yield Measurement(name, value, interval, "", n, text, tuple(each.tolist()))
    yield Measurement("radius", ball.radius(_MAIN), None, "of inputs", None, f"8/255 {ball.words}")
    yield Measurement("curve_radii", tuple(found.radii.tolist()), None, "of inputs")
    yield Measurement("curve_accuracy", tuple(found.accuracy.tolist()), None, "", n, how)


def _masking(subject: _Subject, clock: Clock, said: dict[str, Any]) -> Iterator[Item]:
    model, ball = subject.model, subject.ball
    for m in clock.portions(8, min(64, subject.examples.n)):
        x, y = subject.some(m)
        knobs = subject.knobs("masking")
        found = gradient_masking(model, x, y, radius=ball.radius(_MAIN), **knobs)
        flags = tuple(test.name for test in found.tests if test.flag)
        said["flags"] = flags
        how = f"whether any of {len(found.tests)} tests is a flag, each wrongly with probability"
        yield Measurement("masked", found.masked, None, "", m, f"{how} 0.5 %; n examples")
        yield Measurement("masking_flags", flags, None, "", m, "tests that are flags")


def _radii(subject: _Subject, clock: Clock, said: dict[str, Any]) -> Iterator[Item]:
    model, ball = subject.model, subject.ball
    for m in clock.portions(16, min(256, subject.examples.n)):
        x, y = subject.some(m)
        knobs = subject.knobs("radii")
        found = minimal_radius(model, x, y, norm="linf", largest=ball.unit, **knobs).radius
        each = found.clamp(max=ball.unit)
        value = said["radius"] = float(each.median())
        how = "smallest change of the largest entry that was found to change the answer, 0 where it"
        how += " is wrong without; an upper bound, median of n examples, exact interval of 95 %"
        interval = median_interval(each)
        yield Measurement("median_radius", value, interval, "of inputs", m, how)


def _certified(subject: _Subject, clock: Clock, said: dict[str, Any]) -> Iterator[Item]:
    model, ball = subject.model, subject.ball
    x, _ = subject.some(1)
    units = shape_trace(model, x).activation_bytes / x.element_size()
    needed = units * clock.pass_seconds(model, subject.some(_OF_16)[0]) / _OF_16
    if needed > clock.left():
        clock.cut = f"no certificates, of which one takes about {needed:.0f} s"
        return
    for m in clock.portions(1, min(64, subject.examples.n), what="certificates"):
        x, y = subject.some(m)
        knobs = {"norm": "linf", "radius": ball.radius(_SURE), "attack": _ATTACK}
        try:
            found = certified_accuracy(model, x, y, **knobs, **subject.knobs("certified"))
        except ValueError as error:  # which names the step that has no bounds
            said["not certified"] = str(error).partition("\n")[0]
            return
        each = found.margin > 0
        interval = tuple(clopper_pearson(int(each.sum()), m))
        how = (
            f"share proven right at radius {ball.radius(_SURE):.3g} (linf), by interval and linear"
        )
        how += f" bounds; n examples, exact interval of 95 %{found.assumes and '; assumes '}"
        value = said["certified"] = found.certified
        said["certificates"] = m
        yield Measurement(
            "certified_accuracy", value, interval, "", m, how + found.assumes,
            tuple(each.double().tolist()),
        )  # fmt: skip


def _lipschitz(subject: _Subject, clock: Clock, said: dict[str, Any]) -> Iterator[Item]:
    model = subject.model
    x, _ = subject.some(_OF_16)
    if _LIPSCHITZ * clock.pass_seconds(model, x) > clock.left():
        clock.cut = "no Lipschitz constant"
        return
    draw = subject.study.generator("lipschitz")
    try:
        found = lipschitz(model, x, norm="l2", memory=subject.study.memory, generator=draw)
    except ValueError as error:
        said["no constant"] = str(error).partition("\n")[0]
        return
    how = "l2, all inputs:"
    lower, upper = float(found.lower), float(found.upper)
    said["lipschitz"] = lower, upper
    text = f"{how} the slope between two inputs that were found"
    yield Measurement("lipschitz_lower", lower, None, "", len(x), text)
    yield Measurement(
        "lipschitz_upper", upper, None, "", None, f"{how} product of the layers' norms"
    )


def _sentence(ball: _Ball, said: dict[str, Any]) -> str:
    words = []
    if "accuracy" in said:
        words.append(
            f"Of {said['clean_accuracy']:.1%} right answers ({said['of']}), changes of every entry"
            f" by up to {ball.radius(_MAIN):.3g} leave {said['accuracy']:.1%}"
        )
    if said.get("flags"):
        listed = ", ".join(said["flags"])
        words.append(f"but gradients mislead attacks ({listed}), so that this shows nothing")
    if said.get("radius"):
        words.append(f"half of the answers change within {said['radius']:.3g}")
    if "certified" in said:
        share, many = said["certified"], said["certificates"]
        words.append(f"of {many} {share:.1%} are proven right within {ball.radius(_SURE):.2g}")
    if "lipschitz" in said:
        low, high = said["lipschitz"]
        words.append(f"its Lipschitz constant (l2) is between {low:.3g} and {high:.3g}")
    if "not certified" in said:
        words.append(f"nothing was proven: {said['not certified']}")
    elif "no constant" in said:
        words.append(f"no Lipschitz constant was proven: {said['no constant']}")
    return "; ".join(words) + "." if words else ""


def _drawn(found: RobustAccuracy, ball: _Ball, said: dict[str, Any]) -> "Figure":
    from vademecum.canvas import panels

    figure, axes = panels((5.6, 3.4))
    draw_robust_accuracy(found, axes, label="attacked")
    if "certified" in said:
        axes.plot([ball.radius(_SURE)], [said["certified"]], "s", label="certified")
    axes.set_xscale("symlog", linthresh=ball.radius(1))
    axes.set_xlabel("change of the largest entry")
    axes.legend()
    return figure
