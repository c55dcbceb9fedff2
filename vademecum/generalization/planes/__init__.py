"""The loss on a plane of parameters."""

from vademecum.generalization.planes.plane_drawing import draw_loss_plane
from vademecum.generalization.planes.sections import LossPlane, loss_plane

__all__ = ["LossPlane", "draw_loss_plane", "loss_plane"]
