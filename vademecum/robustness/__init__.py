"""Attacks that do not cheat, and certificates that hold for the network that runs.

An *attack* looks for a small change of an input that changes the answer; whether it finds one says
nothing of those that it did not try. A *certificate* proves that there is none within a radius.
What is true of a network lies between the two: certified at most attacked at most clean. For
linear models all three are formulas, and every method here is measured against them.
"""

from vademecum.robustness.accuracy_curves import (
    RobustAccuracy,
    draw_robust_accuracy,
    robust_accuracy,
)
from vademecum.robustness.attacks import (
    Attack,
    apgd,
    auto_attack,
    deepfool,
    fgsm,
    pgd,
    square,
)
from vademecum.robustness.bounds import Bounds, crown_bounds, interval_bounds
from vademecum.robustness.certified_share import CertifiedAccuracy, certified_accuracy
from vademecum.robustness.gradient_directions import GradientAlignment, gradient_alignment
from vademecum.robustness.jacobian_norms import (
    JacobianNorms,
    jacobian_spectral_norm,
    spectral_regularizer,
)
from vademecum.robustness.linear_margins import linear_radius
from vademecum.robustness.lipschitz_sandwich import Lipschitz, lipschitz
from vademecum.robustness.margins import MarginDetector, margin_detector
from vademecum.robustness.masking import Masking, MaskingTest, gradient_masking
from vademecum.robustness.matrix_norms import operator_norm
from vademecum.robustness.radii_by_bisection import MinimalRadius, minimal_radius
from vademecum.robustness.relative_robustness import (
    AverageRobustness,
    average_robustness,
)
from vademecum.robustness.robust_training import adversarial_loss
from vademecum.robustness.smoothing import Smoothed, randomized_smoothing
from vademecum.robustness.transfer import TransferMatrix, transfer_matrix
from vademecum.robustness.uniform_draws import sample_ball

__all__ = [
    # attacks
    "Attack", "apgd", "auto_attack", "deepfool", "fgsm", "pgd", "sample_ball", "square",
    # robust training
    "adversarial_loss", "spectral_regularizer",
    # sensitivity
    "JacobianNorms", "jacobian_spectral_norm", "linear_radius", "operator_norm",
    # certificates by bounds
    "Bounds", "CertifiedAccuracy", "Lipschitz", "certified_accuracy", "crown_bounds",
    "interval_bounds", "lipschitz",
    # certificates by noise
    "Smoothed", "randomized_smoothing",
    # measuring
    "AverageRobustness", "MinimalRadius", "RobustAccuracy", "TransferMatrix",
    "average_robustness", "draw_robust_accuracy", "minimal_radius", "robust_accuracy",
    "transfer_matrix",
    # gradients that mislead, and those that do not
    "GradientAlignment", "Masking", "MaskingTest", "gradient_alignment", "gradient_masking",
    # telling attacked inputs
    "MarginDetector", "margin_detector",
]  # fmt: skip
