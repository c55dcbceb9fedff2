"""What the course claims of descent methods."""

from vademecum.optimization.claims import (
    conditioning,
    convexity,
    convexity_ladder,
    curved_steps,
    descent_rates,
    gradient_noise,
    lipschitz,
    polyak_lojasiewicz,
    smoothness,
    steepest,
    steps,
    stochastic_gradients,
    strong_convexity,
    noise_balls,
    polyak_lojasiewicz,
    step_schedules,
    stochastic_gradients,
    stochastic_rates,
    stochastic_steps,
    tangent_kernels,
    taylor,
    upper_bounds,
)

__all__ = [
    "steepest", "steps", "taylor", "curved_steps", "lipschitz", "smoothness", "upper_bounds",
    "convexity", "convexity_ladder", "strong_convexity", "conditioning", "descent_rates",
    "polyak_lojasiewicz", "tangent_kernels", "stochastic_gradients", "gradient_noise",
    "descent_rates", "polyak_lojasiewicz", "tangent_kernels",
    "stochastic_gradients", "gradient_noise", "stochastic_steps",
    "noise_balls", "step_schedules", "stochastic_rates",
]  # fmt: skip
