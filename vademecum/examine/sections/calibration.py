r"""Calibration: whether the network is right as often as it says.

The confidence is the largest probability of the softmax, and the error is that of `_reliability`:
without the bias of the plain estimate, with an interval of 95 %. Fresh examples are taken if there
are any; on those that a network was trained on its confidence is mostly deserved. Positions of a
sequence are taken for independent, so that its intervals are too short.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from vademecum.examine._clock import Clock
from vademecum.examine._reliability import (
    BestTemperature,
    Bins,
    best_temperature,
    binned,
    brier_parts,
)
from vademecum.examine._section import Drawing, Item, NotApplicable, Sentence, optional
from vademecum.examine._study import Study
from vademecum.examine._task import flat_scores
from vademecum.examine.dossier import Measurement
from vademecum.examine.sections._fresh import best_examples
from vademecum.foundations import clopper_pearson
from vademecum.regularization import MCDropout, mc_dropout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CLAIMS", "calibration"]

CLAIMS = (
    "foundations.clopper_pearson_coverage", "foundations.cross_entropy_decomposition",
    "regularization.tempered_softmax", "regularization.dropout_ensemble",
)  # fmt: skip
"""Claims of the course that stand behind it."""
_BINS, _LEAST = 15, 10
"""Bins at most, and examples in each at least."""
_ENTRIES = 2**25  # scores that are looked at, at most: double precision takes 256 MiB of them
_SAMPLES, _FIRST, _LAST = 30, 16, 256
"""Passes with dropout on, and for how many examples."""


def calibration(study: Study, clock: Clock) -> Iterator[Item]:
    """Calibration error, Brier's score and its parts, the best temperature, and dropout's doubt."""
    if study.aim.task not in ("classification", "sequence") or study.data.y is None:
        raise NotApplicable("because there are no classes that it could be right about")
    which = "test" if study.test is not None and study.test.y is not None else "data"
    z, y = study.scores(which)
    most = max(_ENTRIES // z.shape[1], 2)
    z, y = z[:most], y[:most]
    if len(y) < 2:
        raise NotApplicable("because fewer than two of the targets count")
    where = "fresh examples" if which == "test" else "the examples given, which it may have learned"
    p = z.double().softmax(1)
    confidence, answer = p.max(1)
    right = answer == y
    bins = binned(confidence, right, max(1, min(_BINS, len(y) // _LEAST)))
    yield from _errors(bins, confidence, right, where)
    yield Drawing(partial(_drawn, bins))
    hot = F.one_hot(y, z.shape[1])
    squares = (p - hot).square().sum(1)
    how = f"squared distance of probabilities from the class, {where}"
    yield Measurement("brier", float(squares.mean()), _standard_error(squares), "", len(y), how)
    yield from _parts(bins, confidence, right)
    clock.check()
    losses = F.cross_entropy(z.double(), y, reduction="none")
    yield Measurement(
        "log_loss", float(losses.mean()), _standard_error(losses), "nats", len(y), where
    )
    best = best_temperature(z, y)
    if best.interval is not None:  # else no temperature is too low, or none too high
        how = "that the scores should be divided by for the least log loss; interval of 95 %"
        yield Measurement("best_temperature", best.value, best.interval, "", len(y), how)
        how = "at that temperature"
        yield Measurement("log_loss_at_best", best.loss, None, "nats", len(y), how)
    yield Sentence(_sentence(bins, best, where))
    clock.check()
    yield from _dropout(study, clock)


def _errors(bins: Bins, confidence: Tensor, right: Tensor, where: str) -> Iterator[Item]:
    n, hits = len(right), int(right.sum())
    interval = tuple(clopper_pearson(hits, n))
    yield Measurement("accuracy", hits / n, interval, "", n, f"{where}; exact interval of 95 %")
    how = "mean of the largest probability"
    yield Measurement(
        "confidence", float(confidence.mean()), _standard_error(confidence), "", n, how
    )
    value, low, high = bins.error()
    how = f"root mean square over {len(bins.counts)} bins of equal mass, debiased; interval of 95 %"
    yield Measurement("calibration_error", value, (low, high), "", n, f"{how}, {where}")
    how = "mean absolute difference over the same bins, which is biased upwards"
    yield Measurement("plain_calibration_error", bins.plain_error, None, "", n, how)
    signed = confidence - right.double()
    how = "mean confidence less accuracy: above zero it is too sure"
    yield Measurement("overconfidence", float(signed.mean()), _standard_error(signed), "", n, how)


def _parts(bins: Bins, confidence: Tensor, right: Tensor) -> Iterator[Item]:
    parts = brier_parts(confidence, right, bins)
    words = {
        "score": "mean square of confidence less being right",
        "reliability": "of confidences from frequencies, over bins: the less the better",
        "resolution": "of frequencies from their mean, over bins: the more the better",
        "uncertainty": "variance of being right",
        "within": "within bins: the score is reliability - resolution + uncertainty + this",
    }
    names = {"score": "brier_of_being_right", "within": "within_bins"}
    for name, how in words.items():
        value = getattr(parts, name)
        yield Measurement(names.get(name, name), value, None, "", len(right), how)


def _dropout(study: Study, clock: Clock) -> Iterator[Item]:
    """What passes with dropout on say, if there is dropout."""
    examples = best_examples(study)
    if examples is None or examples.y is None:
        return
    if study.aim.task != "classification" or (study.aim.classes == 2 and study.outputs().ndim == 1):
        return
    with optional("dropout's doubt"):
        for m in clock.portions(_FIRST, min(examples.n, _LAST)):
            x, y = examples.take(m)
            found = _passes(study, x)
            if found is None or found.probabilities is None or found.mutual_information is None:
                return
            how = f"mutual information of answer and mask, over {_SAMPLES} passes with dropout on"
            how += f", {examples.words}"
            doubt = found.mutual_information.double()
            error = _standard_error(doubt)
            yield Measurement("mutual_information", float(doubt.mean()), error, "nats", m, how)
            p, classes = flat_scores(found.probabilities, y)
            own = p.gather(1, classes[:, None]).double().clamp(min=1e-300).log()
            how = f"of the mean probabilities of {_SAMPLES} passes, {examples.words}"
            yield Measurement("dropout_log_loss", float(-own.mean()), _standard_error(own), "nats",
                              m, how)  # fmt: skip


def _passes(study: Study, x: Any) -> MCDropout | None:
    """Passes with dropout on; None where no module, function or recurrent layer drops."""
    try:
        return mc_dropout(
            study.model, x, samples=_SAMPLES, output=study.output, memory=study.room,
            generator=study.generator("dropout"),
        )  # fmt: skip
    except ValueError as error:
        if str(error).endswith("and none was met"):
            return None
        raise


def _standard_error(values: Tensor) -> float:
    values = values.double().flatten()
    return float(values.std() / len(values) ** 0.5) if len(values) > 1 else math.nan


def _sentence(bins: Bins, best: BestTemperature, where: str) -> str:
    value, low, high = bins.error()
    if low == 0:
        words = f"It is right as often as it says, as far as can be told: off by at most {high:.1%}"
    else:
        words = f"What it says of its sureness is off by {value:.1%}, {_leaning(bins)}"
    words += f" ({where})"
    if best.value == 0:
        right = bool((bins.frequency == 1).all())  # else some are among equal ones
        why = "all answers are right" if right else "no score is above that of the right class"
        return f"{words}; {why}, so that no temperature is too low."
    if best.value == math.inf:
        return words + "; at no temperature are its scores better than equal ones."
    if low > 0 and best.interval and not best.interval[0] <= 1 <= best.interval[1]:
        words += f"; divide its scores by {best.value:.3g}"
    return words + "."


def _leaning(bins: Bins) -> str:
    """Which way it is off on the whole, where two standard errors tell."""
    n, f = bins.counts.sum(), bins.frequency
    weights = bins.counts / n
    sure = float((weights * (bins.confidence - f)).sum())
    error = float((weights * f * (1 - f)).sum() / n) ** 0.5
    if abs(sure) <= 2 * error:
        return "too sure of some and not sure enough of others"
    return "mostly too sure" if sure > 0 else "mostly not sure enough"


def _drawn(bins: Bins) -> "Figure":
    """Frequencies against confidences, with exact intervals of 95 %."""
    from vademecum.canvas import GREY, panels

    figure, axes = panels((4.2, 3.8))
    hits = (bins.frequency * bins.counts).round().long().cpu()
    low, high = clopper_pearson(hits, bins.counts.long().cpu())
    p, c = bins.confidence.cpu(), bins.frequency.cpu()
    errors = torch.stack([c - torch.as_tensor(low), torch.as_tensor(high) - c]).clamp(min=0)
    axes.plot([0, 1], [0, 1], "--", color=GREY, lw=1)
    axes.errorbar(p, c, yerr=errors.numpy(), fmt="o", ms=4, lw=1)
    axes.set_xlabel("confidence")
    axes.set_ylabel("share of right answers")
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)
    return figure
