"""What the course claims of convolutions and of the networks made of them."""

from vademecum.convolution.claims import (
    along_time,
    arithmetic,
    classic,
    deep,
    fields,
    inception,
    kernel_gradients,
    segmentation,
    sequences,
    small_kernels,
    stages,
)

__all__ = [
    "fields", "stages", "kernel_gradients", "arithmetic", "along_time", "classic",
    "small_kernels", "deep", "segmentation", "sequences",
    correlations,
    deep,
    grids,
    integrals,
    matrices,
    own_layers,
    paddings,
    segmentation,
    sequences,
    shifts,
    small_kernels,
    spectra,
    strides,
    sums,
)

__all__ = [
    "integrals", "sums", "shifts", "spectra", "correlations", "matrices", "grids",
    "paddings", "strides", "own_layers",
    "classic", "small_kernels", "deep", "segmentation", "sequences",
    "stages", "kernel_gradients", "fields", "arithmetic", "classic", "small_kernels", "inception",
    "deep", "segmentation", "sequences", "along_time",
]  # fmt: skip
