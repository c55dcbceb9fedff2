r"""Hopfield networks: memories that complete what they are shown by descending an energy.

`HopfieldNetwork` has states of $\pm 1$ and couplings from one of several storage rules,
`DenseHopfield` real states and attention for a step. Both have the same interface: `step` is one
step of the dynamics, `retrieve` repeats it to the end and tells how that went, and `forward` gives
only the states there.
"""

from vademecum.connectionism.hopfield.capacity import (
    CapacityCurve,
    capacity_curve,
    draw_capacity,
    hopfield_capacity,
    mean_field_overlap,
)
from vademecum.connectionism.hopfield.dense import DenseHopfield
from vademecum.connectionism.hopfield.flips import (
    HopfieldFlips,
    draw_hopfield_flips,
    hopfield_flips,
)
from vademecum.connectionism.hopfield.network import HopfieldNetwork
from vademecum.connectionism.hopfield.retrieval import Retrieval, overlap

__all__ = [
    "DenseHopfield", "HopfieldNetwork", "Retrieval", "overlap",
    "HopfieldFlips", "draw_hopfield_flips", "hopfield_flips",
    "CapacityCurve", "capacity_curve", "draw_capacity", "hopfield_capacity", "mean_field_overlap",
]  # fmt: skip
