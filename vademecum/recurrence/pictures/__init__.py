"""Pictures of this room: gradients through time, eigenvalues on their ring, gates of a latch."""

from vademecum.recurrence.pictures.fading import fading_gradients
from vademecum.recurrence.pictures.latches import latch_gates
from vademecum.recurrence.pictures.rings import eigenvalue_ring

__all__ = ["eigenvalue_ring", "fading_gradients", "latch_gates"]
