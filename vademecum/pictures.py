r"""Pictures: functions of a few typed knobs that draw a figure, the same wherever it is shown.

The signature gives the knobs, its defaults the first position, and the docstring the title, what to
try and see, and a sentence on each knob:

    @picture(claims=("foundations.hoeffding",), plays="n")
    def coin_tosses(
        n: Annotated[int, Range(10, 1000, 10)] = 100,
        coin: Literal["fair", "bent"] = "fair",
    ) -> Figure:
        '''The mean of many tosses.

        With more tosses the mean comes closer to its limit.

        Knobs:
            n: How many tosses there are.
            coin: Which coin is tossed.
        '''

A knob is a number in a `Range`, one of the values of a `Literal`, or a switch (`bool`). Called from
Python, a picture returns its `Figure`, which notebooks show; the atlas, its export, `vade draw` and
the documentation call the same function. Values out of range are refused.
"""

import fnmatch
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from vademecum import ROOMS
from vademecum.claims.knobs import explained_knobs, without_knobs
from vademecum.errors import UsageError
from vademecum.sliders import Range

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Knob", "Picture", "Range", "find_picture", "picture", "pictures"]


@dataclass(frozen=True)
class Knob:
    """One knob: where it stands at first, where a control can put it, what it does."""

    name: str
    default: Any
    positions: tuple[Any, ...]
    about: str
    range: Range | None = None

    @property
    def label(self) -> str:
        """Its name in words."""
        return self.name.replace("_", " ")

    @property
    def unit(self) -> str:
        """What its numbers count, if anything."""
        return self.range.unit if self.range else ""

    @property
    def domain(self) -> str:
        """Which values it takes, in words."""
        if self.range:
            return f"from {self.range.low} to {self.range.high} {self.unit}".rstrip()
        return f"one of {', '.join(map(repr, self.positions))}"

    def accept(self, value: Any) -> Any:
        """The value, if the knob can take it.

        Raises:
            UsageError: If it cannot.
        """
        kind = type(self.default)
        if self.range is None:
            for known in self.positions:
                if type(known) is type(value) and known == value:
                    return known
            raise UsageError(f"{self.name} must be {self.domain}, got {value!r}")
        number = issubclass(type(value), Integral if kind is int else Real)
        if isinstance(value, bool) or not number or not self.range.low <= value <= self.range.high:
            what = "an integer" if kind is int else "a number"
            raise UsageError(f"{self.name} must be {what} {self.domain}, got {value!r}")
        return kind(value)

    def read(self, text: str) -> Any:
        """What was typed, as a value.

        Raises:
            UsageError: If the knob cannot take it.
        """
        if self.range is None:
            known = {str(value): value for value in self.positions}
            known |= {"true": True, "false": False} if isinstance(self.default, bool) else {}
            return self.accept(known.get(text, text[:80]))
        try:
            value = type(self.default)(text if len(text) <= 40 else "")
        except ValueError:
            value = text[:80]
        return self.accept(value)


@dataclass(frozen=True, eq=False)
class Picture:
    """A registered picture; call it with knobs to get the figure.

    `claims` are the statements it belongs to; `plays` the knob that a film of it would turn.
    """

    id: str
    function: Callable[..., "Figure"]
    claims: tuple[str, ...] = ()
    plays: str = ""

    @property
    def room(self) -> str:
        """The room that it hangs in."""
        return self.id.partition(".")[0]

    @property
    def name(self) -> str:
        """Its name within the room."""
        return self.id.partition(".")[2]

    @property
    def title(self) -> str:
        """The first line of its docstring, without the full stop."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0].rstrip(".")

    @property
    def text(self) -> str:
        """What to try and what to see."""
        return without_knobs(inspect.getdoc(self.function) or "").partition("\n")[2].strip()

    @cached_property
    def knobs(self) -> dict[str, Knob]:
        """The knobs by name, as the signature has them."""
        about = explained_knobs(inspect.getdoc(self.function) or "")
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: _knob(p, about.get(p.name, "")) for p in parameters}

    def at(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All knobs, those given set so and the others as by default.

        Raises:
            UsageError: If there is no such knob, or it cannot take the value.
        """
        for name in given:
            if name not in self.knobs:
                known = ", ".join(self.knobs) or "none"
                raise UsageError(f"{self.id} has no knob {name!r}; its knobs: {known}")
        return {
            name: knob.accept(given.get(name, knob.default)) for name, knob in self.knobs.items()
        }

    def read(self, given: Mapping[str, str]) -> dict[str, Any]:
        """All knobs as values, those given as they were typed.

        Raises:
            UsageError: As `at` does.
        """
        known = self.knobs
        return self.at({k: known[k].read(v) if k in known else v for k, v in given.items()})

    def __call__(self, **knobs: Any) -> "Figure":
        """Draw it."""
        from vademecum.canvas import styled, svg

        figure = styled(lambda: self.function(**self.at(knobs)))
        figure._repr_svg_ = lambda: svg(figure).decode()  # type: ignore[attr-defined]  # notebooks ask
        return figure

    def in_words(self, **knobs: Any) -> str:
        """What is drawn, for who cannot see it."""
        at = [(self.knobs[name], value) for name, value in self.at(knobs).items()]
        values = ", ".join(f"{knob.label} {value} {knob.unit}".rstrip() for knob, value in at)
        return f"{self.title}: {values}" if values else self.title

    def as_python(self, **knobs: Any) -> str:
        """The lines that draw it in a notebook; knobs at their defaults are left out."""
        changed = {k: v for k, v in self.at(knobs).items() if v != self.knobs[k].default}
        call = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        return f"from vademecum.{self.room}.pictures import {self.name}\n\n{self.name}({call})"

    def __repr__(self) -> str:
        return f"Picture({self.id!r}, knobs: {', '.join(self.knobs)})"


