r"""Linear pieces between examples and on a plane through three of them, as many as time allows.

A piecewise-linear network is bent at the walls between its pieces. On segments from example to
example they are counted exactly; where that would be too much work, because pieces are many and the
network is large, they are counted on one part of each segment, drawn at random from $N$ equal ones:
$N$ times the walls on it is right in the mean. The plane through three examples is cut into exact
polygons, which may be millions. So the rectangle of the plane is made smaller about its middle (not
about an example, where many walls may meet: on a plain background all of a maximum's candidates
tie) until a count is in sight: with $k_1$ and $k_2$ pieces on its diagonals, lines in general
position would make about $k_1 k_2 / 2$ polygons. How small is guessed from pieces between examples,
then looked at.
"""

from collections.abc import Iterator
from math import ceil, inf, sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from vademecum.approximation import (
    Plane,
    Regions,
    Segments,
    certify_regions,
    linear_regions,
    plane_through,
    regions_along,
)
from vademecum.approximation.regions.planes import checked_rectangle
from vademecum.examine._clock import Clock
from vademecum.examine._section import Item
from vademecum.examine._study import Study
from vademecum.examine.dossier import Measurement

__all__ = ["Pieces", "pieces"]

_PAIRS = 16  # segments between examples
_FEW, _MANY = 100, 3000  # polygons to look for at first and at last, fewer of large networks
_WORK = 2**36  # multiply-adds for all segments, and for the plane: 7 s of two cores, observed
_LIMIT = 20  # times as many polygons as were in sight are an error
_SEED = "linear regions"
_PARTS = 10_000  # of a segment, the first of which shows what the whole takes
_ENOUGH = sqrt(2 * _FEW)  # pieces on a diagonal for that many polygons: fewer say little of more
_LOOKS = 12  # at smaller and smaller parts of the plane
_POLYGON = 4.0  # times a piece of a segment is what a polygon takes, with its check


class Pieces(NamedTuple):
    """What was found, for the sentence and the picture."""

    regions: Regions | None = None
    points: Tensor | None = None
    share: float = 1.0
    between: float | None = None
    density: float = 0.0
    """Pieces on a segment of length 1 between examples, on average, or near an example."""
    seconds: float = 0.0
    """What a piece of a segment took to find."""
    segment: Segments | None = None
    """Where inputs are single numbers: from the least example to the largest."""
    why_not: str = ""


def pieces(study: Study, x: Tensor, clock: Clock) -> Iterator[Item | Pieces]:
    """Measure linear pieces, and give what was found again and again as it grows."""
    found, part = Pieces(), clock.spend(0.4)
    try:
        for item in _between(study, x, part):
            found = item if isinstance(item, Pieces) else found
            yield item
    except ValueError as error:  # which names the step that is not piecewise linear
        yield Pieces(why_not=str(error).partition("\n")[0])
        return
    if found.segment is not None:
        return
    plane = _plane(x)
    if plane is None:
        clock.cut = part.cut
        yield found._replace(why_not="no three of the first examples span a plane")
        return
    needed = _FEW * _POLYGON * found.seconds
    if needed > clock.left():
        why = f"no linear regions on a plane, which take about {needed:.0f} s"
        clock.cut = ", ".join(filter(None, (part.cut, why)))
        return
    last = int(min(_MANY, max(_FEW, _WORK / (_POLYGON * _of_a_piece(study)))))
    for most in clock.portions(_FEW, last, what="linear regions to look for"):
        more = _on_plane(study, plane, most, found)
        if more is None:
            yield found._replace(why_not="too many meet in the middle between three examples")
            break
        found = more._replace(points=plane[1])
        yield from _counted(study, found)
        yield found
        if found.share == 1.0:  # a larger number would not find more
            break
    clock.cut = ", ".join(filter(None, (part.cut, clock.cut)))


