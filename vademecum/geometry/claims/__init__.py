"""What the course claims of groups, sets and graphs."""

from vademecum.geometry.claims import (
    filters,
    frequencies,
    groups,
    laplacians,
    representations,
    symmetries,
)

__all__ = [
    "laplacians", "frequencies", "filters", "groups", "representations", "symmetries",
]  # fmt: skip
