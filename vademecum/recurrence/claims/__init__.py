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
]  # fmt: skip
