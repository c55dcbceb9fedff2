"""What the course claims of what networks can represent."""

from vademecum.approximation.claims import (
    activations,
    barron,
    density,
    depth,
    hyperbolic,
    layers,
    lifting,
    maxout,
    rectifiers,
    region_counts,
    regions,
    ridges,
    splines,
    universal,
)

__all__ = [
    "layers", "activations", "hyperbolic", "rectifiers", "ridges", "density", "universal",
    "lifting", "barron", "depth", "regions", "region_counts", "splines", "maxout",
]  # fmt: skip
