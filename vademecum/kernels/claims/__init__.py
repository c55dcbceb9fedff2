"""What the course claims of kernels, Gaussian processes and networks of great width."""

from vademecum.kernels.claims import (
    deep_limits,
    function_spaces,
    gradient_steps,
    lazy_regime,
    linear_training,
    linearised,
    plain_kernels,
    process_regression,
    processes,
    rectifier_kernels,
    ridge,
    ridgeless_regression,
    tangent_limits,
    tangents,
    wide_layers,
)

__all__ = [
    "plain_kernels", "rectifier_kernels", "function_spaces", "processes",
    "process_regression", "ridge", "ridgeless_regression",
    "wide_layers", "deep_limits", "tangents", "gradient_steps",
    "linearised", "linear_training", "tangent_limits", "lazy_regime",
]  # fmt: skip
