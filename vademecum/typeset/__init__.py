r"""Texts with formulas: as HTML for a page, as words where only words can stand.

A formula is TeX between `$` or `$$`. It becomes MathML, which browsers typeset without a script and
screen readers speak: `mathml` for one formula, `fitted` for one in a narrow column, `typeset` for
Markdown with formulas (needs the extra `atlas`), `in_words` for menus, titles and descriptions.
What TeX writes by its own rules, spaces, limits and the size of fences, is written out, for
browsers have other rules; the pages bring the font (`FONT`, a folder with `maths.css`).
"""

from vademecum.typeset._fitting import fitted
from vademecum.typeset._formulas import mathml
from vademecum.typeset._text import in_words, typeset
from vademecum.typeset._widths import FONT

__all__ = ["FONT", "fitted", "in_words", "mathml", "typeset"]
