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
    hessian_bounds,
    lipschitz,
    nesterov,
    noise_balls,
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
    "stochastic_steps", "noise_balls", "step_schedules", "stochastic_rates", "heavy_ball",
    "nesterov", "averaging", "variance_reduction", "sign_descent", "hessian_bounds",
]  # fmt: skip
