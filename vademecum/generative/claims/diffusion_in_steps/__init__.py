"""Diffusion in steps: noising, the way back, the loss, and samplers."""

from vademecum.generative.claims.diffusion_in_steps import (
    denoising_steps,
    diffusion_bounds,
    diffusion_samplers,
    noise_regression,
    noising,
    reverse_kernels,
    skipped_steps,
    step_variances,
)

__all__ = [
    "noising",
    "reverse_kernels",
    "diffusion_bounds",
    "denoising_steps",
    "noise_regression",
    "diffusion_samplers",
    "skipped_steps",
    "step_variances",
]
