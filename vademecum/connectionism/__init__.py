"""Threshold units, perceptrons and associative memories.

A *perceptron* learns to separate two classes by correcting one mistake at a time, and Novikov's
theorem bounds how many it can make: the wider the gap between the classes, the fewer. *Cover*
counted which labellings a single unit can realise at all. *Willshaw* and *Hopfield* networks
remember: shown a damaged pattern, they fall back to the one they stored, as long as they were not
asked to store too many.
"""

from vademecum.connectionism.binary_patterns import sparse_capacity_bound, sparse_patterns
from vademecum.connectionism.convex_hulls import NearestPoint, nearest_point
from vademecum.connectionism.cover import cover_count, separable_probability
from vademecum.connectionism.error_signals import delta_rule, pdp_update
from vademecum.connectionism.hopfield import (
    CapacityCurve,
    DenseHopfield,
    HopfieldFlips,
    HopfieldNetwork,
    Retrieval,
    capacity_curve,
    draw_capacity,
    draw_hopfield_flips,
    hopfield_capacity,
    hopfield_flips,
    mean_field_overlap,
    overlap,
)
from vademecum.connectionism.kernel_perceptron import KernelPerceptron
from vademecum.connectionism.labellings import count_dichotomies, dichotomies
from vademecum.connectionism.margins import augment, margin, novikov_bound, signed_distance
from vademecum.connectionism.max_margin import MaxMarginClassifier
from vademecum.connectionism.mcculloch_pitts import (
    McCullochPittsNeuron,
    NormalForm,
    threshold_dnf,
)
from vademecum.connectionism.mistake_path import (
    PerceptronPath,
    perceptron_loss,
    perceptron_path,
)
from vademecum.connectionism.perceptron import Perceptron
from vademecum.connectionism.separability import Separability, separable
from vademecum.connectionism.turing import TuringMachine
from vademecum.connectionism.willshaw import WillshawMemory, willshaw_information

__all__ = [
    # logic
    "McCullochPittsNeuron", "NormalForm", "TuringMachine", "threshold_dnf",
    # perceptrons
    "KernelPerceptron", "MaxMarginClassifier", "Perceptron",
    "PerceptronPath", "perceptron_loss", "perceptron_path",
    "delta_rule", "pdp_update",
    # separability and margins
    "NearestPoint", "Separability", "augment", "margin", "nearest_point", "novikov_bound",
    "separable", "signed_distance",
    "count_dichotomies", "cover_count", "dichotomies", "separable_probability",
    # associative memories
    "WillshawMemory", "sparse_capacity_bound", "sparse_patterns", "willshaw_information",
    "DenseHopfield", "HopfieldNetwork", "Retrieval", "overlap",
    "HopfieldFlips", "draw_hopfield_flips", "hopfield_flips",
    "CapacityCurve", "capacity_curve", "draw_capacity", "hopfield_capacity", "mean_field_overlap",
]  # fmt: skip
