"""A dossier as JSON: a version, plain numbers, and words for those that JSON cannot write.

The schema stands in the documentation. Numbers that are not finite are the words "Infinity",
"-Infinity" and "NaN". Keys have an order of their own and no time but `seconds` is in it, so that
two runs with the same seed give the same bytes but for these.
"""

import json
import math
from pathlib import Path
from typing import Any

from vademecum.examine.dossier import ERRORS_OF, STATUSES, Dossier, Finding, Measurement, Section

__all__ = [
    "VERSION", "as_finding", "as_measurement", "as_section", "finding_as_json",
    "measurement_as_json", "read", "section_as_json", "written",
]  # fmt: skip

VERSION = 2
"""Of the format."""
_NOT_FINITE = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def written(dossier: Dossier, *, figures: bool = True) -> str:
    """The text of a dossier, with its pictures within or with the names of their files."""
    document = {
        "format": "vademecum dossier",
        "version": VERSION,
        "environment": _plain(dict(dossier.environment)),
        "findings": [finding_as_json(finding) for finding in dossier.findings],
        "sections": [section_as_json(section, figures=figures) for section in dossier.sections],
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read(text: str, *, folder: str | Path | None = None) -> Dossier:
    """The dossier in a text."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"text must be JSON, got {error}") from None
    if not isinstance(document, dict) or document.get("format") != "vademecum dossier":
        raise ValueError("text must be a dossier as to_json writes it")
    if document.get("version") != VERSION:
        raise ValueError(f"text must have version {VERSION}, got {document.get('version')!r}")
    sections = tuple(as_section(entry, folder=folder) for entry in document["sections"])
    findings = tuple(as_finding(entry) for entry in document["findings"])
    return Dossier(sections, findings, _rich(document["environment"]))


def section_as_json(section: Section, *, figures: bool = True) -> dict[str, Any]:
    """A section as JSON has it."""
    figure = section.figure
    if figure is not None and not figures:
        figure = f"figures/{section.name}.svg"
    return {
        "name": section.name,
        "status": section.status,
        "reason": section.reason,
        "sentence": section.sentence,
        "measurements": [measurement_as_json(m) for m in section.measurements],
        "claims": list(section.claims),
        "notes": list(section.notes),
        "traceback": section.traceback,
        "figure": figure,
        "seconds": section.seconds,
    }


def as_section(entry: dict[str, Any], *, folder: str | Path | None = None) -> Section:
    """The section in such JSON."""
    if entry["status"] not in STATUSES:
        raise ValueError(f"status must be one of {', '.join(STATUSES)}, got {entry['status']!r}")
    figure = entry["figure"]
    if figure is not None and not figure.lstrip().startswith("<"):
        file = None if folder is None else Path(folder) / "figures" / f"{entry['name']}.svg"
        figure = file.read_text() if file is not None and file.is_file() else None
    return Section(
        entry["name"], entry["status"],
        tuple(as_measurement(each) for each in entry["measurements"]),
        entry["sentence"], tuple(entry["claims"]), figure, entry["seconds"], entry["reason"],
        entry["traceback"], tuple(entry["notes"]),
    )  # fmt: skip


def finding_as_json(finding: Finding) -> dict[str, Any]:
    """A finding as JSON has it."""
    return _plain(finding._asdict())


def as_finding(entry: dict[str, Any]) -> Finding:
    """The finding in such JSON."""
    return Finding(**_rich(entry))


def measurement_as_json(measurement: Measurement) -> dict[str, Any]:
    """A measurement as JSON has it."""
    return _plain(measurement._asdict())


def as_measurement(entry: dict[str, Any]) -> Measurement:
    """The measurement in such JSON."""
    value, error = _rich(entry["value"]), _rich(entry["error"])
    as_tuple = {list: tuple}.get(type(value), lambda v: v)
    error = tuple(error) if isinstance(error, list) else error
    each = tuple(_rich(entry["each"]))
    if entry["error_of"] not in ERRORS_OF:
        given = entry["error_of"]
        raise ValueError(f"error_of must be one of {', '.join(ERRORS_OF)}, got {given!r}")
    return Measurement(**{**entry, "value": as_tuple(value), "error": error, "each": each})


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _rich(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rich(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rich(each) for each in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value
