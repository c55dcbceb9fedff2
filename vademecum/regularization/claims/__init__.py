"""What the course claims of initialisation, normalisation and regularisation."""

from vademecum.regularization.claims import (
    batches,
    connections,
    augmented,
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
    shifts,
    self_supervision,
    shrinkage,
    stopping,
    symmetries,
)

__all__ = [
    "initialisation", "scaled_draws", "residual", "connections",
    "decay", "decaying_steps", "shrinkage", "constraints", "stopping", "noise", "batches",
    "shifts", "lengths", "symmetries", "scarce_labels", "ensembles", "dropout",
    "dropout_averages", "distillation",
    "decay", "decaying_steps", "shrinkage", "constraints", "stopping", "noise", "augmented",
    "self_supervision",
]  # fmt: skip
