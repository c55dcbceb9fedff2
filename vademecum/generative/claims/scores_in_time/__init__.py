"""Scores, and diffusion in continuous time: learned without the density, followed backwards."""

from vademecum.generative.claims.scores_in_time import (
    continuous_time,
    noised_scores,
    score_matching,
    scores,
    two_samplers,
)

__all__ = [
    "scores",
    "score_matching",
    "noised_scores",
    "two_samplers",
    "continuous_time",
]
