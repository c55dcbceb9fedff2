"""What the course claims of generative models."""

from vademecum.generative.claims import (
    autoencoding,
    classical_models,
    diffusion_in_steps,
    games_and_transport,
    invertible_maps,
    judged_samples,
    latent_factors,
    one_after_another,
    scores_in_time,
)

__all__ = [
    "classical_models",
    "latent_factors",
    "autoencoding",
    "one_after_another",
    "invertible_maps",
    "games_and_transport",
    "diffusion_in_steps",
    "scores_in_time",
    "judged_samples",
]
