"""Piecewise-linear networks as programs of exact steps, which the room's instruments run."""

from vademecum.approximation.piecewise._affine_rules import AFFINE
from vademecum.approximation.piecewise._maps import Affine, Kinks, Largest, PiecewiseMap
from vademecum.approximation.piecewise._program import Program, Step, on_piece
from vademecum.approximation.piecewise._reader import read_program

__all__ = [
    "AFFINE",
    "Affine",
    "Kinks",
    "Largest",
    "PiecewiseMap",
    "Program",
    "Step",
    "on_piece",
    "read_program",
]
