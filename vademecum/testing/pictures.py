"""The laws of pictures: draw at every end, answer every knob, and leave the process as it was.

| law | a picture keeps it if |
|---|---|
| statement | it has a title, says what to try and see, and explains each knob in a sentence |
| claims | it belongs to at least one claim, and those that it names exist |
| draws | it draws with each knob turned to an end or another word, and with all at their ends |
| whole | nothing of these drawings is cut off |
| small | none of them is larger than 150 kB as SVG |
| moves | every knob changes the drawing |
| reproduces | the same knobs give the same bytes |
| refuses | it refuses numbers out of range, unknown words, and unknown knobs |
| untouched | the random generators of torch and NumPy and matplotlib's settings are left alone |
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from vademecum.claims import select
from vademecum.errors import UsageError
from vademecum.pictures import Knob, Picture
from vademecum.testing import laws

__all__ = ["PICTURE_LAWS", "check_picture"]

LARGEST = 150_000
"""Bytes of an SVG: a tenth of a second over a slow line."""


def check_picture(picture: Picture, *, skip: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Hold a picture to its laws; it is drawn once for each knob and word, and four times more.

    Args:
        picture: Any picture, of a room or not.
        skip: Reasons by the names of laws not to check.

    Returns:
        The names of the laws that were checked and hold.

    Raises:
        BrokenLaw: At the first law that does not hold.
        ValueError: If `skip` names an unknown law.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from vademecum.pictures import picture
        >>> @picture()
        ... def blank(wide: bool = False) -> Figure:
        ...     '''An empty sheet.
        ...
        ...     There is nothing to see.
        ...
        ...     Knobs:
        ...         wide: Whether it is wide.
        ...     '''
        ...     return Figure((2 + wide, 1))
        >>> check_picture(blank)
        Traceback (most recent call last):
        vademecum.testing.laws.BrokenLaw: ...blank breaks the law 'claims': it names none
    """
    return laws.enforce(PICTURE_LAWS, _Trial(picture), picture.id, skip)


@dataclass
class _Trial:
    picture: Picture
    cut: list[str] = field(default_factory=list)
    touched: list[str] = field(default_factory=list)

    @cached_property
    def drawings(self) -> dict[tuple[str, Any], bytes]:
        """The drawings by the name and value of the knob that was turned; "" is the first."""
        from matplotlib import rcParams

        def surroundings() -> dict[str, str]:
            return {
                "torch's generator": str(torch.get_rng_state().tolist()),
                "NumPy's generator": str(np.random.get_state()),  # noqa: NPY002
                "matplotlib's settings": str(rcParams),
            }

        knobs, before = self.picture.knobs, surroundings()
        found: dict[tuple[str, Any], bytes] = {("", None): self.draw()}
        for name, knob in knobs.items():
            found |= {(name, v): self.draw(**{name: v}) for v in _others(knob)}
        for end in (0, -1):
            values = {name: _ends(knob)[end] for name, knob in knobs.items()}
            found["every knob", str(values)] = self.draw(**values)
        after = surroundings()
        self.touched = [name for name in before if before[name] != after[name]]
        return found

    def draw(self, **knobs: Any) -> bytes:
        from vademecum.canvas import svg

        figure = self.picture(**knobs)
        made, box, (width, height) = svg(figure), figure.get_tightbbox(), figure.get_size_inches()
        past = (-box.x0, -box.y0, box.x1 - width, box.y1 - height)
        for side, inches in zip(("left", "bottom", "right", "top"), past, strict=True):
            if inches > 0.01:
                where = self.picture.in_words(**knobs)
                self.cut.append(f"{inches:.2f} inches are cut off at the {side}: {where}")
        return made


def _ends(knob: Knob) -> tuple[Any, ...]:
    return (knob.range.low, knob.range.high) if knob.range else knob.positions


def _others(knob: Knob) -> list[Any]:
    """All words but the default, or one end of a range."""
    found = [value for value in _ends(knob) if value != knob.default]
    return found[-1:] if knob.range else found


def _statement(trial: _Trial) -> Iterator[str]:
    picture = trial.picture
    if not picture.title or not picture.text or not picture.in_words().startswith(picture.title):
        yield "its docstring has no title, or does not say what to try and see"
    for knob in picture.knobs.values():
        if not knob.about.endswith("."):
            yield f"{knob.name} is not explained in a sentence"


def _claims(trial: _Trial) -> Iterator[str]:
    if not trial.picture.claims:
        yield "it names none"
    for name in trial.picture.claims:
        if not select(name):
            yield f"there is no claim {name}"


def _draws(trial: _Trial) -> Iterator[str]:
    for (name, value), made in trial.drawings.items():
        if b"<svg" not in made or b"</svg>" not in made:
            yield f"no SVG at {name} = {value}"


def _whole(trial: _Trial) -> Iterator[str]:
    if trial.drawings:
        yield from trial.cut


def _small(trial: _Trial) -> Iterator[str]:
    for (name, value), made in trial.drawings.items():
        if len(made) > LARGEST:
            yield f"{len(made)} bytes at {name} = {value}"


def _moves(trial: _Trial) -> Iterator[str]:
    for name in trial.picture.knobs:
        drawn = {made for (knob, _), made in trial.drawings.items() if knob == name}
        if drawn <= {trial.drawings["", None]}:
            yield f"{name} changes nothing"


def _reproduces(trial: _Trial) -> Iterator[str]:
    if trial.draw() != trial.drawings["", None]:
        yield "the same knobs give another drawing"


def _refuses(trial: _Trial) -> Iterator[str]:
    bad: list[tuple[str, Any]] = [("no_such_knob", 1)]
    for name, knob in trial.picture.knobs.items():
        span = knob.range
        wrong = (span.low - 1, span.high + 1, math.nan, "1") if span else ("no such value", None)
        bad += [(name, value) for value in wrong]
    for name, value in bad:
        try:
            trial.picture.at({name: value})
        except UsageError:
            continue
        yield f"it takes {name} = {value!r}"


def _untouched(trial: _Trial) -> Iterator[str]:
    if trial.drawings:
        yield from trial.touched


_LAWS = (_statement, _claims, _draws, _whole, _small, _moves, _reproduces, _refuses, _untouched)
PICTURE_LAWS = {law.__name__[1:]: law for law in _LAWS}
"""The laws of pictures by name, in the order in which they are checked."""
