"""Invertible maps: the densities that they make, and which of them are cheap."""

from vademecum.generative.claims.invertible_maps import (
    bends_and_couplings,
    flow_densities,
    linear_flows,
    triangular_maps,
    universal_maps,
)

__all__ = [
    "triangular_maps",
    "flow_densities",
    "linear_flows",
    "bends_and_couplings",
    "universal_maps",
]
