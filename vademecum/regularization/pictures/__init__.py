"""Pictures of this room: signals by depth."""

from vademecum.regularization.pictures.shrinkage import decay_and_stopping
from vademecum.regularization.pictures.signals import signals_by_depth

__all__ = ["decay_and_stopping", "signals_by_depth"]
