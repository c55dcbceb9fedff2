"""Markdown with formulas, as HTML or as plain text."""

import html
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from vademecum.typeset._formulas import pieces, words

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["in_words", "typeset"]

_CODE_OR_MATHS = re.compile(
    r"`(?P<code>[^`]+)`|\$\$(?P<block>.+?)\$\$|\$(?P<inline>.+?)\$", re.DOTALL
)
_MARK = "\ue000{}\ue001"  # private characters, which Markdown leaves alone
_MARKED = re.compile(r"\ue000(\d+)\ue001")
_MARKED_WITH_STOP = re.compile(  # not parted by a line's end
    r"\(?\ue000\d+\ue001[.,;:!?)’']+|\(\ue000\d+\ue001"
)
_MARKUP = re.compile(rf"{_CODE_OR_MATHS.pattern}|(?<!\s)\*+|\*+(?!\s)", re.DOTALL)


@lru_cache(10_000)
def typeset(
    text: str, *, line: bool = False, formula: Callable[[str, bool], list[str]] | None = None
) -> "Markup":
    """The HTML of a Markdown text with `$...$` and `$$...$$`.

    Args:
        text: As docstrings have it. A formula that cannot be read is shown as it is written.
        line: Whether this is one line, not to be wrapped into a paragraph.
        formula: Makes the HTML of a formula, in pieces, from its TeX and whether it has a line of
            its own; `mathml` by default.

    Example:
        >>> print(typeset("a *b*, `$c$`"))
        <p>a <em>b</em>, <code>$c$</code></p>
        >>> typeset("for $x > 0$", line=True).count("<math")
        1
    """
    import markdown
    from markupsafe import Markup

    formulas: list[str] = []

    def put_aside(found: re.Match[str]) -> str:
        if found["code"]:
            return found[0]
        make = formula or _formula
        made = make(found["block"] or found["inline"], found["block"] is not None)
        formulas.extend(made)
        numbers = range(len(formulas) - len(made), len(formulas))
        return "".join(_MARK.format(number) for number in numbers)

    made = markdown.markdown(_CODE_OR_MATHS.sub(put_aside, text), extensions=["tables"])
    if line:
        made = made.removeprefix("<p>").removesuffix("</p>")
    made = _MARKED_WITH_STOP.sub(r'<span class="together">\g<0></span>', made)
    return Markup(_MARKED.sub(lambda found: formulas[int(found[1])], made))


def in_words(text: str) -> str:
    r"""A Markdown text with formulas as plain text on one line, for menus, titles and search.

    Example:
        >>> in_words(r"*once* $\|w\|^2 \le \frac12$ for `w` in $\{0, 1\}^n$")
        'once ‖w‖² ≤ 1/2 for w in {0, 1}ⁿ'
    """

    def put(found: re.Match[str]) -> str:
        tex = found["block"] or found["inline"]
        try:
            return words(tex) if tex else found["code"] or ""
        except ValueError:
            return tex

    return " ".join(_MARKUP.sub(put, text).split())


def _formula(tex: str, block: bool) -> list[str]:
    try:
        return pieces(tex, block=block)
    except ValueError:
        return [f'<code class="formula">{html.escape(tex)}</code>']
