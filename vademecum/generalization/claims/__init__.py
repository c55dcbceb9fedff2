"""What the course claims of generalisation and of the landscape of the loss."""

from vademecum.generalization.claims import (
    capacity,
    critical,
    descent,
    memorising,
    shattering,
    stochastic,
    uniform,
)

__all__ = [
    "uniform",
    "shattering",
    "capacity",
    "stochastic",
    "descent", "memorising", "critical",
]  # fmt: skip
