"""Latent factors: Gaussians of low rank, factor analysis, probabilistic PCA."""

from vademecum.generative.claims.latent_factors import (
    factor_fitting,
    factor_laws,
    factor_posteriors,
    gaussian_fits,
    low_rank_covariances,
    probabilistic_components,
    vanishing_noise,
)

__all__ = [
    "gaussian_fits",
    "low_rank_covariances",
    "factor_laws",
    "factor_posteriors",
    "factor_fitting",
    "probabilistic_components",
    "vanishing_noise",
]
