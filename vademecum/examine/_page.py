"""The page of a dossier: one HTML file that needs nothing else, without a script.

Everything that a user wrote (names of modules, words in errors) is escaped; pictures are images of
their own, which a browser runs no scripts of either. Colours follow the reader's preference, and on
paper sections stay together. Where pictures would make the page larger than 5 MB the largest are
left to their files.
"""

import base64
from collections.abc import Iterator
from html import escape
from typing import Any

from vademecum.examine.dossier import Dossier, Finding, Measurement, Section

__all__ = ["page"]

_LIMIT = 5_000_000  # bytes
_LINES = 60  # of a list that is printed out
_SIGNS = {"measured": "●", "partly": "◐", "not applicable": "○", "failed": "✕", "out of time": "◌"}
_STYLE = """
:root{color-scheme:light dark;--ink:#1b1e22;--soft:#5c6269;--line:#d9dce0;--ground:#fff;
--card:#f6f7f8;--mark:#b4451f;--link:#1f5fa8}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ea;--soft:#a4a9b0;--line:#3a3f45;
--ground:#16181b;--card:#1e2125;--mark:#f0906a;--link:#7fb2ee}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:60rem;padding:1.5rem 1rem 4rem;background:var(--ground);
color:var(--ink);font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:0 0 .3rem;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:0;text-transform:capitalize}
a{color:var(--link)}
.soft{color:var(--soft)}
.small{font-size:.85rem}
section{border-top:1px solid var(--line);margin-top:2rem;padding-top:1rem}
.status{color:var(--soft);font-size:.9rem;margin:0 0 .5rem}
.failed .status,.out-of-time .status{color:var(--mark)}
ol.findings{padding-left:1.4rem}
ol.findings li{margin:.5rem 0}
ol.findings strong{font-weight:600}
nav ul{display:flex;flex-wrap:wrap;gap:.3rem 1rem;list-style:none;padding:0;margin:1rem 0}
figure{margin:1rem 0;overflow-x:auto}
img{max-width:100%;height:auto}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem;width:100%}
td,th{border-top:1px solid var(--line);padding:.3rem .6rem .3rem 0;text-align:left;
vertical-align:top}
td.number{white-space:nowrap;font-variant-numeric:tabular-nums}
td.name{font-family:ui-monospace,monospace;font-size:.82rem}
pre{background:var(--card);padding:.7rem;overflow-x:auto;font-size:.78rem;line-height:1.35}
details{margin:.6rem 0}
summary{cursor:pointer;color:var(--soft)}
@media(max-width:40rem){td.how,th.how{display:none}td.number{white-space:normal}
figure img{max-width:none;min-width:34rem}}
@media print{:root{--ink:#000;--soft:#444;--line:#bbb;--ground:#fff;--card:#f4f4f4;--mark:#933;
--link:#000}body{max-width:none;padding:0;font-size:10pt}section,figure,tr{break-inside:avoid}
section{break-inside:auto}nav,details{display:none}h2{break-after:avoid}
td.how,th.how{display:table-cell}}
"""


def page(dossier: Dossier) -> str:
    """One HTML page.

    Example:
        >>> page(Dossier(())).startswith("<!doctype html>")
        True
    """
    environment = dossier.environment
    title = str(environment.get("model") or "a network").rpartition(".")[2]
    fitting = _fitting(dossier.sections)
    parts = [
        "<!doctype html>", '<html lang="en">', '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>Dossier of {escape(title)}</title>", f"<style>{_STYLE}</style>",
        f"<h1>Dossier of {escape(title)}</h1>",
        f'<p class="soft">{escape(_given(environment))}</p>',
        *_findings(dossier.findings, dossier.sections), *_contents(dossier.sections),
        *(line for each in dossier.sections for line in _section(each, each.name in fitting)),
        *_environment(environment), "</html>", "",
    ]  # fmt: skip
    return "\n".join(parts)


def _fitting(sections: tuple[Section, ...]) -> set[str]:
    """The sections whose pictures the page has room for, the smallest first."""
    words = 20_000 + sum(
        4 * sum(len(str(part)) for part in (s.measurements, s.traceback, s.sentence))
        for s in sections
    )
    found, left = set(), _LIMIT - words
    for section in sorted(sections, key=lambda s: len(s.figure or "")):
        left -= 4 * len((section.figure or "").encode()) // 3 + 8
        if section.figure and left > 0:
            found.add(section.name)
    return found


def _given(environment: Any) -> str:
    n, test = environment.get("examples"), environment.get("test_examples")
    words = [f"{n:,} examples" if n else "one whole of data"]
    words.append(f"{test:,} fresh ones" if test else "no fresh ones")
    task = environment.get("task")
    if task:
        words.append(f"taken for {task}: {environment.get('task_because')}")
    words.append(f"{environment.get('dtype')} on {environment.get('device')}")
    words.append(f"seed {environment.get('seed')}")
    return "; ".join(words) + "."


