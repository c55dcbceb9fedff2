"""What the course claims of groups, sets and graphs."""

from vademecum.geometry.claims import (
    clouds,
    colours,
    depth,
    elements,
    filters,
    frequencies,
    graph_attention,
    graph_convolutions,
    graph_outputs,
    grids,
    groups,
    hops,
    laplacians,
    neighbourhoods,
    polynomials,
    propagation,
    representations,
    separations,
    sums_of_codes,
    symmetries,
)

__all__ = [
    "groups", "representations", "symmetries", "elements", "sums_of_codes", "clouds",
    "neighbourhoods", "hops", "laplacians", "grids", "frequencies", "filters", "polynomials",
    "graph_convolutions", "propagation", "depth", "graph_attention", "graph_outputs", "colours",
    "separations",
]  # fmt: skip
