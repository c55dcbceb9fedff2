"""What the course claims of descent methods."""

from vademecum.optimization.claims import (
    conditioning,
    convexity,
    convexity_ladder,
    curved_steps,
    lipschitz,
    smoothness,
    steepest,
    steps,
    strong_convexity,
    taylor,
    upper_bounds,
)

__all__ = [
    "steepest", "steps", "taylor", "curved_steps", "lipschitz", "smoothness", "upper_bounds",
    "convexity", "convexity_ladder", "strong_convexity", "conditioning",
]  # fmt: skip
from vademecum.optimization.claims import descent_rates
    descent_rates,
    gradient_noise,
    polyak_lojasiewicz,
    stochastic_gradients,
    tangent_kernels,
)

__all__ = [
    "descent_rates", "polyak_lojasiewicz", "tangent_kernels",
    "stochastic_gradients", "gradient_noise",
]  # fmt: skip
