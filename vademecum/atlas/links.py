"""Addresses, as the server has them and as files have them."""

from typing import NamedTuple

__all__ = ["Links"]


class Links(NamedTuple):
    """How one page refers to others.

    Example:
        >>> Links().page("rooms/linear"), Links("../", ".html").page("rooms/linear")
        ('/rooms/linear', '../rooms/linear.html')
    """

    root: str = "/"
    suffix: str = ""

    @property
    def static(self) -> bool:
        """Whether pages are files, and nobody answers."""
        return bool(self.suffix)

    def page(self, path: str = "") -> str:
        """The address of a page; of the home page by default."""
        return self.root + ((path or "index") + self.suffix if self.static else path)

    def file(self, path: str) -> str:
        """The address of a file as it is."""
        return self.root + path
