"""What the course claims of posteriors and of the chains that sample them."""

from vademecum.bayes.claims import hamiltonian, langevin, metropolis, trajectories

__all__ = [
    "metropolis", "hamiltonian", "trajectories", "langevin",
]  # fmt: skip
