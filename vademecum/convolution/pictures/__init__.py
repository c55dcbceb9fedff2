"""Pictures of this room: convolutions as matrices, filtered images, fields that grow, a tree."""

from vademecum.convolution.pictures.fields import growing_field
from vademecum.convolution.pictures.filters import filtered_image
from vademecum.convolution.pictures.operators import convolution_matrix
from vademecum.convolution.pictures.trees import dilated_tree

__all__ = ["convolution_matrix", "dilated_tree", "filtered_image", "growing_field"]
