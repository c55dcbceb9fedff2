"""Pages of source code share their navigation: it is the same for all that are as deep.

None of them stands in it, so that its links differ by how many folders they lead up alone. To make
it anew for each of a thousand pages took a quarter of the time of a build.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from sphinx.application import Sphinx

__all__ = ["Navigation", "setup"]


class Navigation:
    """The navigation of pages, which those of source code share by depth.

    Example:
        >>> share, made = Navigation(), lambda page: lambda **form: f"as for {page}, {form}"
        >>> for page in ("_modules/a/b", "_modules/c/d", "_modules/a", "rooms/linear"):
        ...     context = {"toctree": made(page)}
        ...     share(None, page, "page.html", context, None)
        ...     print(context["toctree"](maxdepth=-1))
        as for _modules/a/b, {'maxdepth': -1}
        as for _modules/a/b, {'maxdepth': -1}
        as for _modules/a, {'maxdepth': -1}
        as for rooms/linear, {'maxdepth': -1}
    """

    def __init__(self):
        self._of: dict[int, Callable[..., str]] = {}

    def __call__(
        self, app: Any, page: str, template: str, context: dict[str, Any], doctree: Any
    ) -> None:
        """Put the shared one in the place of a page's own."""
        if page.startswith("_modules/") and "toctree" in context:
            context["toctree"] = self._of.setdefault(page.count("/"), cache(context["toctree"]))


def setup(app: Sphinx) -> dict[str, bool]:
    """Come before the theme (which has priority 500) asks for the navigation."""
    app.connect("html-page-context", Navigation(), priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