def _between(study: Study, x: Tensor, clock: Clock) -> Iterator[Item | Pieces]:
    """Pieces on the way from one example to another."""
    pairs = _pairs(x)
    parts = 1 if x[0].numel() == 1 else _parts(study, pairs, clock)
    pairs = pairs if parts == 1 else _drawn_parts(study, pairs, parts)
    length = float((pairs[0][1] - pairs[0][0]).double().norm())
    start, near, density = clock.left(), 0, 0.0
    for part, way in _longer_and_longer(study, *pairs[0], clock):
        took, start = _since(start, clock), clock.left()
        if near < _ENOUGH:
            near, density = len(way.maps), len(way.maps) / (part * length)
        if part < 1:
            yield Pieces(density=density, seconds=took / len(way.maps))
            continue
        yield from _whole_ways(study, x, pairs, way, parts, clock, took)


def _since(start: float, clock: Clock) -> float:
    """The seconds since so many were left; none matter of infinitely many."""
    return 0.0 if start == inf else start - clock.left()


def _of_a_piece(study: Study) -> int:
    """The multiply-adds of a piece of a segment: an origin and a direction pass the network."""
    return 2 * study.multiply_adds


def _parts(study: Study, pairs: list[tuple[Tensor, Tensor]], clock: Clock) -> int:
    """Into how many parts to divide each way, by the pieces near the beginning of the first.

    A part has a piece in any case, so that more parts than a way has pieces save no work; their
    walls would be so rare that the spread of the counts would not show how far off they may be.
    """
    a, b = pairs[0]
    size = longer = 1.0
    while True:
        size *= longer
        end = a + size / _PARTS * (b - a)
        pieces = len(regions_along(study.network, a, end, memory=study.memory).maps)
        longer = min(8.0, 2 * _ENOUGH / pieces)
        if pieces >= _ENOUGH or longer * size > _PARTS or clock.left() <= 0:
            break
    on_each = pieces * _PARTS / size
    return ceil(min(len(pairs) * on_each * _of_a_piece(study) / _WORK, on_each))


def _drawn_parts(
    study: Study, pairs: list[tuple[Tensor, Tensor]], parts: int
) -> list[tuple[Tensor, Tensor]]:
    """One part of each way."""
    places = torch.randint(parts, (len(pairs),), generator=study.generator("parts of ways"))
    found = []
    for (a, b), i in zip(pairs, places.tolist(), strict=True):
        way = b - a
        found.append((a + i / parts * way, a + (i + 1) / parts * way))
    return found


def _whole_ways(
    study: Study,
    x: Tensor,
    pairs: list[tuple[Tensor, Tensor]],
    first: Segments,
    parts: int,
    clock: Clock,
    took: float,
) -> Iterator[Item | Pieces]:
    """Pieces of more and more ways, of which the first took so many seconds."""
    start = clock.left()
    ways, lengths = [first], [float((pairs[0][1] - pairs[0][0]).double().norm())]
    for m in clock.portions(1, len(pairs), what="pairs of examples", took=took):
        for a, b in pairs[len(ways) : m]:
            ways.append(regions_along(study.network, a, b, memory=study.memory))
            lengths.append(float((b - a).double().norm()))
        walls = torch.tensor([len(way.breaks) for way in ways], dtype=torch.float64)
        counts = parts * walls + 1
        mean, m = float(counts.mean()), len(ways)
        if x[0].numel() == 1:
            how = "exact, on the segment from the least example to the largest"
            yield Measurement("linear_pieces", int(mean), None, "pieces", method=how)
            yield Pieces(between=mean, segment=ways[0])
            return
        spread = float(counts.std()) / sqrt(m) if m > 1 else None
        where = "segments" if parts == 1 else f"a part in {parts:,}, drawn at random, of segments"
        how = f"counted exactly on {where} between pairs of examples; n pairs, error of their mean"
        each = tuple(counts.tolist())
        yield Measurement("pieces_between_examples", mean, spread, "pieces", m, how, each)
        density = float(counts.sum()) / (parts * sum(lengths))
        of_one = (took + _since(start, clock)) / sum(len(way.maps) for way in ways)
        yield Pieces(between=mean, density=density, seconds=of_one)


def _longer_and_longer(
    study: Study, a: Tensor, b: Tensor, clock: Clock
) -> Iterator[tuple[float, Segments]]:
    """Parts of a segment from its beginning on, and their pieces; at last all, if time allows."""
    part, took = 1.0, 0.0
    sizes = [_PARTS] if clock.left() == inf else clock.portions(1, _PARTS)
    for size in sizes:
        start, part = clock.left(), size / _PARTS
        end = b if size == _PARTS else a + part * (b - a)
        way = regions_along(study.network, a, end, memory=study.memory)
        took = start - clock.left()
        yield part, way
    if part < 1:
        whole = took / part
        clock.cut = f"no pieces between examples, of which one pair takes about {whole:.0f} s"


