"""What the course claims of derivatives and their computation."""

from vademecum.gradients.claims import (
    backpropagation,
    contractions,
    convolutions,
    engine,
    forms,
    jacobians,
    layouts,
    matrix_rules,
    subgradients,
    vector_rules,
)

__all__ = [
    "layouts", "jacobians", "vector_rules", "forms", "matrix_rules", "contractions",
    "subgradients", "backpropagation", "engine", "convolutions",
]  # fmt: skip
