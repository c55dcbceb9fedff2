"""Autoencoders with and without a law: codes, bounds of the evidence, gradients of draws."""

from vademecum.generative.claims.autoencoding import (
    best_encoders,
    codes_and_decoders,
    codes_in_use,
    evaluated_laws,
    evidence_bounds,
    gaussian_gradients,
    gradients_of_draws,
    latent_codes,
    reconstructions,
    tempered_codes,
    variational,
)

__all__ = [
    "latent_codes",
    "evaluated_laws",
    "reconstructions",
    "evidence_bounds",
    "best_encoders",
    "variational",
    "codes_and_decoders",
    "gradients_of_draws",
    "gaussian_gradients",
    "tempered_codes",
    "codes_in_use",
]
