"""What the course claims of groups, sets and graphs."""

from vademecum.geometry.claims import filters, frequencies, laplacians

__all__ = [
    "laplacians", "frequencies", "filters",
]  # fmt: skip
from vademecum.geometry.claims import groups, representations, symmetries

__all__ = ["groups", "representations", "symmetries"]
