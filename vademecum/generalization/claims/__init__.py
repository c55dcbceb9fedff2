"""What the course claims of generalisation and of the landscape of the loss."""

from vademecum.generalization.claims import (
    capacity,
    connections,
    critical,
    descent,
    landscape,
    memorising,
    posteriors,
    rademacher,
    shattering,
    stochastic,
    uniform,
)

__all__ = [
    "uniform", "capacity", "shattering", "rademacher", "posteriors", "stochastic", "descent",
    "memorising", "critical", "landscape", "connections",
]  # fmt: skip
