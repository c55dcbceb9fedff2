r"""Robustness: what small changes of inputs do, found by attacks and bounded by certificates.

Changes are measured in the largest entry; where all inputs lie between 0 and 1 they stay there, and
the unit is that range; else it is four standard deviations of the inputs. An attack shows from
above how accurate a network is at a radius, a certificate from below: by interval bounds, and for
as many examples as there is work for by linear ones. If `gradient_masking` raises a flag, what
attacks by gradients show is not to be trusted. Intervals are exact, at 95 %.
"""

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vademecum.arrays import portions
from vademecum.convolution import shape_trace
from vademecum.examine._clock import Clock
from vademecum.examine._section import Drawing, Item, NotApplicable, Sentence
from vademecum.examine._study import Study
from vademecum.examine.dossier import Measurement
from vademecum.examine.sections._attacked import Ball, Subject, ball_of, erring
from vademecum.examine.sections._fresh import best_examples
from vademecum.examine.sections._medians import median_interval
from vademecum.examine.sections._single_inputs import classifier, real_tensor
from vademecum.foundations import clopper_pearson
from vademecum.robustness import (
    RobustAccuracy,
    apgd,
    certified_accuracy,
    draw_robust_accuracy,
    gradient_masking,
    interval_bounds,
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
_SOME = 64  # examples of masking and certificates at most
_LINEAR = 2**41
"""Multiply-adds for certificates by linear bounds, if each takes as many passes as there are
activations: 13 s of a processor (observed: 23 s for the 2^42 of one certificate of ResNet-18)."""
_OF_CURVE, _OF_MASKING, _OF_RADII = 400, 900, 1400
"""Passes that a part takes at most, one with gradients as three; observed for ResNet-18."""
_LIPSCHITZ = 700  # passes of 16 examples; observed for a small convolutional network
_OF_16 = 16


def robustness(study: Study, clock: Clock) -> Iterator[Item]:
    """The attack curve, whether it can be trusted, radii, certificates, Lipschitz constants."""
    model = classifier(study)
    examples = best_examples(study)
    if examples is None:
        raise NotApplicable("because its examples hang together, and one at a time is attacked")
    x = real_tensor(examples.x)
    if x is None:
        raise NotApplicable("because inputs are not one tensor of numbers that may change a little")
    ball, said = ball_of(x), dict[str, Any](of=examples.words)
    cuts: list[str] = []
    for share, part in (
        (0.35, _curve), (0.35, _masking), (0.4, _certified), (0.5, _lipschitz), (1.0, _radii),
    ):  # fmt: skip  # the dearest last, which has what the others leave
        clock.check()
        own = clock.spend(share)
        yield from part(Subject(study, model, ball, examples), own, said)
        cuts.append(own.cut)
        yield Sentence(_sentence(ball, said))
    clock.cut = ", ".join(filter(None, cuts))


def _portions(
    subject: Subject, clock: Clock, first: int, last: int, passes: int, what: str
) -> Iterator[int]:
    """All at once where there is time for it: few take a large network hardly less than many."""
    seconds = passes * clock.pass_seconds(subject.model, subject.some(last)[0])
    first = last if seconds < clock.left() else first
    return clock.portions(first, last, what=f"examples for {what}")


def _curve(subject: Subject, clock: Clock, said: dict[str, Any]) -> Iterator[Item]:
    model, ball = subject.model, subject.ball
    radii = [0.0, *(ball.radius(k) for k in _STEPS)]
    for m in _portions(subject, clock, 16, subject.most, _OF_CURVE, "the curve"):
        x, y = subject.some(m)
        knobs = subject.knobs("attack")
        found = robust_accuracy(model, x, y, radii=radii, attack=_ATTACK, **knobs)
        found = erring(found, subject.right(m))
        yield from _points(found, ball, said)
        yield Drawing(partial(_drawn, found, ball, said))


def _points(found: RobustAccuracy, ball: Ball, said: dict[str, Any]) -> Iterator[Item]:
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


def _masking(subject: Subject, clock: Clock, said: dict[str, Any]) -> Iterator[Item]:
    model, ball = subject.model, subject.ball
    last = min(_SOME, subject.examples.n)
    for m in _portions(subject, clock, 8, last, _OF_MASKING, "misleading gradients"):
        x, y = subject.some(m)
        knobs = subject.knobs("masking")
        found = gradient_masking(model, x, y, radius=ball.radius(_MAIN), **knobs)
        flags = tuple(test.name for test in found.tests if test.flag)
        said["flags"] = flags
        how = f"whether any of {len(found.tests)} tests is a flag, each wrongly with probability"
        yield Measurement("masked", found.masked, None, "", m, f"{how} 0.5 %; n examples")
        yield Measurement("masking_flags", flags, None, "", m, "tests that are flags")


def _radii(subject: Subject, clock: Clock, said: dict[str, Any]) -> Iterator[Item]:
    model, ball = subject.model, subject.ball
    for m in _portions(subject, clock, 16, subject.most, _OF_RADII, "the radius"):
        x, y = subject.some(m)
        knobs = subject.knobs("radii")
        found = minimal_radius(model, x, y, norm="linf", largest=ball.unit, **knobs).radius
        found = found.where(subject.right(m), 0.0)
        each, never = found.clamp(max=ball.unit), int((found > ball.unit).sum())
        value = said["radius"] = float(each.median())
        said["no radius"] = float(found.median()) > ball.unit
        how = "smallest change of the largest entry that was found to change the answer, 0 where it"
        how += " is wrong without"
        how += f", {ball.unit:.3g} where none was found (of {never})" if never else ""
        how += "; an upper bound, median of n examples, exact interval of 95 %"
        low, high = median_interval(each)
        interval = max(low, 0.0), min(high, ball.unit)  # where all are
        yield Measurement("median_radius", value, interval, "of inputs", m, how)


def _certified(subject: Subject, clock: Clock, said: dict[str, Any]) -> Iterator[Item]:
    """What intervals prove, and of as many as there is work for what linear bounds do."""
    model, m = subject.model, min(_SOME, subject.examples.n)
    x, y = subject.some(m)
    try:
        trace = shape_trace(model, x[:1])
        units = trace.activation_bytes / x.element_size()
        last = min(m, int(_LINEAR / max(units * trace.multiply_adds, 1)))
        proven, assumes = _by_intervals(subject, x, y)
        yield from _proven(subject, proven, 0, assumes, said)
        needed = units * clock.pass_seconds(model, subject.some(_OF_16)[0]) / _OF_16
        if last and needed > clock.left():
            clock.cut = f"no certificates by linear bounds, of which one takes about {needed:.0f} s"
            return
        for many in clock.portions(1, last, what="certificates") if last else ():
            found = certified_accuracy(
                model, x[:many], y[:many], norm="linf", radius=subject.ball.radius(_SURE),
                attack=_no_attack, **subject.knobs("certified"),
            )  # fmt: skip
            proven[:many] |= found.margin > 0
            yield from _proven(subject, proven, many, found.assumes or assumes, said)
    except ValueError as error:  # which names the step that has no bounds, or takes no one example
        how = "no linear bounds" if "certified" in said else "not certified"
        said[how] = str(error).partition("\n")[0]


def _by_intervals(subject: Subject, x: Tensor, y: Tensor) -> tuple[Tensor, str]:
    """Which examples interval bounds prove right, and what that takes for granted."""
    ball, study, k = subject.ball, subject.study, subject.study.aim.classes or 2
    eye, proven, assumes = torch.eye(k).to(x), list[Tensor](), ""
    each = 8 * k**2 * eye.element_size()  # margins over all classes, copied 5 times: observed
    for part in portions(len(x), each=each, memory=study.room):
        own = y[part, None]
        margins = eye[own] - eye  # of which that over the class itself is 0
        found = interval_bounds(
            subject.model, x[part], norm="linf", radius=ball.radius(_SURE), box=ball.box,
            spec=margins, memory=study.memory,
        )  # fmt: skip
        proven.append((found.lower.scatter(1, own, torch.inf) > 0).all(1))
        assumes = found.assumes
    return torch.cat(proven), assumes


def _no_attack(model: nn.Module, x: Tensor, y: Tensor, **knobs: Any) -> Any:
    """An attack that fools nobody: what is not proven was attacked before."""
    return SimpleNamespace(fooled=torch.zeros(len(y), dtype=torch.bool, device=y.device))


def _proven(
    subject: Subject, each: Tensor, linear: int, assumes: str, said: dict[str, Any]
) -> Iterator[Item]:
    m, radius = len(each), subject.ball.radius(_SURE)
    how = f"share proven right at radius {radius:.3g} (linf), by interval"
    some = f" bounds, of {linear} by linear ones too" if linear else " bounds alone"
    how += " and linear bounds" if linear == m else some
    how += f"; n examples, exact interval of 95 %{assumes and '; assumes '}{assumes}"
    interval = tuple(clopper_pearson(int(each.sum()), m))
    value = said["certified"] = float(each.double().mean())
    said["certificates"] = m
    alone = tuple(each.double().tolist())
    yield Measurement("certified_accuracy", value, interval, "", m, how, alone)


def _lipschitz(subject: Subject, clock: Clock, said: dict[str, Any]) -> Iterator[Item]:
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
    upper = float(found.upper)
    lower = min(float(found.slope), upper)  # but for rounding
    said["lipschitz"] = lower, upper
    text = f"{how} the slope between two inputs that were found, in double precision"
    yield Measurement("lipschitz_lower", lower, None, "", len(x), text)
    yield Measurement(
        "lipschitz_upper", upper, None, "", None, f"{how} product of the layers' norms"
    )


def _sentence(ball: Ball, said: dict[str, Any]) -> str:
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
        within = f"changes of up to {said['radius']:.3g}"
        words.append(
            f"no {within} were found that leave half of the answers wrong"
            if said["no radius"]
            else f"with {within} half of the answers are wrong"  # some of them without any
        )
    if "certified" in said:
        share, many = said["certified"], said["certificates"]
        within = f"{ball.radius(_SURE):.2g}"
        words.append(f"{share:.1%} of {many} answers are proven right within {within}")
    if "lipschitz" in said:
        low, high = said["lipschitz"]
        words.append(f"its Lipschitz constant (l2) is between {low:.3g} and {high:.3g}")
    if "no linear bounds" in said:
        words.append(f"linear bounds prove no more: {said['no linear bounds']}")
    if "not certified" in said:
        words.append(f"nothing was proven: {said['not certified']}")
    elif "no constant" in said:
        words.append(f"no Lipschitz constant was proven: {said['no constant']}")
    return "; ".join(words) + "." if words else ""


def _drawn(found: RobustAccuracy, ball: Ball, said: dict[str, Any]) -> "Figure":
    from vademecum.canvas import panels

    figure, axes = panels((5.6, 3.4))
    draw_robust_accuracy(found, axes, label="attacked")
    if "certified" in said:
        many = f"certified, of {said['certificates']}"  # the others are of more examples
        axes.plot([ball.radius(_SURE)], [said["certified"]], "s", label=many)
    axes.set_xscale("symlog", linthresh=ball.radius(1))
    axes.set_xlabel("change of the largest entry")
    axes.legend()
    return figure
