"""Pictures of this room: receptive fields that grow, and WaveNet's tree."""

from vademecum.convolution.pictures.fields import growing_field
from vademecum.convolution.pictures.trees import dilated_tree

__all__ = ["dilated_tree", "growing_field"]
