"""Pictures of this room: chains on curved ground, and what posteriors predict."""

from vademecum.bayes.pictures.bands import predictive_bands
from vademecum.bayes.pictures.paths import chains_on_a_banana_and_a_funnel

__all__ = [
    "chains_on_a_banana_and_a_funnel",
    "predictive_bands",
]
