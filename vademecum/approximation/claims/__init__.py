"""What the course claims of what networks can represent."""

from vademecum.approximation.claims import (
    activations,
    barron,
    convex_parts,
    density,
    depth,
    hyperbolic,
    layers,
    lifting,
    maxout,
    one_layer,
    rectifiers,
    region_bounds,
    region_counts,
    regions,
    ridges,
    smooth_rectifiers,
    splines,
    universal,
)

__all__ = [
    "layers", "activations", "hyperbolic", "rectifiers", "smooth_rectifiers", "ridges", "density",
    "universal", "lifting", "barron", "depth", "regions", "region_counts", "region_bounds",
    "splines", "one_layer", "maxout", "convex_parts",
]  # fmt: skip
