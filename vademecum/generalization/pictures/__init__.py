"""Pictures of this room: double descent."""

from vademecum.generalization.pictures.double_peaks import second_descent

__all__ = ["second_descent"]
