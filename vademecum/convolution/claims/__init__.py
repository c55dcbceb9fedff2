"""What the course claims of convolutions and of the networks made of them."""

from vademecum.convolution.claims import (
    classic,
    deep,
    inception,
    segmentation,
    sequences,
    small_kernels,
)

__all__ = [
    "classic", "small_kernels", "deep", "segmentation", "sequences", "inception",
]  # fmt: skip
