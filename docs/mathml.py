"""Maths as MathML in Sphinx; what cannot be read is a warning, and hence an error in CI."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from vademecum.typeset import mathml

__all__ = ["setup"]

_LOGGER = logging.getLogger(__name__)


def _append(writer, node: nodes.Element, *, block: bool) -> None:
    try:
        text = mathml(node.astext(), block=block)
    except ValueError as error:
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
