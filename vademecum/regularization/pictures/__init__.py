"""Pictures of this room: signals by depth."""

from vademecum.regularization.pictures.signals import signals_by_depth

__all__ = ["signals_by_depth"]
"""Pictures of this room: signals by depth, decay and stopping, dropout, normalisation."""

from vademecum.regularization.pictures.shrinkage import decay_and_stopping

__all__ = ["decay_and_stopping"]
