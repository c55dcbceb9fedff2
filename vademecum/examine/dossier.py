"""What an examination found: measurements in sections, findings over all of them, one dossier.

A measurement is a number with its error and with how many examples, units or iterations it was
found from; a section is what one chapter of theory says of a network, and how far it came; a
finding is a sentence on what to do. A dossier goes to JSON and back without loss, is the same for
the same seed but for its times, and is saved as a page, a file of numbers and pictures.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from vademecum.results import one_line

__all__ = [
    "ERRORS_OF", "STATUSES", "Dossier", "ErrorOf", "Finding", "Measurement", "Section", "Status",
]  # fmt: skip

Status = Literal["measured", "partly", "not applicable", "failed", "out of time"]
"""How far a section came."""
STATUSES = ("measured", "partly", "not applicable", "failed", "out of time")
"""All that a section can have come to."""

ErrorOf = Literal["sample", "arithmetic", "spread"]
"""What an error is of."""
ERRORS_OF = ("sample", "arithmetic", "spread")
"""All that an error can be of."""

Value = bool | int | float | str | tuple[float, ...] | tuple[str, ...]
"""What a measurement may be: a number, a word, or a list of either."""


class Measurement(NamedTuple):
    """A number with its error.

    Example:
        >>> Measurement("accuracy", 0.9, (0.84, 0.95), n=100, method="exact interval of 95 %")
        accuracy = 0.9 (0.84 to 0.95)
        >>> Measurement("trace", 12.0, 0.5, unit="loss"), Measurement("parameters", 12)
        (trace = 12 ± 0.5 loss, parameters = 12)
    """

    name: str
    """A name that Python takes, unique in its section."""
    value: Value
    """The number, or a word, or a tuple of either."""
    error: float | tuple[float, float] | None = None
    """One standard error or a bound on the error; the ends of an interval; None where exact."""
    unit: str = ""
    """Its unit; empty for what has none."""
    n: int | None = None
    """From how many examples, units or iterations it was found, as `method` says."""
    method: str = ""
    """How it was found, in a few words: what the error means, and what n counts."""
    each: tuple[float, ...] = ()
    """What each example adds to a value that is their mean, for comparisons; may be empty."""
    error_of: ErrorOf = "sample"
    """What the error is of: "sample", since other examples would give another value;
    "arithmetic", of residuals, rounding or random probes for the examples that were taken;
    "spread", that of what was averaged, which is no error of the value."""

    def __repr__(self) -> str:
        return f"{self.name} = {self.words()}"

    def words(self) -> str:
        """The value with its error and unit, as a reader wants it."""
        text = _short(self.value)
        if isinstance(self.error, tuple):
            text += f" ({_short(self.error[0])} to {_short(self.error[1])})"
        elif self.error is not None:
            text += f" ± {_short(self.error)}"
        return f"{text} {self.unit}".strip()


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        shown = ", ".join(map(_short, value[:4]))
        return f"[{shown}{', ...' if len(value) > 4 else ''}]"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


@dataclass(frozen=True, repr=False)
class Section:
    """What one chapter says of a network.

    `section["name"]` is a measurement, `section.name` its value.

    Example:
        >>> found = Section("curvature", "measured", (Measurement("trace", 3.5),))
        >>> found, found.trace, found["trace"].error
        (Section(curvature: measured, 1 measurement), 3.5, None)
    """

    name: str
    status: Status
    measurements: tuple[Measurement, ...] = ()
    sentence: str = ""
    """What it means for the user of this network."""
    claims: tuple[str, ...] = ()
    """Claims of the course that stand behind it."""
    figure: str | None = None
    """A picture as SVG."""
    seconds: float = 0.0
    reason: str = ""
    """Why it is not whole, or does not apply, in one line."""
    traceback: str = ""
    notes: tuple[str, ...] = ()
    """What the instruments warned of."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_"):
            for measurement in self.measurements:
                if measurement.name == name:
                    return measurement.value
        own = self.__dict__.get("name", "?")
        raise AttributeError(f"the section {own!r} has no measurement {name!r}")

    def __getitem__(self, name: str) -> Measurement:
        for measurement in self.measurements:
            if measurement.name == name:
                return measurement
        has = ", ".join(m.name for m in self.measurements) or "none"
        raise KeyError(f"the section {self.name!r} has no measurement {name!r}; it has: {has}")

    def __contains__(self, name: object) -> bool:
        return any(measurement.name == name for measurement in self.measurements)

    def get(self, name: str) -> Any:
        """The value of a measurement, or None if there is none of that name."""
        return self[name].value if name in self else None

    def __repr__(self) -> str:
        count = len(self.measurements)
        return f"Section({self.name}: {self.status}, {count} measurement{'s' * (count != 1)})"


class Finding(NamedTuple):
    """A sentence on what is wrong, and what to do.

    Example:
        >>> Finding("All units are dead.", "signal", 1.0, 0.5, "Lower the biases.", 3)
        Finding(text='All units are dead.', section='signal', number=1.0, threshold=0.5, \
advice='Lower the biases.', severity=3)
    """

    text: str
    section: str
    """The section it comes from."""
    number: float
    """What was measured."""
    threshold: float
    """Beyond what it is worth a sentence."""
    advice: str
    """What to do."""
    severity: float
    """How serious it is: the larger, the more."""

    __repr__ = one_line


@dataclass(frozen=True, repr=False)
class Dossier:
    """All that an examination found.

    Example:
        >>> dossier = Dossier((Section("anatomy", "measured", (Measurement("parameters", 6),)),))
        >>> dossier, dossier["anatomy"].parameters
        (Dossier(1 section: 1 measured; 0 findings), 6)
        >>> Dossier.from_json(dossier.to_json()) == dossier
        True
    """

    sections: tuple[Section, ...]
    findings: tuple[Finding, ...] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)
    """The network, its data, the task, the seed, the machine and versions."""

    def __getitem__(self, name: str) -> Section:
        for section in self.sections:
            if section.name == name:
                return section
        has = ", ".join(section.name for section in self.sections)
        raise KeyError(f"there is no section {name!r}; there are: {has}")

    def __contains__(self, name: object) -> bool:
        return any(section.name == name for section in self.sections)

    def __repr__(self) -> str:
        counts = [(s, sum(section.status == s for section in self.sections)) for s in STATUSES]
        words = ", ".join(f"{count} {status}" for status, count in counts if count)
        many, found = len(self.sections), len(self.findings)
        return (
            f"Dossier({many} section{'s' * (many != 1)}: {words or 'none'};"
            f" {found} finding{'s' * (found != 1)})"
        )

    def to_json(self, *, figures: bool = True) -> str:
        """The dossier as JSON, by the schema in the documentation.

        Args:
            figures: Whether pictures are within, as SVG; else their files are named.
        """
        from vademecum.examine._json import written

        return written(self, figures=figures)

    @classmethod
    def from_json(cls, text: str, *, folder: str | Path | None = None) -> "Dossier":
        """The dossier that was written.

        Args:
            text: What `to_json` gave.
            folder: Where pictures are that are not within the text.

        Raises:
            ValueError: If it is no dossier, or one of another version.
        """
        from vademecum.examine._json import read

        return read(text, folder=folder)

    def save(self, folder: str | Path) -> Path:
        """Write the page, the numbers and the pictures into a folder.

        Args:
            folder: Where; it is made if it is not there.

        Returns:
            The page.
        """
        from vademecum.examine._saving import save

        return save(self, Path(folder))

    def print(self) -> None:
        """Print the findings and a table of all measurements."""
        from vademecum.examine._printing import show

        show(self)