def _findings(findings: tuple[Finding, ...], sections: tuple[Section, ...]) -> Iterator[str]:
    if not findings:
        looked = [s for s in sections if s.status in ("measured", "partly")]
        yield f"<p>Nothing stands out in {len(looked)} sections that were measured.</p>"
        return
    yield '<ol class="findings">'
    for finding in findings:
        beyond = f"{finding.number:.4g}, threshold {finding.threshold:g}"
        yield (
            f"<li><strong>{escape(finding.text)}</strong> {escape(finding.advice)}"
            f' <span class="soft small"><a href="#{escape(finding.section)}">'
            f"{escape(finding.section)}</a>: {escape(beyond)}</span></li>"
        )
    yield "</ol>"


def _contents(sections: tuple[Section, ...]) -> Iterator[str]:
    yield "<nav><ul>"
    for section in sections:
        sign = _SIGNS[section.status]
        name = escape(section.name)
        yield f'<li><a href="#{name}">{name}</a> <span title="{section.status}">{sign}</span></li>'
    yield "</ul></nav>"


def _section(section: Section, drawn: bool) -> Iterator[str]:
    name = escape(section.name)
    yield f'<section id="{name}" class="{section.status.replace(" ", "-")}"><h2>{name}</h2>'
    reason = f": {section.reason}" if section.reason else ""
    words = f"{_SIGNS[section.status]} {section.status}{reason}"
    yield f'<p class="status">{escape(words)} · {section.seconds:.1f} s</p>'
    if section.sentence:
        yield f"<p>{escape(section.sentence)}</p>"
    if section.figure is not None:
        yield _figure(section, drawn)
    yield from _table(section.measurements)
    for measurement in section.measurements:
        if _long(measurement):
            yield from _listed(measurement)
    if section.notes:
        notes = "".join(f"<li>{escape(note)}</li>" for note in section.notes)
        yield f'<details><summary>Warnings</summary><ul class="small">{notes}</ul></details>'
    if section.traceback:
        trace = escape(section.traceback)
        yield f"<details><summary>What went wrong</summary><pre>{trace}</pre></details>"
    if section.claims:
        claims = ", ".join(f"<code>{escape(claim)}</code>" for claim in section.claims)
        yield f'<p class="soft small">Claims behind it: {claims} (<code>vade show ID</code>)</p>'
    yield "</section>"


def _figure(section: Section, drawn: bool) -> str:
    name = escape(section.name)
    if not drawn:
        return (
            f'<p class="soft">The picture is large: <a href="figures/{name}.svg">open it</a>.</p>'
        )
    data = base64.b64encode((section.figure or "").encode()).decode()
    alt = escape(f"The picture of the section on {section.name}. {section.sentence}")
    return f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{alt}"></figure>'


def _table(measurements: tuple[Measurement, ...]) -> Iterator[str]:
    rows = [m for m in measurements if not _long(m)]
    if not rows:
        return
    yield '<div class="wide"><table><tr><th>measurement</th><th>value</th>'
    yield '<th>n</th><th class="how">how</th></tr>'
    for m in rows:
        n = "" if m.n is None else f"{m.n:,}"
        name, words = escape(m.name).replace("_", "_<wbr>"), "none" if m.value == () else m.words()
        kind = "number" if len(words) < 40 else "words"
        yield (
            f'<tr><td class="name">{name}</td><td class="{kind}">{escape(words)}</td>'
            f'<td class="number">{n}</td><td class="how soft">{escape(m.method)}</td></tr>'
        )
    yield "</table></div>"


def _long(measurement: Measurement) -> bool:
    value = measurement.value
    return isinstance(value, tuple) and (len(value) > 4 or len(measurement.words()) > 80)


def _listed(measurement: Measurement) -> Iterator[str]:
    value = measurement.value
    assert isinstance(value, tuple)
    shown = [f"{each:.4g}" if isinstance(each, float) else str(each) for each in value[:_LINES]]
    words = "\n".join(shown) if isinstance(value[0], str) else ", ".join(shown)
    more = f"\n... and {len(value) - _LINES} more" if len(value) > _LINES else ""
    yield f"<details><summary>{escape(measurement.name)}</summary>"
    yield f'<p class="small soft">{escape(measurement.method)}</p>' if measurement.method else ""
    yield f"<pre>{escape(words + more)}</pre></details>"


def _environment(environment: Any) -> Iterator[str]:
    yield '<section id="environment"><h2>Environment</h2><div class="wide"><table>'
    for key, value in environment.items():
        if value is not None:
            name, text = escape(str(key)), escape(str(value))
            yield f'<tr><td class="name">{name}</td><td>{text}</td></tr>'
    yield "</table></div>"
    yield '<p class="soft small">The same numbers are in <code>dossier.json</code>.</p></section>'
