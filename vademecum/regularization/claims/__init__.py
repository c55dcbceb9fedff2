"""What the course claims of initialisation, normalisation and regularisation."""

from vademecum.regularization.claims import (
    batches,
    constraints,
    decay,
    decaying_steps,
    distillation,
    dropout,
    dropout_averages,
    ensembles,
    lengths,
    noise,
    scarce_labels,
    shifts,
    shrinkage,
    stopping,
    symmetries,
)

__all__ = [
    "decay", "decaying_steps", "shrinkage", "constraints", "stopping", "noise", "batches",
    "shifts", "lengths", "symmetries", "scarce_labels", "ensembles", "dropout",
    "dropout_averages", "distillation",
]  # fmt: skip
from vademecum.regularization.claims import connections, initialisation, residual, scaled_draws

__all__ = ["initialisation", "scaled_draws", "residual", "connections"]
