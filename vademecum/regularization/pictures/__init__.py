"""Pictures of this room: signals by depth."""

from vademecum.regularization.pictures.signals import signals_by_depth

__all__ = ["signals_by_depth"]
