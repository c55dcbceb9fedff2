"""What the course claims of derivatives and their computation."""

from vademecum.gradients.claims import (
    backpropagation,
    contractions,
    convolutions,
    cost,
    engine,
    forms,
    jacobians,
    layouts,
    matrix_rules,
    rectifiers,
    subgradients,
    three_passes,
    vector_rules,
)

__all__ = [
    "layouts", "jacobians", "vector_rules", "forms", "matrix_rules", "contractions", "rectifiers",
    "subgradients", "backpropagation", "three_passes", "engine", "cost", "convolutions",
]  # fmt: skip
