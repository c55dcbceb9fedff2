"""Diffusion in continuous time: equations, their reversal, the flow with the same marginals."""

from vademecum.generative.continuous.equations import VESDE, VPSDE, DiffusionSDE
from vademecum.generative.continuous.flow_integration import FlowResult, probability_flow
from vademecum.generative.continuous.langevin_levels import annealed_langevin
from vademecum.generative.continuous.likelihoods import LogLikelihood, log_likelihood
from vademecum.generative.continuous.reverse_sampling import reverse_sde_sample

__all__ = [
    "DiffusionSDE", "FlowResult", "LogLikelihood", "VESDE", "VPSDE", "annealed_langevin",
    "log_likelihood", "probability_flow", "reverse_sde_sample",
]  # fmt: skip
