"""`vade examine`: the dossier of a user's own network, or two dossiers side by side."""

import math
import operator
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from vademecum.cli.interrupt import Interrupts
from vademecum.cli.screen import heading, table
from vademecum.errors import UsageError

if TYPE_CHECKING:
    from vademecum.examine import Dossier, Section

__all__ = ["examine"]

_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
Task = Literal["classification", "regression", "sequence", "density"]


def examine(
    network: str,
    other: str | None = None,
    *,
    data: str | None = None,
    test: str | None = None,
    checkpoint: Path | None = None,
    sections: str | None = None,
    task: Task | None = None,
    budget: float = 60.0,
    seed: int = 0,
    out: Path = Path("dossier"),
    require: list[str],
) -> int:
    """Examine a network of your own: what theory says of it, with error bars, within a time.

    The work is done in a process of its own, which runs the file and is ended when the time is over;
    what was finished is kept. Exits with 1 if a requirement fails, with 2 if it could not be
    measured. With two files of numbers, as in vade examine A/dossier.json B/dossier.json, it compares.

    Args:
        network: The network, FILE.py:OBJECT, a module or a function that makes one; or the
            dossier.json of an examination.
        other: Another dossier.json, to compare with the first.
        data: The examples: a data set by NAME, FILE.npz with x and y, or FILE.py:LOADER.
        test: Fresh examples, which the network has not seen, in the same forms.
        checkpoint: Weights for the network, in the format safetensors.
        sections: Names of sections, separated by commas; all by default.
        task: What the network is for; guessed by default.
        budget: How long it may take, from the start of the command.
        seed: What random numbers come from.
        out: The folder for the page, the numbers and the pictures.
        require: What must hold, as in 'robustness.accuracy >= 0.5'; may be given several times.
    """  # noqa: E501
    start = time.monotonic()
    if other is not None or network.endswith(".json"):
        return _compare(network, other)
    names = None if sections is None else tuple(word.strip() for word in sections.split(","))
    wanted = [_requirement(text, names) for text in require]
    if data is None:
        raise UsageError("--data must be given: NAME, FILE.npz or FILE.py:LOADER")
    if not 0 < budget < float("inf"):
        raise UsageError(f"--budget must be positive, got {budget:g}")
    _refuse_pickles(checkpoint)
    _refuse_no_folder(out)
    from vademecum.scripts import split_name

    split_name("the network", network)
    from vademecum.examine._supervised import Question, supervised

    weights = None if checkpoint is None else str(checkpoint)
    question = Question(network, data, test, weights, names, task, budget, seed)
    with Interrupts() as interrupts:
        try:
            dossier = supervised(
                question, start=start, done=_say, stop=lambda: interrupts.signum != 0
            )
        except UsageError as error:
            if not interrupts.signum:
                raise
            print(f"vade: {error}", file=sys.stderr)
            return 128 + interrupts.signum
        if not interrupts.signum and all(s.status == "out of time" for s in dossier.sections):
            raise UsageError(f"nothing was examined within {budget:g} s: give more with --budget")
        page = dossier.save(out)
    _summarise(dossier, page)
    if interrupts.signum:
        print("vade: interrupted; what was finished is kept", file=sys.stderr)
        return 128 + interrupts.signum
    return max((_judged(each, dossier) for each in wanted), key=[0, 2, 1].index, default=0)


class _Requirement(NamedTuple):
    """What a measurement must be."""

    text: str
    section: str
    name: str
    relation: str
    limit: float


def _requirement(text: str, sections: tuple[str, ...] | None) -> _Requirement:
    """What must hold, in words; what no section can measure is refused before the work."""
    from vademecum.examine._names import unknown_name

    found = re.fullmatch(r"\s*(\w+)\.(\w+)\s*(>=|<=|==|>|<)\s*(\S+)\s*", text)
    try:
        limit = float(found[4]) if found is not None else math.nan
    except ValueError:
        limit = math.nan
    if found is None or math.isnan(limit):
        raise UsageError(f"--require must be as 'robustness.accuracy >= 0.5', got {text!r}")
    section, name, relation = found.group(1, 2, 3)
    if wrong := unknown_name(section, name):
        raise UsageError(f"--require {text!r}: {wrong}")
    if sections is not None and section not in sections:
        raise UsageError(f"--require {text!r}: {section} is not among --sections")
    return _Requirement(text, section, name, relation, limit)


def _judged(requirement: _Requirement, dossier: "Dossier") -> int:
    """0 if a requirement holds, 1 if it fails, 2 if it was not measured; and say so."""
    name = requirement.section
    section = next((each for each in dossier.sections if each.name == name), None)
    value = None if section is None else section.get(requirement.name)
    if isinstance(value, bool | int | float) and value == value:
        holds = _RELATIONS[requirement.relation](value, requirement.limit)
        verdict = "holds" if holds else "FAILS"
        print(f"{requirement.text}: {verdict}, {value:.4g}")
        return 0 if holds else 1
    why = "there is no such section"
    if section is not None:
        lacks = f"it has no number {requirement.name!r}"
        why = section.reason or (lacks if value is None else f"{requirement.name} is {value}")
    print(f"{requirement.text}: NOT MEASURED, {why}")
    return 2


def _refuse_pickles(checkpoint: Path | None) -> None:
    if checkpoint is not None and checkpoint.suffix != ".safetensors":
        raise UsageError(
            f"--checkpoint must be a file in the format safetensors, got {checkpoint}: pickled"
            " files can run any code, and are not opened"
        )


def _refuse_no_folder(out: Path) -> None:
    """Before the work, which would be lost."""
    there = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise UsageError(f"--out must be a folder that can be written, got {out}")


def _say(section: "Section") -> None:
    reason = f": {section.reason}" if section.reason else ""
    print(f"{section.name}: {section.status}{reason} ({section.seconds:.1f} s)", flush=True)


def _summarise(dossier: "Dossier", page: Path) -> None:
    heading("findings" if dossier.findings else "nothing stands out")
    for finding in dossier.findings:
        print(f"- {finding.text} {finding.advice}")
    rows = [(s.name, s.status, s.sentence or s.reason) for s in dossier.sections]
    table(("section", "status", "what it means"), rows)
    print(f"the page: {page}")


def _compare(one: str, other: str | None) -> int:
    if other is None:
        raise UsageError("two dossiers are needed to compare: vade examine A.json B.json")
    from vademecum.examine import compare

    found = compare(_read(one), _read(other))
    columns = ("measurement", "a", "b", "difference", "interval of 95 %", "p (Holm)", "verdict")
    rows = [
        (
            f"{row.section}.{row.name}", f"{row.a:.4g}", f"{row.b:.4g}", f"{row.difference:.3g}",
            "" if row.interval is None else f"{row.interval[0]:.3g} to {row.interval[1]:.3g}",
            "" if row.p is None else f"{row.p:.2g}", row.verdict,
        )
        for row in found.rows
    ]  # fmt: skip
    print(f"a: {one}, b: {other}; {found.examples}")
    table(columns, rows, right=columns[1:4])
    print(found.verdict)
    return 0


def _read(name: str) -> "Dossier":
    from vademecum.examine import Dossier

    path = Path(name)
    path = path / "dossier.json" if path.is_dir() else path
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    try:
        return Dossier.from_json(path.read_text(), folder=path.parent)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error
