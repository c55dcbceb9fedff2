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
    "linear_states", "eigenvalues", "scans", "readouts", "conditionals", "fed_back", "states",
    "unrolled", "directions", "gating", "cells", "lags", "modes", "codes", "jacobians",
    "backwards", "long_sums", "fading",
]  # fmt: skip
