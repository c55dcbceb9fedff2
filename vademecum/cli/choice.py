"""From what was typed to claims and seeds, with a suggestion where that fails."""

import difflib
import re
from typing import TYPE_CHECKING, Any, Literal

from vademecum import ROOMS
from vademecum.errors import UsageError

if TYPE_CHECKING:
    from vademecum.claims import Claim

__all__ = ["Kind", "choose", "find", "parse_knobs", "parse_seeds"]

Kind = Literal["witness", "exhaustion", "identity", "sampling", "fit", "training"]
"""`vademecum.claims.By`, without importing torch."""


def parse_seeds(text: str) -> tuple[int, ...]:
    """The seeds meant by `3`, `0-9` or `0,2,5-7`, in that order, each once.

    Example:
        >>> parse_seeds("0,2,5-7,2")
        (0, 2, 5, 6, 7)
    """
    seeds: dict[int, None] = {}
    for part in text.split(","):
        found = re.fullmatch(r"\s*([0-9]+)(?:-([0-9]+))?\s*", part)
        if not found:
            raise UsageError(f"--seeds must look like 3, 0-9 or 0,2,5-7, got {text!r}")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise UsageError(f"--seeds {first}-{last} is empty; did you mean {last}-{first}?")
        seeds |= dict.fromkeys(range(first, last + 1))
    return tuple(seeds)


def choose(pattern: str, *, by: Kind | None = None, budget: float = float("inf")) -> "list[Claim]":
    """The claims that a pattern means: of an id, of a name without its room, or a room's name."""
    from vademecum.claims import select

    if not budget > 0:
        raise UsageError(f"--budget must be positive, got {budget:g}")
    typed = pattern
    if pattern in ROOMS:
        pattern = f"{pattern}.*"
    elif "." not in pattern:
        pattern = f"*.{pattern}"
    chosen = select(pattern, by=by, budget=budget)
    if chosen:
        return chosen
    fitting = select(pattern)
    if not fitting:
        raise UsageError(f"no claim matches {typed!r}{_nearest(typed)}")
    kinds = ", ".join(sorted({claim.by for claim in fitting}))
    cheapest = min(claim.budget for claim in fitting)
    raise UsageError(
        f"{typed!r} has {len(fitting)} claims, but none fits --by and --budget: their evidence is"
        f" by {kinds}, the cheapest takes {cheapest:g} s"
    )


def find(name: str) -> "Claim":
    """The one claim with this id, or with this name in any room."""
    from vademecum.claims import select

    found = [c for c in select() if name in (c.id, c.id.partition(".")[2], *c.covers)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{name!r} is in several rooms: {', '.join(c.id for c in found)}")
    raise UsageError(f"no claim is called {name!r}{_nearest(name)}")


def _nearest(name: str) -> str:
    from vademecum.claims import select

    ids = {c.id: c.id for c in select()}
    names = ids | {c.id.partition(".")[2]: c.id for c in select()}
    near = list(dict.fromkeys(names[n] for n in difflib.get_close_matches(name, names, n=5)))
    if near:
        return f"; nearest: {', '.join(near[:3])}"
    return f"; `vade claims` lists all {len(ids)}"


def parse_knobs(claim: "Claim", words: list[str]) -> dict[str, Any]:
    """The knobs in words such as `power=1` or `sizes=((3,2),)`, as the types of their defaults."""
    from vademecum.claims.knobs import parse_knob

    knobs = {}
    for word in words:
        name, _, text = word.partition("=")
        if name not in claim.knobs:
            known = ", ".join(claim.knobs) or "none"
            raise UsageError(f"{claim.id} has no knob {name!r}; its knobs: {known}")
        knobs[name] = parse_knob(name, text, claim.knobs[name])
    return knobs
