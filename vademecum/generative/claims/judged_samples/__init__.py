"""Measures of samples: what they reward, and what they are a distance of."""

from vademecum.generative.claims.judged_samples import (
    frechet_distances,
    sample_quality,
)

__all__ = [
    "sample_quality",
    "frechet_distances",
]
