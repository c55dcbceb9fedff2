"""What the course claims of initialisation, normalisation and regularisation."""

from vademecum.regularization.claims import (
    constraints,
    decay,
    decaying_steps,
    noise,
    shrinkage,
    stopping,
)

__all__ = [
    "decay", "decaying_steps", "shrinkage", "constraints", "stopping", "noise",
]  # fmt: skip
from vademecum.regularization.claims import batches, lengths, scarce_labels, shifts, symmetries

__all__ = ["batches", "shifts", "lengths", "symmetries", "scarce_labels"]
from vademecum.regularization.claims import distillation, dropout, dropout_averages, ensembles

__all__ = ["ensembles", "dropout", "dropout_averages", "distillation"]
