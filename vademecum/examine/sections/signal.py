r"""Signal: how large signals and gradients are, layer by layer, beside what theory predicts.

The *vanishing index* is $\log_{10}(\|g_1\| / \|g_L\|)$ for the root mean square lengths of the
gradient in what the first and the last layer with weights give: $-3$ means that the first layer
sees a thousandth of it. In a wide network at He's scale it is 0, whatever the widths. Standard
errors are over examples. What is measured is exact for these examples; what theory predicts holds
for wide networks with random weights.
"""

import math
from collections.abc import Iterator
from math import prod

from vademecum.examine._clock import Clock
from vademecum.examine._section import Drawing, Item, NotApplicable, Sentence, optional
from vademecum.examine._study import Study
from vademecum.examine.dossier import Measurement
from vademecum.models import tensor_places
from vademecum.regularization import (
    SignalPropagation,
    SignalRow,
    draw_signal,
    signal_propagation,
    suggest_init,
)

__all__ = ["CLAIMS", "signal"]

CLAIMS = (
    "regularization.variance_matched_init", "regularization.he_init",
    "regularization.glorot_init", "recurrence.vanishing_gradients",
)  # fmt: skip
"""Claims of the course that stand behind it."""
_FIRST, _LAST = 16, 256
"""Examples that it begins with, and that it ends with where there is time."""
_WORDS = {
    "dead": "units of activations that give the same for every example",
    "saturated": "entries of activations with a slope below 1/100",
}
_STEPS = 8  # proposals that are told, those that change most


def signal(study: Study, clock: Clock) -> Iterator[Item]:
    """Second moments, correlations, dead and saturated units, and a proposed initialisation."""
    if study.n is None:
        raise NotApplicable("because its examples hang together, so that none has a signal alone")
    found, last = None, min(study.n, _LAST)
    for m in clock.portions(_FIRST, last):
        found = _measured(study, m)
        yield from _told(study, found, m)
        result = found
        yield Drawing(lambda result=result: draw_signal(result))
        yield Sentence(_sentence(study, found))
    x, _ = study.take(min(_FIRST, study.n))
    clock.check()
    with optional("the proposed initialisation"):
        try:
            plan = suggest_init(study.model, x)
        except TypeError as error:  # a network that cannot be copied
            raise ValueError(str(error)) from error
        steps = [s for s in plan.steps if s.present > 0 and s.proposed > 0]
        steps = sorted(steps, key=lambda s: -abs(math.log(s.proposed / s.present)))
        if steps:
            factor = math.exp(abs(math.log(steps[0].proposed / steps[0].present)))
            how = "largest factor by which a proposed scale differs from the present one"
            yield Measurement("init_factor", factor, None, "", len(steps), how)
            lines = [f"{s.parameter}: {s.present:.3g} to {s.proposed:.3g}" for s in steps[:_STEPS]]
            how = "root mean squares of parameters for a training that begins anew"
            yield Measurement("proposed_init", tuple(lines), None, "", len(steps), how)


def _measured(study: Study, m: int) -> SignalPropagation:
    x, y = study.take(m)
    loss = study.aim.loss if y is not None or study.aim.task == "density" else None
    return signal_propagation(
        study.model, x, y if loss is not None else None, loss=loss if y is not None else None,
        output=study.loss_output, memory=study.memory, generator=study.generator("signal"),
    )  # fmt: skip


def _told(study: Study, found: SignalPropagation, m: int) -> Iterator[Item]:
    rows = found.rows
    weighted = _weighted(study, rows)
    yield Measurement("layers", len(weighted), method="calls of modules with weights")
    for name, which in (("dead_share", "dead"), ("saturated_share", "saturated")):
        share = _share(rows, which)
        if share is not None:
            what = _WORDS[which]
            yield Measurement(name, share, None, "", m, what)
            worst = max(
                (r for r in rows if getattr(r, which) is not None), key=lambda r: getattr(r, which)
            )
            yield Measurement(f"worst_{which}", getattr(worst, which), None, "", m, _place(worst))
    ends = [row for row in weighted if row.backward is not None]
    if len(ends) > 1:
        index, error = _index(ends[0], ends[-1])
        how = f"decades from the gradient at {_place(ends[-1])} to that at {_place(ends[0])}"
        how += {"random": ", for a random vector at the output"}.get(found.cotangent, "")
        yield Measurement("vanishing_index", index, error, "decades", m, how)
    last = rows[-1].forward
    if last.correlation is not None:
        how = "mean cosine of the outputs of two examples"
        yield Measurement("last_correlation", last.correlation, last.correlation_error, "", m, how)
    how = "mean square of the last call's output"
    yield Measurement(
        "last_second_moment", last.second_moment, last.second_moment_error, "", m, how
    )
    gaps = [abs(g) for row in rows if (g := _gap(row)) is not None]
    if gaps:
        how = "mean of |log10(measured / predicted)| of second moments, over calls"
        yield Measurement("prediction_gap", sum(gaps) / len(gaps), None, "decades", len(gaps), how)


def _weighted(study: Study, rows: tuple[SignalRow, ...]) -> list[SignalRow]:
    holders = {place.rpartition(".")[0] for place, p in tensor_places(study.model, "parameters")
               if p.ndim > 1}  # fmt: skip
    return [row for row in rows if row.name in holders]


def _share(rows: tuple[SignalRow, ...], which: str) -> float | None:
    """The share of units, over all activations."""
    known = [(getattr(r, which), prod(r.shape[1:])) for r in rows if getattr(r, which) is not None]
    total = sum(units for _, units in known)
    return sum(share * units for share, units in known) / total if total else None


def _index(first: SignalRow, last: SignalRow) -> tuple[float, float | None]:
    assert first.backward is not None
    assert last.backward is not None
    moments = first.backward, last.backward
    if min(each.second_moment for each in moments) <= 0:
        dead = moments[0].second_moment <= 0 < moments[1].second_moment
        return (-math.inf if dead else math.nan), None
    squares = [each.second_moment * prod(row.shape[1:])
               for each, row in zip(moments, (first, last), strict=True)]  # fmt: skip
    index = math.log10(squares[0] / squares[1]) / 2
    parts = [(each.second_moment_error or 0.0) / each.second_moment for each in moments]
    return index, math.hypot(*parts) / (2 * math.log(10))


def _gap(row: SignalRow) -> float | None:
    if row.predicted is None or min(row.predicted.second_moment, row.forward.second_moment) <= 0:
        return None
    return math.log10(row.forward.second_moment / row.predicted.second_moment)


def _place(row: SignalRow) -> str:
    return f"{row.name} {row.kind}".strip()


def _sentence(study: Study, found: SignalPropagation) -> str:
    words = []
    dead = _share(found.rows, "dead")
    if dead is not None:
        words.append(f"{dead:.0%} of the units of its activations are dead on these examples")
    ends = [row for row in _weighted(study, found.rows) if row.backward is not None]
    if len(ends) > 1:
        index, _ = _index(ends[0], ends[-1])
        way = "smaller" if index < 0 else "larger"
        if math.isfinite(index):
            words.append(f"gradients are {10 ** abs(index):.3g} times {way} in the first layer")
        else:
            words.append("no gradient reaches the first layer")
    if not words:
        many = len(found.rows)
        words.append(f"signals pass {many} call{'s' * (many != 1)}")
    text = ", and ".join(words)
    return text[0].upper() + text[1:] + "."
