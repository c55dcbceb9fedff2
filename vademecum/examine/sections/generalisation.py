r"""Generalisation: errors on the examples and on fresh ones, margins, and what bounds promise.

Shares of wrong answers have Clopper and Pearson's intervals, mean losses the standard error of a
mean, medians an interval between order statistics; all at 95 % and for examples that are drawn
independently. The gap between new examples and those that were given has the interval of
`generalisation_gap`. Bounds by norms are for chains of layers. The PAC-Bayes certificate is made
with the fresh examples, which the network must not have seen: then the network itself can be the
mean of the prior.
"""

from collections.abc import Iterator
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from vademecum.examine._clock import Clock
from vademecum.examine._section import Drawing, Item, NotApplicable, Sentence
from vademecum.examine._study import Study
from vademecum.examine.dossier import Measurement
from vademecum.examine.sections._fresh import best_examples
from vademecum.examine.sections._losses import Losses, example_losses
from vademecum.examine.sections._medians import median_interval
from vademecum.examine.sections._single_inputs import classifier, real_tensor
from vademecum.foundations import clopper_pearson
from vademecum.generalization import generalisation_gap, norm_bounds, pac_bayes_certificate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CLAIMS", "generalisation"]

CLAIMS = (
    "foundations.clopper_pearson_coverage", "generalization.generalisation_gap",
    "generalization.pac_bayes_networks", "generalization.random_labels",
)  # fmt: skip
"""Claims of the course that stand behind it."""
_EPOCHS, _PASSES, _MOST = 5, 10, 5000
"""Epochs and passes of a certificate, and the examples that it is made with at most."""


def generalisation(study: Study, clock: Clock) -> Iterator[Item]:
    """Errors, their gap, margins, bounds."""
    if study.aim.task is None and study.data.y is not None:
        raise NotApplicable(f"because no task is known: {study.aim.why}")
    if study.aim.task is None or (study.data.y is None and study.aim.task != "density"):
        raise NotApplicable("because there are no targets to be wrong about: give y")
    seen = example_losses(study, "data")
    told = study.test is not None and (study.test.y is not None or study.aim.task == "density")
    fresh = example_losses(study, "test") if told else None
    said: dict[str, Any] = {"without": "fresh examples (test=)"}
    if study.test is not None:
        said["without"] = "targets of the fresh examples"
    yield Drawing(lambda: _drawn(seen, fresh))
    for which, losses in (("train", seen), ("test", fresh)):
        if losses is not None:
            for item in _mean(which, losses):
                said[item.name] = item.value
                yield item
    if fresh is not None:
        for item in _gap(seen, fresh):
            said[item.name] = (item.value, item.error)
            yield item
    yield Sentence(_sentence(seen, fresh, said))
    yield from _margins(seen)
    clock.check()
    yield from _norms(study, said)
    yield Sentence(_sentence(seen, fresh, said))
    yield from _certificate(study, clock, said)
    yield Sentence(_sentence(seen, fresh, said))


def _mean(which: str, losses: Losses) -> Iterator[Measurement]:
    """The mean loss with its error; a share with an exact interval."""
    each, n = losses.each, len(losses.each)
    value, alone = float(each.mean()), tuple(each.tolist())
    if losses.kind == "error" and losses.whole:
        interval = clopper_pearson(round(float(each.sum())), n)
        how = "share of wrong answers; n examples, exact interval of 95 %"
        yield Measurement(f"{which}_error", value, tuple(interval), "", n, how, alone)
        how = "share of wrong answers if the most frequent class were always given"
        assert losses.constant is not None
        wrong = float(losses.constant.mean())
        yield Measurement(f"{which}_error_of_constant", wrong, None, "", n, how)
        return
    spread = float(each.std()) / sqrt(n) if n > 1 else None
    how = f"{losses.words}; n examples, standard error of the mean"
    yield Measurement(f"{which}_{losses.kind}", value, spread, losses.unit, n, how, alone)
    if losses.constant is not None and n > 1:
        less = losses.constant - each
        how = f"{losses.words} if the best constant were always given, minus its own; n examples"
        gain, error = float(less.mean()), float(less.std()) / sqrt(n)
        yield Measurement(f"{which}_gain_over_constant", gain, error, losses.unit, n,
                          f"{how}, standard error of the mean", tuple(less.tolist()))  # fmt: skip


def _gap(seen: Losses, fresh: Losses) -> Iterator[Measurement]:
    if seen.kind == "error":
        at_hand = (
            nn.Identity()
        )  # the losses are known: the instrument need not run the network again
        found = generalisation_gap(
            at_hand, seen.each[:, None], seen.each, fresh=(fresh.each[:, None], fresh.each),
            loss=lambda _, y: y,
        )  # fmt: skip
        how = "error on new examples minus that on those given; n fresh ones, Chernoff's interval"
        interval = (found.low, found.high)
        yield Measurement("gap", found.gap, interval, "", len(fresh.each), f"{how} of 95 %")
        return
    n, m = len(seen.each), len(fresh.each)
    gap = float(fresh.each.mean() - seen.each.mean())
    spread = sqrt(float(fresh.each.var()) / m + float(seen.each.var()) / n)
    how = "mean loss on fresh examples minus that on those given; n fresh ones, standard error"
    yield Measurement("gap", gap, spread, seen.unit, m, how)


