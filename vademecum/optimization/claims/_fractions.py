"""Gradients of linear units on integer data, in fractions."""

from collections.abc import Sequence
from fractions import Fraction

from torch import Tensor, nn

__all__ = [
    "Vector", "apart", "exactly", "half_square", "less", "line", "mean", "slopes", "square",
]  # fmt: skip

Vector = list[Fraction]


def half_square(z: Tensor, y: Tensor) -> Tensor:
    """The mean of half the squared errors, one output each."""
    return (z - y).square().sum() / (2 * len(z))


def line(theta: Tensor) -> nn.Linear:
    """A linear unit without intercept, with these weights."""
    model = nn.Linear(len(theta), 1, bias=False)
    model.weight.data = theta[None].clone()
    return model


def exactly(x: Tensor) -> Vector:
    """The entries as fractions."""
    return [Fraction(v) for v in x.tolist()]


def slopes(x: Tensor, y: Tensor, theta: Tensor) -> list[Vector]:
    """The gradients of half squared errors by hand: (x theta - y) x."""
    rows, targets, at = x.tolist(), y.tolist(), exactly(theta)
    found = []
    for row, t in zip(rows, targets, strict=True):
        row = [Fraction(v) for v in row]
        r = sum(a * b for a, b in zip(row, at, strict=True)) - Fraction(t)
        found.append([r * v for v in row])
    return found


def mean(vectors: Sequence[Vector], divisor: int = 0) -> Vector:
    """The sum over the divisor, by default over their number."""
    return [sum(column, Fraction(0)) / (divisor or len(vectors)) for column in zip(*vectors)]  # noqa: B905


def square(v: Vector) -> Fraction:
    """The squared norm."""
    return sum((c * c for c in v), Fraction(0))


def less(u: Vector, v: Vector) -> Vector:
    """The difference."""
    return [a - b for a, b in zip(u, v, strict=True)]


def apart(u: Vector, v: Vector) -> int:
    """In how many entries two vectors differ."""
    return sum(a != b for a, b in zip(u, v, strict=True))
