"""Knobs as controls of a form, and what was put into a form as knobs again.

A knob of a picture is a slider over its positions, a choice or a switch. A knob of a claim is typed
in, and one that is a function can be set to those functions that the claim's foils set it to:
choosing one shows how the check refutes it.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from vademecum.claims import Claim
from vademecum.claims.knobs import parse_knob
from vademecum.errors import UsageError
from vademecum.pictures import Knob, Picture

__all__ = ["Control", "controls", "knobs_from"]


class Control(NamedTuple):
    """One control: a kind of input, its present value, and the choices where there are some."""

    name: str
    kind: str  # "range", "number", "text", "checkbox", "select", "foil" or "fixed"
    value: str
    options: tuple[tuple[str, str], ...] = ()
    about: str = ""
    unit: str = ""
    default: str = ""  # where it stands by default, if that is elsewhere

    @property
    def label(self) -> str:
        """Its name in words."""
        return self.name.replace("_", " ")

    @property
    def place(self) -> int:
        """Where its value stands among its options."""
        return [value for value, _ in self.options].index(self.value)


def controls(thing: Claim | Picture, values: Mapping[str, Any] | None = None) -> list[Control]:
    """The controls of a claim or a picture, set to these values, or else to the defaults.

    Example:
        >>> from vademecum.claims import select
        >>> [c.name for c in controls(select("connectionism.novikov_bound")[0])][:1]
        ['power']
    """
    given = values or {}
    if isinstance(thing, Picture):
        return [_of_picture(k, given.get(k.name, k.default)) for k in thing.knobs.values()]
    about = thing.explained
    return [
        _of_claim(thing, name, given.get(name, default))._replace(about=about.get(name, ""))
        for name, default in thing.knobs.items()
    ]


def _of_picture(knob: Knob, value: Any) -> Control:
    default = str(knob.default)
    if isinstance(knob.default, bool):
        return Control(knob.name, "checkbox", "True" if value else "", (), knob.about, "", default)
    known = sorted({*knob.positions, value}) if knob.range else knob.positions
    kind = "select" if any(isinstance(v, str) for v in known) else "range"
    value, default = (str(next((v for v in known if v == x), x)) for x in (value, knob.default))
    options = tuple((str(v), str(v)) for v in known)
    return Control(knob.name, kind, value, options, knob.about, knob.unit, default)


def _of_claim(claim: Claim, name: str, value: Any) -> Control:
    set_by = [(str(i), foil) for i, foil in enumerate(claim.foils) if name in foil.knobs]
    if callable(value):
        wrong = tuple((place, f"as in the foil: {foil.why}") for place, foil in set_by)
        return Control(name, "foil", "", (("", "as stated"), *wrong))
    if isinstance(value, bool):
        return Control(name, "checkbox", "True" if value else "")
    if isinstance(value, int | float) and math.isfinite(value):
        return Control(name, "number", repr(value))
    if isinstance(value, str):
        words = dict.fromkeys([value, *(foil.knobs[name] for _, foil in set_by)])
        if len(words) > 1:
            return Control(name, "select", value, tuple((word, word) for word in words))
    if "<" in repr(value):  # holds something that cannot be typed
        return Control(name, "fixed", "set from Python")
    return Control(name, "text", value if isinstance(value, str) else repr(value))


def knobs_from(claim: Claim, form: Mapping[str, str]) -> dict[str, Any]:
    """The knobs that a form sets; a checkbox that is off is not in it.

    Raises:
        UsageError: If a value is not of the kind of its knob's default.
    """
    knobs: dict[str, Any] = {}
    for control in controls(claim):
        value, default = form.get(control.name), claim.knobs[control.name]
        if isinstance(default, bool):
            knobs[control.name] = value is not None
        elif value is None or value == control.value:
            continue
        elif callable(default):
            if value not in dict(control.options):
                raise UsageError(f"knob {control.name} has no choice {value[:80]!r}")
            knobs[control.name] = claim.foils[int(value)].knobs[control.name]
        else:
            knobs[control.name] = parse_knob(control.name, value, default)
    return knobs
