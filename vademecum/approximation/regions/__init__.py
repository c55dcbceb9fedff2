"""The linear regions of piecewise-linear networks: exact, counted, bounded, checked and drawn."""

from vademecum.approximation.regions.certificates import Certificate, certify_regions
from vademecum.approximation.regions.counts import (
    count_regions,
    montufar_bound,
    region_upper_bound,
    zaslavsky_count,
)
from vademecum.approximation.regions.drawing import draw_regions
from vademecum.approximation.regions.lines import Segments, regions_along
from vademecum.approximation.regions.planes import Plane, input_plane, plane_through
from vademecum.approximation.regions.polygons import Regions, linear_regions

__all__ = [
    "Certificate", "Plane", "Regions", "Segments", "certify_regions", "count_regions",
    "draw_regions", "input_plane", "linear_regions", "montufar_bound", "plane_through",
    "region_upper_bound", "regions_along", "zaslavsky_count",
]  # fmt: skip
