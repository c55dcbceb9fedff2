"""What the course claims of descent methods."""

from vademecum.optimization.claims import (
    averaging,
    conditioning,
    convexity,
    convexity_ladder,
    curved_steps,
    descent_rates,
    gradient_noise,
    heavy_ball,
    lipschitz,
    noise_balls,
    nesterov,
    polyak_lojasiewicz,
    sign_descent,
    smoothness,
    steepest,
    step_schedules,
    steps,
    stochastic_gradients,
    stochastic_rates,
    stochastic_steps,
    strong_convexity,
    tangent_kernels,
    taylor,
    upper_bounds,
    variance_reduction,
)

__all__ = [
    "steepest", "steps", "taylor", "curved_steps", "lipschitz", "smoothness", "upper_bounds",
    "convexity", "convexity_ladder", "strong_convexity", "conditioning", "descent_rates",
    "polyak_lojasiewicz", "tangent_kernels", "stochastic_gradients", "gradient_noise",
    "stochastic_steps", "noise_balls", "step_schedules", "stochastic_rates",
    "polyak_lojasiewicz", "tangent_kernels", "heavy_ball", "nesterov",
    "stochastic_gradients", "gradient_noise", "averaging", "variance_reduction", "sign_descent",
]  # fmt: skip
