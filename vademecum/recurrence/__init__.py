"""Networks that read sequences: recurrent and gated cells, linear recurrences, encoder and decoder.

A *recurrent* network carries a state through time and applies one map at every step. Whether it
remembers is decided by products of Jacobians, which fade or explode; *gates* and *linear*
recurrences with eigenvalues near the unit circle are the two ways out, and the second can be
computed for all steps at once, by a *scan*.
"""

from vademecum.recurrence.linear_scan import scan

__all__ = [
    # linear recurrences
    "scan",
]
