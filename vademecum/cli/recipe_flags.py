"""Flags from typed signatures, and from YAML: what `vade train RECIPE` understands.

A flag is a parameter of the recipe, a field of one of its dataclasses (`--model.width`), or one of
the `Options` that all recipes have. A file of YAML or JSON becomes flags, too, and is checked like
them: it names recipes, models and optimisers, and runs no code.
"""

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from vademecum.errors import UsageError

__all__ = [
    "Flag", "built", "described", "flags_of", "nearest", "refuse_unknown", "type_of",
    "words_of_file",
]  # fmt: skip

_FOUND = ("examples", "score", "maximize")
"""What the config.json of a run says besides flags."""


class Flag(NamedTuple):
    """Something that can be set.

    Attributes:
        name: As Python has it, with dots before fields of dataclasses.
        kind: Its type.
        default: What it is if nothing is said.
        text: What it means.
    """

    name: str
    kind: Any
    default: Any
    text: str

    @property
    def word(self) -> str:
        """As it is typed."""
        return "--" + self.name.rstrip("_").replace("_", "-")


def flags_of(thing: Callable[..., Any]) -> list[Flag]:
    """The flags of a function or dataclass, in order.

    Example:
        >>> def recipe(*, width: int = 3) -> None:
        ...     '''Do it.
        ...
        ...     Args:
        ...         width: How wide.
        ...     '''
        >>> flags_of(recipe)
        [Flag(name='width', kind=<class 'int'>, default=3, text='How wide.')]
    """
    return list(_flags(thing, ""))


def _flags(thing: Callable[..., Any], before: str, given: Any = None) -> Iterator[Flag]:
    text = inspect.getdoc(thing) or ""
    for name, parameter in inspect.signature(thing, eval_str=True).parameters.items():
        default = parameter.default if given is None else getattr(given, name)
        if is_dataclass(default) and isinstance(parameter.annotation, type):
            yield from _flags(parameter.annotation, f"{before}{name}.", default)
        else:
            yield Flag(before + name, _plain(parameter.annotation), default, described(name, text))


def _plain(kind: Any) -> Any:
    """`X | None` as X: None is the default and cannot be typed."""
    if get_origin(kind) in (Union, UnionType):
        return next(one for one in get_args(kind) if one is not type(None))
    return kind


def described(name: str, text: str) -> str:
    """The lines on one argument in a Google-style docstring, as one."""
    lines = iter(text.splitlines())
    found: list[str] = []
    for line in lines:
        if line.startswith(f"    {name}: "):
            found = [line.partition(": ")[2]]
        elif found and line.startswith(" " * 8):
            found.append(line.strip())
        elif found:
            break
    return " ".join(found)


def built(recipe: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a recipe, its dataclasses made from nested values."""
    made = {}
    for name, parameter in inspect.signature(recipe, eval_str=True).parameters.items():
        if name not in values:
            continue
        nested = is_dataclass(parameter.annotation)
        made[name] = parameter.annotation(**values[name]) if nested else values[name]  # pyright: ignore[reportCallIssue]
    return made


def nearest(word: str, known: Sequence[str]) -> str:
    """What somebody may have meant.

    Example:
        >>> nearest("clasify", ["classify", "gpt"])
        '; nearest: classify'
    """
    near = difflib.get_close_matches(word, known, n=3)
    return f"; nearest: {', '.join(near)}" if near else f"; there are: {', '.join(known)}"


def refuse_unknown(words: Sequence[str], flags: Sequence[Flag], where: str) -> None:
    """Insist that every flag among the words is known, by its whole name."""
    known = [flag.word for flag in flags] + ["--help", "--list"]
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("--") and name not in known:
            raise UsageError(f"{where} has no flag {name}{nearest(name, known)}")


def words_of_file(path: Path) -> tuple[str, list[str]]:
    """The recipe that a file names, or nothing, and all else in it as flags.

    Raises:
        UsageError: If it cannot be read, or holds more than names and plain values.
    """
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        why = " ".join(str(error).split())
        raise UsageError(f"--config {path} must be plain YAML: {why}") from error
    if not isinstance(content, Mapping):
        raise UsageError(f"--config {path} must hold names and values, got {content!r:.40}")
    content = {name: value for name, value in content.items() if name not in _FOUND}
    recipe = content.pop("recipe", "")
    if not isinstance(recipe, str):
        raise UsageError(f"--config {path} must name a recipe, got {recipe!r:.40}")
    return recipe, list(_words(content, "", path))


def _words(content: Mapping[Any, Any], before: str, path: Path) -> Iterator[str]:
    for name, value in content.items():
        word = f"--{before}{name}".replace("_", "-")
        if isinstance(value, Mapping) and not before:
            yield from _words(value, f"{name}.", path)
        elif value is None or value is False:
            continue
        elif value is True:
            yield word
        elif isinstance(value, str | int | float):
            yield f"{word}={value}"
        elif isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            yield f"{word}={','.join(value)}"
        else:
            raise UsageError(
                f"--config {path} must hold plain values, got {value!r:.40} for {name}"
            )


def type_of(flag: Flag) -> dict[str, Any]:
    """How a parser reads a flag."""
    if flag.kind is bool:
        return {"action": "store_true"}
    if get_origin(flag.kind) is Literal:
        return {"choices": get_args(flag.kind), "default": flag.default}
    metavars = {int: "N", float: "X", Path: "PATH", str: "NAME"}
    return {"type": flag.kind, "default": flag.default, "metavar": metavars[flag.kind]}
