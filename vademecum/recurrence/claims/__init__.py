"""What the course claims of recurrent networks."""

from vademecum.recurrence.claims import (
    cells,
    codes,
    conditionals,
    directions,
    eigenvalues,
    fed_back,
    gating,
    lags,
    linear_states,
    modes,
    readouts,
    scans,
    states,
    unrolled,
)

__all__ = [
    "linear_states", "eigenvalues", "scans", "readouts", "conditionals", "fed_back", "states",
    "unrolled", "directions", "gating", "cells", "lags", "modes", "codes",
    backwards,
    conditionals,
    fading,
    fed_back,
    jacobians,
    long_sums,
)

__all__ = [
    "jacobians", "backwards", "long_sums", "fading", "conditionals", "fed_back",
]  # fmt: skip
