"""What the course claims of convolutions and of the networks made of them."""

from vademecum.convolution.claims import (
    along_time,
    arithmetic,
    classic,
    correlations,
    deep,
    fields,
    grids,
    inception,
    integrals,
    kernel_gradients,
    matrices,
    own_layers,
    paddings,
    segmentation,
    sequences,
    shifts,
    small_kernels,
    spectra,
    stages,
    strides,
    sums,
)

__all__ = [
    "fields", "stages", "kernel_gradients", "arithmetic", "along_time", "classic",
    "small_kernels", "deep", "segmentation", "sequences", "integrals", "sums", "shifts",
    "spectra", "correlations", "matrices", "grids", "paddings", "strides", "own_layers",
    "inception",
]  # fmt: skip
