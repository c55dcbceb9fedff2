r"""Maths as MathML, which browsers typeset without a script: docutils' converter, made safe.

The converter lacks a few commands and reads the digits of `\frac12` as the number twelve, so these
are written out first. What it still cannot read is a warning, and hence an error in CI.
"""

import re

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

__all__ = ["render", "setup"]

_REWRITES = (
    (r"(\\[td]?(?:frac|binom)|\\sqrt|[\^_])\s*(\d)(?=\d)", r"\1{\2}"),
    (r"\\math(?:rel|bin|op)(?![a-z])", ""),
    (r"\\dots(?![a-z])", r"\\ldots"),
    (r"\\iff(?![a-z])", r"\\Longleftrightarrow"),
    (r"\\implies(?![a-z])", r"\\Longrightarrow"),
    (r"\\(big|Big|bigg|Bigg)(?![a-zA-Z])", r"\\\1l"),
)
_LOGGER = logging.getLogger(__name__)


def render(tex: str, *, block: bool = False) -> str:
    r"""The MathML of a formula.

    Example:
        >>> render(r"\tfrac12") == render(r"\tfrac{1}{2}") != render(r"\tfrac{12}{}")
        True
    """
    for pattern, replacement in _REWRITES:
        tex = re.sub(pattern, replacement, tex)
    return tex2mathml(tex, as_block=block)


def _append(writer, node: nodes.Element, *, block: bool) -> None:
    try:
        text = render(node.astext(), block=block)
    except Exception as error:  # MathError for what is unknown, others for what is malformed
        _LOGGER.warning("no MathML for %r: %s", node.astext(), error, location=node)
        text = writer.encode(node.astext())
    writer.body.append(f'<div class="math">{text}</div>' if block else text)
    raise nodes.SkipNode


def _inline(writer, node: nodes.Element) -> None:
    _append(writer, node, block=False)


def _block(writer, node: nodes.Element) -> None:
    _append(writer, node, block=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer `html_math_renderer = "mathml"`."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
