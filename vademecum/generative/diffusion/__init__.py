"""Diffusion in steps: noise, networks that learn to remove it, samples that are drawn by that."""

from vademecum.generative.diffusion.denoising import DDPM
from vademecum.generative.diffusion.image_network import ConditionalUNet
from vademecum.generative.diffusion.noise_schedules import NoiseSchedule, StepPosterior
from vademecum.generative.diffusion.perceptron import ConditionalMLP
from vademecum.generative.diffusion.samplers import ddim_sample, ddpm_sample
from vademecum.generative.diffusion.variational import DiffusionBound, diffusion_bound

__all__ = [
    "DDPM", "ConditionalMLP", "ConditionalUNet", "DiffusionBound", "NoiseSchedule", "StepPosterior",
    "ddim_sample", "ddpm_sample", "diffusion_bound",
]  # fmt: skip
