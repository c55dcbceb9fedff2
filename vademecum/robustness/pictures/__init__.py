"""Pictures of this room: an image under attack, accuracy against radius, balls, a sandwich."""

from vademecum.robustness.pictures.attacked import image_under_attack
from vademecum.robustness.pictures.balls import certified_and_attacked_balls
from vademecum.robustness.pictures.sandwiches import lipschitz_sandwich
from vademecum.robustness.pictures.surviving import robust_accuracy_curves

__all__ = [
    "image_under_attack",
    "certified_and_attacked_balls",
    "robust_accuracy_curves",
    "lipschitz_sandwich",
]
