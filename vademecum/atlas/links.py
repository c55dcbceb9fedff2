"""Addresses, as the server has them and as files have them."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from vademecum.claims import Claim
from vademecum.pictures import Picture

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

    def statement(self, claim: Claim) -> str:
        """The address of a statement."""
        return self.page("rooms/" + claim.id.replace(".", "/"))

    def drawing(self, picture: Picture, knobs: Mapping[str, Any] | None = None) -> str:
        """The address of a drawing; knobs at their defaults are left out."""
        path = f"pictures/{picture.room}/{picture.name}"
        known = picture.knobs
        changed = {k: v for k, v in (knobs or {}).items() if v != known[k].default}
        if self.static:
            words = "_".join(f"{name}-{value}" for name, value in changed.items())
            return self.file(f"{path}/{words or 'first'}.svg")
        return self.file(f"{path}.svg" + ("?" + urlencode(changed) if changed else ""))
