"""What the course claims of initialisation, normalisation and regularisation."""

from vademecum.regularization.claims import (
    augmented,
    batches,
    connections,
    constraints,
    decay,
    decaying_steps,
    distillation,
    dropout,
    dropout_averages,
    ensembles,
    initialisation,
    lengths,
    noise,
    residual,
    scaled_draws,
    scarce_labels,
    self_supervision,
    shifts,
    shrinkage,
    stopping,
    symmetries,
)

__all__ = [
    "initialisation", "scaled_draws", "residual", "connections", "decay", "decaying_steps",
    "shrinkage", "constraints", "stopping", "noise", "batches", "shifts", "lengths", "symmetries",
    "scarce_labels", "ensembles", "dropout", "dropout_averages", "distillation", "augmented",
    "self_supervision",
]  # fmt: skip
