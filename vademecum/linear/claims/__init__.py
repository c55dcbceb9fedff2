"""What the course claims of linear models."""

from vademecum.linear.claims import (
    autoencoder,
    cross_entropy,
    deep_linear,
    exponential_family,
    least_squares,
    limits,
    logistic,
    maps,
    modes,
    online,
    penalties,
    softmax,
    whitening,
)

__all__ = [
    "maps", "least_squares", "limits", "whitening", "online", "penalties", "logistic", "softmax",
    "cross_entropy", "exponential_family", "autoencoder", "deep_linear", "modes",
]  # fmt: skip
