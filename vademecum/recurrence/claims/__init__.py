"""What the course claims of recurrent networks."""

from vademecum.recurrence.claims import (
    conditionals,
    eigenvalues,
    fed_back,
    linear_states,
    readouts,
    scans,
)
from vademecum.recurrence.claims import codes, conditionals, fed_back, modes

__all__ = [
    "linear_states", "eigenvalues", "scans", "readouts", "conditionals", "fed_back",
    cells,
    conditionals,
    directions,
    fed_back,
    gating,
    lags,
    states,
    unrolled,
)

__all__ = [
    "states", "unrolled", "directions", "gating", "cells", "lags", "conditionals", "fed_back",
    "conditionals", "fed_back", "modes", "codes",
]  # fmt: skip
