"""Receptive fields: derived call by call, and measured by gradients."""

from vademecum.convolution.receptive.field_drawing import draw_receptive_field
from vademecum.convolution.receptive.fields import ReceptiveField, receptive_field

__all__ = ["ReceptiveField", "draw_receptive_field", "receptive_field"]
