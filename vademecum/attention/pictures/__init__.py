"""Pictures of this room: encodings of positions, attention maps of a model that learns."""

from vademecum.attention.pictures.encodings import position_encodings
from vademecum.attention.pictures.looks import learned_looks

__all__ = ["learned_looks", "position_encodings"]
