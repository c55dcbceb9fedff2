"""Recurrent cells number by number, in plain Python: what the modules are compared with.

Weights are lists of lists under the names that the modules have for them. Complex numbers go
through, so that the imaginary part of a result is a derivative.
"""

import cmath
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["ACTIVATIONS", "affine", "elman", "gru", "listed", "lstm", "sigma", "slope_of", "tanh"]

Vector = list[Any]
Weights = dict[str, Any]
_TINY = 1e-30  # of a complex step: its square is lost, and nothing else


def tanh(a: Any) -> Any:
    """The hyperbolic tangent of a real or complex number."""
    return cmath.tanh(a) if isinstance(a, complex) else math.tanh(a)


def sigma(a: Any) -> Any:
    """The logistic function of a real or complex number; large ones do not overflow."""
    if isinstance(a, complex):
        return 1 / (1 + cmath.exp(-a))
    return 1 / (1 + math.exp(-a)) if a > 0 else math.exp(max(a, -700.0)) / (1 + math.exp(a))


def softmax(a: Vector) -> Vector:
    """Exponentials that sum to one."""
    powers = [cmath.exp(v) if isinstance(v, complex) else math.exp(v) for v in a]
    return [p / sum(powers) for p in powers]


def affine(rows: list[Vector], v: Vector, constant: Vector | None = None) -> Vector:
    """A matrix times a vector, plus a constant."""
    sums = [sum(w * x for w, x in zip(row, v, strict=True)) for row in rows]
    return sums if constant is None else [s + b for s, b in zip(sums, constant, strict=True)]


ACTIVATIONS: dict[str, Callable[[Vector], Vector]] = {
    "identity": lambda a: a,
    "relu": lambda a: [max(v, 0.0) for v in a],
    "sigmoid": lambda a: [sigma(v) for v in a],
    "softmax": softmax,
    "tanh": lambda a: [tanh(v) for v in a],
}
"""What activations make of the sums of all units."""


def listed(net: nn.Module, along: dict[str, Tensor] | None = None) -> Weights:
    """The weights of a module as lists, moved a tiny imaginary step along a direction."""
    found = {name: p.detach().double() for name, p in net.named_parameters()}
    if along is not None:
        found = {name: torch.complex(p, _TINY * along[name]) for name, p in found.items()}
    return {name: p.tolist() for name, p in found.items()}


def slope_of(value: Any) -> float:
    """The derivative along the direction of `listed`, from a value that was computed with it."""
    return value.imag / _TINY


def elman(
    w: Weights, x: list[Vector], z: Vector, phi: str = "tanh", psi: str = "identity"
) -> tuple[list[Vector], list[Vector]]:
    """States and outputs of a simple network, for one sequence."""
    states, outputs = [], []
    for now in x:
        a = affine(w["V"], now, w.get("b"))
        z = ACTIVATIONS[phi]([p + q for p, q in zip(a, affine(w["U"], z), strict=True)])
        states.append(z)
        outputs.append(ACTIVATIONS[psi](affine(w["W"], z, w.get("c")) if "W" in w else z))
    return states, outputs


def lstm(
    w: Weights,
    x: list[Vector],
    h: Vector,
    c: Vector,
    *,
    shows: str = "tanh(Uc)",
    forgets: str = "cell",
) -> list[dict[str, Vector]]:
    """Gates, candidate, cell, exposed state and output of the sheets' LSTM, step by step."""
    steps = []
    blank: Vector = [None] * 4
    biases = w.get("bias", blank)
    for now in x:
        both = [*now, *h]
        f, i, g, o = (affine(w[block], both, b) for block, b in zip("FGVH", biases, strict=True))
        f, i, o, g = *([sigma(v) for v in gate] for gate in (f, i, o)), [tanh(v) for v in g]
        if forgets == "cell":
            c = [f[j] * c[j] + i[j] * g[j] for j in range(len(c))]
        else:
            c = [i[j] * c[j] + f[j] * g[j] for j in range(len(c))]
        mixed = affine(w["U"], c) if "U" in w and shows != "tanh(c)" else c
        h = [o[j] * (mixed[j] if shows == "Uc" else tanh(mixed[j])) for j in range(len(c))]
        y = affine(w["W"], h) if "W" in w else h
        steps.append({"i": i, "f": f, "o": o, "g": g, "c": c, "h": h, "y": y})
    return steps


def gru(
    w: Weights, x: list[Vector], z: Vector, *, reset: str = "before", update: str = "writes"
) -> list[dict[str, Vector]]:
    """Gates, candidate, state and output of the sheets' GRU, step by step.

    The update gate is the share that is written, or with `update="keeps"` the share that is kept.
    """
    steps, d = [], len(x[0])
    blank: Vector = [None] * 3
    biases = w.get("bias", blank)
    for now in x:
        u, r = (
            [sigma(v) for v in affine(w[block], [*now, *z], b)]
            for block, b in zip("GH", biases, strict=False)
        )
        if reset == "before":
            seen = [p * q for p, q in zip(r, z, strict=True)]
            a = affine(w["V"], [*now, *seen], biases[2])
        else:
            inner = affine([row[d:] for row in w["V"]], z, w.get("reset_bias"))
            outer = affine([row[:d] for row in w["V"]], now, biases[2])
            a = [p + s * q for p, s, q in zip(outer, r, inner, strict=True)]
        n = [tanh(v) for v in a]
        share = u if update == "writes" else [1 - v for v in u]
        z = [(1 - s) * old + s * new for s, old, new in zip(share, z, n, strict=True)]
        y = affine(w["W"], z) if "W" in w else z
        steps.append({"u": u, "r": r, "n": n, "h": z, "y": y})
    return steps
