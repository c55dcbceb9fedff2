"""Networks whose weights are drawn anew in each pass, and what can be certified of their risk."""

from vademecum.generalization.random_weights.certificate_results import (
    PacBayesCertificate,
    RiskBounds,
    draw_certificate,
)
from vademecum.generalization.random_weights.trained_bounds import pac_bayes_certificate
from vademecum.generalization.random_weights.weight_gaussians import StochasticNetwork

__all__ = [
    "PacBayesCertificate", "RiskBounds", "StochasticNetwork", "draw_certificate",
    "pac_bayes_certificate",
]  # fmt: skip
