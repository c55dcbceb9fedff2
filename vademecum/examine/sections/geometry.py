"""Geometry: the linear pieces of a network, and how far it is from symmetries of its inputs.

Pieces are counted exactly where a network is piecewise linear; errors of symmetries are means over
examples and elements of groups, all of them or some that are drawn.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vademecum.approximation import Segments, draw_regions
from vademecum.examine._clock import Clock
from vademecum.examine._section import Drawing, Item, NotApplicable, Sentence
from vademecum.examine._study import Study
from vademecum.examine.dossier import Measurement
from vademecum.examine.sections._counts import counted
from vademecum.examine.sections._regions import Pieces, pieces
from vademecum.examine.sections._single_inputs import real_tensor
from vademecum.examine.sections._symmetries import Symmetry, applicable, measured
from vademecum.foundations import clopper_pearson
from vademecum.geometry import EquivarianceError, draw_orbit
from vademecum.models import chosen_output, evaluation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CLAIMS", "geometry"]

CLAIMS = (
    "approximation.activation_pattern", "approximation.pwl_dense", "approximation.sawtooth_depth",
    "geometry.invariance_equivariance", "geometry.signal_action",
)  # fmt: skip
"""Claims of the course that stand behind it."""
_FEW, _MANY = 8, 64  # examples that are moved
_SHOWN = 8  # positions of an example that a picture has room for
_MOVES = {"shift": "shifts", "flip": "mirror images", "turn": "quarter turns",
          "permutation": "permutations"}  # fmt: skip
_ENTRIES = 2**26  # of outputs that are moved at a time, half a gibibyte in double precision


def geometry(study: Study, clock: Clock) -> Iterator[Item]:
    """Symmetries, which a few passes show, then linear pieces."""
    errors, orbits, cuts = dict[str, Measurement](), dict[str, EquivarianceError](), list[str]()
    moving = applicable(study, study.take(2)[0], _few_outputs(study))
    part = clock.spend(0.4)
    for i, symmetry in enumerate(moving):
        own = part.spend(1 / (len(moving) - i))
        what = f"examples for {_MOVES[symmetry.name]}"
        for m in own.portions(_FEW, _most(study), what=what):
            for item in _moved(study, symmetry, m):
                if isinstance(item, EquivarianceError):
                    orbits[symmetry.name] = item
                else:
                    errors[item.name] = item
                    yield item
        cuts.append(own.cut)
        yield Sentence(_sentence(Pieces(), errors))
    few = [found for found in orbits.values() if len(found.elements) <= _SHOWN]
    worst = max(few or orbits.values(), key=lambda found: found.error, default=None)
    if worst is not None:
        yield Drawing(lambda: _drawn(Pieces(), worst))
    x = real_tensor(study.take()[0]) if study.n is not None else None
    known, own = Pieces(), clock.spend(1.0)
    for item in () if x is None else pieces(study, x, own):
        if isinstance(item, Pieces):
            known = item
            if known.regions is not None or known.segment is not None:
                yield Drawing(lambda known=known: _drawn(known, worst))
        else:
            yield item
        yield Sentence(_sentence(known, errors))
    if not (moving or own.cut) and known.between is None and known.regions is None:
        whole = "its examples hang together"
        why = whole if study.n is None else known.why_not or "inputs are not one tensor of numbers"
        raise NotApplicable(f"because {why}, and no symmetry is known of such inputs")
    clock.cut = ", ".join(dict.fromkeys(filter(None, [own.cut, *cuts])))


def _most(study: Study) -> int:
    """How many examples are moved at most: their outputs are held several times."""
    z = study.outputs()
    if study.n is None or not isinstance(z, Tensor):
        return _MANY
    return min(_MANY, study.n, max(1, _ENTRIES // max(1, z[0].numel())))


def _few_outputs(study: Study) -> Any:
    z = study.outputs()
    return z[:2] if isinstance(z, Tensor) and study.n is not None else z


def _moved(study: Study, symmetry: Symmetry, m: int) -> Iterator[Measurement | EquivarianceError]:
    x, _ = study.take(m)
    yield from measured(study, symmetry, x)
    scores = study.outputs()
    classes = study.aim.task == "classification" and scores.ndim == 2 and scores.shape[1] > 1
    if symmetry.name == "shift" and symmetry.out_action is None and classes:
        yield _changed_answers(study, symmetry, x)


@torch.no_grad()
def _changed_answers(study: Study, symmetry: Symmetry, x: Tensor) -> Measurement:
    """The share of answers that a shift by one position changes."""
    with evaluation(study.model, fused=True):
        scores = [chosen_output(study.network(each)) for each in (x, symmetry.action(1, x))]
    before, after = (each.argmax(1) for each in scores)
    each = (before != after).double()
    low, high = clopper_pearson(int(each.sum()), len(each))
    how = "share of answers that a shift by one position changes; n examples, interval of 95 %"
    share = float(each.mean())
    return Measurement(
        "shift_changes_answers", share, (low, high), "", len(each), how, tuple(each.tolist())
    )


def _sentence(known: Pieces, errors: dict[str, Measurement]) -> str:
    words = []
    if known.regions is not None:
        count, where = len(known.regions.maps), "the rectangle around three examples"
        part = f"{known.share:.1%}" if known.share >= 0.001 else f"{known.share:.1e}"
        where = where if known.share == 1 else f"{part} of {where}"
        words.append(f"On {where} it consists of {count:,} linear piece{'s' * (count != 1)}")
    if known.segment is not None:
        words.append(
            f"from the least example to the largest it has {known.between:g}"
            f" linear piece{'s' * (known.between != 1)}"
        )
    elif known.between is not None:
        of = "1 linear piece"
        if known.between != 1:  # of any pairs of examples, few of which are on the plane
            of = f"{counted(known.between)} linear pieces on average"
        words.append(f"the way from one example to another crosses {of}")
    if known.why_not and known.regions is None:
        where = "" if known.between is None else " on a plane"
        words.append(f"linear pieces{where} were not counted: {known.why_not}")
    for name, error in errors.items():
        if name.endswith("_error"):
            moves = _MOVES[name.removesuffix("_error")]
            words.append(f"{moves} are missed by {_share(error.value)}")
    if "shift_changes_answers" in errors:
        share = errors["shift_changes_answers"].value
        words.append(f"a shift by one position changes {_share(share)} of its answers")
    text = "; ".join(words)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _share(value: Any) -> str:
    return "nothing" if value < 1e-5 else f"{value:.1%}" if value >= 0.001 else f"{value:.1e}"


def _drawn(known: Pieces, worst: EquivarianceError | None) -> "Figure":
    """The polygons on the plane, beside the orbit that is missed most."""
    from matplotlib.figure import Figure

    if known.regions is None and worst is not None:
        return draw_orbit(worst)
    both = known.regions is not None and worst is not None
    figure = Figure(figsize=(8.4 if both else 5.4, 4.2), layout="constrained")
    axes = figure.subplots(1, 2 if both else 1, squeeze=False)[0]
    if known.regions is not None:
        draw_regions(known.regions, axes[0], points=known.points)
        axes[0].set_title(f"{len(known.regions.maps):,} linear pieces between three examples")
        axes[0].locator_params(nbins=4)  # small parts of the plane have long numbers
    elif known.segment is not None:
        _draw_segment(known.segment, axes[0])
    if both and worst is not None:
        draw_orbit(worst, axes[1])
        axes[1].set_title("one example, moved: relative change of outputs")
        figure.draw_without_rendering()  # one layout of two panels as wide as high cuts words off
    return figure


def _draw_segment(segment: Segments, axes: Any) -> None:
    """The outputs from the least example to the largest, bent where they are."""
    ends = segment.breaks.new_tensor([0.0]), segment.breaks.new_tensor([1.0])
    places = torch.cat([ends[0], segment.breaks, ends[1]])
    pieces = torch.cat([segment.maps, segment.maps[-1:]])
    values = pieces[..., 0] + places[:, None] * pieces[..., 1]
    axes.plot(places.cpu(), values.cpu(), ".-", ms=3, lw=1)
    axes.set(xlabel="from the least example to the largest", ylabel="output")
    axes.set_title(f"{len(segment.maps):,} linear pieces")
