"""`vade claims`, `vade show` and `vade errata`: what the course states, and where it errs."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vademecum.cli.choice import Kind, choose, find, parse_knobs
from vademecum.cli.screen import as_json, field, heading, table

if TYPE_CHECKING:
    from vademecum.claims import Claim, Evidence, Foil

__all__ = ["claims", "errata", "show"]


def claims(pattern: str = "*", *, by: Kind | None = None, json: bool = False) -> int:
    """List the claims of the course.

    Args:
        pattern: A room, or a shell pattern of claims such as 'connectionism.hopfield*'.
        by: Only claims with this kind of evidence.
        json: Print JSON, with the statements.
    """
    chosen = sorted(choose(pattern, by=by), key=lambda c: c.id)
    if json:
        as_json([_as_data(claim) for claim in chosen])
        return 0
    columns = ("id", "title", "by", "foils", "errata", "budget")
    rows = [(c.id, c.title, c.by, len(c.foils), len(c.errata), f"{c.budget:g}") for c in chosen]
    table(columns, rows, right=columns[3:])
    return 0


def _as_data(claim: "Claim") -> dict[str, Any]:
    return {
        "id": claim.id,
        "title": claim.title,
        "statement": claim.statement,
        "by": claim.by,
        "sources": claim.sources,
        "covers": claim.covers,
        "budget": claim.budget,
        "short": claim.short,
        "knobs": {
            name: {"default": repr(default), "about": claim.explained.get(name, "")}
            for name, default in claim.knobs.items()
        },
        "foils": [foil.why for foil in claim.foils if not foil.printed],
        "errata": [_erratum_as_data(foil) for foil in claim.errata],
    }


def _erratum_as_data(foil: "Foil") -> dict[str, str]:
    return {name: getattr(foil, name) for name in ("where", "weight", "printed", "right", "why")}


def show(
    id: str,
    *,
    seed: int = 0,
    full: bool = False,
    figure: Path | None = None,
    set: list[str],
) -> int:
    """Show one claim: its statement, the evidence, and what refutes its foils and errata.

    The knobs of the experiment can be set, vade show novikov_bound power=1, and are explained.

    Args:
        id: The claim's id, or its name without the room.
        seed: The seed of the run.
        full: Use the thorough knobs.
        figure: Draw the evidence into this file, such as bound.png or bound.svg.
        set: Set a knob; a bare NAME=VALUE does the same.
    """
    claim = find(id)
    knobs = parse_knobs(claim, set)
    if figure:
        from vademecum.canvas import checked_path

        checked_path(figure)  # before anything is run
    report = claim.run(seed, full=full, **knobs)
    heading(f"{claim.id}: {claim.title}")
    print(claim.statement.partition("\n")[2].strip("\n"), end="\n\n")
    field("by", claim.by)
    field("sources", ", ".join(claim.sources) or "none")
    for name, value in (claim.knobs | (claim.full if full else {}) | knobs).items():
        field("knob", f"{name}={_plain(value)}: {claim.explained.get(name, '')}".rstrip(": "))
    field(
        "verdict", f"{report.verdict} (seed {seed}, {report.cases} cases, {report.seconds:.2f} s)"
    )
    print()
    _print_evidence(list(report.evidence))
    for foil, counterexample in claim.refutations(report):
        _print_foil(foil, counterexample)
    if report.error:
        print(report.error.strip())
    if figure:
        from vademecum.canvas import save, styled
        from vademecum.figures import draw

        save(styled(lambda: draw(report)), figure)
        print(f"figure: {figure}")
    return 0 if report else 1


def _plain(value: Any) -> str:
    name = getattr(value, "__name__", "<lambda>") if callable(value) else repr(value)
    return "a function" if name == "<lambda>" else name


def _print_evidence(evidence: "list[Evidence]") -> None:
    from vademecum.claims.evidence import short

    columns = ("what", "measured", "relation", "bound", "tolerance", "cases", "at", "holds")
    rows = [
        (
            e.name,
            short(e.measured),
            e.relation,
            short(e.bound),
            f"{e.tol:.2g}",
            e.cases,
            e.place,
            "yes" if e.holds else "no" if e.refutes else "undecided",
        )
        for e in evidence
    ]
    table(columns, rows, right=("measured", "bound", "tolerance", "cases"))
    print()


def _print_foil(foil: "Foil", counterexample: "Evidence | None") -> None:
    if foil.printed:
        _print_erratum(foil, counterexample)
        return
    heading(f"foil: {foil.why}")
    field("knobs", ", ".join(f"{k}={_plain(v)}" for k, v in foil.knobs.items()))
    field("found", counterexample.in_words() if counterexample else "no counterexample")


def _print_erratum(foil: "Foil", counterexample: "Evidence | None", claim: str = "") -> None:
    heading(f"erratum: {foil.where} ({foil.weight}) {claim}".rstrip())
    field("printed", foil.printed)
    field("right", foil.right)
    field("why", foil.why)
    field("found", counterexample.in_words() if counterexample else "no counterexample")


def errata(
    pattern: str = "*", *, weight: Literal["hard", "scan", "soft"] | None = None, json: bool = False
) -> int:
    """List the errors of the sheets, each with the counterexample that a run finds now.

    Exits with 1 if one of them cannot be refuted.

    Args:
        pattern: A room, or a shell pattern of claims such as 'connectionism.hopfield*'.
        weight: Only errors that make a statement false whatever the scan did (hard), as scanned
            (scan), or only matters of wording (soft).
        json: Print JSON.
    """
    content, survived = [], 0
    for claim in sorted(choose(pattern), key=lambda c: c.id):
        if not any(weight in (None, foil.weight) for foil in claim.errata):
            continue
        for foil, counterexample in claim.refutations(claim.run()):
            if not foil.printed or weight not in (None, foil.weight):
                continue
            survived += counterexample is None
            text = counterexample.in_words() if counterexample else None
            content.append(_erratum_as_data(foil) | {"claim": claim.id, "counterexample": text})
            if not json:
                _print_erratum(foil, counterexample, claim.id)
    if json:
        as_json(content)
    else:
        counts = Counter(entry["weight"] for entry in content)
        by_weight = ", ".join(f"{counts[w]} {w}" for w in ("hard", "scan", "soft") if counts[w])
        print(f"{len(content)} errata ({by_weight}), {len(content) - survived} refuted")
    return 1 if survived else 0
