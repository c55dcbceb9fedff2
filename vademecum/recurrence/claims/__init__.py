"""What the course claims of recurrent networks."""

from vademecum.recurrence.claims import (
    backwards,
    cells,
    codes,
    conditionals,
    directions,
    eigenvalues,
    fading,
    fed_back,
    gating,
    jacobians,
    lags,
    linear_states,
    long_sums,
    modes,
    readouts,
    scans,
    states,
    unrolled,
)

__all__ = [
    "states", "unrolled", "jacobians", "backwards", "long_sums", "fading", "lags", "directions",
    "gating", "cells", "linear_states", "eigenvalues", "scans", "readouts", "conditionals",
    "fed_back", "modes", "codes",
]  # fmt: skip
