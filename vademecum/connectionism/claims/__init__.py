"""What the course claims of threshold units, perceptrons and associative memories."""

from vademecum.connectionism.claims import (
    cover,
    delta_rule,
    dense_hopfield,
    hopfield,
    hopfield_capacity,
    hopfield_dynamics,
    machines,
    margin,
    novikov,
    perceptron,
    sparse,
    threshold,
    willshaw,
)

__all__ = [
    "cover", "delta_rule", "dense_hopfield", "hopfield", "hopfield_capacity", "hopfield_dynamics",
    "machines", "margin", "novikov", "perceptron", "sparse", "threshold", "willshaw",
]  # fmt: skip
