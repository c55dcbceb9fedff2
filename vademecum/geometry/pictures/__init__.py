"""Pictures of this room: colourings, orbits, smoothing, critical points."""

from vademecum.geometry.pictures.colourings import graph_colours
from vademecum.geometry.pictures.orbits import orbit_of_an_image
from vademecum.geometry.pictures.point_clouds import critical_points
from vademecum.geometry.pictures.smoothing import smoothing_by_depth

__all__ = ["critical_points", "graph_colours", "orbit_of_an_image", "smoothing_by_depth"]
