"""Paths between minima: the segment, the segment after alignment, a curve that was trained."""

from vademecum.generalization.connections.path_drawing import draw_mode_connectivity
from vademecum.generalization.connections.paths import ModeConnectivity, mode_connectivity

__all__ = ["ModeConnectivity", "draw_mode_connectivity", "mode_connectivity"]
