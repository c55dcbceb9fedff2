"""`vade draw`: the pictures of the course, with any knobs, as files."""

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from vademecum import ROOMS
from vademecum.cli.screen import field, heading, table
from vademecum.errors import UsageError

if TYPE_CHECKING:
    from vademecum.pictures import Picture

__all__ = ["draw", "knobs_as_flags"]


def draw(name: str = "", *, out: Path | None = None, knobs: bool = False, set: list[str]) -> int:
    """Draw a picture of the course into a file; without a name, list the pictures.

    Every picture has knobs of its own, which are flags: vade draw linear.digits_rebuilt
    --components 20. vade draw linear.digits_rebuilt --help explains them.

    Args:
        name: The picture's id, or its name without the room; a room's name lists its pictures.
        out: The file to write, which ends in .svg, .png or .pdf; ROOM.NAME.svg in the current
            folder by default. What was there is replaced.
        knobs: Explain the knobs of the picture, and draw nothing.
        set: Set a knob, as --NAME VALUE does.
    """
    from vademecum.pictures import pictures

    if not name or name in ROOMS:
        if set or out:
            raise UsageError(f"name one picture to draw, got {name or 'none'}")
        chosen = pictures(f"{name}.*" if name else "*")
        table(("id", "title", "knobs"), [(p.id, p.title, _summary(p)) for p in chosen])
        return 0
    picture = _find(name)
    if knobs:
        _explain(picture)
        return 0
    values = picture.read(dict(_pair(word) for word in set))
    from vademecum.canvas import checked_path, save

    out = checked_path(out or Path(f"{picture.id}.svg"))
    save(picture(**values), out)
    print(f"{picture.in_words(**values)}\npicture: {out}")
    return 0


def _find(name: str) -> "Picture":
    from vademecum.pictures import find_picture, pictures

    found = [p for p in pictures() if p.name == name] if "." not in name else []
    if len(found) > 1:
        raise UsageError(f"{name!r} is in several rooms: {', '.join(p.id for p in found)}")
    return found[0] if found else find_picture(name)


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise UsageError(f"--set must look like NAME=VALUE, got {word!r}")
    return name, value


def _summary(picture: "Picture") -> str:
    return "; ".join(f"{k.name} {k.domain} ({k.default})" for k in picture.knobs.values())


def _explain(picture: "Picture") -> None:
    heading(f"{picture.id}: {picture.title}")
    print(f"{picture.text}\n")
    width = max(map(len, ("out", *picture.knobs))) + 4
    for name, knob in picture.knobs.items():
        text = f"{knob.about}\n{knob.domain}, by default {knob.default}"
        field(f"--{name}", text, width=width)
    field("--out", "The file to write, which ends in .svg, .png or .pdf.", width=width)


def knobs_as_flags(words: list[str]) -> list[str]:
    """The words after `draw` with the picture's own flags as `--set NAME=VALUE`.

    Example:
        >>> knobs_as_flags(["linear.modes_while_training", "--depth", "2", "--out=a.png"])
        ['linear.modes_while_training', '--set=depth=2', '--out=a.png']
        >>> knobs_as_flags(["linear.modes_while_training", "--help"])
        ['linear.modes_while_training', '--knobs']
    """
    ours, rest, named = [], iter(words), False
    for word in rest:
        flag, equals, value = word.partition("=")
        if word in ("--help", "-h"):
            ours.append("--knobs" if named else word)
        elif flag in ("--out", "--set", "--knobs"):
            ours += [word] if equals or flag == "--knobs" else [word, *islice(rest, 1)]
        elif flag.startswith("--"):
            given = value if equals else next(rest, None)
            if given is None:
                raise UsageError(f"{flag} needs a value")
            ours.append(f"--set={flag[2:].replace('-', '_')}={given}")
        else:
            named = True
            ours.append(f"--set={word}" if flag.isidentifier() and equals else word)
    return ours
