"""Classical models: laws up to a constant, exchangeable data, and data as products."""

from vademecum.generative.claims.classical_models import (
    exchangeable_data,
    local_weights,
    matrix_factors,
    nonlinear_components,
    nonnegative_factors,
    unnormalised_laws,
)

__all__ = [
    "unnormalised_laws",
    "exchangeable_data",
    "matrix_factors",
    "nonnegative_factors",
    "nonlinear_components",
    "local_weights",
]
