"""What the course claims of posteriors and of the chains that sample them."""

from vademecum.bayes.claims import (
    hamiltonian,
    langevin,
    metropolis,
    posteriors,
    predictions,
    trajectories,
)

__all__ = [
    "posteriors", "predictions", "metropolis", "hamiltonian", "trajectories", "langevin",
]  # fmt: skip
