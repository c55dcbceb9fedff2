"""Calls of what draws partitions and features."""

from vademecum import generative

CALLS = {
    "sample_crp": lambda g: generative.sample_crp(12, 3.0, draws=5, generator=g),
    "sample_ibp": lambda g: generative.sample_ibp(6, 4.0, draws=5, generator=g),
}
