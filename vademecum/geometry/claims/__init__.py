"""What the course claims of groups, sets and graphs."""

from vademecum.geometry.claims import (
    depth,
    filters,
    frequencies,
    grids,
    groups,
    laplacians,
    polynomials,
    propagation,
    representations,
    symmetries,
)

__all__ = [
    "laplacians", "frequencies", "filters", "groups", "representations", "symmetries",
from vademecum.geometry.claims import clouds, colours, elements, filters, frequencies, laplacians

__all__ = [
    "elements", "clouds", "colours", "laplacians", "frequencies", "filters",
    "groups", "representations", "symmetries",
    "laplacians", "grids", "frequencies", "filters", "polynomials", "propagation", "depth",
]  # fmt: skip
