"""Links that nobody writes: an export or a claim that a text names between backticks.

A claim has its anchor on the page of claims. What is ambiguous, and the name of an argument of the
function that is being explained, stays as it is.
"""

import re

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.nodes import make_refnode

__all__ = ["setup", "with_anchors"]

Targets = dict[str, list[tuple[str, str]]]


def with_anchors(page: str) -> str:
    r"""Put an anchor that bears the claim's id before each claim of the generated page.

    Example:
        >>> print(with_anchors("### Two and two\n\n`room.sums` · **holds**"))
        (room.sums)=
        ### Two and two
        <BLANKLINE>
        `room.sums` · **holds**
    """
    return re.sub(r"^(### .*\n\n`([\w.]+)` · )", r"(\2)=\n\1", page, flags=re.MULTILINE)


def _read(_: Sphinx, page: str, source: list[str]) -> None:
    if page == "claims":
        source[0] = with_anchors(source[0])


def _targets(app: Sphinx) -> Targets:
    """Pages and anchors by all names under which they are known, such as `eigsh`."""
    found: Targets = {}
    for name, entry in app.env.domains.python_domain.objects.items():
        parts = name.split(".")
        for known in {parts[-1], ".".join(parts[1:])} if len(parts) == 3 else ():
            found.setdefault(known, []).append((entry.docname, entry.node_id))
    for name, (page, anchor, _) in app.env.domains.standard_domain.labels.items():
        if page == "claims" and "." in name:
            found.setdefault(name, []).append((page, anchor))
    return found


def _link(app: Sphinx, doctree: nodes.document, page: str) -> None:
    targets = _targets(app)
    room = page.removeprefix("rooms/")
    for literal in list(doctree.findall(nodes.literal)):
        name = literal.astext()
        near = [target for target in targets.get(name, ()) if target[0] == page]
        found = near or targets.get(name) or targets.get(f"{room}.{name}", [])
        if len(found) == 1 and not _stays(literal):
            link = make_refnode(app.builder, page, *found[0], literal.deepcopy())
            literal.replace_self(link)


def _stays(literal: nodes.literal) -> bool:
    """Whether it is in a heading or a link, or names an argument of what is being explained."""
    above = literal.parent
    while above is not None:
        if isinstance(above, nodes.title | nodes.reference):
            return True
        if isinstance(above, addnodes.desc):
            names = (p.astext() for p in above.findall(addnodes.desc_parameter))
            if literal.astext() in {re.split(r"[:=]", name)[0].strip(" *") for name in names}:
                return True
        above = above.parent
    return False


def setup(app: Sphinx) -> dict[str, bool]:
    """Give claims their anchors, and link when all pages have been read."""
    app.connect("source-read", _read)
    app.connect("doctree-resolved", _link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