def _counted(study: Study, found: Pieces) -> Iterator[Item]:
    regions = found.regions
    assert regions is not None
    draw = study.generator(_SEED)
    holds = certify_regions(study.network, regions, generator=draw, memory=study.memory).holds
    how = "exact polygons on a plane through three examples"
    how += (
        ", which agree with activation patterns" if holds else ", NOT all of which the network has"
    )
    if found.share < 1:
        how += f"; on {found.share:.2g} of the rectangle that holds them, around its middle"
    yield Measurement("linear_regions", len(regions.maps), None, "regions", method=how)
    how = "of the rectangle around three examples, by area"
    yield Measurement("plane_share", found.share, method=how)


def _pairs(x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Ends of segments that are no points, in double precision, which tells short parts apart."""
    others = _others(x)
    if not len(others):
        raise ValueError("all examples are equal")
    if x[0].numel() == 1:
        order = x.flatten().argsort()
        return [(x[order[0]].double(), x[order[-1]].double())]
    both = zip(x[0::2], x[1::2], strict=False)
    found = [(a.double(), b.double()) for a, b in both if not a.equal(b)]
    return found[:_PAIRS] or [(x[0].double(), x[others[0]].double())]


def _others(x: Tensor) -> Tensor:
    """Which examples are not equal to the first one."""
    return (x != x[0]).flatten(1).any(1).nonzero()[:, 0]


def _plane(x: Tensor) -> tuple[Plane, Tensor] | None:
    """The plane through the first three examples that have one."""
    others = _others(x)[:20].tolist()
    for j in others[1:]:
        try:
            return plane_through(x[0], x[others[0]], x[j]), x[[0, others[0], j]]
        except ValueError:  # on a line
            continue
    return None


def _on_plane(study: Study, plane: tuple[Plane, Tensor], most: int, found: Pieces) -> Pieces | None:
    """The polygons on as much of the plane as has about so many; None if no part is so small."""
    whole = plane[0]
    s, t = (high - low for low, high in zip(whole.low, whole.high, strict=True))
    sides = (found.density * sqrt(s**2 + t**2)) ** 2 / 2  # if all of it is as between examples
    scale = min(1.0, sqrt(most / max(sides, 1.0)))
    for _ in range(_LOOKS):
        part = _middle(whole, scale)
        seen = _in_sight(study, part, most)
        if seen <= most:
            knobs = {"max_regions": _LIMIT * most, "memory": study.memory}
            try:
                regions = linear_regions(study.network, part, **knobs)
                return found._replace(regions=regions, share=scale**2)
            except ValueError:  # far more than were in sight
                seen = inf
        scale *= min(0.8, max(sqrt(most / seen), 1 / 8))
    return None


def _middle(plane: Plane, scale: float) -> Plane:
    """The rectangle with sides so many times as long, about the same middle."""
    centre, half = checked_rectangle(plane)
    s, t = zip(centre, half, strict=True)
    low, high = ((s[0] + k * s[1], t[0] + k * t[1]) for k in (-scale, scale))
    return plane._replace(low=low, high=high)


def _in_sight(study: Study, plane: Plane, most: int) -> float:
    """About how many polygons there are, by what the diagonals cross; infinite if far too many."""
    (s0, t0), (s1, t1) = plane.low, plane.high
    ends = torch.tensor([[s0, t0], [s1, t1], [s0, t1], [s1, t0]], dtype=torch.float64)
    corners = plane.at(ends.to(plane.u.device))  # in half precision small parts would be points
    knobs = {"max_regions": 2 * most, "memory": study.memory}  # one diagonal alone says enough
    try:
        k1, k2 = (
            len(regions_along(study.network, a, b, **knobs).maps)
            for a, b in (corners[:2], corners[2:])
        )
    except ValueError:  # too many: of anything else the ways between examples have told
        return inf
    return k1 * k2 / 2