def _margins(losses: Losses) -> Iterator[Item]:
    if losses.margins is None:
        return
    low, high = median_interval(losses.margins)
    middle, n = float(losses.margins.median()), len(losses.margins)
    how = "score of the right class minus the largest other; n examples, exact interval of 95 %"
    yield Measurement("median_margin", middle, (low, high), "of scores", n, how)
    tenth = float(np.quantile(losses.margins.cpu().numpy(), 0.1))  # torch's is for 2**24 at most
    yield Measurement("tenth_margin", tenth, None, "of scores", n, "its quantile at 0.1")


def _norms(study: Study, said: dict[str, Any]) -> Iterator[Item]:
    """Bounds by norms, where the network is a chain."""
    x = real_tensor(study.data.x)
    if x is None or study.aim.task != "classification" or study.n is None:
        return
    draw = study.generator("norm bounds")
    try:
        found = norm_bounds(
            classifier(study), x, study.data.y.long(), memory=study.memory, generator=draw
        )
    except ValueError as error:  # which names the call that is in no chain
        said["no bounds"] = str(error).partition("\n")[0]
        return
    for bound in found.bounds:
        if not bound.reason:
            how = "upper bound on the error on new examples, at confidence 95 %"
            how += ", vacuous: above 1" if bound.vacuous else ""
            yield Measurement(f"{bound.name}_bound", bound.value, None, "", len(x), how)
    valid = [bound.value for bound in found.bounds if not bound.reason]
    said["bound"] = min(valid, default=None)


def _certificate(study: Study, clock: Clock, said: dict[str, Any]) -> Iterator[Item]:
    """A PAC-Bayes certificate by the fresh examples, if there is time."""
    test, fresh = study.test, best_examples(study)  # in random order, whatever theirs is
    if study.aim.task != "classification" or test is None or test.y is None or test.n is None:
        return
    assert fresh is not None
    model = classifier(study)
    x, y = fresh.take(_MOST)
    took = clock.pass_seconds(model, fresh.take(64)[0]) * max(1.0, len(y) / 64)
    needed = took * (3 * _EPOCHS + _PASSES + 2)  # of passes; one with a gradient counts for three
    if needed > 0.8 * clock.left():
        clock.cut = "no PAC-Bayes certificate"
        return
    try:
        found = pac_bayes_certificate(
            model, x, y.long(), prior="init", posterior_epochs=_EPOCHS, passes=_PASSES,
            generator=study.generator("certificate"),
        )  # fmt: skip
    except ValueError as error:
        said["no certificate"] = str(error).partition("\n")[0]
        return
    how = "bound on the error of the network with random weights around these, on new examples;"
    how += (
        f" confidence {1 - found.delta - found.delta_mc:.3g}, n fresh examples, which the network"
    )
    how += " must not have seen"
    yield Measurement("pac_bayes_bound", found.zero_one.kl, None, "", len(y), how)
    yield Measurement("pac_bayes_kl", found.kl, None, "nats", len(y), "of posterior and prior")
    said["certificate"] = found.zero_one.kl


def _sentence(seen: Losses, fresh: Losses | None, said: dict[str, Any]) -> str:
    name = seen.kind
    form = "{:.1%}" if name == "error" else "{:.4g}"
    what = {"error": "wrong answers", "loss": "mean loss", "squared_error": "squared error"}[name]
    words = f"On the examples given: {form.format(said[f'train_{name}'])} {what}"
    if fresh is None:
        words += f"; without {said['without']} nothing is known of its errors on new ones"
    else:
        gap, error = said["gap"]
        ends = error if isinstance(error, tuple) else (gap - 2 * error, gap + 2 * error)
        words += f", on fresh ones {form.format(said[f'test_{name}'])}: the gap is"
        words += f" {form.format(gap)} ({form.format(ends[0])} to {form.format(ends[1])})"
    if said.get("bound") is not None:
        vacuous = "says nothing" if said["bound"] >= 1 else "is below 1"
        words += f"; the best bound by norms is {said['bound']:.3g} and {vacuous}"
    if said.get("no bounds"):
        words += f"; bounds by norms do not apply: {said['no bounds']}"
    if said.get("certificate") is not None:
        words += (
            f"; with random weights around its own it errs in at most {said['certificate']:.1%}"
        )
    return words + "."


def _drawn(seen: Losses, fresh: Losses | None) -> "Figure":
    """Margins, or losses, of both sets as distribution functions."""
    from vademecum.canvas import panels

    figure, axes = panels((6.0, 3.4))
    for label, losses in (("examples given", seen), ("fresh examples", fresh)):
        if losses is not None:
            values: Tensor = losses.each if losses.margins is None else losses.margins
            ordered = values.sort().values.cpu()
            ordered = ordered[:: max(1, len(ordered) // 2000)]
            axes.plot(ordered, torch.linspace(0, 1, len(ordered)), label=label)
    name = "margin (wrong below 0)" if seen.margins is not None else f"{seen.words} of an example"
    axes.set(xlabel=name, ylabel="share of examples below", ylim=(0, 1))
    if seen.margins is not None:
        axes.axvline(0, lw=0.8, color="#7d8289")
    axes.legend()
    return figure
