"""What the course claims of linear models."""

from vademecum.linear.claims import (
    autoencoder,
    coordinates,
    critical,
    cross_entropy,
    deep_linear,
    exponential_family,
    least_squares,
    limits,
    logistic,
    low_rank,
    maps,
    modes,
    online,
    penalties,
    softmax,
    whitening,
)

__all__ = [
    "maps", "least_squares", "limits", "whitening", "online", "penalties", "logistic", "softmax",
    "cross_entropy", "exponential_family", "autoencoder", "low_rank", "deep_linear",
    "coordinates", "modes", "critical",
]  # fmt: skip
