"""What the course claims of robustness."""

from vademecum.robustness.claims import (
    ascents,
    bounded_attacks,
    boxes,
    close_to_boundaries,
    gaussian_classes,
    hidden_gradients,
    input_gradients,
    iterated_ascents,
    linear_radii,
    linear_steps,
    lipschitz_products,
    nearest_boundaries,
    points_of_balls,
    robust_objectives,
    sensitivity,
    smoothed_votes,
    threat_sets,
    transferred,
)

__all__ = [
    "threat_sets", "points_of_balls", "ascents", "iterated_ascents", "nearest_boundaries",
    "linear_steps",
    "linear_radii", "bounded_attacks", "robust_objectives", "gaussian_classes", "sensitivity",
    "smoothed_votes", "boxes", "lipschitz_products",
    "close_to_boundaries", "hidden_gradients", "input_gradients", "transferred",
]  # fmt: skip
