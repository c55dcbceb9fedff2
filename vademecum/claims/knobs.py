"""The knobs of an experiment: what is said of them, which values they take, how they are typed.

A check's docstring ends with a section `Knobs:`, one sentence for each keyword argument. A knob
takes values of the kind of its default: a word that the claim knows (from a `Literal`, its default
or a foil), a count where it is a count, a finite number, a tuple of such. Anything else is refused,
since a check with nonsense for a knob may compare nothing and so "hold".
"""

import ast
import inspect
import math
import re
import types
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from numbers import Real
from typing import Any, Literal, Union, get_args, get_origin

from vademecum.errors import UsageError

__all__ = ["check_knobs", "explained_knobs", "lowest", "parse_knob", "without_knobs"]

_SECTION = re.compile(r"^Knobs:[ ]*\n((?:(?: {4}.*)?(?:\n|\Z))+)", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def without_knobs(text: str) -> str:
    r"""A docstring without its section on knobs.

    Example:
        >>> without_knobs("It holds.\n\nKnobs:\n    n: How many.\n")
        'It holds.'
    """
    return _SECTION.sub("", text).rstrip()


def explained_knobs(text: str) -> dict[str, str]:
    r"""What a docstring says of each knob.

    Example:
        >>> explained_knobs("True.\n\nKnobs:\n    n: How many\n        draws.\n    p: A share.")
        {'n': 'How many draws.', 'p': 'A share.'}
    """
    found = _SECTION.search(text + "\n")
    entries = _ENTRY.findall(found[1]) if found else []
    return {name: " ".join(words.split()) for name, words in entries}


def check_knobs(
    given: Mapping[str, Any], check: Callable[..., Any], foils: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """The knobs, if the check has them and they may take these values.

    Raises:
        UsageError: If a value is not of its knob's kind.
    """
    parameters = inspect.signature(check).parameters
    for name, value in given.items():
        known = [parameters[name].default, *(f[name] for f in foils if name in f)]
        known += _literals(parameters[name].annotation)
        if any(value is k or _equal(value, k) for k in known):
            continue
        complaint = _complaint(value, known)
        if complaint:
            raise UsageError(f"knob {name} must be {complaint}, got {value!r}")
    return dict(given)


def lowest(name: str, value: float, least: float) -> None:
    """Refuse a knob with which a check would have nothing to compare.

    Raises:
        UsageError: If it is below the least value.

    Example:
        >>> lowest("n", 1, 3)
        Traceback (most recent call last):
        vademecum.errors.UsageError: knob n must be at least 3, got 1
    """
    if value < least:
        raise UsageError(f"knob {name} must be at least {least}, got {value}")


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and isinstance(a, int | float | str | tuple | None) and a == b


def _literals(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        return [value for part in get_args(annotation) for value in _literals(part)]
    return list(get_args(annotation)) if get_origin(annotation) is Literal else []


def _complaint(value: Any, known: list[Any]) -> str:
    """What the value should be instead, or nothing."""
    default = known[0]
    numbers = [k for k in known if isinstance(k, Real) and not isinstance(k, bool)]
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "True or False"
    if isinstance(default, str):
        words = dict.fromkeys(k for k in known if isinstance(k, str))
        return f"one of {', '.join(map(repr, words))}"
    if isinstance(default, Real):
        return _number_complaint(value, numbers)
    if isinstance(default, tuple) and default:
        if not isinstance(value, tuple) or not value:
            return f"a tuple like {default!r}"
        members = [m for k in known if isinstance(k, tuple) for m in k]
        found = next(filter(None, (_member_complaint(v, members) for v in value)), "")
        return f"a tuple with {found}" if found else ""
    if callable(default):
        return "" if callable(value) else "a function"
    return ""


def _member_complaint(value: Any, members: list[Any]) -> str:
    if any(_equal(value, m) for m in members):
        return ""
    of_kind = [m for m in members if isinstance(m, str) == isinstance(value, str)]
    complaint = _complaint(value, of_kind) if of_kind else f"like {members[0]!r}"
    return f"entries that are {complaint}" if complaint else ""


def _number_complaint(value: Any, known: list[Any]) -> str:
    if isinstance(value, bool) or not isinstance(value, Real):
        return "a number"
    if all(isinstance(k, int) for k in known) and not isinstance(value, int):
        return "an integer"
    if not math.isfinite(value):
        return "finite"
    if min(known) > 0 and value <= 0:
        return "positive"
    if min(known) >= 0 and value < 0:
        return "not negative"
    return ""


def parse_knob(name: str, text: str, default: Any) -> Any:
    """What was typed for a knob, as the type of its default.

    Raises:
        UsageError: If it cannot be read so.

    Example:
        >>> parse_knob("sizes", "3, 5", (2, 4))
        (3, 5)
    """
    if isinstance(default, str):
        return text
    if callable(default):
        raise UsageError(f"knob {name} is a function: set it from Python, claim.run({name}=...)")
    wrong = UsageError(f"knob {name} must be like {default!r}, got {text[:80]!r}")
    try:
        read = Fraction if isinstance(default, Fraction) else ast.literal_eval
        value = read(text) if len(text) <= 1000 else None
    except (ValueError, SyntaxError, ArithmeticError, MemoryError, RecursionError):
        raise wrong from None
    if isinstance(default, tuple) and not isinstance(value, tuple):
        value = tuple(value) if isinstance(value, list) else (value,)
    expected = int | float if isinstance(default, float) else type(default)
    if default is not None and (
        not isinstance(value, expected) or type(value) is bool is not type(default)
    ):
        raise wrong
    return value
