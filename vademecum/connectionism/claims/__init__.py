"""What the course claims of threshold units, perceptrons and associative memories."""

from vademecum.connectionism.claims import (
    cover,
    delta_rule,
    dense_hopfield,
    descent,
    dual,
    hopfield,
    hopfield_capacity,
    hopfield_dynamics,
    machines,
    margin,
    neurons,
    novikov,
    perceptron,
    perceptron_capacity,
    sparse,
    threshold,
    willshaw,
)

__all__ = [
    "neurons", "machines", "threshold", "perceptron", "descent", "dual", "novikov", "margin",
    "cover", "perceptron_capacity", "delta_rule", "sparse", "willshaw", "hopfield",
    "hopfield_dynamics", "hopfield_capacity", "dense_hopfield",
]  # fmt: skip
