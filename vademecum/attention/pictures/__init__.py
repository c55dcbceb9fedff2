"""Pictures of this room: encodings of positions."""

from vademecum.attention.pictures.encodings import position_encodings

__all__ = ["position_encodings"]
