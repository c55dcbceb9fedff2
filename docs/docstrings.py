"""Docstrings in Markdown (Google sections, `$...$`, single backticks), for autodoc.

Prose is rewritten before napoleon reads it; doctests and indented code are left alone.
"""

import re
from typing import Any

from sphinx.application import Sphinx

__all__ = ["setup", "to_rst"]

_MARKUP = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|(?<![`:])`([^`]+)`(?!`)", re.DOTALL)


def to_rst(text: str) -> str:
    r"""Rewrite Markdown maths, literals and code blocks as reStructuredText.

    Example:
        >>> print(to_rst("The `w` in $w^*$:\n\n    code(`$`)"))
        The ``w`` in :math:`w^*`::
        <BLANKLINE>
            code(`$`)
    """
    blocks: list[str] = []
    above, code = "", None  # the last line so far, and the indentation of a code block we are in
    for block in re.split(r"\n\s*\n", text.expandtabs()):
        indent = _indent(block)
        if code is None and above.endswith(":") and indent >= _indent(above) + 4:
            blocks[-1] += ":"
            code = indent
        elif code is not None and indent < code:
            code = None
        blocks.append(block if code is not None else _rewrite(block))
        above = block.splitlines()[-1] if block else ""
    return "\n\n".join(blocks)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _rewrite(block: str) -> str:
    lines = block.strip("\n").splitlines()
    if len(lines) > 1 and all(line.lstrip().startswith("|") for line in lines):
        return _table(lines)
    doctest = re.search(r"^ *>>> ", block, re.MULTILINE)
    end = doctest.start() if doctest else len(block)
    return _MARKUP.sub(lambda found: _markup(found, block), block[:end]) + block[end:]


def _table(lines: list[str]) -> str:
    """A Markdown table, whose second line is a rule, as a list of lists."""
    indent = " " * _indent(lines[0])
    rows = [re.split(r"(?<!\\)\|", line.strip().strip("|")) for line in lines]
    out = [f"{indent}.. list-table::", f"{indent}    :header-rows: 1", ""]
    for row in (rows[0], *rows[2:]):
        cells = [_MARKUP.sub(lambda found, c=cell: _markup(found, c), cell.strip()) for cell in row]
        out += [f"{indent}    {'  -' if k else '* -'} {cell}" for k, cell in enumerate(cells)]
    return "\n".join(out)


def _markup(found: re.Match[str], text: str) -> str:
    display, inline, literal = found.groups()
    if display:
        start = text.rfind("\n", 0, found.start()) + 1
        indent = " " * _indent(text[start:])
        return f"\n\n{indent}.. math::\n\n{indent}    {' '.join(display.split())}\n\n{indent}"
    role = f":math:`{' '.join(inline.split())}`" if inline else f"``{' '.join(literal.split())}``"
    before, after = text[found.start() - 1 : found.start()], text[found.end() : found.end() + 1]
    return ("\\ " if before.isalnum() else "") + role + ("\\ " if after.isalnum() else "")


def _process(_: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = to_rst("\n".join(lines)).splitlines()
    if what in ("attribute", "property"):
        lines[:0] = ["..", ""]  # or napoleon takes what is before a colon for a type


def _skip(_: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what no reader calls: scikit-learn's metadata routing, torch's hooks."""
    return True if re.fullmatch(r"set_\w+_request|extra_repr|[gs]et_extra_state", name) else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Rewrite docstrings before napoleon (which has priority 500) does."""
    app.connect("autodoc-process-docstring", _process, priority=400)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True}
