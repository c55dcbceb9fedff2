r"""Markdown with maths as HTML; formulas become MathML, which browsers typeset without a script.

The converter is docutils'. It lacks a few commands and reads the digits of `\frac12` as the number
twelve, so these are written out first.
"""

import html
import re
from functools import lru_cache

import markdown
from docutils.utils.math.latex2mathml import tex2mathml
from markupsafe import Markup

__all__ = ["mathml", "typeset"]

_REWRITES = (
    (r"(\\[td]?(?:frac|binom)|\\sqrt|[\^_])\s*(\d)(?=\d)", r"\1{\2}"),
    (r"\\math(?:rel|bin|op)(?![a-z])", ""),
    (r"\\dots(?![a-z])", r"\\ldots"),
    (r"\\iff(?![a-z])", r"\\Longleftrightarrow"),
    (r"\\implies(?![a-z])", r"\\Longrightarrow"),
    (r"\\(big|Big|bigg|Bigg)(?=\s*(?:[)\]]|\\[}r]))", r"\\\1r"),
    (r"\\(big|Big|bigg|Bigg)(?![a-zA-Z])", r"\\\1l"),
    (r":=", r"\\coloneqq "),
    # an empty group after an accent, or its index would be set underneath
    (r"(\\(?:dot|hat|tilde|bar|vec|widehat|widetilde|overline)\s*(?:\\[a-zA-Z]+|\{[^{}]*\}|\w))(?=\s*_)",
     r"\1{}"),
)  # fmt: skip
_CODE_OR_MATHS = re.compile(r"`[^`]+`|\$\$(?P<block>.+?)\$\$|\$(?P<inline>.+?)\$", re.DOTALL)
_MARK = "\ue000{}\ue001"  # private characters, which Markdown leaves alone
_MARKED = re.compile(r"\ue000(\d+)\ue001")
_MARKED_WITH_STOP = re.compile(r"\(?\ue000\d+\ue001[.,;:!?)’']+")  # not parted by a line's end


def mathml(tex: str, *, block: bool = False) -> str:
    r"""The MathML of a formula.

    Raises:
        Exception: MathError for a command that is unknown, and others for what is malformed.

    Example:
        >>> mathml(r"\tfrac12") == mathml(r"\tfrac{1}{2}") != mathml(r"\tfrac{12}{}")
        True
    """
    for pattern, replacement in _REWRITES:
        tex = re.sub(pattern, replacement, tex)
    return tex2mathml(tex, as_block=block)


@lru_cache(10_000)
def typeset(text: str, *, line: bool = False) -> Markup:
    """The HTML of a Markdown text with `$...$` and `$$...$$`.

    Args:
        text: As docstrings have it. A formula that cannot be read is shown as it is written.
        line: Whether this is one line, not to be wrapped into a paragraph.

    Example:
        >>> print(typeset("a *b*, `$c$`"))
        <p>a <em>b</em>, <code>$c$</code></p>
        >>> typeset("for $x > 0$", line=True).count("<math")
        1
    """
    formulas: list[str] = []

    def put_aside(found: re.Match[str]) -> str:
        tex = found["block"] or found["inline"]
        if tex is None:
            return found[0]
        formulas.append(_formula(tex, block=found["block"] is not None))
        return _MARK.format(len(formulas) - 1)

    made = markdown.markdown(_CODE_OR_MATHS.sub(put_aside, text), extensions=["tables"])
    if line:
        made = made.removeprefix("<p>").removesuffix("</p>")
    made = _MARKED_WITH_STOP.sub(r'<span class="together">\g<0></span>', made)
    return Markup(_MARKED.sub(lambda found: formulas[int(found[1])], made))


def _formula(tex: str, *, block: bool) -> str:
    try:
        return mathml(tex, block=block)
    except Exception:  # docutils raises many kinds
        return f'<code class="formula">{html.escape(tex)}</code>'
