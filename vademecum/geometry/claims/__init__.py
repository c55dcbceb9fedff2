"""What the course claims of groups, sets and graphs."""

from vademecum.geometry.claims import (
    clouds,
    colours,
    depth,
    elements,
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
    "laplacians", "frequencies", "filters", "groups", "representations", "symmetries", "elements",
    "clouds", "colours", "grids", "polynomials", "propagation", "depth",
]  # fmt: skip