def _knob(parameter: inspect.Parameter, about: str) -> Knob:
    kind, default = parameter.annotation, parameter.default
    if kind is bool:
        return Knob(parameter.name, default, (False, True), about)
    if get_origin(kind) is Literal:
        return Knob(parameter.name, default, get_args(kind), about)
    span = kind.__metadata__[0]
    return Knob(parameter.name, default, span.positions(), about, span)


PICTURES: dict[str, Picture] = {}
"""All pictures registered so far, by id."""


def picture(
    *, claims: tuple[str, ...] = (), plays: str = ""
) -> Callable[[Callable[..., "Figure"]], Picture]:
    """Register a function of knobs as the picture `<room>.<function>`.

    Args:
        claims: Ids of the statements that it shows.
        plays: The knob that a play button runs through: a step, a share of training.
    """

    def register(function: Callable[..., "Figure"]) -> Picture:
        _insist_on_form(function, plays)
        module = function.__module__.split(".")
        room = module[module.index("pictures") - 1] if "pictures" in module[1:] else module[-1]
        name = f"{room}.{function.__name__}"
        PICTURES[name] = Picture(name, function, claims, plays)
        return PICTURES[name]

    return register


def _insist_on_form(function: Callable[..., Any], plays: str) -> None:
    name, parameters = function.__qualname__, inspect.signature(function).parameters
    text = inspect.getdoc(function) or ""
    if not without_knobs(text).partition("\n")[2].strip():
        raise TypeError(f"the docstring of {name} needs a title, and what to try and see")
    if list(explained_knobs(text)) != list(parameters):
        raise TypeError(f"the section Knobs: of {name} must explain {', '.join(parameters)}")
    if plays and plays not in parameters:
        raise TypeError(f"{name} has no knob {plays!r} to play")
    for p in parameters.values():
        ranged = get_origin(p.annotation) is Annotated and isinstance(
            p.annotation.__metadata__[0], Range
        )
        if not (ranged or p.annotation is bool or get_origin(p.annotation) is Literal):
            raise TypeError(f"knob {p.name} of {name} must be a number with a Range, Literal, bool")
        _knob(p, "").accept(p.default)


def pictures(pattern: str = "*") -> list[Picture]:
    """The pictures of the course whose id matches, in the order of rooms and sources.

    Args:
        pattern: A shell pattern, such as `approximation.*`.

    Example:
        >>> [p.name for p in pictures("approximation.r*")]
        ['regions_while_training']
    """
    for room in ROOMS:
        module = f"vademecum.{room}.pictures"
        if fnmatch.fnmatch(room, pattern.partition(".")[0]) and importlib.util.find_spec(module):
            importlib.import_module(module)
    found = [p for p in PICTURES.values() if p.room in ROOMS and fnmatch.fnmatch(p.id, pattern)]
    return sorted(found, key=lambda p: ROOMS.index(p.room))


def find_picture(name: str) -> Picture:
    """The picture with this id.

    Raises:
        UsageError: If there is none; with those that there are.
    """
    for found in pictures(f"{name.partition('.')[0]}.*"):
        if found.id == name:
            return found
    known = ", ".join(p.id for p in pictures())
    raise UsageError(f"there is no picture {name!r}; there are {known}")
