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
    sums_of_codes,
    symmetries,
)

__all__ = [
    "laplacians", "frequencies", "filters", "groups", "representations", "symmetries", "elements",
    "sums_of_codes", "clouds", "colours", "grids", "polynomials", "propagation", "depth",
]  # fmt: skip
