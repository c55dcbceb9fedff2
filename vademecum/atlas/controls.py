"""A claim's knobs as controls of a form, and what was put in as knobs again.

A number, a word, a switch or a tuple is typed in. A knob that is a function can be set to those
functions that the claim's foils set it to: choosing one shows how the check refutes it.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from vademecum.claims import Claim
from vademecum.claims.knobs import parse_knob

__all__ = ["Control", "controls", "knobs_from"]


class Control(NamedTuple):
    """One control: a kind of input, its present value, and the choices where there are some."""

    name: str
    kind: str  # "number", "text", "checkbox", "select" or "fixed"
    value: str
    options: tuple[tuple[str, str], ...] = ()
    about: str = ""


def controls(claim: Claim) -> list[Control]:
    """The controls of a claim, set to its defaults.

    Example:
        >>> from vademecum.claims import select
        >>> [c.name for c in controls(select("connectionism.novikov_bound")[0])][:1]
        ['power']
    """
    about = claim.explained
    return [
        _control(claim, name, default)._replace(about=about.get(name, ""))
        for name, default in claim.knobs.items()
    ]


def _control(claim: Claim, name: str, default: Any) -> Control:
    set_by = [(str(i), foil) for i, foil in enumerate(claim.foils) if name in foil.knobs]
    if callable(default):
        wrong = tuple((value, f"as in the foil: {foil.why}") for value, foil in set_by)
        return Control(name, "select", "", (("", "as stated"), *wrong))
    if isinstance(default, bool):
        return Control(name, "checkbox", "on" if default else "")
    if isinstance(default, int | float) and math.isfinite(default):
        return Control(name, "number", repr(default))
    if isinstance(default, str):
        words = dict.fromkeys([default, *(foil.knobs[name] for _, foil in set_by)])
        if len(words) > 1:
            return Control(name, "select", default, tuple((word, word) for word in words))
    if "<" in repr(default):  # holds something that cannot be typed
        return Control(name, "fixed", "set from Python")
    return Control(name, "text", default if isinstance(default, str) else repr(default))


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
            knobs[control.name] = claim.foils[int(value)].knobs[control.name]
        else:
            knobs[control.name] = parse_knob(control.name, value, default)
    return knobs
